"""What a configuration will make, what it will cost, and which measurements the estimates are based
on."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from diagvib.foundation.devices import likely_gpu
from diagvib.foundation.errors import DiagvibError
from diagvib.operations.rates import Rates, file_device, measured_rates, read_rates
from diagvib.scenes import load_scene
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
    config: dict, device: str | None = None, gpus: int = 1, rate_files: list[Path] | None = None
) -> dict:
    """Counts of everything, disk in bytes and seconds per stage (None if no rate was measured on
    such a device).

    config: resolved. device: cpu or cuda; default: that of `rate_files`, or the configuration's.
    Rates come from `rate_files`, or from the newest files of `benchmarks/results` for the device.
    `seconds` are for one GPU, or for the whole machine on a CPU, whatever `gpus` is; `wall_seconds`
    is what `gpus` GPUs need together. DiagvibError for several GPUs with a CPU, and for bad
    `rate_files`.
    """
    device = device or (
        file_device(rate_files[0])
        if rate_files
        else "cuda"
        if likely_gpu(config["device"])
        else "cpu"
    )
    if gpus > 1 and device != "cuda":
        raise DiagvibError(f"--gpus {gpus}: the plan is for a CPU; add --device cuda")
    rates = read_rates(device, rate_files) if rate_files else measured_rates(device)
    chosen, all_runs = datasets(config), runs(config)
    images = dataset_count(config) * sum(
        sum(_dataset_size(config, study).values()) for study, _ in chosen
    )
    stored = images if config["images"] == "parquet" else 0
    stages = _job_seconds(config, device, rates)
    return {
        "device": device,
        "gpus": gpus if device == "cuda" else 0,
        "jobs": {
            "draw": len(chosen),
            "render": len(chosen) if stored else 0,
            "train": len(train_jobs(config)),
        },
        "datasets": dataset_count(config) * len(chosen),
        "images": images,
        "runs": len(all_runs),
        "runs_per_baseline": {
            b["name"]: sum(r.baseline == b["name"] for r in all_runs) for b in config["baselines"]
        },
        "disk": _disk(config, images, all_runs),
        "weights_not_known": [
            b["name"] for b in config["baselines"] if config["keep_weights"] and _is_own(b)
        ],
        "seconds": {
            stage: None if seconds is None else sum(seconds) for stage, seconds in stages.items()
        },
        "not_measured": [stage for stage, seconds in stages.items() if seconds is None],
        "wall_seconds": wall_seconds([seconds or [] for seconds in stages.values()], gpus),
        "rates_from": list(rates.files),
        "measured_on": list(rates.machines),
    }


def _dataset_size(config: dict, study: str) -> dict[str, int]:
    return {
        split: sum(split_counts(study_of(config, study), config["counts"], split).values())
        for split in SPLITS
    }


def _disk(config: dict, images: int, all_runs: list) -> dict[str, int]:
    """Bytes by content. DVC keeps a second copy of everything, unless the file system can share
    blocks."""
    predictions = sum(_dataset_size(config, run.study)["test"] for run in all_runs)
    pixels, sources = _photo_bytes(config)
    disk = {
        "recipes": images * RECIPE_BYTES,
        "images": int(pixels) if config["images"] == "parquet" else 0,
        "results": predictions * PREDICTION_BYTES + len(all_runs) * OTHER_RUN_BYTES,
        "sources": sources,
    }
    if not config["keep_weights"]:
        return disk
    weights = {
        b["name"]: 0 if _is_own(b) else _weights_bytes(b["settings"], config["image_size"])
        for b in config["baselines"]
    }
    return disk | {"weights": sum(weights[run.baseline] for run in all_runs)}


def _photo_bytes(config: dict) -> tuple[float, int]:
    """Bytes of all images, and of what they are rendered from, for scenes that report them, since
    photos need more."""
    size, pixels, sources = config["image_size"], 0.0, SOURCE_BYTES
    for study, _ in datasets(config):
        scene = load_scene(study_of(config, study).scene)
        images = dataset_count(config) * sum(_dataset_size(config, study).values())
        of_one = getattr(scene, "bytes_per_pixel", None)
        pixels += images * (IMAGE_BYTES * size / 128 if of_one is None else of_one * size**2)
        sources += images * getattr(scene, "source_bytes_per_image", 0)
    return pixels, sources


def _is_own(baseline: dict) -> bool:
    """Whether its model or method is the user's own, which a plan does not import."""
    settings = baseline["settings"]
    return ":" in settings["method"]["name"] or ":" in (settings["model"] or {}).get("name", "")


def _weights_bytes(settings: dict, image_size: int) -> int:
    """Bytes of a baseline's weights for ten classes. Nothing is downloaded."""
    import torch  # takes seconds, which plans without kept weights are spared

    from diagvib.methods.registry import make_baseline

    if settings["model"]:
        settings = {**settings, "model": {**settings["model"], "weights": None}}
    with torch.device("meta"):
        model = make_baseline(settings, n_classes=10, image_size=image_size, seed=0)
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())


def _job_seconds(config: dict, device: str, rates: Rates) -> dict[str, list[float] | None]:
    """Stage -> seconds of each of its jobs: render, and training by baseline. None where a rate is
    missing."""
    if config["image_size"] != _MEASURED_SIZE:
        rates = Rates()
    training = {
        f"train {baseline['name']}": _training_seconds(config, baseline, device, rates)
        for baseline in config["baselines"]
    }
    render = rates.best("render to Parquet")
    if config["images"] == "render":
        return {"render": [], **training}
    return {
        "render": [
            dataset_count(config)
            * sum(_dataset_size(config, study).values())
            / render["images_per_second"]
            for study, _ in datasets(config)
        ]
        if render
        else None,
        **training,
    }


