"""Write the photos inside Parquet files, as on the Hugging Face Hub, to files with a table beside
them."""

import json
import re
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from PIL import Image

from diagvib.commands.photo_columns import columns_of_photos
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, whole_file, write_json, writing
from diagvib.scenes.photos.listing import files_in

_EXTENSIONS = {"JPEG": ".jpg", "MPO": ".jpg", "PNG": ".png", "WEBP": ".webp"}
# The number of a file, perhaps with a hash; a split's folder may have files with numbers alone.
_SHARD = re.compile(r"-\d+-of-\d+(-[0-9a-f]+)?$|^\d+$")
_ROWS = 256  # at a time
# In a folder of unpacked photos: the files that they are from, with their sizes and times.
_UNPACKED = ".unpacked.json"
_TABLE = "metadata.csv"  # written last


def unpack(folder: Path, out: Path) -> None:
    """Write all photos inside a folder's Parquet files to `out`, in a folder for each split, and
    `out`/metadata.csv with their labels: `file_name`, `split`, and the other columns, numbers of
    classes as names. A split is the name of a file without its number, or else of its folder.
    Photos that are there already stay; after a kill, the same call unpacks them again.

    DiagvibError if there are none, or if `out` has other files.
    """
    paths = [folder / path for path in files_in(folder) if path.lower().endswith(".parquet")]
    tables = {path: images for path in paths if (images := columns_of_photos(path))}
    if not tables:
        raise DiagvibError(f"{folder}: has no Parquet file with photos inside")
    note, statuses = out / _UNPACKED, {path: path.stat() for path in tables}
    made_from = {
        str(path.relative_to(folder)): [status.st_size, status.st_mtime_ns]
        for path, status in statuses.items()
    }
    begun = note.exists() and read_json(note) == made_from
    if begun and (out / _TABLE).exists():
        return
    if not begun and out.exists() and any(path.name[0] != "." for path in out.iterdir()):
        raise DiagvibError(f"--unpack {out}: has files; name a new folder")
    write_json(note, made_from)
    labels = [_unpacked(folder, path, images, out) for path, images in tables.items()]
    with whole_file(out / _TABLE) as temporary:
        pd.concat(labels).to_csv(temporary, index=False)


def check_unpacked(folder: Path) -> None:
    """DiagvibError for a folder to which photos were being unpacked when that was stopped."""
    if (folder / _UNPACKED).exists() and not (folder / _TABLE).exists():
        raise DiagvibError(
            f"{folder}: not all of its photos were unpacked; run the command with --unpack again"
        )


def _unpacked(folder: Path, path: Path, images: Sequence[str], out: Path) -> pd.DataFrame:
    """Write the photos of one file, of the first column of images, in a folder of the file's path; the
    labels of its rows."""
    split, file = _SHARD.sub("", path.stem) or path.parent.name, pq.ParquetFile(path)
    photos = Path(split, path.relative_to(folder).with_suffix(""))
    (out / photos).mkdir(parents=True, exist_ok=True)
    names = []
    for batch in file.iter_batches(_ROWS, columns=[*images[:1]]):
        for value in batch.column(0).to_pylist():
            data = value.get("bytes") if isinstance(value, dict) else value
            name = f"{photos}/{len(names):06d}{_extension(data, path, len(names))}"
            with writing(out / name):
                (out / name).write_bytes(data)
            names.append(name)
    label_columns = [name for name in file.schema_arrow.names if name not in images]
    table = file.read(columns=label_columns).to_pandas(
        ignore_metadata=True, integer_object_nulls=True
    )
    for name, classes in _class_names(file).items():
        if name in table:
            table[name] = table[name].map(dict(enumerate(classes)))
    return table.drop(columns="file_name", errors="ignore").assign(
        file_name=names, **({} if "split" in table else {"split": split})
    )


def _extension(data: bytes | None, path: Path, row: int) -> str:
    """The extension of a photo's format."""
    try:
        return _EXTENSIONS[Image.open(BytesIO(data)).format]
    except Exception as error:  # bytes may be missing, damaged, or of another format
        raise DiagvibError(
            f"{path}: row {row + 1}: holds no JPEG, PNG or WebP image; leave this row out"
        ) from error


def _class_names(file: pq.ParquetFile) -> dict[str, list[str]]:
    """Column -> the names of its numbers, as the package `datasets` notes them."""
    metadata = json.loads((file.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
    features = metadata.get("info", {}).get("features", {})
    return {
        name: feature["names"]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }
