"""ERM and group DRO on the same images, by diagvib and by the training code of others, all with the
same network: accuracy after the last epoch, CPU time, and how one step's weights differ.
docs/library.md says how.

    pip install spuco wilds
    git clone https://github.com/p-lambda/wilds          # into one folder with the next two
    git clone https://github.com/YyzHarry/SubpopBench
    git clone https://github.com/facebookresearch/DomainBed
    python benchmarks/field_code.py --checkouts .
"""

import os
import random
import subprocess
from collections.abc import Callable, Sequence
from copy import deepcopy
from importlib.metadata import version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import pandas as pd
import torch
import typer
from field_training import (
    BATCH,
    BINDING,
    CHECKOUTS,
    CODE,
    COUNTS,
    CUE,
    RATE,
    SIZE,
    STUDY,
    WithAttribute,
    configuration,
    domainbed_algorithm,
    images,
    network,
    parts_of_groups,
    prepare,
    subpopbench_algorithm,
)
from result_file import print_rows, save_result
from torch import nn

import diagvib
from diagvib import stages
from diagvib.methods.mmd import Mmd
from diagvib.methods.registry import make_baseline
from diagvib.models.network import Network
from diagvib.settings.baselines import complete
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout, Run
from diagvib.training.batches import Annotations, Batches
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer

METHODS = ("erm", "group_dro")


