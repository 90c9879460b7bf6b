"""What a configuration will make, what it will cost, and which measurements the estimates are based
on."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from diagvib.foundation.devices import likely_gpu
from diagvib.foundation.errors import DiagvibError
from diagvib.operations.rates import Rates, file_device, measured_rates, read_rates
from diagvib.scenes import load_scene
from diagvib.settings.baselines import is_frozen, network_name
from diagvib.settings.configuration import Configuration, ResolvedBaseline
from diagvib.settings.grid import dataset_count, datasets, runs, study_of, train_jobs
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
    pairs, all_runs = datasets(config), runs(config)
    rendered = len(pairs) if config.images == "parquet" else 0
    frozen = {entry.name: network_name(entry.settings) for entry in config.baselines}
    encoded = len({(frozen[name], *of) for name, *of in train_jobs(config) if frozen[name]})
    stages = _job_seconds(config, device, rates)
    return {
        "device": device,
        "gpus": gpus if device == "cuda" else 0,
        "jobs": {
            "draw": len(pairs),
            "render": rendered,
            **({"encode": encoded} if encoded else {}),
            "train": len(train_jobs(config)),
        },
        "datasets": dataset_count(config) * len(pairs),
        "images": sum(_images(config, study) for study, _ in pairs),
        "runs": len(all_runs),
        "runs_per_baseline": {
            b.name: sum(r.baseline == b.name for r in all_runs) for b in config.baselines
        },
        "disk": _disk(config, all_runs),
        "weights_not_known": [
            b.name for b in config.baselines if config.keep_weights and _is_own(b)
        ],
        "seconds": {
            stage: None if seconds is None else sum(seconds) for stage, seconds in stages.items()
        },
        "not_measured": [stage for stage, seconds in stages.items() if seconds is None],
        "wall_seconds": wall_seconds([seconds or [] for seconds in stages.values()], gpus),
        "rates_from": list(rates.files),
        "measured_on": list(rates.machines),
    }


def _split_sizes(config: Configuration, study: str) -> dict[str, int]:
    return {
        split: sum(split_counts(study_of(config, study), config.counts, split).values())
        for split in SPLITS
    }


def _images(config: Configuration, study: str) -> int:
    """Images of all dataset samples of a study with one binding."""
    return dataset_count(config) * sum(_split_sizes(config, study).values())


def _disk(config: Configuration, all_runs: list) -> dict[str, int]:
    """Bytes by content. DVC keeps a second copy of everything, unless the file system can share
    blocks."""
    predictions = sum(_split_sizes(config, run.study)["test"] for run in all_runs)
    size, images, pixels, sources = config.image_size, 0, 0.0, SOURCE_BYTES
    for study, _ in datasets(config):
        # Scenes of photos say what theirs need, which is more.
        scene, count = load_scene(study_of(config, study).scene), _images(config, study)
        of_one = scene.bytes_per_pixel
        pixels += count * (IMAGE_BYTES * size / 128 if of_one is None else of_one * size**2)
        sources += count * scene.source_bytes_per_image
        images += count
    disk = {
        "recipes": images * RECIPE_BYTES,
        "images": int(pixels) if config.images == "parquet" else 0,
        "results": predictions * PREDICTION_BYTES + len(all_runs) * OTHER_RUN_BYTES,
        "sources": sources,
    }
    if config.keep_weights:
        weights = {
            b.name: 0 if _is_own(b) else _weights_bytes(b.settings, size) for b in config.baselines
        }
        disk["weights"] = sum(weights[run.baseline] for run in all_runs)
    return disk


def _is_own(baseline: ResolvedBaseline) -> bool:
    """Whether its model or method is the user's own, which a plan does not import, or its
    network frozen, so that its head's size depends on features that are not there yet."""
    settings = baseline.settings
    return (
        is_frozen(settings)
        or ":" in settings["method"]["name"]
        or ":" in (settings["model"] or {}).get("name", "")
    )


def _weights_bytes(settings: dict, image_size: int) -> int:
    """Bytes of a baseline's weights for ten classes. Nothing is downloaded."""
    import torch  # takes seconds, which plans without kept weights are spared

    from diagvib.methods.registry import make_baseline

    if settings["model"]:
        settings = {**settings, "model": {**settings["model"], "weights": None}}
    with torch.device("meta"):
        model = make_baseline(settings, n_classes=10, image_size=image_size, seed=0)
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())


