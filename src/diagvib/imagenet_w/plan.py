"""What a configuration of the ImageNet-W workflow will make: jobs, photos to read, disk space.
Starts nothing."""

import json
from collections.abc import Mapping
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_yaml
from diagvib.imagenet_w.last_layer_methods import variants
from diagvib.imagenet_w.settings import models, resolve

# The published counts; the photos are not counted themselves, which would take minutes on a slow
# disk.
_PUBLISHED = {"train": 1_281_167, "val": 50_000, "sin": 50_000, "in_r": 30_000, "in_9": 2 * 4_050}
# For the stand-ins' ten classes; half of them are in in_r.
_DRAWN = {"train": 10, "val": 10, "sin": 10, "in_r": 5, "in_9": 20}
# For ResNet-50, as float16; a wider network needs more in proportion.
_WIDTH = 2048


def is_workflow(path: Path | None) -> bool:
    """Whether a file is a configuration of this workflow rather than the main one."""
    given = read_yaml(path) if path else None
    return (
        isinstance(given, dict)
        and "models" in given
        and bool({"photos", "stand_ins"} & given.keys())
    )


def estimate(config: Mapping) -> dict:
    """jobs; photos of each folder (as published, or drawn); passes: photos that go through
    networks; disk in bytes, for features. No times are estimated, since networks differ a
    thousandfold in speed."""
    drawn = config["stand_ins"]
    photos = {
        name: (
            _DRAWN[name] * drawn["train" if name == "train" else "val"]
            if drawn
            else _PUBLISHED[name]
        )
        for name, folder in config["photos"].items()
        if folder
    }
    measured = (
        sum(count for name, count in photos.items() if name != "train") + photos["val"]
    )  # twice, with watermark
    layer = config["last_layer"]
    seen = len(variants(layer["methods"])) * photos["train"] + measured if layer else 0
    return {
        "jobs": {
            "evaluate": len(models(config)),
            "features": int(bool(layer)),
            "last_layer": len(layer["methods"]) if layer else 0,
        },
        "photos": photos,
        "passes": {"evaluate": measured * len(models(config)), "features": seen},
        "disk_bytes": {"features": seen * (2 * _WIDTH + 12)},
    }


def plan_workflow(path: Path | None, overrides: list[str] | None, json_output: bool) -> bool:
    """Print the estimate if a file is a configuration of this workflow, and return whether it is.
    DiagvibError for an invalid one, or for overrides, which only Snakemake takes."""
    if not is_workflow(path):
        return False
    if overrides:
        raise DiagvibError(
            "--set is not for the ImageNet-W workflow; edit the file, or give `--config` to Snakemake"
        )
    found = estimate(resolve(read_yaml(path), str(path)))
    if json_output:
        print(json.dumps(found, indent=2))
        return True
    for name, count in found["jobs"].items():
        print(
            f"{name}: {count} jobs"
            + (
                f", {found['passes'][name]:,} photos through a network"
                if name in found["passes"]
                else ""
            )
        )
    print("photos: " + ", ".join(f"{name} {count:,}" for name, count in found["photos"].items()))
    print(
        f"disk: features {found['disk_bytes']['features'] / 1e9:,.1f} GB (of {_WIDTH:,} values each)"
    )
    return True
