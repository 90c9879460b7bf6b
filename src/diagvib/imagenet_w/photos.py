"""Folders of photos, in ImageNet's layout or not, read in batches: decoded in parallel, and never
all in memory."""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import center_crop, pil_to_tensor, resize

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.scenes.photos.listing import EXTENSIONS, leave_out

SYNSET = re.compile(r"n\d{8}")


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
    `classes`; without class folders there are no classes, and all labels are -1."""

    root: Path
    classes: tuple[str, ...]
    files: list[str] = field(repr=False)
    labels: np.ndarray = field(repr=False)
    digest: str = ""

    def __len__(self) -> int:
        return len(self.files)


def list_photos(root: Path, classes: Sequence[str] | None = None, any_layout=False) -> Photos:
    """The photos of a folder's class folders; a class is its folder's index in the sorted list, or
    in `classes`. any_layout: without folders named by synsets, all photos below `root`.

    The digest is made from names, sizes and modification times, without reading the files.
    DiagvibError for a folder that is not a class, and if there is no file at all.
    """
    if not root.is_dir():
        raise DiagvibError(f"{root}: no such folder; name a folder of photos")
    folders = sorted(e.name for e in os.scandir(root) if e.is_dir() and e.name[0] != ".")
    if any_layout and not any(map(SYNSET.fullmatch, folders)):
        paths = sorted(p for p in root.rglob("*") if p.suffix.lower() in EXTENSIONS and p.is_file())
        found, known = [(path, -1) for path in paths], ()
    else:
        known = tuple(classes or folders)
        index = {name: label for label, name in enumerate(known)}
        for name in folders:
            if name not in index:
                raise DiagvibError(
                    f"{root / name}: this is not one of the {len(known)} classes of the "
                    f"validation folder, such as {known[0]}"
                )
        found = [
            (Path(entry.path), index[name])
            for name in folders
            for entry in sorted(os.scandir(root / name), key=lambda one: one.name)
            if entry.is_file() and entry.name[0] != "."
        ]
    if not found:
        raise DiagvibError(
            f"{root}: has no photos; ImageNet's layout is a folder for each class, named by its "
            "synset, such as n02971356"
        )
    digest = hashlib.sha256()
    for path, _ in found:
        state = path.stat()
        digest.update(f"{path.relative_to(root)}\0{state.st_size}\0{state.st_mtime_ns}\0".encode())
    files = [str(path.relative_to(root)) for path, _ in found]
    labels = np.array([label for _, label in found])
    return Photos(root, known, files, labels, digest.hexdigest())


def read_photos(
    photos: Photos, rows: np.ndarray, preprocessing: Preprocessing, size: int, threads: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The photos of these rows, `size` at a time, decoded by `threads`, two batches ahead: pixels
    uint8[B, 3, S, S], and which of them can be used, bool[B]. An unusable file is named on standard
    error, on one line; its pixels are 0."""
    waiting: deque[list] = deque()
    pool = ThreadPoolExecutor(threads, "decode")
    try:
        for start in range(0, len(rows) + 2 * size, size):
            paths = [photos.root / photos.files[row] for row in rows[start : start + size]]
            if paths:
                waiting.append([pool.submit(_decode, path, preprocessing) for path in paths])
            if waiting and (len(waiting) > 2 or not paths):
                decoded = [image.result() for image in waiting.popleft()]
                nothing = torch.zeros(3, *[preprocessing.crop] * 2, dtype=torch.uint8)
                pixels = torch.stack([nothing if one is None else one for one in decoded])
                yield pixels, torch.tensor([one is not None for one in decoded])
    finally:
        pool.shutdown(cancel_futures=True)


def _decode(path: Path, preprocessing: Preprocessing) -> Tensor | None:
    try:
        with Image.open(path) as image:
            return preprocessing.pixels(image)
    except Exception as error:  # Pillow may raise anything for damaged files
        empty = path.exists() and not path.stat().st_size
        why = "it is empty" if empty else one_line(error, 160)
        leave_out(path, f"cannot be used as a photo ({why})")
        return None
