"""How fast each baseline is: as timed now, as measured, or scaled from another by its operations."""

from collections.abc import Mapping
from math import inf, log
from typing import TYPE_CHECKING

from diagvib.commands.multiply_adds import operations
from diagvib.commands.rates import BaselineRates, PhaseRate, Rates, Row
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.messages import say
from diagvib.settings.baselines import baseline_names, load_settings
from diagvib.settings.keys import Configuration, ResolvedBaseline, ResolvedConfiguration

if TYPE_CHECKING:
    from diagvib.commands.dry_run import DryRun

# benchmarks/render.py and train.py measure images of this size. With others, small_cnn takes 1.0
# (224 pixels) to 1.4 times (64) as long on a CPU as the number of pixels says; on a GPU, nobody tried.
MEASURED_SIZE = 128


def pixel_ratio(config: Configuration) -> float:
    """The pixels of an image, as a multiple of those of a measured one."""
    return (config.image_size / MEASURED_SIZE) ** 2


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


def dry_runs(config: ResolvedConfiguration, device: str, rates: Rates) -> dict[str, "DryRun"]:
    """A dry run of each baseline without measured rates, with random weights, which are as fast."""
    from diagvib.commands.dry_run import dry_run  # loads torch
    from diagvib.foundation.devices import resolve_device

    resolve_device(device)
    datasets = {name: dataset for name, *dataset in reversed(config.train_jobs)}
    unknown = [
        entry for entry in config.baselines if measured_speed(config, entry, device, rates) is None
    ]
    timings = {}
    for number, baseline in enumerate(unknown, 1):
        say(f"a few steps of {baseline.name} ({number} of {len(unknown)})")
        timings[baseline.name] = dry_run(config, baseline, datasets[baseline.name], device, False)
    return timings


def baseline_speeds(
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
            speeds[baseline.name] = measured_speed(config, baseline, device, usable) or _scaled(
                config, baseline, device, usable
            )
    return speeds


def measured_speed(
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
    own in size, by the number of operations; on a GPU, never faster than was measured. A frozen
    network computes each image once, and its head takes little. None if there is nothing to
    compare."""
    counts = _operations(config, baseline.settings)
    timed = _timed_others(config, baseline, device, rates)
    if not counts or not timed:
        return None
    of_timed = {name: operations(load_settings(name), MEASURED_SIZE) for name in timed}
    largest = "train" if "train" in counts else "predict"
    nearest = min(timed, key=lambda name: abs(log(of_timed[name][largest] / counts[largest])))
    # A process alone leaves a GPU waiting, also with smaller steps.
    fastest = [
        max(row.images_per_second for row in rows) if device == "cuda" else inf
        for rows in zip(*timed.values(), strict=True)
    ]
    training, prediction = (
        min(
            limit,
            row.images_per_second * of_timed[nearest][step] / counts.get(step, counts["predict"]),
        )
        for step, row, limit in zip(("train", "predict"), timed[nearest], fastest, strict=True)
    )
    source = {"setup": _setup(timed[nearest][0]), "scaled_from": nearest}
    if baseline.network:
        return BaselineRates(encoding=prediction, **source)
    phase = PhaseRate("", epochs_of(config, baseline.settings), 1.0, training)
    return BaselineRates([phase], prediction, **source)


def _timed_others(
    config: Configuration, baseline: ResolvedBaseline, device: str, rates: Rates
) -> dict[str, list[Row]]:
    """Of each other baseline that was timed, the rows of training and prediction; on a GPU, only of
    those that as many processes filled it with."""
    like = {"precision": config.training.precision} if device == "cuda" else {}
    trained = {row.what.removeprefix("train ") for row in rates.rows}
    timed = {
        name: rows
        for name in trained & ({*baseline_names()} - {baseline.name})
        if (rows := rates.together([f"train {name}", f"predict {name}"], **like))
    }
    if device != "cuda":
        return timed
    processes = {name: rows[0].processes or 1 for name, rows in timed.items()}
    most = max(processes.values(), default=1)
    return {name: rows for name, rows in timed.items() if processes[name] == most}


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
        return {step: number / pixel_ratio(config) for step, number in counts.items()}