def _training_seconds(
    config: dict, baseline: dict, device: str, rates: Rates
) -> list[float] | None:
    """Seconds of each train job of a baseline: its start, then every phase's epochs and the test
    for every sample."""
    name, settings = baseline["name"], baseline["settings"]
    precision = config["training"]["precision"] if device == "cuda" else "fp32"  # as in training
    like = {"batch_size": settings["batch_size"], "precision": precision}
    phases = [
        (rates.best(f"train {name} {phase}".strip(), **like), _epochs(config, settings, phase))
        for phase in rates.phases(name) or [""]
    ]
    predict = rates.best(f"predict {name}", **like)
    if not predict or not all(row for row, _ in phases):
        return None
    test = predict["images_per_second"]
    start = phases[0][0].get("startup_seconds", 0) / phases[0][0].get("processes", 1)

    def job(study: str) -> float:
        size = _dataset_size(config, study)
        epochs = sum(
            n * (size["train"] / row["images_per_second"] + size["val"] / test) for row, n in phases
        )
        return start + config["samples"] * (epochs + size["test"] / test)

    return [job(study) for other, study, _ in train_jobs(config) if other == name]


def _epochs(config: dict, settings: dict, phase: str) -> int:
    epochs = settings.get("max_epochs", config["training"]["max_epochs"])
    return settings["method"].get("vae_epochs") or epochs if phase == "encode" else epochs


def wall_seconds(stages: list[list[float]], workers: int) -> dict[str, float]:
    """The time that jobs take on this many equal workers, one job at a time on each: in the best
    order, and in any.

    stages: seconds of each stage's jobs, rendering first; a training waits for one rendering. No
    worker idles while a job is ready, so no order takes longer than Graham's bound: an equal share,
    plus what the longest chain of two jobs contributes to the others' shares.
    """
    total = sum(map(sum, stages))
    first, *others = [max(stage, default=0) for stage in stages] or [0]
    chain = first + max(others, default=0)
    return {
        "at_least": max(total / workers, chain),
        "at_most": total / workers + chain * (1 - 1 / workers),
    }


def print_plan(plan: dict, config: dict) -> None:
    """The plan as a table for people."""
    table = Table(
        title=f"Plan: root {config['root']}, sources {config['sources']}, device {plan['device']}",
        show_header=False,
        title_justify="left",
    )
    for what, value in _quantities(plan, config) + _times(plan, config):
        table.add_row(what, value)
    Console().print(table)


def _quantities(plan: dict, config: dict) -> list[tuple[str, str]]:
    disk, own = plan["disk"], plan["weights_not_known"]
    return [
        (
            "datasets",
            f"{plan['datasets']:,} ({_counted(plan['jobs']['draw'], 'pair')} of study and binding x "
            f"{_counted(dataset_count(config), 'dataset sample')})",
        ),
        ("images", f"{plan['images']:,} of {config['image_size']} x {config['image_size']} pixels"),
        (
            "runs",
            f"{plan['runs']:,} ({', '.join(f'{k} {v:,}' for k, v in plan['runs_per_baseline'].items())})",
        ),
        ("jobs", ", ".join(f"{stage} {count:,}" for stage, count in plan["jobs"].items())),
        (
            "disk",
            f"{_size(sum(disk.values()))} ({', '.join(f'{k} {_size(v)}' for k, v in disk.items())})",
        ),
        (
            "disk with DVC",
            f"{_size(2 * sum(disk.values()))}; no more than above if copies share blocks (XFS, Btrfs)",
        ),
        *[
            ("not known", f"weights of {name}, which a plan does not import; not in these sums")
            for name in own
        ],
    ]


def _times(plan: dict, config: dict) -> list[tuple[str, str]]:
    """Rows about time: every stage, all together, on several GPUs, and the measurements behind
    them."""
    unit = "GPU: " if plan["device"] == "cuda" else ""
    rows = [
        (
            f"{unit}{stage}",
            _not_measured(stage, plan, config) if seconds is None else duration(seconds),
        )
        for stage, seconds in plan["seconds"].items()
    ]
    known = {stage: seconds for stage, seconds in plan["seconds"].items() if seconds is not None}
    without = f", without {', '.join(plan['not_measured'])}" if plan["not_measured"] else ""
    if known.keys() - {"render"}:  # rendering alone says nothing about the whole
        rows.append((f"{unit}in all", duration(sum(known.values())) + without))
        if plan["gpus"]:
            rows.append(
                (
                    f"on {_counted(plan['gpus'], 'GPU')}",
                    f"{_between(**plan['wall_seconds'])}{without}; each takes one job at a time (profiles/slurm)",
                )
            )
    option = f" --device {plan['device']}"
    rows.append(
        (
            "rates from",
            ", ".join(plan["rates_from"])
            or f"{_nothing_measured(plan)}: run `python benchmarks/render.py{option}` and `python "
            f"benchmarks/train.py{option}` on one, or name a result file of theirs with --rates",
        )
    )
    if plan["measured_on"]:
        rows.append(("measured on", "; ".join(plan["measured_on"])))
    return rows


def _not_measured(stage: str, plan: dict, config: dict) -> str:
    """Why the time of a stage is not known."""
    if not plan["rates_from"]:
        return _nothing_measured(plan)
    if config["image_size"] != _MEASURED_SIZE:
        return f"not measured at {config['image_size']} pixels, only at {_MEASURED_SIZE}"
    return (
        "not measured"
        if stage == "render"
        else "not measured: this baseline with its batch size and precision"
    )


def _nothing_measured(plan: dict) -> str:
    return f"no {'GPU' if plan['device'] == 'cuda' else 'CPU'} measured yet"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _between(at_least: float, at_most: float) -> str:
    least, most = duration(at_least), duration(at_most)
    return least if least == most else f"{least} to {most}"


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
