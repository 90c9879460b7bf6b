"""Estimate what a configuration will make: disk space and time, from measured rates."""

from collections import Counter
from collections.abc import Callable
from math import log
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from diagvib.commands.multiply_adds import operations, weights_bytes
from diagvib.commands.rates import Rates, Row, newest_files, read_rates
from diagvib.foundation.devices import likely_gpu
from diagvib.foundation.errors import DiagvibError
from diagvib.scenes import load_scene
from diagvib.settings.baselines import baseline_names, load_settings, published_weights
from diagvib.settings.keys import Configuration, ResolvedBaseline
from diagvib.studies.scarcity import split_counts
from diagvib.studies.study import SPLITS

# Bytes on disk, measured on full-size datasets of the official sources with zstd (128 pixels;
# larger images compress in proportion to their side, since most of an image is background).
IMAGE_BYTES = 920
RECIPE_BYTES = 55
PREDICTION_BYTES = 12
OTHER_RUN_BYTES = 12_000
SOURCE_BYTES = {"official": 60_000_000, "embedded": 1_000_000}
# benchmarks/render.py and train.py measure images of this size. With others, small_cnn takes 1.0
# (224 pixels) to 1.4 times (64) as long on a CPU as the number of pixels says; on a GPU, not measured.
MEASURED_SIZE = 128


def estimate(
    config: Configuration,
    device: str | None = None,
    gpus: int = 1,
    rate_files: list[Path] | None = None,
) -> dict:
    """Counts of everything, disk in bytes and seconds per stage (None if no rate was measured on
    such a device, nor of a baseline that it could be scaled from by its operations).

    config: resolved. device: cpu or cuda; default: the configuration's. Rates come from
    `rate_files`, or from the newest files of `benchmarks/results` for the device. `seconds` are for
    one GPU, or for the whole machine on a CPU, whatever `gpus` is; `wall_seconds` is the least that
    `gpus` GPUs need together. DiagvibError for several GPUs with a CPU, and for bad `rate_files`.
    """
    device = device or ("cuda" if likely_gpu(config.device) else "cpu")
    if gpus > 1 and device != "cuda":
        raise DiagvibError(f"--gpus {gpus}: the plan is for a CPU; add --device cuda")
    rates = read_rates(device, rate_files or newest_files(device))
    pairs, jobs = config.datasets, config.train_jobs
    networks = {entry.name: entry.network for entry in config.baselines}
    encoded = len({(networks[name], *dataset) for name, *dataset in jobs if networks[name]})
    runs = Counter(name for name, *_ in jobs for _ in range(config.runs_per_job))
    weights = _weights(config) if config.keep_weights else {}
    disk, images = _disk(config), sum(_images(config, study) for study, _ in pairs)
    published, unknown = _published_weights(config)
    if published:
        disk["published weights"] = published
    if weights:
        disk["weights"] = sum(size * runs[name] for name, size in weights.items())
    counts = {"draw": len(pairs), "render": len(pairs) if config.images == "parquet" else 0}
    if device == "cuda" and config.image_size != MEASURED_SIZE:
        rates.rows.clear()
    rate, pixels = rates.best("render to Parquet"), (config.image_size / MEASURED_SIZE) ** 2
    rendering = pixels * images / rate.images_per_second if rate else None
    seconds = {"render": rendering if config.images == "parquet" else 0.0}
    by_operations = {}
    for baseline in config.baselines:
        trained = _training_seconds(config, baseline, device, rates)
        if trained is None and (scaled := _scaled_rates(config, baseline, device, rates)):
            trained = (
                _encoding_seconds(config, baseline, scaled.rows[1].images_per_second)
                if baseline.network
                else _training_seconds(config, baseline, device, scaled)
            )
            by_operations[f"train {baseline.name}"] = scaled.sources[0]
        resized = ((baseline.settings["model"] or {}).get("input") or {}).get("size")
        scale = 1 if resized or trained is None else pixels
        seconds[f"train {baseline.name}"] = trained and scale * trained
    return {
        "device": device,
        "gpus": gpus if device == "cuda" else 0,
        "jobs": counts | ({"encode": encoded} if encoded else {}) | {"train": len(jobs)},
        "datasets": config.dataset_count * len(pairs),
        "images": images,
        "runs": runs.total(),
        "runs_per_baseline": dict(runs),
        "disk": disk,
        "weights_not_known": [name for name in runs if config.keep_weights and name not in weights],
        "published_not_known": unknown,
        "seconds": seconds,
        "not_measured": [
            stage for stage, stage_seconds in seconds.items() if stage_seconds is None
        ],
        "wall_seconds": sum(stage_seconds or 0 for stage_seconds in seconds.values()) / gpus,
        "rates_from": rates.sources,
        "scaled_from": None if pixels == 1 else MEASURED_SIZE,
        "by_operations": by_operations,
    }


