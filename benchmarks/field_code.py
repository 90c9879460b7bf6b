"""ERM and group DRO on the same images, by diagvib, by WILDS' run_expt and by SpuCo, all with the
same network: accuracy after the last epoch, and CPU time. docs/library.md says how.

    pip install spuco wilds && git clone https://github.com/p-lambda/wilds
    python benchmarks/field_code.py --wilds wilds

WILDS and SpuCo run unmodified. `run_expt` knows its own datasets, models and an optimiser of older
transformers by name, and needs torch_scatter: the names lead to ours, and torch averages groups.
"""

import os
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from result_file import print_rows, save_result
from torch import nn
from torchvision.transforms import ToPILImage

import diagvib
from diagvib import stages
from diagvib.foundation.files import read_table, read_yaml, write_text
from diagvib.models.small_cnn import small_cnn
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config

STUDY, BINDING, SIZE = "fgo-20", "shape-hue", 64
BATCH, RATE, STEP_SIZE = 36, 1e-3, 0.01
COUNTS = {"train": 2160, "val": 360, "id": 900, "ood": 900}
METHODS = ("erm", "group_dro")
_BASELINE = """
{method}_here:
  model: small_cnn
  method: {method}
  optimiser: {{name: adam, lr: {rate}}}
  batch_size: {batch}
  selection: last
  origin: benchmarks/field_code.py
"""


def cpu_seconds() -> float:
    """Of this process and the finished workers of loaders."""
    return sum(os.times()[:4])


def network(classes: int) -> nn.Module:
    return small_cnn({"options": {}}, classes, SIZE)


def by_diagvib(layout: Layout, method: str, seed: int, epochs: int) -> np.ndarray:
    """Train on the images of a root; returns the predictions for its test images."""
    file = layout.root / "baselines.yaml"
    baseline = f"{method}_here"
    write_text(file, _BASELINE.format(method=method, rate=RATE, batch=BATCH))
    stages.train(
        layout,
        stage_settings(configuration(layout, epochs, seed, file), "train", STUDY, baseline),
        baseline,
        STUDY,
        BINDING,
        "cpu",
    )
    table = read_table(layout.runs(baseline, STUDY, BINDING) / "0/predictions.parquet")
    return table["prediction"].to_numpy(zero_copy_only=False)


def configuration(layout: Layout, epochs: int, seed: int = 0, baselines: Path | None = None):
    names = ["baselines=[small_cnn]"]
    if baselines:
        names = [f"baselines_from=[{baselines}]", f"baselines=[{', '.join(read_yaml(baselines))}]"]
    counts = ", ".join(f"{name}: {count}" for name, count in COUNTS.items())
    return load_config(
        None,
        [
            f"root={layout.root}",
            "sources=embedded",
            f"studies=[{STUDY}]",
            f"bindings=[{BINDING}]",
            "samples=1",
            f"counts={{{counts}}}",
            f"image_size={SIZE}",
            f"training={{max_epochs: {epochs}, seed: {seed}, precision: fp32}}",
            *names,
        ],
    )


def by_wilds(layout: Layout, method: str, seed: int, epochs: int) -> np.ndarray:
    """`run_expt` on PIL images, which its transforms take."""
    import run_expt

    dataset = diagvib.load(
        STUDY,
        BINDING,
        "all",
        root=layout.root,
        transform=ToPILImage(),
        metadata="tensor",
        classes="sample",
    )
    log = layout.root / f"wilds/{method}/{seed}"
    arguments = {
        "dataset": "iwildcam",  # a name that it knows, with Adam
        "algorithm": {"erm": "ERM", "group_dro": "groupDRO"}[method],
        "root_dir": layout.root,
        "transform": "image_base",
        "model": "resnet18",
        "optimizer": "Adam",
        "lr": RATE,
        "weight_decay": 0,
        "batch_size": BATCH,
        "n_epochs": epochs,
        "group_dro_step_size": STEP_SIZE,
        "val_metric": "acc_wg",
        "seed": seed,
        "log_dir": log,
        "evaluate_all_splits": False,
    }
    lists = {
        "target_resolution": [str(SIZE)] * 2,
        "groupby_fields": [BINDING.split("-")[1], "y"],
        "loader_kwargs": ["num_workers=0", "pin_memory=False"],
    }
    words = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    words += [part for name, values in lists.items() for part in (f"--{name}", *values)]
    run_expt.wilds = SimpleNamespace(
        **{**vars(run_expt.wilds), "get_dataset": lambda **options: dataset}
    )
    sys.argv = ["run_expt.py", *words]
    # Its logger closes the stream that it prints to.
    with redirect_stdout(open(layout.root / "console.txt", "a")):
        run_expt.main()
    torch.set_grad_enabled(True)
    path = log / f"{dataset.dataset_name}_seed:{seed}_epoch:last_model.pth"
    weights = torch.load(path, weights_only=False)["algorithm"]
    net = network(dataset.n_classes)
    net.load_state_dict(
        {
            name.removeprefix("model."): value
            for name, value in weights.items()
            if name.startswith("model.")
        }
    )
    transform = run_expt.initialize_transform(
        "image_base", SimpleNamespace(target_resolution=(SIZE, SIZE), dataset=""), dataset, False
    )
    return predictions(net, dataset.get_subset("test", transform=transform))


