"""How the runs of one call are trained, and where they are written."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from diagvib.images.datasets import Datasets
from diagvib.provenance.code import TRAINING_MODULE, code_for
from diagvib.provenance.finished import digest_of_images, run_provenance
from diagvib.settings.layout import Run
from diagvib.training.checkpoints import Checkpoint, digest
from diagvib.training.protocol import Protocol


@dataclass(frozen=True)
class Folders:
    """Where the runs of one call are written: `runs`/`Run.folder`. checkpoints: of unfinished runs; a
    killed job continues from there, and a successful one leaves nothing. curves: folder of
    TensorBoard files, `curves`/`Run.folder`, if they are wanted."""

    runs: Path
    checkpoints: Path
    curves: Path | None = None


@dataclass(frozen=True)
class Job:
    """How all runs of one call are trained. settings: the baseline's, as `load_settings` gives
    them. datasets: the source of the images, if it is already known. keep_weights: also store the
    selected weights with each run, as a state dict. prepared: the scene's prepared sources, for
    methods that render. weights: a folder that may contain published weights. code, versions:
    digest of the code that trains them, and the versions of packages, both found when training
    starts."""

    settings: dict
    protocol: Protocol
    device: torch.device
    datasets: Datasets | None = None
    keep_weights: bool = False
    prepared: Path | None = None
    weights: Path | None = None
    code: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    def present_code(self, run: Run) -> str:
        """The digest of the code that trains the job's baseline on a run's images."""
        return code_for(
            self.settings, TRAINING_MODULE, self.datasets.metadata(run.dataset, "train")
        )

    def expected_provenance(self, run: Run, metadata: dict) -> dict:
        """`run_provenance`. metadata: of the dataset's splits."""
        images = {
            split: digest_of_images(split_metadata) for split, split_metadata in metadata.items()
        }
        return run_provenance(run, self.settings, asdict(self.protocol), self.code, images)

    def checkpoint(self, provenance: dict, path: Path) -> Checkpoint:
        """A run's checkpoint, which nothing made in another way continues. provenance: expected."""
        conditions = {**self.conditions(), "device": self.device.type}
        return Checkpoint(path, digest({**provenance, **conditions}))

    def conditions(self) -> dict:
        """Conditions besides the device that may change the last bits of a run, as its run.json has
        them."""
        return {
            "threads": self.protocol.threads,
            "precision": self.protocol.on(self.device),
            "versions": self.versions,
        }
