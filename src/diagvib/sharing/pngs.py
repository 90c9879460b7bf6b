"""An exported dataset as PNG files with a table `metadata.csv`, as WILDS and Group DRO read
Waterbirds, and a definition of these files as photos, which names the classes."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import yaml

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import open_parquet, whole_file, write_text
from diagvib.scenes.scene import Scene
from diagvib.sharing.data_card import Exported

_TABLE, _FILE, _BATCH = "metadata.csv", "img_filename", 500


def write_pngs(
    out: Path, dataset: Exported, scene: Scene, size: int, licences: Sequence[tuple[str, str]]
) -> None:
    """Write them to the folder `png` beside the dataset's Parquet files, from these. In the table,
    splits and classes are numbers, and y is the target's class. DiagvibError if the scene has another
    column with one of these names."""
    target, folder, tables = dataset.binding.split("-")[0], out / dataset.folder / "png", []
    files = {split: out / dataset.folder / f"{split}.parquet" for split in dataset.images}
    for path in files.values():
        with open_parquet(path) as file:
            if taken := {_FILE, "y", "split"} & {*file.schema_arrow.names} - {target}:
                raise DiagvibError(
                    f"--png: {_TABLE} has a column {min(taken)} of its own; rename the scene's"
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
                known = {_FILE: names, "y": table[target], "split": number}
                tables.append(pd.DataFrame({**known, **table}))
    with whole_file(folder / _TABLE) as temporary:
        pd.concat(tables).to_csv(temporary, index=False)
    numbered = {
        factor: {"classes": {name: number for number, name in enumerate(classes)}}
        for factor, classes in scene.factors.items()
    }
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