def prepare_wilds(examples: Path) -> None:
    """Make WILDS' examples importable, as its README says, with our network among its models."""
    import transformers

    if not hasattr(transformers, "AdamW"):
        transformers.AdamW = torch.optim.AdamW
    if not find_spec("torch_scatter"):
        sys.modules["torch_scatter"] = SimpleNamespace(scatter=_scatter)
    sys.path.insert(0, str(examples))
    from models import initializer

    def initialize_model(config, d_out, is_featurizer=False):
        net = network(d_out)
        net.needs_y = False  # which it asks of every model
        return net

    initializer.initialize_model = initialize_model


def _scatter(src, index, dim_size, reduce):
    """What WILDS takes of torch_scatter."""
    zeros = torch.zeros(dim_size, dtype=src.dtype)
    return zeros.scatter_reduce(0, index, src, reduce, include_self=False)


def by_spuco(layout: Layout, method: str, seed: int, epochs: int) -> np.ndarray:
    from spuco.datasets import GroupLabeledDatasetWrapper, WILDSDatasetWrapper
    from spuco.models import SpuCoModel
    from spuco.robust_train import ERM, GroupDRO
    from spuco.utils import set_seed

    set_seed(seed)
    train, test = (
        diagvib.load(
            STUDY,
            BINDING,
            split,
            root=layout.root,
            dtype="float32",
            metadata="tensor",
            classes="sample",
        )
        for split in ("train", "test")
    )
    data = WILDSDatasetWrapper(train, BINDING.split("-")[1])
    parts = network(train.n_classes)
    net = SpuCoModel(parts.body, parts.head.in_features, train.n_classes)
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    if method == "group_dro":
        data, train_by = GroupLabeledDatasetWrapper(data, data.group_partition), GroupDRO
    else:
        train_by = ERM
    train_by(
        model=net, trainset=data, batch_size=BATCH, optimizer=optimiser, num_epochs=epochs
    ).train()
    return predictions(net, test)


@torch.no_grad()
def predictions(net: nn.Module, test: diagvib.StudyDataset) -> np.ndarray:
    """The names of the predicted classes."""
    net.eval()
    batches = torch.utils.data.DataLoader(test, batch_size=256)
    labels = torch.cat([net(images).argmax(1) for images, *_ in batches])
    return np.array(test.classes)[labels]


CODE: dict[str, Callable[[Layout, str, int, int], np.ndarray]] = {
    "diagvib": by_diagvib,
    "WILDS": by_wilds,
    "SpuCo": by_spuco,
}


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


def compared(wilds: Path, seeds: int, epochs: int, code: Sequence[str] = tuple(CODE)) -> list[dict]:
    """Each run's accuracies and CPU seconds. wilds: a checkout."""
    prepare_wilds(wilds / "examples")
    with TemporaryDirectory() as folder:
        layout = Layout(folder)
        config = configuration(layout, epochs)
        stages.prepare(layout, stage_settings(config, "prepare"), "digits")
        stages.draw(layout, stage_settings(config, "draw", STUDY), STUDY, BINDING)
        stages.render(layout, stage_settings(config, "render", STUDY), STUDY, BINDING, 1)
        order = [
            (name, method, seed) for seed in range(seeds) for method in METHODS for name in code
        ]
        random.Random(0).shuffle(order)  # other work on the machine changes
        return [measured(layout, *names, epochs) for names in order]


def main(
    wilds: Annotated[Path, typer.Option(help="A checkout of WILDS.")],
    seeds: int = 2,
    epochs: int = 4,
    out: Path = Path("benchmarks/results"),
) -> None:
    torch.set_num_threads(1)
    rows = compared(wilds, seeds, epochs)
    frame = pd.DataFrame(rows).groupby(["method", "code"]).agg(["mean", "std"]).drop(columns="seed")
    frame.columns = ["_".join(names) for names in frame.columns]
    summary = frame.reset_index().to_dict("records")
    print_rows(
        summary,
        method="",
        code="",
        **{name: ".1%" for name in frame.columns if "cpu" not in name},
        cpu_seconds_mean=".1f",
    )
    about = {"study": STUDY, "binding": BINDING, "image_size": SIZE, "counts": COUNTS}
    save_result("field-code", "cpu", rows, out, **about, epochs=epochs, summary=summary)


if __name__ == "__main__":
    typer.run(main)
