"""How long a configuration will take."""

from collections.abc import Container, Mapping, Sequence

from diagvib.commands.plan_sizes import image_count, split_sizes
from diagvib.commands.plan_speeds import measured_speed, pixel_ratio
from diagvib.commands.rates import BaselineRates, Rates, newest_files, read_rates
from diagvib.foundation.devices import core_count, likely_gpu
from diagvib.settings.keys import Configuration, ResolvedBaseline, ResolvedConfiguration
from diagvib.workflow.gpu_shares import job_processes


def render_seconds(config: Configuration, images: int, rates: Rates) -> float | None:
    if config.images != "parquet":
        return 0.0
    rate = rates.best("render to Parquet")
    return pixel_ratio(config) * images / rate.images_per_second if rate else None


def train_seconds(
    config: ResolvedConfiguration,
    sizes: Mapping,
    speeds: Mapping[str, BaselineRates | None],
    timed: Container[str],
    device: str,
) -> dict[str, float | None]:
    """Seconds of each baseline's training, with the encoding of images that no baseline before it
    needs. timed: baselines whose rates are for these images and one of the jobs that run at once."""
    parallel = min(at_once(config, device), len(config.train_jobs))
    seconds, encoded_before = {}, set()
    for baseline in config.baselines:
        datasets = [tuple(dataset) for name, *dataset in config.train_jobs if name == baseline.name]
        scale = 1 / parallel if baseline.name in timed else _scale(config, baseline)
        encoding = {(baseline.network, *dataset) for dataset in datasets} - encoded_before
        encoded_before |= encoding
        images_encoded = image_count(config, sizes, [study for _, study, _ in encoding])
        of_studies = [sizes[study] for study, _ in datasets]
        trained = _seconds(config, speeds[baseline.name], of_studies, images_encoded)
        seconds[f"train {baseline.name}"] = trained and scale * trained
    return seconds


def longest_job(
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
            for name, study, _ in config.train_jobs
            for encoded in [image_count(config, sizes, [study])]
        ),
        default=0.0,
    )


def _scale(config: Configuration, baseline: ResolvedBaseline) -> float:
    """How much longer an image takes than a measured one."""
    resized = ((baseline.settings["model"] or {}).get("input") or {}).get("size")
    return 1 if resized else pixel_ratio(config)


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


def job_seconds(config: ResolvedConfiguration) -> dict[str, float]:
    """Seconds of a train job of each baseline whose rates were measured, without torch."""
    device = "cuda" if likely_gpu(config.device) else "cpu"
    rates, seconds = read_rates(device, newest_files(device)), {}
    rates = rates.up_to(job_processes(config, device == "cuda"))
    for baseline in config.baselines:
        sizes = [split_sizes(config, study) for study in baseline.studies[:1]]
        speed = measured_speed(config, baseline, device, rates)
        if job := _seconds(config, speed, sizes, 0):
            seconds[baseline.name] = job
    return seconds


def at_once(config: Configuration, device: str) -> int:
    """How many jobs run at once on this machine. On a GPU, they share what one may use."""
    return 1 if device == "cuda" else max(1, core_count() // config.training.threads)
