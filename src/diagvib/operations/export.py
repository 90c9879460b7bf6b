"""Datasets in the layout of the Hugging Face Hub: Parquet shards with an image column, and a data
card.

`datasets.load_dataset(FOLDER, "zgo-shape-hue-0")` reads them back, with the same pixels.
"""

import hashlib
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import (
    file_metadata,
    is_noted,
    open_parquet,
    read_json,
    whole_file,
    with_metadata,
)
from diagvib.images import DIGESTS_FILE
from diagvib.images.datasets import ImageFiles, study_as_drawn
from diagvib.images.files import class_indices, image_pixels
from diagvib.operations.data_card import Exported, check_card, write_card
from diagvib.scenes import load_scene
from diagvib.settings.grid import Layout, dataset_count, datasets, study_of
from diagvib.studies.study import SPLITS

# Images per shard, and per row group.
SHARD, GROUP = 20_000, 500
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
# Columns of an image file left out, since the names of dataset and split say the same.
_LEFT_OUT = ("image", "sample", "split")
Factors = Mapping[str, Sequence[str]]


def export(config: dict, out: Path) -> list[Exported]:
    """Export every dataset of a resolved configuration from its image files to the folder `out`.

    Existing shards with the right content are kept. Those of datasets that the configuration no
    longer has are left alone, but not listed in the data card. DiagvibError if an image file is
    missing, damaged or changed, or has other sources, another size or study than the configuration; for
    several scenes; for a configuration that makes no image files; and for a folder whose README.md
    is not such a card.
    """
    check_card(Path(out))
    if config["images"] == "render":
        raise DiagvibError(
            "images: this configuration renders images while it trains and makes no image files; set "
            "`images: parquet`, run `snakemake images --cores all --configfile FILE`, and export again"
        )
    layout, found = Layout(Path(config["root"])), []
    scenes = sorted({study_of(config, study).scene for study in config["studies"]})
    if len(scenes) > 1:
        raise DiagvibError(
            f"studies: their scenes, {' and '.join(scenes)}, need a folder each; export "
            "them one after the other"
        )
    for study, binding in datasets(config):
        for sample in range(dataset_count(config)):
            files = ImageFiles(layout.images(study, binding))
            images = {
                split: _export_split(files, sample, split, config, Path(out)) for split in SPLITS
            }
            found.append(Exported(study, binding, sample, images))
            print(f"{found[-1].name}: {sum(images.values()):,} images", file=sys.stderr, flush=True)
    write_card(out, config, load_scene(scenes[0]), found)
    return found


def _export_split(files: ImageFiles, sample: int, split: str, config: dict, out: Path) -> int:
    """Write one image file as shards; returns the number of its images."""
    path, name, digests = (
        files.path(sample, split),
        files.name(sample, split),
        files.folder / DIGESTS_FILE,
    )
    with open_parquet(path) as file:
        metadata, count = file_metadata(file, path), file.metadata.num_rows
        _check_made_for(config, metadata, path)
        factors = load_scene(metadata["scene"]).factors
        schema = _schema(file.schema_arrow, factors)
        shards = max(math.ceil(count / SHARD), 1)
        folder = out / metadata["study"] / metadata["binding"] / str(sample)
        digest = hashlib.sha256(
            json.dumps([read_json(digests)[name] if digests.exists() else metadata, SHARD]).encode()
        ).hexdigest()
        paths = [
            folder / f"{split}-{number:05d}-of-{shards:05d}.parquet" for number in range(shards)
        ]
        _remove_others(folder, split, paths)
        if not all(is_noted(shard, "made_from", digest) for shard in paths):
            files.check(sample, split)
            batches = _encoded(file, metadata["image_shape"], factors, path)
            for shard in paths:
                _write_shard(shard, batches, with_metadata(schema, {"made_from": digest}))
    return count


def _check_made_for(config: dict, metadata: dict, path: Path) -> None:
    """The card says what the configuration says; that must be true of the images."""
    for key, found in (
        ("sources", metadata["sources"]),
        ("image_size", metadata["image_shape"][0]),
    ):
        if found != config[key]:
            raise DiagvibError(
                f"{path}: was made with {key} {found}, but the configuration has {config[key]}; run "
                "`snakemake images --cores all --configfile FILE`, and export again"
            )
    study = study_of(config, metadata["study"])
    if study_as_drawn(study, metadata, path) != study:
        raise DiagvibError(
            f"{path}: was drawn from an earlier definition of study {study.name}; run "
            "`snakemake images --cores all --configfile FILE`, and export again"
        )


def _write_shard(path: Path, batches: Iterator[pa.Table], schema: pa.Schema) -> None:
    """Write as many of the batches as a shard holds. Row groups have a few megabytes, as viewers
    prefer."""
    with (
        whole_file(path) as temporary,
        pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer,
    ):
        for _ in range(SHARD // GROUP):
            table = next(batches, None)
            if table is None:
                break
            writer.write_table(table.cast(schema), row_group_size=GROUP)


def _remove_others(folder: Path, split: str, paths: Sequence[Path]) -> None:
    """Remove shards of an earlier export with another number of them: they would be read as further
    images."""
    for path in set(folder.glob(f"{split}-*.parquet")) - set(paths):
        path.unlink()


def _schema(recipes: pa.Schema, factors: Factors) -> pa.Schema:
    """Columns of a shard, with the Hub's features in the metadata: what each number and byte
    means."""
    fields, features = [pa.field("image", _IMAGE)], {"image": {"_type": "Image"}}
    for field in recipes:
        if field.name in factors:
            fields.append(pa.field(field.name, pa.int64()))
            features[field.name] = {"_type": "ClassLabel", "names": list(factors[field.name])}
        elif field.name not in _LEFT_OUT:
            fields.append(field)
            features[field.name] = {"_type": "Value", "dtype": str(field.type)}
    return pa.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": features}})})


def _encoded(
    file: pq.ParquetFile, shape: list[int], factors: Factors, path: Path
) -> Iterator[pa.Table]:
    """The rows of an image file, GROUP at a time: each image as a PNG, each class as its index."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for batch in file.iter_batches(batch_size=GROUP):
            table = pa.Table.from_batches([batch])
            pixels = image_pixels(batch["image"], shape, path)
            columns = {
                "image": pa.array(
                    [{"bytes": image, "path": None} for image in pool.map(_png, pixels)], _IMAGE
                )
            }
            for name in table.column_names:
                if name in factors:
                    columns[name] = pa.array(class_indices(table, name, factors[name]))
                elif name not in _LEFT_OUT:
                    columns[name] = table[name]
            yield pa.table(columns)


def _png(pixels) -> bytes:
    buffer = io.BytesIO()
    # Level 1: a tenth larger than with the usual level, and several times as fast.
    Image.fromarray(pixels).save(buffer, "png", compress_level=1)
    return buffer.getvalue()
