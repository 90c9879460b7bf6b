"""Features of a frozen network in place of images: files that the stage `encode` makes and training
maps into memory."""

import hashlib
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256, read_json, read_table
from diagvib.images import FEATURES_FILE
from diagvib.images.files import Images


class FeatureFiles:
    """Datasets as features: `folder`/{sample}/{split}.npy, float[N, D], and the recipe columns of
    the same images in {split}.parquet. An `Images` has features instead of pixels."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def path(self, sample: int, split: str) -> Path:
        return self.folder / str(sample) / f"{split}.npy"

    def metadata(self, sample: int, split: str) -> dict:
        """That of the images, with `images`, their sha256, and `sha256`, that of the features."""
        try:
            return self._noted[f"{sample}/{split}"]
        except KeyError:
            raise DiagvibError(
                f"{self.folder / FEATURES_FILE}: has no features of sample {sample}; make them with "
                "`diagvib encode`"
            ) from None

    def load(self, sample: int, split: str) -> Images:
        path, noted = self.path(sample, split), self.metadata(sample, split)
        if not path.exists() or features_digest(path) != noted["sha256"]:
            raise DiagvibError(
                f"{path}: missing, or changed since it was made; delete "
                f"{self.folder / FEATURES_FILE} and run again to make it anew"
            )
        values = torch.from_numpy(np.load(path, mmap_mode="c"))
        return Images(values, read_table(path.with_suffix(".parquet")), noted)

    @cached_property
    def _noted(self) -> dict:
        path = self.folder / FEATURES_FILE
        if not path.exists():
            raise DiagvibError(
                f"{path}: no such file; make the features of this frozen network with "
                "`diagvib encode`, or everything with `snakemake`"
            )
        return read_json(path)


def features_digest(path: Path) -> str:
    """The sha256 of a split's two files."""
    both = (file_sha256(path), file_sha256(path.with_suffix(".parquet")))
    return hashlib.sha256(" ".join(both).encode()).hexdigest()
