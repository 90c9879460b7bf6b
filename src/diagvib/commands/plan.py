"""Estimate what a configuration will make: disk space and time, from measured rates."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from math import ceil, inf, log
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from diagvib.commands.multiply_adds import operations, weights_bytes
from diagvib.commands.rates import BaselineRates, PhaseRate, Rates, Row, newest_files, read_rates
from diagvib.foundation.devices import core_count, likely_gpu
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.messages import say
from diagvib.foundation.slots import MOST_PROCESSES
from diagvib.scenes import load_scene
from diagvib.scenes.prepared import is_prepared
from diagvib.settings.baselines import baseline_names, load_settings
from diagvib.settings.keys import Configuration, ResolvedBaseline, ResolvedConfiguration
from diagvib.settings.layout import Layout
from diagvib.settings.model_settings import published_weights
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.scarcity import split_counts
from diagvib.studies.study import SPLITS, Study
from diagvib.workflow.gpu_shares import job_processes

if TYPE_CHECKING:
    from diagvib.commands.dry_run import DryRun

# Bytes on disk, measured on full-size datasets of the official sources with zstd (128 pixels;
# larger images compress in proportion to their side, since most of an image is background).
IMAGE_BYTES = 920
RECIPE_BYTES = 55
PREDICTION_BYTES = 12
OTHER_RUN_BYTES = 12_000
SOURCE_BYTES = {"official": 60_000_000, "embedded": 1_000_000}
# benchmarks/render.py and train.py measure images of this size. With others, small_cnn takes 1.0
# (224 pixels) to 1.4 times (64) as long on a CPU as the number of pixels says; on a GPU, nobody tried.
MEASURED_SIZE = 128


def estimate(
    config: Configuration,
    device: str | None = None,
    gpus: int = 1,
    rate_files: list[Path] | None = None,
    timed: bool = False,
) -> dict:
    """Counts of everything, disk in bytes and seconds per stage (None if no rate was measured on
    such a device, nor of a baseline that it could be scaled from by its operations).

    config: resolved. device: cpu or cuda; default: the configuration's. Rates come from
    `rate_files`, or from the newest files of `benchmarks/results` for the device; if `timed`, those
    of other baselines from a few steps that are made now. `seconds` are those of one GPU with its
    part of the jobs, or of the whole machine on a CPU, `setups` what their rates were measured with;
    `wall_seconds`: until `gpus` GPUs have ended, which render nothing faster and do not share a
    job. DiagvibError for several GPUs with a CPU, and for bad `rate_files`.
    """
    device = device or ("cuda" if likely_gpu(config.device) else "cpu")
    if gpus > 1 and device != "cuda":
        raise DiagvibError(f"--gpus {gpus}: the plan is for a CPU; add --device cuda")
    pairs, jobs = config.datasets, config.train_jobs
    rates = read_rates(device, rate_files or newest_files(device))
    of_job = job_processes(config, device == "cuda")
    # A GPU is thought to hold as many jobs as the one on which so many processes were measured.
    at_most = max(1, MOST_PROCESSES // of_job) if device == "cuda" else len(jobs)
    gpu_rates = rates.up_to(of_job * min(at_most, ceil(len(jobs) / gpus)))
    timings = _timings(config, device, gpu_rates) if timed else {}
    networks = {entry.name: entry.network for entry in config.baselines}
    encoded = len({(networks[name], *dataset) for name, *dataset in jobs if networks[name]})
    runs = Counter(name for name, *_ in jobs for _ in range(config.runs_per_job))
    weights = _weights(config) if config.keep_weights else {}
    sizes = {study: split_sizes(config, study) for study, _ in pairs}
    for timing in timings.values():
        sizes |= timing.sizes
    disk, images = _disk(config, sizes), _images(config, sizes, pairs)
    published, unknown = _published_weights(config)
    if published:
        disk["published weights"] = published
    if weights:
        disk["weights"] = sum(size * runs[name] for name, size in weights.items())
    counts = {"draw": len(pairs), "render": len(pairs) if config.images == "parquet" else 0}
    speeds = _speeds(config, device, gpu_rates, timings)
    trained = _train_seconds(
        config, sizes, speeds, timings, min(at_once(config, device), len(jobs))
    )
    seconds = {"render": _render_seconds(config, images, rates), **trained}
    job_speeds = _speeds(config, device, rates.up_to(of_job), timings)
    longest = _longest_job(config, sizes, job_speeds, timings)
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
        "wall_seconds": (seconds["render"] or 0)
        + max(longest, sum(filter(None, trained.values())) / gpus),
        "rates_from": rates.sources,
        "setups": {f"train {name}": speed.setup for name, speed in speeds.items() if speed},
        "scaled_from": None if _pixels(config) == 1 else MEASURED_SIZE,
        "by_operations": {
            f"train {name}": speed.scaled_from
            for name, speed in speeds.items()
            if speed and speed.scaled_from
        },
        "timed": {f"train {name}": timing.steps for name, timing in timings.items()},
        "repeats": {
            f"train {name}": copies
            for name, timing in timings.items()
            if (copies := max([1.0, *(phase.share for phase in timing.rates.phases)])) > 1
        },
        "problems": {
            f"train {name}": timing.problems for name, timing in timings.items() if timing.problems
        },
        "photos_not_known": [study for study, images in sizes.items() if not images["train"]],
    }


def _speeds(
    config: ResolvedConfiguration, device: str, rates: Rates, timings: Mapping[str, "DryRun"]
) -> dict[str, BaselineRates | None]:
    """The rates of each baseline, as timed, measured or scaled; None if there is nothing to scale."""
    speeds = {}
    for baseline in config.baselines:
        # A job that encodes has a GPU to itself.
        usable = rates.up_to(1) if baseline.network and device == "cuda" else rates
        if baseline.name in timings:
            speeds[baseline.name] = timings[baseline.name].rates
        else:
            speeds[baseline.name] = _measured(config, baseline, device, usable) or _scaled(
                config, baseline, device, usable
            )
    return speeds


def _pixels(config: Configuration) -> float:
    """The pixels of an image, as a multiple of those of a measured one."""
    return (config.image_size / MEASURED_SIZE) ** 2


def _render_seconds(config: Configuration, images: int, rates: Rates) -> float | None:
    if config.images != "parquet":
        return 0.0
    rate = rates.best("render to Parquet")
    return _pixels(config) * images / rate.images_per_second if rate else None


def _train_seconds(
    config: ResolvedConfiguration,
    sizes: Mapping,
    speeds: Mapping[str, BaselineRates | None],
    timed: Container[str],
    parallel: int,
) -> dict[str, float | None]:
    """Seconds of each baseline's training, with the encoding of images that no baseline before it
    needs. timed: baselines whose rates are for these images and one of `parallel` jobs at once."""
    seconds, encoded_before = {}, set()
    for baseline in config.baselines:
        datasets = [tuple(dataset) for name, *dataset in config.train_jobs if name == baseline.name]
        scale = 1 / parallel if baseline.name in timed else _scale(config, baseline)
        encoding = {(baseline.network, *dataset) for dataset in datasets} - encoded_before
        encoded_before |= encoding
        images_encoded = _images(config, sizes, [dataset for _, *dataset in encoding])
        of_studies = [sizes[study] for study, _ in datasets]
        trained = _seconds(config, speeds[baseline.name], of_studies, images_encoded)
        seconds[f"train {baseline.name}"] = trained and scale * trained
    return seconds


def _longest_job(
    config: ResolvedConfiguration,
    sizes: Mapping,
    speeds: Mapping[str, BaselineRates | None],
    timed: Container[str],
) -> float:
    """Seconds of the longest train job whose time is known, with the encoding of its images."""
    scales = {
        entry.name: 1 if entry.name in timed else _scale(config, entry)
        for entry in config.baselines
    }
    return max(
        (
            scales[name] * (_seconds(config, speeds[name], [sizes[study]], encoded) or 0)
            for name, study, binding in config.train_jobs
            for encoded in [_images(config, sizes, [(study, binding)])]
        ),
        default=0.0,
    )


def _scale(config: Configuration, baseline: ResolvedBaseline) -> float:
    """How much longer an image takes than a measured one."""
    resized = ((baseline.settings["model"] or {}).get("input") or {}).get("size")
    return 1 if resized else _pixels(config)


def split_sizes(config: Configuration, study: str) -> dict[str, int]:
    """Images of a dataset by split; of a study as published, whose photos are not prepared, 0."""
    defined = config.study(study)
    if defined.as_published:
        return _photos(config, defined)
    return {split: sum(split_counts(defined, config.counts, split).values()) for split in SPLITS}


def _photos(config: Configuration, study: Study) -> dict[str, int]:
    prepared = Layout(config.root).prepared(study.scene)
    if not is_prepared(prepared):
        return dict.fromkeys(SPLITS, 0)
    from diagvib.studies.recipes import Draw  # loads pandas

    scene, binding = load_scene(study.scene), config.study_bindings(study.name, config.bindings)[0]
    draw = Draw(study, binding, dataset_sample(0, scene), {}, scene, scene.catalogue(prepared))
    return {split: len(draw.published(split)) for split in SPLITS}


def _images(config: Configuration, sizes: Mapping, datasets: Iterable[Sequence[str]]) -> int:
    """Images of all dataset samples of these pairs of study and binding."""
    return config.dataset_count * sum(sum(sizes[study].values()) for study, _ in datasets)


def _disk(config: Configuration, sizes: Mapping) -> dict[str, int]:
    """Bytes by content, without weights."""
    tested = [sizes[study]["test"] for _, study, _ in config.train_jobs]
    size, images, pixels = config.image_size, 0, 0.0
    downloaded = any(load_scene(name).sources for name in config.scenes)
    sources = SOURCE_BYTES[config.sources] if downloaded else 0
    for study, binding in config.datasets:
        scene, count = (
            load_scene(config.study(study).scene),
            _images(config, sizes, [(study, binding)]),
        )
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


def _measured(
    config: Configuration, baseline: ResolvedBaseline, device: str, rates: Rates
) -> BaselineRates | None:
    """The measured rates of a baseline with these settings. None, too, for the head of a frozen
    network, which takes little."""
    settings = baseline.settings
    like = {"batch_size": settings["batch_size"]}
    if device == "cuda":  # a CPU's precision is what its instructions allow
        like |= {"precision": config.training.precision}
    rows = rates.together([*rates.phases(baseline.name), f"predict {baseline.name}"], **like)
    if baseline.network or not rows:
        return None
    *phases, predict = rows
    epochs = epochs_of(config, settings)
    return BaselineRates(
        [PhaseRate(row.what, epochs, 1.0, row.images_per_second) for row in phases],
        predict.images_per_second,
        setup=_setup(rows[0]),
    )


def _scaled(
    config: Configuration, baseline: ResolvedBaseline, device: str, rates: Rates
) -> BaselineRates | None:
    """Rates of a baseline that was not timed: those of the timed one whose steps are nearest to its
    own in size, by the number of operations; on a GPU, only of those that as many processes filled it
    with, and never faster than was measured. A frozen network computes each image once, and its
    head takes little. None if there is nothing to compare."""
    counts = _operations(config, baseline.settings)
    like = {"precision": config.training.precision} if device == "cuda" else {}
    timed = {
        name: rows
        for name in {row.what.removeprefix("train ") for row in rates.rows}
        & ({*baseline_names()} - {baseline.name})
        if (rows := rates.together([f"train {name}", f"predict {name}"], **like))
    }
    if not counts or not timed:
        return None
    fastest = [inf, inf]
    if device == "cuda":  # a process alone leaves it waiting, also with smaller steps
        processes = max(rows[0].processes or 1 for rows in timed.values())
        timed = {
            name: rows for name, rows in timed.items() if (rows[0].processes or 1) == processes
        }
        fastest = [
            max(row.images_per_second for row in step) for step in zip(*timed.values(), strict=True)
        ]
    of_timed = {name: operations(load_settings(name), MEASURED_SIZE) for name in timed}
    largest = "train" if "train" in counts else "predict"
    name = min(timed, key=lambda name: abs(log(of_timed[name][largest] / counts[largest])))
    training, prediction = (
        min(
            limit,
            row.images_per_second * of_timed[name][step] / counts.get(step, counts["predict"]),
        )
        for step, row, limit in zip(("train", "predict"), timed[name], fastest, strict=True)
    )
    source = {"setup": _setup(timed[name][0]), "scaled_from": name}
    if baseline.network:
        return BaselineRates(encoding=prediction, **source)
    phase = PhaseRate("", epochs_of(config, baseline.settings), 1.0, training)
    return BaselineRates([phase], prediction, **source)


def _setup(row: Row) -> str:
    """What a row was measured with, in words; empty if it says nothing."""
    processes = "one process" if row.processes == 1 else f"{row.processes} processes"
    conditions = f" ({row.conditions}, which the workflow leaves to you)" if row.conditions else ""
    return processes * bool(row.processes) + conditions


def _operations(config: Configuration, settings: dict) -> dict[str, float]:
    """For an image of the measured size; a network for one size alone counts in proportion."""
    try:
        return operations(settings, MEASURED_SIZE)
    except DiagvibError:
        counts = operations(settings, config.image_size)
        return {step: number / _pixels(config) for step, number in counts.items()}


def _timings(config: ResolvedConfiguration, device: str, rates: Rates) -> dict[str, "DryRun"]:
    """A dry run of each baseline without measured rates, with random weights, which are as fast."""
    from diagvib.commands.dry_run import dry_run  # loads torch
    from diagvib.foundation.devices import resolve_device

    resolve_device(device)
    datasets = {name: dataset for name, *dataset in reversed(config.train_jobs)}
    unknown = [
        entry for entry in config.baselines if _measured(config, entry, device, rates) is None
    ]
    timings = {}
    for number, baseline in enumerate(unknown, 1):
        say(f"a few steps of {baseline.name} ({number} of {len(unknown)})")
        timings[baseline.name] = dry_run(config, baseline, datasets[baseline.name], device, False)
    return timings


def job_seconds(config: ResolvedConfiguration) -> dict[str, float]:
    """Seconds of a train job of each baseline whose rates were measured, without torch."""
    device = "cuda" if likely_gpu(config.device) else "cpu"
    rates, seconds = read_rates(device, newest_files(device)), {}
    rates = rates.up_to(job_processes(config, device == "cuda"))
    for baseline in config.baselines:
        sizes = [split_sizes(config, study) for study in baseline.studies[:1]]
        speed = _measured(config, baseline, device, rates)
        if job := _seconds(config, speed, sizes, 0):
            seconds[baseline.name] = job
    return seconds


def at_once(config: Configuration, device: str) -> int:
    """How many jobs run at once on this machine. On a GPU, they share what one may use."""
    return 1 if device == "cuda" else max(1, core_count() // config.training.threads)


def _seconds(
    config: Configuration,
    speed: BaselineRates | None,
    sizes: Sequence[Mapping[str, int]],
    encoded: int,
) -> float | None:
    """Seconds of all runs of the jobs on datasets of these sizes, and of encoding so many images; None
    if that is not known."""
    if not speed or not (speed.prediction or speed.encoding) or not all(s["train"] for s in sizes):
        return None
    tests = config.training.track_test
    runs = sum(speed.run_seconds(images, tests) for images in sizes) if speed.prediction else 0.0
    return config.runs_per_job * runs + (encoded / speed.encoding if speed.encoding else 0.0)


def epochs_of(config: Configuration, settings: Mapping) -> int:
    """The epochs of a baseline's phases that set none of their own, at most."""
    return settings.get("max_epochs") or config.training.max_epochs


