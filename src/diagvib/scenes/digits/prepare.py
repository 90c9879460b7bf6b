"""Stage prepare: from the source files to the digits and textures that images are rendered from,
and reading them.

data/prepared/ contains digits.parquet (row number = digit index), textures/{name}.png, and
sources.json, written last, which says what the rest was made from and contains its digest.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from diagvib.foundation.columns import from_binary, to_binary
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256, read_metadata, read_table, write_json, write_table
from diagvib.scenes.digits.digits import (
    DIGIT_SIZE,
    RawDigits,
    prepare_digits,
    read_mnist,
    split_names,
)
from diagvib.scenes.digits.embedded import DIGITS_NAME, embedded_digits, embedded_texture
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.textures import (
    prepare_texture,
    read_texture,
    write_texture,
)
from diagvib.scenes.prepared import DESCRIPTION, mismatch, read_description
from diagvib.scenes.scene import Catalogue
from diagvib.scenes.sources import Source


@dataclass(frozen=True)
class DigitCatalogue(Catalogue):
    """The available digits: label int64[D] and split str[D] (train, val, test); row number = digit
    index."""

    label: np.ndarray
    split: np.ndarray


@dataclass(frozen=True)
class Prepared(DigitCatalogue):
    """The catalogue with its pixels: digits uint8[D, 40, 40], textures uint8[5, 256, 256] in class
    order."""

    digits: np.ndarray
    textures: np.ndarray


def prepare(files: Sequence[Source], raw: Path, out: Path, sources: str) -> None:
    """Make `out` from the source files in `raw` (sources `official`) or from nothing but our
    dependencies (`embedded`).

    DiagvibError if a source file is missing, does not have the listed sha256, or has unusable
    content.
    """
    training, test, textures, noted = (
        _read_official(files, raw) if sources == "official" else _read_embedded()
    )
    digits = np.concatenate([prepare_digits(training), prepare_digits(test)])
    labels, splits = np.concatenate([training.labels, test.labels]), split_names(training, test)
    described = {
        "sources": sources,
        "comparable": sources == "official",
        "digest": _digest(digits, labels, splits, textures),
        "files": noted,
    }
    for name, texture in zip(classes("texture"), textures, strict=True):
        write_texture(_texture_path(out, name), texture)
    write_table(
        out / "digits.parquet",
        _digit_table(digits, labels, splits, training, test),
        described,
    )
    write_json(out / DESCRIPTION, described)


def load_prepared(folder: Path) -> Prepared:
    """Everything in a prepared folder. DiagvibError if it is missing, incomplete, or does not match
    its digest."""
    described = read_description(folder)
    table = read_table(folder / "digits.parquet", ["digit", "label", "split"])
    labels, splits = _labels_and_splits(table)
    try:
        digits = [from_binary(chunk, (DIGIT_SIZE, DIGIT_SIZE)) for chunk in table["digit"].chunks]
    except ValueError:
        raise _mismatch(folder) from None
    pixels = np.concatenate(digits)
    textures = [read_texture(_texture_path(folder, name)) for name in classes("texture")]
    if _digest(pixels, labels, splits, textures) != described["digest"]:
        raise _mismatch(folder)
    return Prepared(*_origin(described), labels, splits, pixels, np.stack(textures))


def load_catalogue(folder: Path) -> DigitCatalogue:
    """The labels and splits of a prepared folder, without reading its pixels. DiagvibError if it is
    missing, or its files belong to different preparations."""
    described, path = read_description(folder), folder / "digits.parquet"
    if read_metadata(path).get("digest") != described["digest"]:
        raise _mismatch(folder)
    return DigitCatalogue(
        *_origin(described), *_labels_and_splits(read_table(path, ["label", "split"]))
    )


_Read = tuple[RawDigits, RawDigits, np.ndarray, dict[str, str]]


def _read_official(files: Sequence[Source], raw: Path) -> _Read:
    """Training and test digits, prepared textures, and the sha256 of every file."""
    for source in files:
        path = raw / source.path
        if not path.is_file():
            raise DiagvibError(f"{path}: no such file; run `diagvib fetch` first")
        found = file_sha256(path)
        if found != source.sha256:
            raise DiagvibError(
                f"{path}: not the published file: its sha256 is {found}, expected {source.sha256}; run "
                "`diagvib fetch`, which replaces it, or, if it is the one you mean, put its sha256 into "
                "config/sources.yaml"
            )
    paths = [_texture_path(raw, name) for name in classes("texture")]
    textures = np.stack([prepare_texture(read_texture(path), str(path)) for path in paths])
    noted = {source.path: source.sha256 for source in files}
    return (*read_mnist(raw / "mnist"), textures, noted)


def _read_embedded() -> _Read:
    training, test = embedded_digits()
    textures = np.stack([embedded_texture(name) for name in classes("texture")])
    made = {
        DIGITS_NAME: [training.images, training.labels, test.images, test.labels],
        **{
            f"textures/{name}": [texture]
            for name, texture in zip(classes("texture"), textures, strict=True)
        },
    }
    return training, test, textures, {name: _sha256(*arrays) for name, arrays in made.items()}


def _digit_table(
    digits: np.ndarray, labels: np.ndarray, splits: np.ndarray, training: RawDigits, test: RawDigits
) -> pa.Table:
    return pa.table(
        {
            "digit": to_binary(digits),
            "label": labels.astype(np.int8),
            "split": pa.array(splits, pa.string()),
            "file": [training.file] * len(training.labels) + [test.file] * len(test.labels),
            "index": np.concatenate([training.places, test.places]).astype(np.int32),
        }
    )


def _labels_and_splits(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    return table["label"].to_numpy().astype(np.int64), table["split"].to_numpy().astype(str)


def _texture_path(folder: Path, name: str) -> Path:
    return folder / "textures" / f"{name}.png"


def _origin(described: dict) -> tuple[str, bool, str]:
    return described["sources"], described["comparable"], described["digest"]


def _digest(
    digits: np.ndarray, labels: np.ndarray, splits: np.ndarray, textures: Iterable[np.ndarray]
) -> str:
    names = np.frombuffer("\n".join(splits.tolist()).encode(), dtype=np.uint8)
    return _sha256(digits, labels.astype(np.int8), names, *textures)


def _sha256(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def _mismatch(folder: Path) -> DiagvibError:
    return mismatch(folder, "digits and textures")
