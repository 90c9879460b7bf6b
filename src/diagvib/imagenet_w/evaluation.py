"""Measures models on photos: predictions for every photo are kept, so that an interrupted
measurement can continue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from diagvib.foundation.files import is_noted, read_table, write_table
from diagvib.foundation.progress import Counter
from diagvib.imagenet_w.classifiers import Classifier
from diagvib.imagenet_w.measures import measure
from diagvib.imagenet_w.photo_sets import CARTON, CLEAN, WATERMARKED, PhotoSet, answers
from diagvib.imagenet_w.photos import Preprocessing, read_batches
from diagvib.imagenet_w.watermark import Font, blend, watermark
from diagvib.training.code_digest import code_digest, package_versions
from diagvib.training.protocol import deterministic

_BATCH, _BATCH_CPU = 256, 32


@torch.inference_mode()
def evaluate(
    classifier: Classifier, sets: Iterable[PhotoSet], font: Font, kept: Path, threads: int
) -> dict:
    """A model's measures, as `measures.measure` gives them, with what they were measured on.

    Its predictions go to `kept`/{set}.parquet; a set that already exists for the same model, photos
    and font is not measured again. DiagvibError if a set has no usable photo.
    """
    found: dict[str, pd.DataFrame] = {}
    for chosen in sets:
        files = {name: kept / f"{name}.parquet" for name in chosen.names}
        digest = digest_of(
            {"model": classifier.digest, "font": font.name, **chosen.describe()},
            __name__,
            classifier.name,
        )
        if not all(is_noted(file, "digest", digest) for file in files.values()):
            for name, table in _answers(classifier, chosen, font, threads).items():
                write_table(
                    files[name],
                    pa.Table.from_pandas(table, preserve_index=False),
                    {"digest": digest},
                )
        found |= {name: read_table(file).to_pandas() for name, file in files.items()}
        if CLEAN in chosen.names:
            carton = chosen.photos.classes.index(CARTON)
    return {**measure(found, carton), "photos": {name: len(table) for name, table in found.items()}}


def digest_of(content: dict, module: str, model: str, method: str = "erm") -> str:
    """A digest of what affects a result: a description, the code of a module, a model and a method,
    and the versions of packages."""
    return hashlib.sha256(
        json.dumps([content, _code(module, model, method)], sort_keys=True).encode()
    ).hexdigest()


@cache
def _code(module: str, model: str, method: str) -> list:
    settings = {"model": {"name": model}, "method": {"name": method}}
    return [code_digest(settings, module), package_versions(settings)]


def _answers(
    classifier: Classifier, chosen: PhotoSet, font: Font, threads: int
) -> dict[str, pd.DataFrame]:
    device = next(classifier.network.parameters()).device
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in chosen.names}
    batch = _BATCH_CPU if device.type == "cpu" else _BATCH
    with (
        deterministic(device, threads),
        Counter(
            f"{classifier.name} on {chosen.photos.root.name}", len(chosen.photos), "photos"
        ) as counter,
    ):
        for read in read_batches(chosen.photos, classifier.preprocessing, batch, threads):
            for name, inputs in versions(
                chosen, read.pixels.to(device), classifier.preprocessing, font
            ):
                parts[name].append(answers(classifier.network(inputs), read.rows, chosen))
            counter.advance(len(read.rows))
    return {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}


def versions(
    chosen: PhotoSet, pixels: Tensor, preprocessing: Preprocessing, font: Font
) -> Iterator[tuple[str, Tensor]]:
    """For photos uint8[B, 3, S, S], the inputs for each name of the set: unchanged, or with the
    watermark."""
    for name in chosen.names:
        shown = (
            blend(pixels, watermark(preprocessing.crop, font)) if name == WATERMARKED else pixels
        )
        yield name, preprocessing.inputs(shown)