def epochs_from(config: Configuration, baseline: ResolvedBaseline) -> str:
    """Where they come from."""
    epochs = baseline.settings.get("max_epochs")
    if epochs is None:
        return "training.max_epochs"
    of_file = load_settings(baseline.name, config.baselines_from).get("max_epochs")
    location = "its own" if epochs == of_file else "its entry in the configuration"
    default = config.training.max_epochs
    return location + f", not training.max_epochs, {default:,}" * (epochs != default)


def print_plan(plan: dict, config: Configuration) -> None:
    """The plan as a table for people."""
    title = f"Plan: root {config.root}, sources {config.sources}, device {plan['device']}"
    table = Table(title=title, show_header=False, title_justify="left")
    size, total, pairs = config.image_size, sum(plan["disk"].values()), plan["jobs"]["draw"]
    rows = {
        "datasets": f"{plan['datasets']:,} ({pairs:,} pair{'s' * (pairs != 1)} of study and binding)",
        "images": f"{plan['images']:,} of {size} x {size} pixels"
        + ", without photos that are not prepared yet" * bool(plan["photos_not_known"]),
        "runs": f"{plan['runs']:,} ({_listed(plan['runs_per_baseline'])})",
        "epochs": _epochs(config),
        "jobs": _listed(plan["jobs"]),
        "disk": f"{decimal(total)} ({_listed(plan['disk'], decimal)}), and as much for DVC's copy",
    }
    unmeasured = ", ".join(plan["weights_not_known"])
    unknown = [f"weights of {unmeasured} (own code or frozen networks)"] if unmeasured else []
    if plan["published_not_known"]:
        unknown.append(f"published weights of {', '.join(plan['published_not_known'])}")
    unknown += ["features of frozen networks"] if "encode" in plan["jobs"] else []
    if photos := plan["photos_not_known"]:
        unknown.append(f"photos of {', '.join(photos)}, which are not prepared yet")
    unknown += ["tuning, which comes first"] if config.tuned_first else []
    if unknown:
        rows["not known"] = f"{', and '.join(unknown)}; not in these sums"
    for row in (rows | _times(plan, config)).items():
        table.add_row(*row)
    Console().print(table)


