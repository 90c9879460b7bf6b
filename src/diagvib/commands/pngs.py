"""An exported dataset as PNG files with a table `metadata.csv`, as Hugging Face's imagefolder,
WILDS, Group DRO and SubpopBench read Waterbirds, and a definition of these files as photos, which
names the classes."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from diagvib.commands.data_card import Exported
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import open_parquet, whole_file, write_yaml, writing
from diagvib.scenes.scene import Scene

_TABLE, _FILE, _BATCH = "metadata.csv", "file_name", 500
# file_name: for imagefolder; the others: for readers of Waterbirds, where `place` is the cue.
_COLUMNS = (_FILE, "img_filename", "img_id", "y", "place", "split")


def write_pngs(
    out: Path, dataset: Exported, scene: Scene, size: int, licences: Sequence[tuple[str, str]]
) -> None:
    """Write them to the folder `png` beside the dataset's Parquet files, from these. In the table,
    splits and classes are numbers, without gaps for classes that no image has; y is the target's
    class, and place the cue's, a number for each combination of several cues. DiagvibError if the
    scene has another column with one of these names."""
    target, *cues = dataset.binding.split("-")
    folder = out / dataset.folder / "png"
    files = {split: out / dataset.folder / f"{split}.parquet" for split in dataset.images}
    _check_columns(files.values(), {"y": [target], "place": cues})
    # An earlier export's table must not be taken for that of new images.
    for name in (_TABLE, "photos.yaml"):
        (folder / name).unlink(missing_ok=True)
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
        rows.to_csv(inside / _TABLE, index=False)
    with whole_file(folder / _TABLE) as temporary:
        table.to_csv(temporary, index=False)
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
