"""A few training steps of a baseline on a few images of a study: what would fail in all its runs, and
how fast it is."""

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from diagvib.commands.hook_checks import check_facts, check_loss, check_results, unchecked
from diagvib.commands.rates import BaselineRates, PhaseRate
from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.plug_ins import out_of_memory, package_of, reason
from diagvib.images.datasets import RenderedRecipes
from diagvib.images.features import FeatureFiles
from diagvib.methods.method import Method, Phase, Sampling, Unlabelled
from diagvib.models.independence import check_independent
from diagvib.models.own import check_no_softmax
from diagvib.models.registry import make_network
from diagvib.models.weights import located
from diagvib.scenes import load_scene
from diagvib.scenes.cache import cached
from diagvib.scenes.prepared import is_prepared
from diagvib.settings.baselines import tuning_needed, with_tuned
from diagvib.settings.frozen_networks import encoder_settings
from diagvib.settings.jobs import stage_settings
from diagvib.settings.keys import ResolvedBaseline, ResolvedConfiguration
from diagvib.settings.layout import Layout, Run
from diagvib.settings.model_settings import published_folder
from diagvib.settings.photo_counts import STAND_IN_COUNTS
from diagvib.studies.binding import bind
from diagvib.studies.recipes import draw_recipes, write_recipes
from diagvib.studies.scarcity import counts_of
from diagvib.studies.study import SPLITS, load_studies
from diagvib.training.batches import Batches
from diagvib.training.doubts import noisy_selection
from diagvib.training.encode import Encoding, encode, load_network
from diagvib.training.epochs import epoch_shape
from diagvib.training.fit import make_method
from diagvib.training.job import Job
from diagvib.training.load import load, load_test
from diagvib.training.prediction import predict, predict_test
from diagvib.training.protocol import Protocol, deterministic
from diagvib.training.saliency import shares
from diagvib.training.trainer import Trainer
from diagvib.training.visualisations import SALIENCY_IMAGES, shown_images, write_visualisations

_CELLS = "split", "group", "environment"
# Images of each combination of classes in a split; further ones, but at least a batch; and at most,
# unless a batch has more.
_OF_CELL, _IMAGES, _LARGEST = 2, 64, 512
# Of a frozen network, each image takes seconds, but a step of its head nothing.
_HEAD_BATCH = 64
# Steps are repeated until they have taken so long.
_SECONDS = 0.5
# Weights, and what only a network with published weights can have.
_RANDOM = {
    "weights": None,
    "weights_file": None,
    "weights_sha256": None,
    "frozen_statistics": False,
}
_LIBRARIES = {
    *sys.stdlib_module_names,
    "diagvib",
    "torch",
    "torchvision",
    "timm",
    "numpy",
    "pandas",
}


@dataclass
class DryRun:
    """What a dry run has shown. stand_ins: whether images are made from these. sizes: images of the
    whole dataset, by study and split; rendering: images/s; steps: that were timed; problems, doubts:
    a line each. After a problem, the rest may be missing."""

    device: str
    sources: str = ""
    stand_ins: bool = False
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    rates: BaselineRates = field(default_factory=BaselineRates)
    rendering: float | None = None
    steps: int = 0
    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def dry_run(
    config: ResolvedConfiguration,
    baseline: ResolvedBaseline,
    dataset: tuple[str, str],
    device: str,
    published: bool = True,
) -> DryRun:
    """Train and test a baseline, with every hook of its method, in seconds and without a file that
    stays.

    dataset: study and binding. published: with the baseline's weights, which may be downloaded;
    otherwise, and where there are none, with random ones, which take as long.
    """
    result = DryRun(device)
    with TemporaryDirectory() as folder, _failures(result.problems):
        settings, _ = with_present_tuning(config, baseline)
        place, scene_name = resolve_device(device), config.study(dataset[0]).scene
        result.device, scene = place.type, load_scene(scene_name)
        prepared = _prepared(config, scene_name, result.problems)
        settings["model"] = _model(settings["model"], config, published, result.problems)
        recipes = Path(folder, "recipes.parquet")
        table, metadata = _drawn(config, dataset, prepared)
        _describe(config, baseline, table, metadata, result)
        columns = [name for name in _CELLS if name in table.column_names]
        cells = table.select([*columns, *metadata["roles"].values()]).to_pandas()
        write_recipes(recipes, table.take(_few(cells, settings["batch_size"])), metadata)
        images = RenderedRecipes(recipes, scene, prepared, config.image_size, place)
        protocol = Protocol(**dict(config.training))
        job = Job(settings, protocol, place, images, prepared=prepared)
        if encoder := encoder_settings(settings):
            job.settings["batch_size"] = min(settings["batch_size"], _HEAD_BATCH)
            features = _features(encoder, job, Path(folder, baseline.network, "few"), result)
            job = replace(job, datasets=features)
        _train(job, Run(baseline.name, *dataset, 0), Path(folder), result)
    return result


