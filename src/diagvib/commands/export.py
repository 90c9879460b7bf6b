"""Datasets in the layout of the Hugging Face Hub: Parquet files with an image column, a data card,
and Croissant metadata.

`datasets.load_dataset(FOLDER, "zgo-shape-hue-0")` reads them back, with the same pixels.
"""

import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from diagvib.commands.croissant import CROISSANT, write_croissant
from diagvib.commands.data_card import CARD, Exported, check_card, write_card
from diagvib.commands.pngs import remove_pngs, write_pngs
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import (
    DIGESTS_FILE,
    file_metadata,
    forget,
    is_noted,
    open_parquet,
    read_json,
    whole_file,
    with_metadata,
)
from diagvib.foundation.messages import say
from diagvib.images.datasets import ImageFiles, study_as_drawn
from diagvib.images.files import class_indices, image_pixels
from diagvib.scenes import load_scene
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout
from diagvib.studies.scarcity import split_counts
from diagvib.studies.study import SPLITS

# Images per row group: a few megabytes, as viewers prefer.
ROWS_PER_GROUP = 500
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
# Columns of an image file left out, since the names of dataset and split say the same.
_LEFT_OUT = ("image", "sample", "split")


def export(config: Configuration, out: Path, png: bool = False) -> list[Exported]:
    """Export every dataset of a resolved configuration from its image files to the folder `out`;
    with `png`, also as PNG files.

    Existing files with the right content are kept. Before others are written, the card, the metadata
    and a dataset's PNG files of an earlier export are deleted: they are not of these. Those of
    datasets that the configuration no longer has are left alone, but not listed in the data card.
    DiagvibError if an image file is missing, damaged or changed, or has other sources, another size
    or study than the configuration; for several scenes; for a configuration that makes no image
    files; and for a folder whose README.md is not such a card.
    """
    check_card(out)
    if config.images == "render":
        raise DiagvibError(
            "images: this configuration renders images while it trains and makes no image files; set "
            f"`images: parquet`, {_AGAIN}"
        )
    layout, datasets = Layout(config.root), []
    scenes = sorted(config.scenes)
    if len(scenes) > 1:
        raise DiagvibError(
            f"studies: their scenes, {' and '.join(scenes)}, need a folder each; export "
            "them one after the other"
        )
    for study, binding in config.datasets:
        files = ImageFiles(layout.images(study, binding))
        for sample in range(config.dataset_count):
            exported = Exported(study, binding, sample, {})
            for split in SPLITS:
                exported.images[split] = _export_split(files, exported, split, config, out)
            datasets.append(exported)
            count = sum(exported.images.values())
            say(f"{exported.name}: {count:,} images")
    scene = load_scene(scenes[0])
    licences = scene.licences(config.sources)
    for exported in datasets if png else ():
        write_pngs(out, exported, scene, config.image_size, licences)
    write_croissant(out, datasets, licences, write_card(out, config, scene, datasets))
    return datasets


_AGAIN = "run `snakemake images --cores all --configfile FILE`, and export again"


def _export_split(
    files: ImageFiles, exported: Exported, split: str, config: Configuration, out: Path
) -> int:
    """Write a dataset's split in the Hub's layout; returns the number of its images."""
    path, name = files.path(exported.sample, split), files.name(exported.sample, split)
    target = out / exported.folder / f"{split}.parquet"
    with open_parquet(path) as file:
        metadata = file_metadata(file, path)
        _check_made_for(config, metadata, path)
        groups = Counter(file.read(["group"])["group"].to_pylist())
        _check_counts(config, metadata["study"], split, groups, path)
        factors = load_scene(metadata["scene"]).factors
        # The order of the classes gives their numbers.
        classes = {factor: [*of_factor] for factor, of_factor in factors.items()}
        made_from = {"images": read_json(files.folder / DIGESTS_FILE)[name], "classes": classes}
        if not is_noted(target, "made_from", made_from):
            files.check(exported.sample, split)
            forget(out / CARD)
            forget(out / CROISSANT)
            remove_pngs(target.parent)
            shape = metadata["image_shape"]
            schema = with_metadata(_schema(file.schema_arrow, factors), {"made_from": made_from})
            with (
                whole_file(target) as temporary,
                pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer,
                ThreadPoolExecutor(os.cpu_count()) as pool,
            ):
                for batch in file.iter_batches(batch_size=ROWS_PER_GROUP):
                    pngs = pool.map(_png, image_pixels(batch["image"], shape, path))
                    columns = {"image": [{"bytes": png, "path": None} for png in pngs]}
                    for column in schema.names[1:]:
                        if column in factors:
                            columns[column] = class_indices(batch, column, factors[column])
                        else:
                            columns[column] = batch[column]
                    writer.write_table(pa.table(columns, schema))
        return file.metadata.num_rows


def _check_made_for(config: Configuration, metadata: dict, path: Path) -> None:
    """The card says what the configuration says; that must be true of the images."""
    # Images of photos also say how many files were left out, and with what a watermark is drawn.
    sources = metadata["sources"].partition(" ")[0]
    image_provenance = {"sources": sources, "image_size": metadata["image_shape"][0]}
    for key, value in image_provenance.items():
        if value != getattr(config, key):
            raise DiagvibError(
                f"{path}: was made with {key} {value}, but the configuration has {getattr(config, key)}; {_AGAIN}"
            )
    study = config.study(metadata["study"])
    if study_as_drawn(study, metadata, path) != study:
        raise DiagvibError(
            f"{path}: was drawn from an earlier definition of study {study.name}; {_AGAIN}"
        )


def _check_counts(
    config: Configuration, name: str, split: str, groups: Counter[str], path: Path
) -> None:
    """DiagvibError unless a split has as many images as the configuration says. groups: those that
    there are of each test group."""
    study = config.study(name)
    if study.as_published:
        return
    for group, count in split_counts(study, config.counts, split).items():
        images = groups.total() if group is None else groups[group]
        if images != count:
            of_group = f" of the group {group}" if group else ""
            raise DiagvibError(
                f"{path}: has {images:,} images{of_group}, but the configuration has "
                f"counts.{group or split}: {count}; {_AGAIN}"
            )


def _schema(recipes: pa.Schema, factors: Mapping[str, Sequence[str]]) -> pa.Schema:
    """Columns of a file, with the Hub's features in the metadata: what each number and byte
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


def _png(pixels) -> bytes:
    buffer = io.BytesIO()
    # Level 1: a tenth larger than with the usual level, and several times as fast.
    Image.fromarray(pixels).save(buffer, "png", compress_level=1)
    return buffer.getvalue()
