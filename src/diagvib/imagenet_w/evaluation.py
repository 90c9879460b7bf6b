"""Measures models on photos: predictions for every photo are kept, so that an interrupted
measurement can continue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_table
from diagvib.foundation.progress import Counter
from diagvib.imagenet_w.classifiers import Classifier
from diagvib.imagenet_w.photo_sets import WATERMARKED, PhotoSet, answer_table, answers, measure
from diagvib.imagenet_w.photos import Photos, read_photos
from diagvib.imagenet_w.watermark import Font, blend, watermark
from diagvib.training.code_digest import code_digest, package_versions
from diagvib.training.encode import write_features
from diagvib.training.protocol import deterministic

# Number of photos read together; it affects augmented ones, since mixup and cutmix mix within them.
TOGETHER = 256
_AT_ONCE_CPU = 32


def evaluate(
    classifier: Classifier, sets: Iterable[PhotoSet], font: Font, kept: Path, threads: int
) -> dict:
    """A model's measures, as `photo_sets.measure` gives them, with what they were measured on.

    Its predictions go to `kept`/{set}.npy; a set that already exists for the same model, photos and
    font is not measured again. DiagvibError if a set has no usable photo.
    """
    found: dict[str, pd.DataFrame] = {}
    for chosen in sets:

        def made(pixels: Tensor, *_, chosen=chosen) -> dict[str, Tensor]:
            inputs, shown = classifier.preprocessing.inputs, versions(chosen, pixels, font)
            made = {name: in_parts(classifier.network, inputs(shown[name])) for name in shown}
            return answers(made, chosen)

        paths = {name: kept / f"{name}.npy" for name in chosen.names}
        about = {"font": font.name, **chosen.describe()}
        rows = np.arange(len(chosen.photos))
        write_views(classifier, chosen.photos, rows, paths, made, "float32", about, threads)
        found |= {name: read_answers(path) for name, path in paths.items()}
    return {**measure(found, chosen.carton), "photos": {k: len(one) for k, one in found.items()}}


def read_answers(path: Path) -> pd.DataFrame:
    labels = read_table(path.with_suffix(".parquet"))["label"].to_numpy()
    return answer_table(np.load(path), labels)


def versions(chosen: PhotoSet, pixels: Tensor, font: Font) -> dict[str, Tensor]:
    """Photos uint8[B, 3, S, S] for each name of the set: unchanged, or with the watermark."""
    overlay = watermark(pixels.shape[-1], font)
    return {
        name: blend(pixels, overlay) if name == WATERMARKED else pixels for name in chosen.names
    }


def in_parts(network: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """What a network, or a part of it, makes of a batch."""
    size = _AT_ONCE_CPU if inputs.device.type == "cpu" else TOGETHER
    return torch.cat([network(part).float() for part in inputs.split(size)])


def write_views(
    classifier: Classifier,
    photos: Photos,
    rows: np.ndarray,
    paths: Mapping[str, Path],
    made: Callable[[Tensor, Tensor, int, list[str]], Mapping[str, Tensor]],
    dtype: str,
    about: Mapping,
    threads: int,
) -> None:
    """Write what a network makes of the photos of these rows, in one or more views, to `paths`;
    next to each, the rows and labels of usable photos. made: from pixels uint8[B, 3, S, S] and
    labels int64[B] on the device, the number of the batch and the views wanted, to float[B, D] for
    each view."""
    labels, device = photos.labels[rows], classifier.device
    table = pa.table({"row": rows, "label": labels})
    digest = digest_of(
        {"model": classifier.digest, "photos": photos.digest, "device": device.type} | dict(about),
        classifier.name,
    )

    def chunks(start: int, wanted: list[str]) -> Iterator[dict[str, Tensor]]:
        batches = read_photos(photos, rows[start:], classifier.preprocessing, TOGETHER, threads)
        for number, (pixels, usable) in enumerate(batches, start // TOGETHER):
            read = usable if usable.any() else ~usable
            known = torch.from_numpy(labels[start:][: len(usable)])[read].to(device)
            start += len(usable)
            views = made(pixels[read].to(device), known, number, wanted)
            yield {
                name: _spread(views[name].cpu(), read).masked_fill_(~usable[:, None], torch.nan)
                for name in wanted
            }

    title = f"{classifier.name} on {photos.root.name}"
    with (
        torch.inference_mode(),
        deterministic(device, threads),
        Counter(title, len(rows), "photos") as counter,
    ):
        write_features(paths, table, chunks, dtype, digest, counter.advance)


def _spread(values: Tensor, read: Tensor) -> Tensor:
    """The rows of these photos at their places, NaN at the others."""
    if not values.isfinite().all():
        raise DiagvibError("what a network makes of a photo is not a number; choose other weights")
    spread = torch.full((len(read), values.shape[1]), torch.nan)
    spread[read] = values
    return spread


def digest_of(content: dict, model: str, method: str = "erm") -> str:
    """A digest of what affects a result: a description, this code, that of a model and a method,
    and the versions of packages."""
    return hashlib.sha256(
        json.dumps([content, _code(model, method)], sort_keys=True).encode()
    ).hexdigest()


@cache
def _code(model: str, method: str) -> list:
    settings = {"model": {"name": model}, "method": {"name": method}}
    module = "diagvib.imagenet_w.last_layer"
    return [code_digest(settings, module), package_versions(settings)]
