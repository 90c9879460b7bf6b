"""An exported dataset as PNG files with a table `metadata.csv`, as Hugging Face's imagefolder,
WILDS, Group DRO and SubpopBench read Waterbirds, and a definition of these files as photos, which
names the classes."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import yaml

from diagvib.commands.data_card import Exported
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import open_parquet, whole_file, write_text
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
    folder, tables = out / dataset.folder / "png", []
    files = {split: out / dataset.folder / f"{split}.parquet" for split in dataset.images}
    required = {"y": [target], "place": cues}
    for path in files.values():
        with open_parquet(path) as file:
            for name in {*_COLUMNS} & {*file.schema_arrow.names}:
                if required.get(name) != [name]:
                    raise DiagvibError(
                        f"--png: {_TABLE} has a column {name} of its own; rename the scene's"
                    )
    # An earlier export's table must not vouch for new images.
    for name in (_TABLE, "photos.yaml"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    for number, (split, path) in enumerate(files.items()):
        (folder / split).mkdir(parents=True)
        start = 0
        with open_parquet(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                table = batch.to_pandas()
                names = [f"{split}/{start + n:06}.png" for n in range(len(table))]
                for name, image in zip(names, table.pop("image"), strict=True):
                    (folder / name).write_bytes(image["bytes"])
                start += len(table)
                tables.append(table.assign(**{_FILE: names, "split": number}))
    table, numbered = pd.concat(tables, ignore_index=True), {}
    for factor, classes in scene.factors.items():
        numbers, present = pd.factorize(table[factor], sort=True)
        table[factor] = numbers
        if len(present) > 1:  # as a factor of photos must have
            numbered[factor] = {
                "classes": {classes[position]: new for new, position in enumerate(present)}
            }
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
    write_text(folder / "photos.yaml", yaml.safe_dump(definition, sort_keys=False))
