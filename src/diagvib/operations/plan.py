"""Estimate what a configuration will make: disk space and time, from measured rates."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from diagvib.foundation.devices import likely_gpu
from diagvib.foundation.errors import DiagvibError
from diagvib.operations.rates import Rates, file_device, measured_rates, read_rates
from diagvib.scenes import load_scene
from diagvib.settings.configuration import Configuration, ResolvedBaseline
from diagvib.settings.grid import dataset_count, datasets, study_of, train_jobs
from diagvib.studies.scarcity import split_counts
from diagvib.studies.study import SPLITS

# Bytes on disk, measured on full-size datasets of the official sources with zstd (128 pixels;
# larger images compress in proportion to their side, since most of an image is background).
IMAGE_BYTES = 920
RECIPE_BYTES = 55
PREDICTION_BYTES = 12
OTHER_RUN_BYTES = 12_000
SOURCE_BYTES = 60_000_000
# benchmarks/render.py and train.py measure images of this size.
_MEASURED_SIZE = 128


def estimate(
    config: Configuration,
    device: str | None = None,
    gpus: int = 1,
    rate_files: list[Path] | None = None,
) -> dict:
    """Counts of everything, disk in bytes and seconds per stage (None if no rate was measured on
    such a device).

    config: resolved. device: cpu or cuda; default: that of `rate_files`, or the configuration's.
    Rates come from `rate_files`, or from the newest files of `benchmarks/results` for the device.
    `seconds` are for one GPU, or for the whole machine on a CPU, whatever `gpus` is; `wall_seconds`
    is the least that `gpus` GPUs need together. DiagvibError for several GPUs with a CPU, and for bad
    `rate_files`.
    """
    if not device and rate_files:
        device = file_device(rate_files[0])
    device = device or ("cuda" if likely_gpu(config.device) else "cpu")
    if gpus > 1 and device != "cuda":
        raise DiagvibError(f"--gpus {gpus}: the plan is for a CPU; add --device cuda")
    rates = read_rates(device, rate_files) if rate_files else measured_rates(device)
    pairs, jobs = datasets(config), train_jobs(config)
    networks = {entry.name: entry.network for entry in config.baselines}
    encoded = len({(networks[name], *of) for name, *of in jobs if networks[name]})
    runs = Counter(name for name, *_ in jobs for _ in range(config.samples))
    weights = _weights(config) if config.keep_weights else {}
    disk = _disk(config)
    if weights:
        disk["weights"] = sum((weights[name] or 0) * count for name, count in runs.items())
    stages = _job_seconds(config, device, rates)
    known = {stage: seconds for stage, seconds in stages.items() if seconds is not None}
    counts = {"draw": len(pairs), "render": len(pairs) if config.images == "parquet" else 0}
    return {
        "device": device,
        "gpus": gpus if device == "cuda" else 0,
        "jobs": counts | ({"encode": encoded} if encoded else {}) | {"train": len(jobs)},
        "datasets": dataset_count(config) * len(pairs),
        "images": sum(_images(config, study) for study, _ in pairs),
        "runs": runs.total(),
        "runs_per_baseline": dict(runs),
        "disk": disk,
        "weights_not_known": [name for name, size in weights.items() if size is None],
        "seconds": {stage: sum(known[stage]) if stage in known else None for stage in stages},
        "not_measured": [stage for stage in stages if stage not in known],
        "wall_seconds": wall_seconds([known.get(stage, []) for stage in stages], gpus),
        "rates_from": rates.files,
        "measured_on": list(dict.fromkeys(rates.machines)),
    }


def _split_sizes(config: Configuration, study: str) -> dict[str, int]:
    defined = study_of(config, study)
    return {split: sum(split_counts(defined, config.counts, split).values()) for split in SPLITS}


def _images(config: Configuration, study: str) -> int:
    """Images of all dataset samples of a study with one binding."""
    return dataset_count(config) * sum(_split_sizes(config, study).values())


def _disk(config: Configuration) -> dict[str, int]:
    """Bytes by content, without weights. DVC keeps a second copy of everything, unless the file
    system can share blocks."""
    runs = [study for _, study, _ in train_jobs(config) for _ in range(config.samples)]
    predictions = sum(_split_sizes(config, study)["test"] for study in runs)
    size, images, pixels, sources = config.image_size, 0, 0.0, SOURCE_BYTES
    for study, _ in datasets(config):
        # Scenes of photos say what theirs need, which is more.
        scene, count = load_scene(study_of(config, study).scene), _images(config, study)
        of_one = scene.bytes_per_pixel
        pixels += count * (IMAGE_BYTES * size / 128 if of_one is None else of_one * size**2)
        sources += count * scene.source_bytes_per_image
        images += count
    return {
        "recipes": images * RECIPE_BYTES,
        "images": int(pixels) if config.images == "parquet" else 0,
        "results": predictions * PREDICTION_BYTES + len(runs) * OTHER_RUN_BYTES,
        "sources": sources,
    }


def _weights(config: Configuration) -> dict[str, int | None]:
    """Bytes of each baseline's weights for ten classes. None if its model or method is the user's
    own, which a plan does not import, or its network frozen, so that its head's size depends on
    features that are not there yet. Nothing is downloaded."""
    import torch  # takes seconds, which plans without kept weights are spared

    from diagvib.methods.registry import make_baseline

    found: dict[str, int | None] = {}
    for baseline in config.baselines:
        settings, model = baseline.settings, baseline.settings["model"] or {}
        names = settings["method"]["name"] + model.get("name", "")
        if baseline.network or ":" in names:
            found[baseline.name] = None
            continue
        if model:
            settings = {**settings, "model": {**model, "weights": None}}
        with torch.device("meta"):
            made = make_baseline(settings, n_classes=10, image_size=config.image_size, seed=0)
        tensors = made.state_dict().values()
        found[baseline.name] = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return found


def _job_seconds(config: Configuration, device: str, rates: Rates) -> dict[str, list[float] | None]:
    """Stage -> seconds of each of its jobs: render, and training by baseline. None where a rate is
    missing."""
    if config.image_size != _MEASURED_SIZE:
        rates = Rates([], [], [])
    rendering, rate = [], rates.best("render to Parquet")
    if config.images == "parquet":
        rendering = rate and [
            _images(config, study) / rate.images_per_second for study, _ in datasets(config)
        ]
    training = {
        f"train {baseline.name}": _training_seconds(config, baseline, device, rates)
        for baseline in config.baselines
    }
    return {"render": rendering, **training}


def _training_seconds(
    config: Configuration, baseline: ResolvedBaseline, device: str, rates: Rates
) -> list[float] | None:
    """Seconds of each train job of a baseline: its start, then every phase's epochs and the test
    for every sample."""
    name, settings = baseline.name, baseline.settings
    precision = config.training.precision if device == "cuda" else "fp32"  # as in training
    like = {"batch_size": settings["batch_size"], "precision": precision}
    phases = {phase: rates.best(phase, **like) for phase in rates.phases(name)}
    predict = rates.best(f"predict {name}", **like)
    if not predict or not all(phases.values()):
        return None
    test, first = predict.images_per_second, next(iter(phases.values()))
    epochs = dict.fromkeys(phases, settings.get("max_epochs", config.training.max_epochs))
    epochs |= {
        phase: settings["method"].get("vae_epochs") or epochs[phase]
        for phase in epochs
        if phase.endswith(" encode")
    }

    def job(study: str) -> float:
        size = _split_sizes(config, study)
        trained = sum(
            epochs[phase] * (size["train"] / row.images_per_second + size["val"] / test)
            for phase, row in phases.items()
        )
        one = trained + size["test"] / test
        if baseline.network:  # one pass for the features; the head takes little
            one = sum(size.values()) / test
        return first.startup_seconds / first.processes + config.samples * one

    return [job(study) for other, study, _ in train_jobs(config) if other == name]


def wall_seconds(stages: list[list[float]], workers: int) -> float:
    """The least time that jobs take on this many equal workers, one job at a time on each.

    stages: seconds of each stage's jobs, rendering first; a training waits for one rendering.
    """
    first, *others = [max(stage, default=0) for stage in stages]
    return max(sum(map(sum, stages)) / workers, first + max(others, default=0))


def print_plan(plan: dict, config: Configuration) -> None:
    """The plan as a table for people."""
    title = f"Plan: root {config.root}, sources {config.sources}, device {plan['device']}"
    table = Table(title=title, show_header=False, title_justify="left")
    size, total = config.image_size, sum(plan["disk"].values())
    pairs, samples = _counted(plan["jobs"]["draw"], "pair"), dataset_count(config)
    rows = {
        "datasets": f"{plan['datasets']:,} ({pairs} of study and binding x {_counted(samples, 'dataset sample')})",
        "images": f"{plan['images']:,} of {size} x {size} pixels",
        "runs": f"{plan['runs']:,} ({_listed(plan['runs_per_baseline'])})",
        "jobs": _listed(plan["jobs"]),
        "disk": f"{decimal(total)} ({_listed(plan['disk'], decimal)})",
        "disk with DVC": f"{decimal(2 * total)}; no more than above if copies share blocks (XFS, Btrfs)",
    }
    if own := ", ".join(plan["weights_not_known"]):
        rows["not known"] = f"weights of {own}, which a plan does not import; not in these sums"
    for row in (rows | _times(plan, config)).items():
        table.add_row(*row)
    Console().print(table)


def _times(plan: dict, config: Configuration) -> dict[str, str]:
    """Every stage, all together, on several GPUs, and the measurements behind them."""
    gpu, unit = ("GPU", "GPU: ") if plan["gpus"] else ("CPU", "")
    why = "not measured with these settings"
    if config.image_size != _MEASURED_SIZE:
        why = f"not measured at {config.image_size} pixels, only at {_MEASURED_SIZE}"
    known = {stage: seconds for stage, seconds in plan["seconds"].items() if seconds is not None}
    rows = {
        f"{unit}{stage}": duration(known[stage]) if stage in known else why
        for stage in plan["seconds"]
    }
    without = ", without " * bool(plan["not_measured"]) + ", ".join(plan["not_measured"])
    if known.keys() - {"render"}:  # rendering alone says nothing about the whole
        rows[f"{unit}in all"] = duration(sum(known.values())) + without
        if plan["gpus"]:
            rows[f"on {_counted(plan['gpus'], 'GPU')}"] = (
                f"at least {duration(plan['wall_seconds'])}{without}; each takes one job at a time (profiles/slurm)"
            )
    option = f" --device {plan['device']}"
    rows["rates from"] = ", ".join(plan["rates_from"]) or (
        f"no {gpu} measured yet: run `python benchmarks/render.py{option}` and `python "
        f"benchmarks/train.py{option}` on one, or name a result file of theirs with --rates"
    )
    rows["measured on"] = "; ".join(plan["measured_on"])
    return rows


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _listed(counts: dict[str, int], form: Callable = "{:,}".format) -> str:
    return ", ".join(f"{name} {form(count)}" for name, count in counts.items())


def duration(seconds: float) -> str:
    """Seconds in a form for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"