def step_differences(layout: Layout) -> list[dict]:
    """How far weights are from ours after one step of SGD from the same weights on the same batch,
    and how far the step moves ours; the largest over all weights."""
    data = diagvib.load(STUDY, BINDING, "train", root=layout.root, classes="sample")
    groups = parts_of_groups(data)
    index = torch.cat([group[: BATCH // len(groups)] for group in groups])
    labels, cues = data.targets[index], WithAttribute(data).attributes[index]
    annotations = Annotations(cues[:, None], cue_classes={CUE: tuple(map(str, cues.unique()))})
    pixels = torch.stack([data[int(i)][0] for i in index]).permute(0, 2, 3, 1).contiguous()
    batches = Batches(pixels, labels, torch.device("cpu"), annotations=annotations)
    inputs, rows = batches.batch(torch.arange(BATCH)).inputs, []
    for method in METHODS:
        before, ours = our_step(method, batches, data.n_classes)
        theirs = {"SubpopBench": subpopbench_algorithm(method, before, data.n_classes)}
        batch = {"SubpopBench": ((None, inputs, labels, cues), 0)}
        if method == "erm":  # its group DRO shows a network one group at a time
            theirs["DomainBed"] = domainbed_algorithm(method, before, data.n_classes)
            batch["DomainBed"] = ([(inputs, labels)],)
        for code, algorithm in theirs.items():
            algorithm.optimizer = torch.optim.SGD(algorithm.network.parameters(), RATE)
            algorithm.update(*batch[code])
            net = Network(algorithm.featurizer, algorithm.classifier)
            row = {"code": code, "method": method, "difference": largest(net, ours)}
            rows.append({**row, "step": largest(before, ours)})
    return rows


def our_step(method: str, batches: Batches, classes: int) -> tuple[Network, Network]:
    """A network before and after an epoch of our trainer that is one step."""
    options = {"balanced": False} if method == "group_dro" else {}
    settings = {
        "method": {"name": method, **options},
        "model": "small_cnn",
        "batch_size": BATCH,
        "optimiser": {"name": "sgd", "lr": RATE, "momentum": 0},
        "selection": "last",
        "origin": "benchmarks/field_code.py",
    }
    baseline = make_baseline(complete(settings), classes, SIZE, 0)
    before = deepcopy(baseline.model)
    protocol = Protocol(max_epochs=1, patience=None, seed=0, precision="fp32")
    Trainer(baseline, batches, batches, Run(method, STUDY, BINDING, 0), protocol).fit()
    return before, baseline.model


def largest(net: nn.Module, reference: nn.Module) -> float:
    """The largest difference between two networks' weights."""
    pairs = zip(net.parameters(), reference.parameters(), strict=True)
    return max((weights - others).abs().max().item() for weights, others in pairs)


def mmd_errors(layout: Layout, draws: int = 20) -> list[dict]:
    """By how much the gradient of the MMD in single precision differs from that in double precision:
    of all features of a batch of two domains, relative to its length. Features: of new networks, in
    training; domains: two hues."""
    data, errors = images(layout, "train"), []
    cues = WithAttribute(data).attributes
    for seed in range(draws):
        torch.manual_seed(seed)
        halves = [torch.where(cues == cue)[0] for cue in (0, 1)]
        index = [half[torch.randperm(len(half))[: BATCH // 2]] for half in halves]
        net = network(data.n_classes)
        with torch.no_grad():
            features = net.body(torch.stack([data[int(i)][0] for i in torch.cat(index)]))
        theirs = domainbed_algorithm("mmd", net, data.n_classes).mmd
        sets = torch.eye(2).repeat_interleave(BATCH // 2, 1)
        for code, mmd in {
            "DomainBed": lambda x, mmd=theirs: mmd(*x.chunk(2)),
            "diagvib": lambda x, sets=sets: Mmd.distances(None, x, sets.to(x.dtype))[0],
        }.items():
            single, double = gradient(mmd, features), gradient(mmd, features.double())
            error = ((single - double).norm() / double.norm()).item()
            errors.append({"code": code, "seed": seed, "relative_error": error})
    return errors


def gradient(of: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    values = values.clone().requires_grad_()
    return torch.autograd.grad(of(values), values)[0]


def cpu_seconds() -> float:
    """Of this process and the finished workers of loaders."""
    return sum(os.times()[:4])


def measured(layout: Layout, code: str, method: str, seed: int, epochs: int) -> dict:
    start = cpu_seconds()
    labels = CODE[code](layout, method, seed, epochs)
    seconds = cpu_seconds() - start
    test = diagvib.load(STUDY, BINDING, "test", root=layout.root)
    metrics = test.evaluate([test.classes.index(name) for name in labels])
    return {
        "code": code,
        "method": method,
        "seed": seed,
        "id_accuracy": metrics["id_accuracy"],
        "ood_accuracy": metrics["ood_accuracy"],
        "worst_cell": metrics["worst_cell"],
        "cpu_seconds": seconds,
    }


def compared(layout: Layout, seeds: int, epochs: int, code: Sequence[str]) -> list[dict]:
    """Each run's accuracies and CPU seconds."""
    order = [(name, method, seed) for seed in range(seeds) for method in METHODS for name in code]
    random.Random(0).shuffle(order)  # other work on the machine changes
    return [measured(layout, *names, epochs) for names in order]


def make_images(layout: Layout) -> None:
    config = configuration(layout, epochs=1)
    stages.prepare(layout, stage_settings(config, "prepare"), "digits")
    stages.draw(layout, stage_settings(config, "draw", STUDY), STUDY, BINDING)
    stages.render(layout, stage_settings(config, "render", STUDY), STUDY, BINDING, 1)


def commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main(
    checkouts: Annotated[
        Path, typer.Option(help=f"The folder with checkouts of {', '.join(CHECKOUTS)}.")
    ],
    seeds: int = 3,
    epochs: int = 5,
    out: Path = Path("benchmarks/results"),
) -> None:
    torch.set_num_threads(1)
    prepare(checkouts)
    with TemporaryDirectory() as folder:
        layout = Layout(folder)
        make_images(layout)
        steps, errors = step_differences(layout), mmd_errors(layout)
        print_rows(steps, code="", method="", difference=".1e", step=".1e")
        medians = pd.DataFrame(errors).groupby("code")["relative_error"].median()
        print_rows(
            [{"code": c, "mmd_gradient": e} for c, e in medians.items()],
            code="",
            mmd_gradient=".1e",
        )
        # Imports, and whatever else only the first run does, by a seed of its own: diagvib keeps runs.
        for code, method in product(CODE, METHODS):
            measured(layout, code, method, seeds, 1)
        rows = compared(layout, seeds, epochs, tuple(CODE))
    frame = pd.DataFrame(rows).groupby(["method", "code"]).agg(["mean", "std"]).drop(columns="seed")
    frame.columns = ["_".join(names) for names in frame.columns]
    summary = frame.reset_index().to_dict("records")
    print_rows(
        summary,
        method="",
        code="",
        **{name: ".1%" for name in frame.columns if "cpu" not in name},
        cpu_seconds_mean=".1f",
        cpu_seconds_std=".1f",
    )
    about = {
        "study": STUDY,
        "binding": BINDING,
        "image_size": SIZE,
        "counts": COUNTS,
        "epochs": epochs,
        "commits": {name: commit(checkouts / name) for name in CHECKOUTS},
        "spuco": version("spuco"),
    }
    save_result(
        "field-code",
        "cpu",
        rows,
        out,
        **about,
        summary=summary,
        one_step=steps,
        mmd_gradient=errors,
    )


if __name__ == "__main__":
    typer.run(main)
