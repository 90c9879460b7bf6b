"""Estimate what a configuration will make: disk space and time, from measured rates."""

from collections import Counter
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from diagvib.commands.plan_sizes import disk_space, image_count, split_sizes
from diagvib.commands.plan_speeds import MEASURED_SIZE, baseline_speeds, dry_runs, pixel_ratio
from diagvib.commands.plan_times import longest_job, render_seconds, train_seconds
from diagvib.commands.rates import BaselineRates, newest_files, read_rates
from diagvib.foundation.devices import likely_gpu
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.slots import MOST_PROCESSES
from diagvib.settings.keys import Configuration, ResolvedConfiguration
from diagvib.workflow.gpu_shares import job_processes

if TYPE_CHECKING:
    from diagvib.commands.dry_run import DryRun


def estimate(
    config: ResolvedConfiguration,
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
    rates = read_rates(device, rate_files or newest_files(device))
    of_job, of_gpu = _processes(config, device, gpus)
    timings = dry_runs(config, device, rates.up_to(of_gpu)) if timed else {}
    speeds = baseline_speeds(config, device, rates.up_to(of_gpu), timings)
    job_speeds = baseline_speeds(config, device, rates.up_to(of_job), timings)
    sizes = {study: split_sizes(config, study) for study, _ in config.datasets}
    for timing in timings.values():
        sizes |= timing.sizes
    counts = _counts(config, sizes)
    trained = train_seconds(config, sizes, speeds, timings, device)
    seconds = {"render": render_seconds(config, counts["images"], rates), **trained}
    longest = longest_job(config, sizes, job_speeds, timings)
    one_after_another = sum(filter(None, trained.values()))
    return {
        "device": device,
        "gpus": gpus if device == "cuda" else 0,
        **counts,
        **disk_space(config, sizes, counts["runs_per_baseline"]),
        "seconds": seconds,
        "not_measured": [stage for stage, value in seconds.items() if value is None],
        "wall_seconds": (seconds["render"] or 0) + max(longest, one_after_another / gpus),
        "rates_from": rates.sources,
        **_origins(config, speeds, timings),
        "photos_not_known": [study for study, images in sizes.items() if not images["train"]],
    }


def _processes(config: ResolvedConfiguration, device: str, gpus: int) -> tuple[int, int]:
    """How many processes a job has, and how many share a GPU, or the CPU."""
    jobs, of_job = len(config.train_jobs), job_processes(config, device == "cuda")
    # A GPU is thought to hold as many jobs as the one on which so many processes were measured.
    at_most = max(1, MOST_PROCESSES // of_job) if device == "cuda" else jobs
    return of_job, of_job * min(at_most, ceil(jobs / gpus))


def _counts(config: ResolvedConfiguration, sizes: Mapping) -> dict:
    """How many jobs, datasets, images and runs there are."""
    pairs, jobs = config.datasets, config.train_jobs
    networks = {entry.name: entry.network for entry in config.baselines}
    encoded = len({(networks[name], *dataset) for name, *dataset in jobs if networks[name]})
    of_stages = {"draw": len(pairs), "render": len(pairs) if config.images == "parquet" else 0}
    runs = Counter(name for name, *_ in jobs for _ in range(config.runs_per_job))
    return {
        "jobs": of_stages | ({"encode": encoded} if encoded else {}) | {"train": len(jobs)},
        "datasets": config.dataset_count * len(pairs),
        "images": image_count(config, sizes, [study for study, _ in pairs]),
        "runs": runs.total(),
        "runs_per_baseline": dict(runs),
    }


def _origins(
    config: Configuration,
    speeds: Mapping[str, BaselineRates | None],
    timings: Mapping[str, "DryRun"],
) -> dict:
    """Where the speeds of the baselines come from."""
    of_baselines = {f"train {name}": speed for name, speed in speeds.items() if speed}
    timed = {f"train {name}": timing for name, timing in timings.items()}
    return {
        "setups": {stage: speed.setup for stage, speed in of_baselines.items()},
        "scaled_from": None if pixel_ratio(config) == 1 else MEASURED_SIZE,
        "by_operations": {
            stage: speed.scaled_from for stage, speed in of_baselines.items() if speed.scaled_from
        },
        "timed": {stage: timing.steps for stage, timing in timed.items()},
        "repeats": {
            stage: copies
            for stage, timing in timed.items()
            if (copies := max([1.0, *(phase.share for phase in timing.rates.phases)])) > 1
        },
        "problems": {stage: timing.problems for stage, timing in timed.items() if timing.problems},
    }
