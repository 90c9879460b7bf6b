"""The command `generate`: photos from a text-to-image model."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def generate(
    file: Annotated[Path, typer.Argument(help="Definition of the photos and models, a YAML file.")],
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="auto, cpu or cuda.")
    ] = "auto",
) -> None:
    """Make photos of each class on each background with a text-to-image model, and reject those
    whose caption lacks a keyword. Run it again to continue, or several times at once to share the
    work; the photos stay the same."""
    from diagvib.foundation.devices import resolve_device
    from diagvib.foundation.validation import read_valid
    from diagvib.models.text_to_image import load_models, versions
    from diagvib.scenes.photos import generation as photos

    generation = read_valid(photos.Generation, file)
    settings = generation.text_to_image, generation.captioner
    # Before the record, so that a model that cannot be loaded leaves no folder that refuses another.
    models = load_models(*settings, resolve_device(device))
    photos.check_record(generation, Path(generation.folder), versions(*settings))
    table = photos.generate(generation, models)
    total = len(generation.cells) * generation.photos
    print(f"{generation.folder}: {table['accepted'].sum():,} of {total:,} photos")
    for reason, count in table.loc[~table["accepted"], "reason"].value_counts().items():
        print(f"{count:,} images rejected: {reason}")
    print(f"Prompts, seeds and captions: {photos.table_path(generation)}")
