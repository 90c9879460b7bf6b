"""What a configuration will make, what it will cost, and from which measurements that is known."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from diagvib.devices import likely_gpu
from diagvib.files import checkout_path, read_json
from diagvib.grid import datasets, runs, train_jobs
from diagvib.recipes import split_counts
from diagvib.studies import SPLITS, load_study

# Bytes on disk, measured on full-size datasets of the official sources with zstd (128 pixels; larger images compress
# in proportion to their side, as most of an image is background).
IMAGE_BYTES = 920
RECIPE_BYTES = 55
PREDICTION_BYTES = 12
OTHER_RUN_BYTES = 12_000
SOURCE_BYTES = 60_000_000


def estimate(config: dict) -> dict:
    """Numbers of everything, disk in bytes and seconds per stage (None where no rate was measured on such a device).

    config: resolved. Rates come from the newest files of `benchmarks/results` for the device.
    """
    device = "cuda" if likely_gpu(config["device"]) else "cpu"
    sizes = [_dataset_size(config, study) for study, _ in datasets(config)]
    samples = config["samples"]
    images = samples * sum(sum(size.values()) for size in sizes)
    stored = images if config["images"] == "parquet" else 0
    all_runs = runs(config)
    predictions = sum(_dataset_size(config, run.study)["test"] for run in all_runs)
    rates, origin = measured_rates(device)
    return {
        "device": device,
        "jobs": {"draw": len(sizes), "render": len(sizes) if stored else 0, "train": len(train_jobs(config))},
        "datasets": samples * len(sizes), "images": images, "runs": len(all_runs),
        "runs_per_baseline": {b["name"]: sum(r.baseline == b["name"] for r in all_runs) for b in config["baselines"]},
        "disk": {"recipes": images * RECIPE_BYTES,
                 "images": int(stored * IMAGE_BYTES * config["image_size"] / 128),
                 "results": predictions * PREDICTION_BYTES + len(all_runs) * OTHER_RUN_BYTES,
                 "sources": SOURCE_BYTES},
        "seconds": {"render": stored / rates["render to Parquet"] if "render to Parquet" in rates else None,
                    **{f"train {b['name']}": _training_seconds(config, b, all_runs, rates)
                       for b in config["baselines"]}},
        "rates_from": origin,
    }


def _dataset_size(config: dict, study: str) -> dict[str, int]:
    return {split: sum(split_counts(load_study(study), config["counts"], split).values()) for split in SPLITS}


def _training_seconds(config: dict, baseline: dict, all_runs: list, rates: dict) -> float | None:
    name = baseline["name"]
    train, test = rates.get(f"train {name}"), rates.get(f"predict {name}")
    if not train or not test:
        return None
    epochs = baseline["settings"].get("max_epochs", config["training"]["max_epochs"])
    return sum(epochs * (size["train"] / train + size["val"] / test) + size["test"] / test
               for size in (_dataset_size(config, run.study) for run in all_runs if run.baseline == name))


def measured_rates(device: str, folder: Path | None = None) -> tuple[dict[str, float], list[str]]:
    """Images per second by what was measured, on all cores of the measured machine; and the files they come from.

    Of each kind of benchmark the newest file for the device counts. Empty where nothing was measured.
    """
    folder = folder or checkout_path("benchmarks/results")
    newest: dict[str, tuple[str, Path, dict]] = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        result = read_json(path)
        if any(row["device"] == device for row in result["rows"]):
            newest[result["kind"]] = max(newest.get(result["kind"], ("",)), (result["date"], path, result),
                                         key=lambda entry: entry[0])
    rates: dict[str, float] = {}
    for _, _, result in newest.values():
        for row in result["rows"]:
            if row["device"] == device:
                rates[row["what"]] = max(rates.get(row["what"], 0), row["images_per_second"])
    return rates, [path.name for _, path, _ in newest.values()]


def print_plan(plan: dict, config: dict) -> None:
    """The plan as a table for people."""
    table = Table(title=f"Plan: root {config['root']}, sources {config['sources']}, device {plan['device']}",
                  show_header=False, title_justify="left")
    table.add_row("datasets", f"{plan['datasets']:,} ({plan['jobs']['draw']} of study and pair x {config['samples']} "
                  "dataset samples)")
    table.add_row("images", f"{plan['images']:,} of {config['image_size']} x {config['image_size']} pixels")
    table.add_row("runs", f"{plan['runs']:,} ({', '.join(f'{k} {v:,}' for k, v in plan['runs_per_baseline'].items())})")
    table.add_row("jobs", ", ".join(f"{stage} {count:,}" for stage, count in plan["jobs"].items()))
    disk = plan["disk"]
    table.add_row("disk", f"{_size(sum(disk.values()))} ({', '.join(f'{k} {_size(v)}' for k, v in disk.items())})")
    for stage, seconds in plan["seconds"].items():
        table.add_row(f"time: {stage}", "not measured on this kind of device; `diagvib bench` measures it"
                      if seconds is None else duration(seconds))
    known = [s for s in plan["seconds"].values() if s is not None]
    if len(known) == len(plan["seconds"]):
        table.add_row("time in all", duration(sum(known)))
    table.add_row("rates from", ", ".join(plan["rates_from"]) or "no measurement for this kind of device")
    Console().print(table)
    if None not in plan["seconds"].values():
        print("Times hold for the machine that was measured, all its cores or its GPU busy.")


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:,.1f} TB"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"