def _split_sizes(config: Configuration, study: str) -> dict[str, int]:
    defined = config.study(study)
    return {split: sum(split_counts(defined, config.counts, split).values()) for split in SPLITS}


def _images(config: Configuration, study: str) -> int:
    """Images of all dataset samples of a study with one binding."""
    return config.dataset_count * sum(_split_sizes(config, study).values())


def _disk(config: Configuration) -> dict[str, int]:
    """Bytes by content, without weights."""
    tested = [_split_sizes(config, study)["test"] for _, study, _ in config.train_jobs]
    size, images, pixels = config.image_size, 0, 0.0
    downloaded = any(load_scene(name).sources for name in config.scenes)
    sources = SOURCE_BYTES[config.sources] if downloaded else 0
    for study, _ in config.datasets:
        scene, count = load_scene(config.study(study).scene), _images(config, study)
        # Scenes of photos say what theirs need, which is more.
        of_one = scene.bytes_per_pixel
        pixels += count * (IMAGE_BYTES * size / 128 if of_one is None else of_one * size**2)
        sources += count * scene.source_bytes_per_image
        images += count
    results = PREDICTION_BYTES * sum(tested) + OTHER_RUN_BYTES * len(tested)
    return {
        "recipes": images * RECIPE_BYTES,
        "images": int(pixels) if config.images == "parquet" else 0,
        "results": config.runs_per_job * results,
        "sources": sources,
    }


def _published_weights(config: Configuration) -> tuple[int, list[str]]:
    """Bytes of the published weights that are fetched, and the networks whose size is not known."""
    sizes = {
        " ".join(published): weights_bytes(*published)
        for baseline in config.baselines
        if (published := published_weights(baseline.settings["model"]))
    }
    return sum(filter(None, sizes.values())), [name for name, size in sizes.items() if not size]


def _weights(config: Configuration) -> dict[str, int]:
    """Bytes of each baseline's weights for ten classes. Left out are those whose model or method is
    the user's own, which a plan does not import, and frozen networks, whose head's size depends on
    features that are not there yet. Nothing is downloaded."""
    import torch  # takes seconds, which plans without kept weights are spared

    from diagvib.methods.registry import make_baseline

    sizes = {}
    for baseline in config.baselines:
        settings, model = baseline.settings, baseline.settings["model"] or {}
        if baseline.network or ":" in settings["method"]["name"] + model.get("name", ""):
            continue
        if model:
            settings = {**settings, "model": {**model, "weights": None}}
        with torch.device("meta"):
            method = make_baseline(settings, n_classes=10, image_size=config.image_size, seed=0)
        sizes[baseline.name] = sum(tensor.nbytes for tensor in method.state_dict().values())
    return sizes


def _training_seconds(
    config: Configuration, baseline: ResolvedBaseline, device: str, rates: Rates
) -> float | None:
    """Seconds of every phase's epochs and of the test of all runs. None, too, for the head of a
    frozen network, which takes little."""
    name, settings = baseline.name, baseline.settings
    like = {"batch_size": settings["batch_size"]}
    if device == "cuda":  # a CPU's precision is what its instructions allow
        like |= {"precision": config.training.precision}
    phases = [rates.best(phase, **like) for phase in rates.phases(name)]
    predict = rates.best(f"predict {name}", **like)
    if baseline.network or not predict or not all(phases):
        return None
    test, epochs = predict.images_per_second, settings.get("max_epochs", config.training.max_epochs)
    total = 0.0
    for study in [study for baseline_name, study, _ in config.train_jobs if baseline_name == name]:
        size = _split_sizes(config, study)
        evaluated = size["val"] + size["test"] * config.training.track_test
        epoch = sum(size["train"] / row.images_per_second + evaluated / test for row in phases)
        total += config.runs_per_job * (epochs * epoch + size["test"] / test)
    return total