def _epochs(config: Configuration) -> str:
    """How many epochs each baseline has, at most, and where the number comes from."""
    names: dict[str, list[str]] = {}
    for baseline in config.baselines:
        number = epochs_of(config, baseline.settings)
        text = f"{number:,} ({epochs_from(config, baseline)})"
        names.setdefault(text, []).append(baseline.name)
    of_names = [f"{', '.join(baselines)} {text}" for text, baselines in names.items()]
    return ", ".join(of_names if len(names) > 1 else names)


def _times(plan: dict, config: Configuration) -> dict[str, str]:
    """Every stage, all together, on several GPUs, and the measurements behind them."""
    scaled, problems = plan["scaled_from"], plan["problems"]
    untried = " (not tried on a GPU)" * (plan["device"] == "cuda")
    note = f", scaled by pixels{untried} from images of {scaled} x {scaled}" * bool(scaled)
    measured = {
        stage: stage_seconds
        for stage, stage_seconds in plan["seconds"].items()
        if stage_seconds is not None
    }
    notes = {
        stage: f"{note}, scaled by operations from {reference}"
        for stage, reference in plan["by_operations"].items()
    }
    for stage, steps in plan["timed"].items():
        processes_note = " by one process" * (plan["device"] == "cuda")
        notes[stage] = f", timed on this machine in {steps} steps{processes_note}"
        if copies := plan["repeats"].get(stage):
            notes[stage] += f", at most: epochs with copies are up to {copies:.1f} times as long"
    rows = {
        stage: duration(measured[stage]) + notes.get(stage, note) * bool(measured[stage])
        if stage in measured
        else "; ".join(problems.get(stage) or [_unknown(plan, config, stage)])
        for stage in plan["seconds"]
    }
    operations_used = len(plan["by_operations"])
    scaled_too = f", {operations_used} of them scaled by operations" * bool(operations_used)
    without = ", without " * bool(plan["not_measured"]) + ", ".join(plan["not_measured"])
    if measured.keys() - {"render"}:  # rendering alone says nothing about the whole
        note *= any(measured[stage] for stage in measured.keys() - plan["timed"])
        rows["in all"] = duration(sum(measured.values())) + note + scaled_too + without
        if plan["gpus"] > 1:
            rows[f"on {plan['gpus']} GPUs"] = (
                f"about {duration(plan['wall_seconds'])}{note}{without}"
            )
    if setups := _measured_with(plan):
        rows["measured with"] = setups
    option = f" --device {plan['device']}"
    rows["rates from"] = ", ".join(plan["rates_from"]) or (
        f"nothing measured yet: run `python benchmarks/render.py` and `python benchmarks/train.py"
        f"{option}`, or name a result file of theirs with --rates"
    )
    return rows


def _measured_with(plan: dict) -> str:
    """The setups of the rates, each with its stages."""
    stages = {}
    for stage, setup in plan["setups"].items():
        if setup and plan["seconds"][stage]:
            stages.setdefault(setup, []).append(stage.removeprefix("train "))
    if plan["device"] == "cuda" and plan["seconds"]["render"]:
        stages |= {"a CPU": ["render"]}
    return "; ".join(f"{setup}: {', '.join(names)}" for setup, names in stages.items())


def _unknown(plan: dict, config: Configuration, stage: str) -> str:
    """Why a stage's time is not known."""
    studies = {study for name, study, _ in config.train_jobs if stage == f"train {name}"}
    if studies.intersection(plan["photos_not_known"]):
        return "known when its photos are prepared"
    remedy = "; --time does it" * (bool(studies) and not plan["timed"])
    return f"not measured with these settings{remedy}"


def _listed(counts: dict[str, int], form: Callable = "{:,}".format) -> str:
    return ", ".join(f"{name} {form(count)}" for name, count in counts.items())


def duration(seconds: float) -> str:
    """Seconds in a form for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"
