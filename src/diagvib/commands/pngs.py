"""An exported dataset as PNG files with a table `metadata.csv`, as Hugging Face's imagefolder,
WILDS, Group DRO and SubpopBench read Waterbirds, and a definition of these files as photos, which
names the classes."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd

from diagvib.commands.data_card import Exported
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import open_parquet, write_text, write_yaml, writing
from diagvib.scenes.scene import Scene

_FOLDER, _TABLE, _FILE, _BATCH = "png", "metadata.csv", "file_name", 500
# Beside that folder, until all of its files are written; and while they are deleted.
_NEW, _OLD = f".{_FOLDER}.new.tmp", f".{_FOLDER}.old.tmp"
# file_name: for imagefolder; the others: for readers of Waterbirds, where `place` is the cue.
_COLUMNS = (_FILE, "img_filename", "img_id", "y", "place", "split")


def write_pngs(
    out: Path, dataset: Exported, scene: Scene, size: int, licences: Sequence[tuple[str, str]]
) -> None:
    """Write them to the folder `png` beside the dataset's Parquet files, from these; all are there,
    or none. In the table, splits and classes are numbers, without gaps for classes that no image
    has; y is the target's class, and place the cue's, a number for each combination of several cues.
    DiagvibError if the scene has another column with one of these names."""
    target, *cues = dataset.binding.split("-")
    folder = out / dataset.folder / _NEW
    files = {split: out / dataset.folder / f"{split}.parquet" for split in dataset.images}
    _check_columns(files.values(), {"y": [target], "place": cues})
    shutil.rmtree(folder, ignore_errors=True)
    tables = [
        table.assign(split=number)
        for number, (split, path) in enumerate(files.items())
        for table in _write_images(path, folder, split)
    ]
    table = pd.concat(tables, ignore_index=True)
    numbered = _number_classes(table, scene)
    table["place"] = table.groupby(cues).ngroup() if cues else 0
    table = table.assign(img_filename=table[_FILE], img_id=table.index, y=table[target])
    table = table[[*_COLUMNS, *table.columns.difference(_COLUMNS, sort=False)]]
    # imagefolder wants a table in each split's folder, with paths in that folder.
    for split, rows in table.groupby("split"):
        inside = folder / [*files][split]
        rows = rows.assign(**{_FILE: rows[_FILE].str.rpartition("/")[2]})
        write_text(inside / _TABLE, rows.to_csv(index=False))
    write_text(folder / _TABLE, table.to_csv(index=False))
    definition = {
        "folder": ".",
        "table": _TABLE,
        "file": _FILE,
        "factors": numbered,
        "split": {split: number for number, split in enumerate(dataset.images)},
        "size": size,
        "keep_twins": True,
        "licence": " AND ".join(dict.fromkeys(licence for licence, _ in licences)),
        "citation": "; ".join(citation for _, citation in licences),
    }
    write_yaml(folder / "photos.yaml", definition)
    remove_pngs(out / dataset.folder)
    os.rename(folder, out / dataset.folder / _FOLDER)


def remove_pngs(folder: Path) -> None:
    """Remove the folder `png` beside a dataset's Parquet files, if it is there: whole, or not
    at all."""
    shutil.rmtree(folder / _OLD, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.rename(folder / _FOLDER, folder / _OLD)
    shutil.rmtree(folder / _OLD, ignore_errors=True)


def _check_columns(paths: Iterable[Path], factors: Mapping[str, list[str]]) -> None:
    """DiagvibError if a file has a column that the table needs for something else. factors: of the
    columns that may stand for a factor of the same name."""
    for path in paths:
        with open_parquet(path) as file:
            for name in {*_COLUMNS} & {*file.schema_arrow.names}:
                if factors.get(name) != [name]:
                    raise DiagvibError(
                        f"--png: {_TABLE} has a column {name} of its own; rename the scene's"
                    )


def _write_images(path: Path, folder: Path, split: str) -> Iterator[pd.DataFrame]:
    """Write a split's images to its own folder; yields their other columns and their file names."""
    (folder / split).mkdir(parents=True)
    start = 0
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH):
            table = batch.to_pandas()
            names = [f"{split}/{start + row:06}.png" for row in range(len(table))]
            for name, image in zip(names, table.pop("image"), strict=True):
                with writing(folder / name):
                    (folder / name).write_bytes(image["bytes"])
            start += len(table)
            yield table.assign(**{_FILE: names})


def _number_classes(table: pd.DataFrame, scene: Scene) -> dict[str, dict]:
    """Replace each factor's classes in the table by numbers; returns factor -> class -> number, as
    a photo set's `factors`, of those with two classes or more, as it must have."""
    numbered = {}
    for factor, classes in scene.factors.items():
        table[factor], present = pd.factorize(table[factor], sort=True)
        if len(present) > 1:
            numbers = {classes[position]: number for number, position in enumerate(present)}
            numbered[factor] = {"classes": numbers}
    return numbered