def with_present_tuning(
    config: ResolvedConfiguration, baseline: ResolvedBaseline
) -> tuple[dict, list[str]]:
    """A baseline's settings, as tuned if all tunings that they refer to are there; and the baselines
    whose tuning is not."""
    folder, names = Layout(config.root).tuning, tuning_needed(baseline.settings, baseline.name)
    missing = [name for name in names if not (folder / f"{name}.yaml").is_file()]
    settings = {key: value for key, value in baseline.settings.items() if key != "origin"}
    return settings if missing else with_tuned(settings, baseline.name, folder), missing


@contextmanager
def _failures(problems: list[str]) -> Iterator[None]:
    """An exception becomes one of the problems."""
    try:
        yield
    except DiagvibError as error:
        problems.append(one_line(error, 3000))
    except Exception as error:  # of a user's code, anything
        if out_of_memory(error):
            problems.append("the device's memory is too small; lower the batch_size")
        else:
            problems.append(f"{_place(error)}: {reason(error)}")


def _place(error: Exception) -> str:
    """Where an exception comes from: the user's own code, or else ours."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    of_user = [frame for frame in frames if package_of(frame) not in _LIBRARIES]
    ours = [frame for frame in frames if package_of(frame) == "diagvib"]
    frame = (of_user or ours)[-1]
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}, line {frame.f_lineno})"


def _prepared(config: ResolvedConfiguration, name: str, problems: list[str]) -> Path:
    """A scene's prepared sources, in the root. If there are none: of scenes that are downloaded,
    stand-ins; of photos, those prepared in the cache."""
    folder, scene = Layout(config.root).prepared(name), load_scene(name)
    if is_prepared(folder):
        return folder
    try:
        sources = "embedded" if scene.sources else config.sources
        return cached(scene, sources, config.mirror and Path(config.mirror))
    except DiagvibError as error:
        if not getattr(getattr(scene, "definition", None), "stand_ins", None):
            raise
        problems.append(one_line(error, 3000))
        return cached(scene, "embedded", None)


def _model(
    model: dict | None, config: ResolvedConfiguration, published: bool, problems: list[str]
) -> dict | None:
    """A baseline's model with the weights that can be had, or random ones."""
    if not model or not model["weights"]:
        return model
    if published:
        folders = Layout(config.root).weights("", "").parent, Path(config.mirror or ".", "weights")
        model = located(model, published_folder(model, folders))
        try:
            make_network(model, 10, (model.get("input") or {}).get("size") or config.image_size)
            return model
        except DiagvibError as error:
            problems.append(one_line(error, 3000))
    head = {"head": "linear"} if model.get("head") == "published" else {}
    return {**model, **_RANDOM, **head}


def _drawn(
    config: ResolvedConfiguration, dataset: tuple[str, str], prepared: Path
) -> tuple[pa.Table, dict]:
    """All recipes of the first dataset sample, and their metadata."""
    study = config.study(dataset[0])
    scene, job = load_scene(study.scene), stage_settings(config, "draw", study.name)
    bound, catalogue = bind(study, dataset[1], scene.factors), scene.catalogue(prepared)
    counts = job.counts
    if scene.replicates == "seeds" and _stands_in(config, catalogue.sources):
        counts = counts_of(study, {}, STAND_IN_COUNTS, load_studies(config.studies_from))
    recipes = draw_recipes(study, bound, job.dataset_samples[:1], counts, scene, catalogue)
    return recipes, job.metadata(study, bound, catalogue)


def _describe(
    config: ResolvedConfiguration,
    baseline: ResolvedBaseline,
    recipes: pa.Table,
    metadata: dict,
    result: DryRun,
) -> None:
    """Note what the recipes say of the whole dataset, unless its photos are stand-ins."""
    result.sources = metadata["sources"]
    result.stand_ins = _stands_in(config, result.sources)
    if result.stand_ins and load_scene(metadata["scene"]).replicates == "seeds":
        return
    splits = recipes["split"].value_counts().to_pylist()
    result.sizes = {metadata["study"]: {row["values"]: row["counts"] for row in splits}}
    validation = recipes.filter(pc.field("split") == "val")
    cells = zip(*(validation[name].to_pylist() for name in metadata["roles"].values()), strict=True)
    rule = baseline.settings.get("selection") or "val_loss"
    result.doubts = noisy_selection(rule, Counter(cells))


def _stands_in(config: ResolvedConfiguration, sources: str) -> bool:
    """Whether images are made from stand-ins for what the configuration asks for."""
    return config.sources == "official" and sources.startswith("embedded")


def _few(cells: pd.DataFrame, batch_size: int) -> list[int]:
    """Rows of a few images of each split: two of each cell, then as they come. cells: columns, and
    split."""
    is_further, rows = cells.groupby([*cells]).cumcount() >= _OF_CELL, []
    for split in SPLITS:
        in_turn = is_further[cells["split"] == split].sort_values(kind="stable")
        images = min(_IMAGES + int((~in_turn).sum()), _LARGEST)
        rows += sorted(in_turn.index[: max(images, batch_size * (split == "train"))])
    return rows


def _features(encoder: dict, job: Job, folder: Path, result: DryRun) -> FeatureFiles:
    """The features of a frozen network for the images."""
    images = job.datasets
    encoding = Encoding(encoder, job.device, job.protocol.threads)
    clock = _clock(job.device, job.protocol)
    started = clock()
    load_network(encoding, images)
    loaded = clock()
    encode(encoding, images, 1, folder)  # which loads it, too
    seconds = clock() - loaded - (loaded - started)
    result.rates.encoding = len(images) / max(seconds, 1e-3)
    return FeatureFiles(folder)


