"""`diagvib evaluate`: a frozen network through chosen studies. It writes the configuration that a
user could have written, runs the workflow with it, and prints the tables."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path, file_sha256, write_text
from diagvib.models.registry import PACKAGES
from diagvib.settings.config import load_config, overridden
from diagvib.settings.configuration import Configuration

# Of each frozen baseline's head; not tuned.
_TRAINED = {"optimiser": {"name": "adam", "lr": 1e-3}, "batch_size": 64, "max_epochs": 100}


@dataclass(frozen=True)
class Evaluation:
    """model: as in a baseline. weights: a published name, a file, or an installed package; None:
    random. input_size: pixels per side to which images are resized; None: as they are. base: the
    configuration with all that is not given here; `config/frozen.yaml` by default."""

    model: str
    studies: list[str]
    weights: str | None = None
    input_size: int | None = None
    base: Path | None = None
    root: str | None = None

    @property
    def baseline(self) -> dict:
        """The entry for config/baselines."""
        given = {"size": self.input_size, **_scaling(self.model, self.weights)}
        known = {key: value for key, value in given.items() if value is not None}
        model = {"name": self.model, "frozen": True, "input": known or None}
        scaling = "imagenet" if self.weights and "mean" not in known else "dataset"
        return {
            "model": {**model, "weights": _weights(self.weights)},
            "method": "erm",
            "normalise": scaling,
            **_TRAINED,
            "origin": "diagvib evaluate; not tuned",
        }

    def write(self, overrides: list[str] | None = None) -> tuple[Path, Configuration]:
        """Write baselines.yaml and configuration.yaml to the root; returns the latter's path and
        content. DiagvibError for whatever is wrong in them."""
        short = re.sub(r"[^\w.-]+", "-", self.model.removeprefix("timm/"))
        name = f"frozen_{short}"  # baselines that are trained have the names of their networks
        root = Path(self.root or f"outputs/evaluate/{short}")
        base = overridden(self.base or definition_path("frozen.yaml"), overrides)
        baselines, file = root / "baselines.yaml", root / "configuration.yaml"
        given = {"root": str(root), "studies": self.studies, "baselines": [name]}
        given["baselines_from"] = [*base.get("baselines_from", []), str(baselines)]
        write_text(baselines, yaml.safe_dump({name: self.baseline}, sort_keys=False))
        write_text(file, yaml.safe_dump({**base, **given}, sort_keys=False))
        return file, load_config(file)


def _weights(given: str | None) -> str | dict | None:
    if given in PACKAGES:
        return {"package": given}
    if given and Path(given).is_file():
        return {"file": given, "sha256": file_sha256(Path(given))}
    return given


def _scaling(model: str, weights: str | None) -> dict:
    """Mean and std of the images on which timm's weights were trained."""
    if not (weights and model.startswith("timm/")):
        return {}
    import timm

    tag = None if _weights(weights) != weights else weights
    name = ".".join(filter(None, (model.removeprefix("timm/"), tag)))
    found = timm.models.get_pretrained_cfg(name)
    return {"mean": [*found.mean], "std": [*found.std]} if found else {}


def run_workflow(file: Path, cores: int) -> None:
    """Run the workflow with a configuration. DiagvibError if it fails, or if the current folder is
    not the repository."""
    if not Path("Snakefile").exists():
        raise DiagvibError(
            f"{Path.cwd()}: has no Snakefile; run `diagvib evaluate` in the repository, or use "
            "`diagvib.probe`"
        )
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores), "--configfile", str(file)]
    if subprocess.run(command).returncode:
        raise DiagvibError(
            f"the workflow stopped; the same command continues it, and so does "
            f"`{' '.join(command[2:])}`"
        )
