"""Features of a frozen network in place of images: files that the stage `encode` makes and training
maps into memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256, read_json, read_table, text_sha256
from diagvib.images import FEATURES_FILE, split_files, view_path
from diagvib.images.files import Images


@dataclass(frozen=True)
class FeatureFiles:
    """Datasets as features: `folder`/{sample}/{split}.npy, float[N, D], and the recipe columns of
    the same images in {split}.parquet. An `Images` has features instead of pixels."""

    folder: Path

    def path(self, sample: int, split: str) -> Path:
        return self.folder / str(sample) / f"{split}.npy"

    def metadata(self, sample: int, split: str) -> dict:
        """That of the images, with `images`, their sha256, and `sha256`, that of the features."""
        try:
            return self._noted[f"{sample}/{split}"]
        except KeyError:
            raise DiagvibError(
                f"{self.folder / FEATURES_FILE}: has no features of sample {sample}; make them with "
                "`diagvib encode` and this configuration"
            ) from None

    def views(self, sample: int) -> dict[str, torch.Tensor]:
        """The features of changed training images that were asked for, float[N, D]."""
        path = self.path(sample, "train")
        names = self.metadata(sample, "train").get("views", ())
        return {
            name: torch.from_numpy(np.load(view_path(path, name), mmap_mode="c")) for name in names
        }

    def load(self, sample: int, split: str) -> Images:
        path, metadata = self.path(sample, split), self.metadata(sample, split)
        files = split_files(path, metadata.get("views", ()))
        if not all(file.exists() for file in files) or files_digest(files) != metadata["sha256"]:
            raise DiagvibError(
                f"{path}: missing, or changed since it was made; delete "
                f"{self.folder / FEATURES_FILE} and run again to make it anew"
            )
        values = torch.from_numpy(np.load(path, mmap_mode="c"))
        return Images(values, read_table(files[1]), metadata)

    @cached_property
    def _noted(self) -> dict:
        path = self.folder / FEATURES_FILE
        if not path.exists():
            raise DiagvibError(
                f"{path}: no such file; make the features of this frozen network with "
                "`diagvib encode` and this configuration, or everything with `snakemake`"
            )
        return read_json(path)


def files_digest(files: Iterable[Path]) -> str:
    """The sha256 of several files."""
    return text_sha256(" ".join(map(file_sha256, files)))