class _FewSteps(Trainer):
    """One epoch in each phase, of at most as many images as there are, repeated to be timed."""

    def __init__(self, method: Method, *arguments: object):
        super().__init__(method, *arguments)
        self.rates: list[PhaseRate] = []
        self.steps, self.graphs = 0, set()
        check_results(method)

    def _plan(self, selection_rules: Sequence[str]) -> Sequence[Phase]:
        self.planned = super()._plan(selection_rules)
        return [replace(phase, max_epochs=1) for phase in self.planned]

    def learn(self, sampling: Sampling, seed: int) -> tuple[float, float | None]:
        size = self.batch_size
        images, _ = epoch_shape(sampling, len(self.train), size, drop_last=False)
        share = images / len(self.train)
        if images > len(self.train) and isinstance(sampling, torch.Tensor):
            order = torch.randperm(len(sampling), generator=torch.Generator().manual_seed(seed))
            sampling = sampling[order[: len(self.train)].to(sampling.device)]
        means, method = super().learn(sampling, seed), self.method
        for name, value in method.memory.items():
            if isinstance(value, Tensor) and value.requires_grad:
                self.graphs.add(name)
                method.memory[name] = value.detach()
        weights, memory = deepcopy((method.state_dict(), method.memory))
        learn = partial(super().learn, sampling, seed)
        with unchecked(method):
            seconds, calls = _timed(learn, _clock(self.device, self.protocol))
        method.load_state_dict(weights)  # many steps on few images would teach it these by heart
        method.memory = memory
        phase, step_images = self.planned[self.progress.phase], self.timings[-1].images
        epochs = phase.max_epochs or self.protocol.max_epochs
        self.steps += calls * -(-step_images // size)
        speed = PhaseRate(phase.name, epochs, share, step_images / seconds)
        self.rates.append(speed)
        return means

    def _update(self, name: str, loss: Tensor | None = None, *rest: Any, **options: Any) -> None:
        """Torch's message would name the trainer, not the method, or there would be none."""
        location = f"method: {self.method.name} gives update"
        if name not in self.optimisers:
            raise DiagvibError(
                f"{location} the name {name!r}, but its `optimisers` gives {', '.join(self.optimisers)}"
            )
        if loss is not None:
            check_loss(loss, location)
        super()._update(name, loss, *rest, **options)
        groups = self.optimisers[name].param_groups
        if all(weight.grad is None for group in groups for weight in group["params"]):
            raise DiagvibError(
                f"{location} a loss that does not depend on the weights of the optimiser {name}, so "
                "nothing would be trained"
            )


def _train(job: Job, run: Run, folder: Path, result: DryRun) -> None:
    """Train and test as a run does, and time the steps."""
    data = load(job, run)
    side = job.datasets.metadata(0, "train")["image_shape"][0]
    make = partial(make_method, job.settings, data.train, job.protocol.seed, None, side)
    method = make()
    names = job.settings["method"]["name"], (job.settings["model"] or {}).get("name", "")
    again = make() if ":" in "".join(names) else None  # of the user's own code; as for the next run
    if again:
        result.doubts += _other_weights(method, again) + _unregistered(method)
    trainer = _FewSteps(method, data.train, data.val, run, job.protocol)
    trainer.fit(tracker=data.tracker)
    check_facts(method)
    result.rates.phases, result.steps = trainer.rates, trainer.steps
    if again:
        result.problems += _not_continued(method, again, trainer)
        result.doubts += _of_state(trainer) + _of_logits(method, data.val, job.protocol)
    clock = _clock(job.device, job.protocol)
    started = clock()
    test, batches = load_test(job, run, data.train.scaling)
    if isinstance(job.datasets, RenderedRecipes):
        result.rendering = len(batches) / max(clock() - started, 1e-3)
    predict_test(job, run, method, test, batches)
    seconds, _ = _timed(partial(predict, method, batches, job.protocol), clock)
    result.rates.prediction = len(batches) / seconds
    rows = shown_images(test, run, SALIENCY_IMAGES)
    shares(method, batches, test, run.factors, rows, job.protocol)
    write_visualisations(folder / "pictures", method, batches, test, run, job.protocol)


def _other_weights(method: Method, again: Method) -> list[str]:
    """A doubt, if two methods that are made alike differ."""
    weights = again.state_dict()
    for name, value in method.state_dict().items():
        if name not in weights or not value.equal(weights[name]):
            return [
                f"its initial weights ({name}) are others each time it is made, so no run can be "
                "repeated; draw them from torch's or NumPy's global generator, which is seeded"
            ]
    return []


def _unregistered(method: Method) -> list[str]:
    """A doubt, if modules are kept in a list or mapping in which torch does not find them."""
    parameters = {*method.parameters()}
    for name, module in method.named_modules():
        for key, value in vars(module).items():
            parts = value.values() if isinstance(value, dict) else value
            if not isinstance(value, dict | list | tuple):
                continue
            layers = nn.ModuleList(part for part in parts if isinstance(part, nn.Module))
            if not parameters.issuperset(layers.parameters()):
                place = f"{name}.{key}".lstrip(".")
                return [
                    f"the modules in {place} are not trained, selected or kept, since torch does not look "
                    "into a plain list or dict; use nn.ModuleList or nn.ModuleDict, unless this is meant"
                ]
    return []


def _not_continued(method: Method, again: Method, trainer: Trainer) -> list[str]:
    """A problem, if a killed run could not continue with a method made again."""
    again.to(trainer.device).setup(trainer.data)
    try:
        again.load_state_dict(method.state_dict())
    except RuntimeError as error:
        return [
            f"method: {method.name} could not continue after it was killed ({one_line(error, 120)}); "
            "make its modules in `build` or `setup`, not later"
        ]
    return []


def _of_state(trainer: _FewSteps) -> list[str]:
    """Doubts, if memory would fill up, or another rule than the baseline's would select."""
    doubts = []
    if trainer.graphs:
        doubts.append(
            f"self.memory keeps all that {', '.join(sorted(trainer.graphs))} was computed from, and may "
            "grow with each step; write .detach()"
        )
    rule = trainer.phase.selection or trainer.selection
    if trainer.progress.history[-1]["val_accuracy"] is None and rule not in ("val_loss", "last"):
        doubts.append(
            f"validation_step gives no logits, so epochs are selected by val_loss, not by {rule}"
        )
    return doubts


def _of_logits(method: Method, images: Batches, protocol: Protocol) -> list[str]:
    """A doubt, if an image's logits depend on chance or on the others, or are probabilities."""

    def logits(pixels: Tensor) -> Tensor:
        return method.predict(Unlabelled(pixels, images.inputs(pixels)))

    pixels, name = next(iter(images.in_order())).pixels, f"predict of {method.name}"
    with (
        torch.inference_mode(),
        deterministic(images.device, protocol.threads),
        protocol.autocast(images.device),
    ):
        method.eval()
        try:
            check_independent(logits, pixels, name)
            check_no_softmax(logits(pixels), name)
        except DiagvibError as error:
            return [one_line(error)]
    return []


def _clock(device: torch.device, protocol: Protocol) -> Callable[[], float]:
    """Seconds; on a CPU those of a thread's core, which others may use, too."""
    if device.type != "cpu":
        return time.perf_counter
    return lambda: time.process_time() / protocol.threads


def _timed(compute: Callable[[], object], clock: Callable[[], float]) -> tuple[float, int]:
    """Seconds of a computation that is warm, and how often it was repeated to measure them."""
    started, calls = clock(), 0
    while (seconds := clock() - started) < _SECONDS:
        compute()
        calls += 1
    return seconds / calls, calls