def _scaled_rates(
    config: Configuration, baseline: ResolvedBaseline, device: str, rates: Rates
) -> Rates | None:
    """Rates of a baseline that was not timed: those of the timed one whose steps are nearest to its
    own in size, by the number of operations. sources: that one's name. A frozen network computes
    each image once, and its head takes little. None if there is nothing to compare."""
    counts = operations(baseline.settings, MEASURED_SIZE)
    like = {"precision": config.training.precision} if device == "cuda" else {}
    timed = {
        name: rows
        for name in {row.what.removeprefix("train ") for row in rates.rows}
        & ({*baseline_names()} - {baseline.name})
        if all(rows := [rates.best(f"{step} {name}", **like) for step in ("train", "predict")])
    }
    if not counts or not timed:
        return None
    of_timed = {name: operations(load_settings(name), MEASURED_SIZE) for name in timed}
    largest = "train" if "train" in counts else "predict"
    name = min(timed, key=lambda name: abs(log(of_timed[name][largest] / counts[largest])))
    speeds = {
        step: row.images_per_second * of_timed[name][step] / counts.get(step, counts["predict"])
        for step, row in zip(("train", "predict"), timed[name], strict=True)
    }
    rows = [
        Row(what=f"{step} {baseline.name}", device=device, images_per_second=speed)
        for step, speed in speeds.items()
    ]
    return Rates(rows, [name])


def _encoding_seconds(config: Configuration, baseline: ResolvedBaseline, speed: float) -> float:
    """Seconds in which a frozen network computes the features of all its images."""
    studies = {names[1:] for names in config.train_jobs if names[0] == baseline.name}
    return sum(_images(config, study) for study, _ in studies) / speed


def print_plan(plan: dict, config: Configuration) -> None:
    """The plan as a table for people."""
    title = f"Plan: root {config.root}, sources {config.sources}, device {plan['device']}"
    table = Table(title=title, show_header=False, title_justify="left")
    size, total, pairs = config.image_size, sum(plan["disk"].values()), plan["jobs"]["draw"]
    rows = {
        "datasets": f"{plan['datasets']:,} ({pairs:,} pair{'s' * (pairs != 1)} of study and binding)",
        "images": f"{plan['images']:,} of {size} x {size} pixels",
        "runs": f"{plan['runs']:,} ({_listed(plan['runs_per_baseline'])})",
        "jobs": _listed(plan["jobs"]),
        "disk": f"{decimal(total)} ({_listed(plan['disk'], decimal)}), and as much for DVC's copy",
    }
    unmeasured = ", ".join(plan["weights_not_known"])
    unknown = [f"weights of {unmeasured} (own code or frozen networks)"] if unmeasured else []
    if plan["published_not_known"]:
        unknown.append(f"published weights of {', '.join(plan['published_not_known'])}")
    unknown += ["features of frozen networks"] if "encode" in plan["jobs"] else []
    published = any(config.study(study).as_published for study, _ in config.datasets)
    unknown += ["photos of studies as published"] if published else []
    unknown += ["tuning, which comes first"] if config.tuned_first else []
    if unknown:
        rows["not known"] = f"{', and '.join(unknown)}; not in these sums"
    for row in (rows | _times(plan, config)).items():
        table.add_row(*row)
    Console().print(table)


def _times(plan: dict, config: Configuration) -> dict[str, str]:
    """Every stage, all together, on several GPUs, and the measurements behind them."""
    reason, scaled = "not measured with these settings", plan["scaled_from"]
    note = f", scaled by pixels from images of {scaled} x {scaled}" * bool(scaled)
    measured = {
        stage: stage_seconds
        for stage, stage_seconds in plan["seconds"].items()
        if stage_seconds is not None
    }
    notes = {
        stage: f", scaled by operations from {reference}"
        for stage, reference in plan["by_operations"].items()
    }
    rows = {
        stage: duration(measured[stage]) + (note + notes.get(stage, "")) * bool(measured[stage])
        if stage in measured
        else reason
        for stage in plan["seconds"]
    }
    scaled_too = f", {len(notes)} of them scaled by operations" * bool(notes)
    without = ", without " * bool(plan["not_measured"]) + ", ".join(plan["not_measured"])
    if measured.keys() - {"render"}:  # rendering alone says nothing about the whole
        rows["in all"] = duration(sum(measured.values())) + note + scaled_too + without
        if plan["gpus"] > 1:
            minimum = f"at least {duration(plan['wall_seconds'])}{note}{without}"
            rows[f"on {plan['gpus']} GPUs"] = f"{minimum}; each is filled with jobs"
    option = f" --device {plan['device']}"
    rows["rates from"] = ", ".join(plan["rates_from"]) or (
        f"nothing measured yet: run `python benchmarks/render.py` and `python benchmarks/train.py"
        f"{option}`, or name a result file of theirs with --rates"
    )
    return rows


def _listed(counts: dict[str, int], form: Callable = "{:,}".format) -> str:
    return ", ".join(f"{name} {form(count)}" for name, count in counts.items())


def duration(seconds: float) -> str:
    """Seconds in a form for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"
