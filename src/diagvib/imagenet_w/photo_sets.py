"""The photos that models are measured on: ImageNet's validation photos, with and without watermark,
and other sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json
from diagvib.imagenet_w.photos import Photos, class_folders, list_photos

# The synset of the class that the watermark points to, and its index among ImageNet's classes.
CARTON = "n02971356"
_IMAGENET, _CARTON_INDEX = 1000, 478
# ImageNet-9's file: ImageNet's class index -> one of nine classes, -1 for none; published by the
# Background Challenge.
NINE_FILE = "in_to_in9.json"
CLEAN, WATERMARKED, STYLISED, RENDITIONS, SAME, RANDOM = (
    "in_1k",
    "in_w",
    "sin",
    "in_r",
    "mixed_same",
    "mixed_rand",
)


@dataclass(frozen=True)
class Folders:
    """val: ImageNet's validation photos. sin: Stylized-ImageNet's; in_r: ImageNet-R; in_9:
    ImageNet-9 with mixed_same, mixed_rand and NINE_FILE; None if not given."""

    val: Path
    sin: Path | None = None
    in_r: Path | None = None
    in_9: Path | None = None


@dataclass(frozen=True)
class PhotoSet:
    """Photos of one folder, and how predictions for them count.

    names: what is measured on them: one name, or CLEAN and WATERMARKED. among: indices of the
    classes to which predictions are also restricted, such as ImageNet-R's 200. nine: class index ->
    the label that it counts as, int64[classes].
    """

    names: tuple[str, ...]
    photos: Photos = field(repr=False)
    among: np.ndarray | None = field(default=None, repr=False)
    nine: np.ndarray | None = field(default=None, repr=False)

    def describe(self) -> dict:
        """What its records depend on, as plain data."""
        return {
            "photos": self.photos.digest,
            "among": None if self.among is None else self.among.tolist(),
            "nine": None if self.nine is None else self.nine.tolist(),
        }


def photo_sets(folders: Folders) -> Iterator[PhotoSet]:
    """The sets of these folders. DiagvibError if a folder does not have the required layout."""
    classes = class_folders(folders.val)
    if CARTON not in classes:
        raise DiagvibError(
            f"{folders.val}: lacks the class folder {CARTON} (carton), to which the watermark points"
        )
    if len(classes) == _IMAGENET and classes.index(CARTON) != _CARTON_INDEX:
        raise DiagvibError(
            f"{folders.val}: {CARTON} (carton) is folder {classes.index(CARTON)} of {_IMAGENET}, not "
            f"{_CARTON_INDEX}; these are not ImageNet's classes, or a folder has a wrong name"
        )
    others = list_photos(folders.in_r, classes) if folders.in_r else None
    among = None if others is None else np.unique(others.labels)
    yield PhotoSet((CLEAN, WATERMARKED), list_photos(folders.val), among)
    if folders.sin:
        yield PhotoSet((STYLISED,), list_photos(folders.sin, classes))
    if others is not None:
        yield PhotoSet((RENDITIONS,), others, among)
    if folders.in_9:
        nine = _nine(folders.in_9, len(classes))
        for name in (SAME, RANDOM):
            top = folders.in_9 / name
            photos = list_photos(top / "val" if (top / "val").is_dir() else top)
            if len(photos.classes) != nine.max() + 1:
                raise DiagvibError(
                    f"{photos.root}: has {len(photos.classes)} class folders, but {NINE_FILE} names "
                    f"{nine.max() + 1} classes"
                )
            yield PhotoSet((name,), photos, nine=nine)


def _nine(folder: Path, n_classes: int) -> np.ndarray:
    path = folder / NINE_FILE
    if not path.exists():
        raise DiagvibError(
            f"{path}: no such file; it comes with ImageNet-9 (the Background Challenge) and says which "
            "of the nine classes each of ImageNet's counts as"
        )
    given, nine = read_json(path), np.full(n_classes, -1)
    try:
        for index, label in given.items():
            nine[int(index)] = int(label)
    except (ValueError, TypeError, IndexError):
        raise DiagvibError(
            f"{path}: must map class indices below {n_classes} to one of nine labels each, or to -1"
        ) from None
    return nine


def answers(logits: Tensor, rows: np.ndarray, chosen: PhotoSet) -> pd.DataFrame:
    """A model's predictions for the photos of these rows, from logits [B, classes].

    Columns: row; label; predicted; p_carton, the carton's probability; predicted_among, the
    prediction among the set's own classes only (-1: it has none).
    """
    logits = logits.detach().float().cpu()
    predicted, among = logits.argmax(1).numpy(), np.full(len(rows), -1)
    if chosen.among is not None:
        among = chosen.among[logits[:, torch.from_numpy(chosen.among)].argmax(1).numpy()]
    carton = chosen.photos.classes.index(CARTON) if chosen.nine is None else None
    return pd.DataFrame(
        {
            "row": rows,
            "label": chosen.photos.labels[rows],
            "predicted": predicted if chosen.nine is None else chosen.nine[predicted],
            "p_carton": logits.softmax(1)[:, carton].numpy() if carton is not None else np.nan,
            "predicted_among": among,
        }
    )