def _job_seconds(config: Configuration, device: str, rates: Rates) -> dict[str, list[float] | None]:
    """Stage -> seconds of each of its jobs: render, and training by baseline. None where a rate is
    missing."""
    if config.image_size != _MEASURED_SIZE:
        rates = Rates()
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
    phases = [
        (rates.best(f"train {name} {phase}".strip(), **like), _epochs(config, settings, phase))
        for phase in rates.phases(name) or [""]
    ]
    predict = rates.best(f"predict {name}", **like)
    if not predict or not all(row for row, _ in phases):
        return None
    test = predict.images_per_second
    start = phases[0][0].startup_seconds / phases[0][0].processes

    def job(study: str) -> float:
        size = _split_sizes(config, study)
        if is_frozen(settings):  # one pass for the features; the head takes little
            return start + config.samples * sum(size.values()) / test
        epochs = sum(
            n * (size["train"] / row.images_per_second + size["val"] / test) for row, n in phases
        )
        return start + config.samples * (epochs + size["test"] / test)

    return [job(study) for other, study, _ in train_jobs(config) if other == name]


def _epochs(config: Configuration, settings: dict, phase: str) -> int:
    epochs = settings.get("max_epochs", config.training.max_epochs)
    return settings["method"].get("vae_epochs") or epochs if phase == "encode" else epochs


def wall_seconds(stages: list[list[float]], workers: int) -> float:
    """The least time that jobs take on this many equal workers, one job at a time on each.

    stages: seconds of each stage's jobs, rendering first; a training waits for one rendering.
    """
    first, *others = [max(stage, default=0) for stage in stages]
    return max(sum(map(sum, stages)) / workers, first + max(others, default=0))


def print_plan(plan: dict, config: Configuration) -> None:
    """The plan as a table for people."""
    table = Table(
        title=f"Plan: root {config.root}, sources {config.sources}, device {plan['device']}",
        show_header=False,
        title_justify="left",
    )
    for row in [*_quantities(plan, config).items(), *_times(plan, config).items()]:
        table.add_row(*row)
    Console().print(table)


def _quantities(plan: dict, config: Configuration) -> dict[str, str]:
    size, total = config.image_size, sum(plan["disk"].values())
    parts = ", ".join(f"{content} {_size(value)}" for content, value in plan["disk"].items())
    pairs = _counted(plan["jobs"]["draw"], "pair")
    samples = _counted(dataset_count(config), "dataset sample")
    shown = {
        "datasets": f"{plan['datasets']:,} ({pairs} of study and binding x {samples})",
        "images": f"{plan['images']:,} of {size} x {size} pixels",
        "runs": f"{plan['runs']:,} ({_listed(plan['runs_per_baseline'])})",
        "jobs": _listed(plan["jobs"]),
        "disk": f"{_size(total)} ({parts})",
        "disk with DVC": f"{_size(2 * total)}; no more than above if copies share blocks (XFS, Btrfs)",
    }
    if own := ", ".join(plan["weights_not_known"]):
        shown["not known"] = f"weights of {own}, which a plan does not import; not in these sums"
    return shown


def _times(plan: dict, config: Configuration) -> dict[str, str]:
    """Every stage, all together, on several GPUs, and the measurements behind them."""
    gpu, unit = ("GPU", "GPU: ") if plan["device"] == "cuda" else ("CPU", "")
    why, rates_from = "not measured with these settings", ", ".join(plan["rates_from"])
    if config.image_size != _MEASURED_SIZE:
        why = f"not measured at {config.image_size} pixels, only at {_MEASURED_SIZE}"
    if not rates_from:
        why, option = f"no {gpu} measured yet", f" --device {plan['device']}"
        rates_from = (
            f"{why}: run `python benchmarks/render.py{option}` and `python "
            f"benchmarks/train.py{option}` on one, or name a result file of theirs with --rates"
        )
    shown = {
        f"{unit}{stage}": why if seconds is None else duration(seconds)
        for stage, seconds in plan["seconds"].items()
    }
    without = f", without {', '.join(plan['not_measured'])}" if plan["not_measured"] else ""
    known = {stage: seconds for stage, seconds in plan["seconds"].items() if seconds is not None}
    if known.keys() - {"render"}:  # rendering alone says nothing about the whole
        shown[f"{unit}in all"] = duration(sum(known.values())) + without
        if plan["gpus"]:
            least = f"at least {duration(plan['wall_seconds'])}{without}"
            shown[f"on {_counted(plan['gpus'], 'GPU')}"] = (
                f"{least}; each takes one job at a time (profiles/slurm)"
            )
    shown["rates from"] = rates_from
    if plan["measured_on"]:
        shown["measured on"] = "; ".join(plan["measured_on"])
    return shown


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:,.1f} TB"


def duration(seconds: float) -> str:
    """Seconds in a form for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"
