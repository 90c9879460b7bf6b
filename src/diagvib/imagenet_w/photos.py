"""Folders of photos in ImageNet's layout, read in batches: decoded in parallel, and never all in
memory."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import center_crop, pil_to_tensor, resize

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.scenes.photos.listing import leave_out


@dataclass(frozen=True)
class Preprocessing:
    """From a photo to a network's input. resize: the shorter side; crop: side of the square from
    the centre, in pixels; mean, std: per channel, of values from 0 to 1."""

    resize: int = 256
    crop: int = 224
    interpolation: str = "bilinear"
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def pixels(self, image: Image.Image) -> Tensor:
        """uint8[3, crop, crop]."""
        image = resize(image.convert("RGB"), self.resize, InterpolationMode(self.interpolation))
        return pil_to_tensor(center_crop(image, self.crop))

    def inputs(self, pixels: Tensor) -> Tensor:
        """uint8[B, 3, H, W] normalised, float32[B, 3, H, W]."""
        mean, std = (
            torch.tensor(values, device=pixels.device)[:, None, None]
            for values in (self.mean, self.std)
        )
        return pixels.float().div_(255).sub_(mean).div_(std)


@dataclass(frozen=True)
class Photos:
    """The photos of a folder: `files` relative to `root`, `labels` int64[N], indices into
    `classes`."""

    root: Path
    classes: tuple[str, ...]
    files: list[str] = field(repr=False)
    labels: np.ndarray = field(repr=False)
    digest: str = ""

    def __len__(self) -> int:
        return len(self.files)


@dataclass(frozen=True)
class PhotoBatch:
    """pixels uint8[B, 3, S, S]; rows int64[B]: which photos these are, in the requested order;
    seen: how many photos have been read so far, including broken ones."""

    pixels: Tensor
    rows: np.ndarray
    seen: int


def class_folders(root: Path) -> list[str]:
    """The class folders of a folder in ImageNet's layout, sorted. DiagvibError if there are
    none."""
    if not root.is_dir():
        raise DiagvibError(
            f"{root}: no such folder; name one in ImageNet's layout, with a folder for each class "
            "that is named by its synset, such as n02971356, and contains its photos"
        )
    with os.scandir(root) as entries:
        names = sorted(
            entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
        )
    if not names:
        raise DiagvibError(
            f"{root}: has no class folders; ImageNet's layout is needed, with a folder for each class "
            "that is named by its synset (the validation photos come unsorted and have to be moved)"
        )
    return names


def list_photos(root: Path, classes: Sequence[str] | None = None) -> Photos:
    """The photos of a folder's class folders; a class is its folder's index in the sorted list, or
    in `classes`.

    The digest is made from names, sizes and modification times, without reading the files.
    DiagvibError for a folder that is not a class, and if there is no file at all.
    """
    names, files, labels, digest = class_folders(root), [], [], hashlib.sha256()
    known = {name: index for index, name in enumerate(classes or names)}
    for name in names:
        if name not in known:
            raise DiagvibError(
                f"{root / name}: this is not one of the {len(known)} classes of the "
                f"validation folder, such as {next(iter(known))}"
            )
        with os.scandir(root / name) as entries:
            found = sorted(
                (entry.name, entry.stat())
                for entry in entries
                if entry.is_file() and not entry.name.startswith(".")
            )
        files += [f"{name}/{file}" for file, _ in found]
        labels += [known[name]] * len(found)
        digest.update(
            "".join(
                f"{name}/{file}\0{stat.st_size}\0{stat.st_mtime_ns}\0" for file, stat in found
            ).encode()
        )
    if not files:
        raise DiagvibError(
            f"{root}: its {len(names)} class folders are empty; put the photos into them"
        )
    return Photos(root, tuple(classes or names), files, np.array(labels), digest.hexdigest())


def read_batches(
    photos: Photos,
    preprocessing: Preprocessing,
    size: int,
    threads: int,
    order: np.ndarray | None = None,
    start: int = 0,
) -> Iterator[PhotoBatch]:
    """The photos in batches of `size`, the last one smaller; decoded by `threads`, two batches
    ahead at most.

    order: int64[N], by default as listed; start: how many of them to skip. An unusable file is
    named on standard error, on one line, and left out. DiagvibError if there is no usable file.
    """
    order = np.arange(len(photos)) if order is None else order
    waiting: deque[tuple[int, Future]] = deque()
    pixels, rows, usable = [], [], start > 0
    pool = ThreadPoolExecutor(threads, "decode")
    try:
        upcoming = iter(order[start:])
        for seen in range(start + 1, len(order) + 1):
            for row in islice(upcoming, 2 * max(threads, size) - len(waiting)):
                waiting.append(
                    (int(row), pool.submit(_decode, photos.root / photos.files[row], preprocessing))
                )
            row, image = waiting.popleft()
            if (decoded := image.result()) is not None:
                pixels.append(decoded)
                rows.append(row)
            if len(rows) == size or (seen == len(order) and rows):
                yield PhotoBatch(torch.stack(pixels), np.array(rows), seen)
                pixels, rows, usable = [], [], True
    finally:
        pool.shutdown(cancel_futures=True)
    if not usable:
        raise DiagvibError(f"{photos.root}: none of its {len(order)} files can be used as a photo")


def _decode(path: Path, preprocessing: Preprocessing) -> Tensor | None:
    try:
        with Image.open(path) as image:
            return preprocessing.pixels(image)
    except Exception as error:  # Pillow may raise anything for damaged files
        reason = (
            "it is empty" if path.exists() and not path.stat().st_size else one_line(error, 160)
        )
        leave_out(path, f"cannot be used as a photo ({reason})")
        return None
