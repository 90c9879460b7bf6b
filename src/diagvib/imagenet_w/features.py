"""Features of photos from a frozen network, computed once and kept in files that training maps into
memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, write_json
from diagvib.foundation.progress import Counter
from diagvib.foundation.seeding import named_generator
from diagvib.imagenet_w.augmentations import TOGETHER, Context, augmented
from diagvib.imagenet_w.classifiers import Classifier
from diagvib.imagenet_w.evaluation import digest_of, versions
from diagvib.imagenet_w.photo_sets import PhotoSet
from diagvib.imagenet_w.photos import PhotoBatch, Photos, read_batches
from diagvib.imagenet_w.watermark import Font
from diagvib.training.protocol import deterministic

# Photos between two records of the progress.
_NOTED = 8192
_UNFINISHED = "unfinished.json"


@dataclass(frozen=True)
class Features:
    """values float16[N, D], rows int64[N] of the photos, share float32[N]: weight of each one's own
    label; mapped."""

    values: np.ndarray
    rows: np.ndarray
    share: np.ndarray


@dataclass(frozen=True)
class Extraction:
    """Which photos are read, in which order, and what a batch becomes: name -> (inputs, share)."""

    photos: Photos
    names: Sequence[str]
    order: np.ndarray
    inputs: Callable[[PhotoBatch, Tensor, int], Iterator[tuple[str, Tensor, Tensor]]]
    about: Mapping


def training_features(
    classifier: Classifier,
    photos: Photos,
    variants: Sequence[str],
    font: Font,
    seed: int,
    folder: Path,
    threads: int,
) -> None:
    """Write the features of training photos under each variant, in one random order, to
    `folder`/{variant}."""
    device = next(classifier.network.parameters()).device

    def inputs(
        read: PhotoBatch, pixels: Tensor, number: int
    ) -> Iterator[tuple[str, Tensor, Tensor]]:
        for variant in needed:
            made = augmented(variant, pixels, Context(classifier.preprocessing, font, number))
            yield variant, made.inputs, made.share

    about = {
        "model": classifier.digest,
        "photos": photos.digest,
        "font": font.name,
        "seed": seed,
        "device": device.type,
    }
    needed = [
        name
        for name in variants
        if not _is_whole(
            folder / name, digest_of({**about, "name": name}, __name__, classifier.name)
        )
    ]
    order = named_generator("imagenet_w", "order", seed).permutation(len(photos))
    _extract(classifier, Extraction(photos, needed, order, inputs, about), folder, threads)


def set_features(
    classifier: Classifier, chosen: PhotoSet, font: Font, folder: Path, threads: int
) -> None:
    """Write the features of the photos of a set, under each of its names, to `folder`/{name}."""

    def inputs(
        read: PhotoBatch, pixels: Tensor, number: int
    ) -> Iterator[tuple[str, Tensor, Tensor]]:
        for name, made in versions(chosen, pixels, classifier.preprocessing, font):
            yield name, made, torch.ones(len(made))

    about = {"model": classifier.digest, "font": font.name, **chosen.describe()}
    if not all(
        _is_whole(folder / name, digest_of({**about, "name": name}, __name__, classifier.name))
        for name in chosen.names
    ):
        _extract(
            classifier,
            Extraction(chosen.photos, chosen.names, np.arange(len(chosen.photos)), inputs, about),
            folder,
            threads,
        )


def read_features(folder: Path) -> Features:
    """Read features. DiagvibError if they do not exist."""
    if not (folder / "digest.json").exists():
        raise DiagvibError(
            f"{folder}: holds no features; run `diagvib imagenet-w-stage features` first"
        )
    return Features(
        *(np.load(folder / f"{name}.npy", mmap_mode="c") for name in ("values", "rows", "share"))
    )


def digest_at(folder: Path) -> str:
    return read_json(folder / "digest.json")["digest"]


def _is_whole(folder: Path, digest: str) -> bool:
    return (folder / "digest.json").exists() and digest_at(folder) == digest


@torch.inference_mode()
def _extract(classifier: Classifier, work: Extraction, folder: Path, threads: int) -> None:
    """Compute features, continuing an interrupted call with the same photos, model and names."""
    if not work.names:
        return
    device = next(classifier.network.parameters()).device
    digest = digest_of({**work.about, "names": [*work.names]}, __name__, classifier.name)
    width = classifier.network.features(
        torch.zeros(1, 3, *[classifier.preprocessing.crop] * 2, device=device)
    ).shape[1]
    noted = folder / f"{work.names[0]}-{_UNFINISHED}"
    state = read_json(noted) if noted.exists() else {}
    if state.get("digest") != digest:
        state = {"digest": digest, "seen": 0, "rows": 0}
    arrays = {
        name: _arrays(folder / name, len(work.order), width, new=not state["seen"])
        for name in work.names
    }
    seen, done, last = state["seen"], state["rows"], state["rows"]
    with (
        deterministic(device, threads),
        Counter(
            f"features of {work.photos.root.name}", len(work.order) - seen, "photos"
        ) as counter,
    ):
        for read in read_batches(
            work.photos, classifier.preprocessing, TOGETHER, threads, work.order, seen
        ):
            end = done + len(read.rows)
            for name, inputs, share in work.inputs(read, read.pixels.to(device), done // TOGETHER):
                values, rows, shares = arrays[name]
                values[done:end] = classifier.network.features(inputs).half().cpu().numpy()
                rows[done:end], shares[done:end] = read.rows, share.numpy()
            done = end
            counter.advance(len(read.rows))
            if done - last >= _NOTED:
                _note(noted, arrays, {**state, "seen": read.seen, "rows": done})
                last = done
    for name in work.names:
        digest = digest_of({**work.about, "name": name}, __name__, classifier.name)
        _finish(folder / name, arrays.pop(name), done, digest)
    noted.unlink(missing_ok=True)


def _arrays(folder: Path, n: int, width: int, new: bool) -> list[np.memmap]:
    shapes = {
        "values": ("float16", (n, width)),
        "rows": ("int64", (n,)),
        "share": ("float32", (n,)),
    }
    (folder / "digest.json").unlink(
        missing_ok=True
    )  # the old digest must not vouch for new features
    folder.mkdir(parents=True, exist_ok=True)
    if new:
        return [
            np.lib.format.open_memmap(folder / f"{name}.part", "w+", dtype, shape)
            for name, (dtype, shape) in shapes.items()
        ]
    return [np.lib.format.open_memmap(folder / f"{name}.part", "r+") for name in shapes]


def _note(noted: Path, arrays: Mapping[str, list[np.memmap]], state: dict) -> None:
    for array in (array for each in arrays.values() for array in each):
        array.flush()
    write_json(noted, state)


def _finish(folder: Path, arrays: list[np.memmap], rows: int, digest: str) -> None:
    """Give the arrays their final names, without the rows of unusable photos. DiagvibError for
    features beyond the range of float16."""
    if not all(
        np.isfinite(part).all() for part in np.array_split(arrays[0][:rows], 1 + rows // _NOTED)
    ):
        raise DiagvibError(f"{folder}: a feature is too large for float16; choose another model")
    for name, array in zip(("values", "rows", "share"), arrays, strict=True):
        array.flush()
        part, whole = folder / f"{name}.part", folder / f"{name}.npy"
        if rows < len(array):
            shorter = np.lib.format.open_memmap(whole, "w+", array.dtype, (rows, *array.shape[1:]))
            for start in range(0, rows, _NOTED):
                shorter[start : start + _NOTED] = array[start : min(start + _NOTED, rows)]
            shorter.flush()
            part.unlink()
        else:
            part.replace(whole)
    write_json(folder / "digest.json", {"digest": digest})
