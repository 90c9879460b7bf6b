"""Photos from a text-to-image model, in a folder for each class and background, as those of
Spawrious (Lynch et al., 2023): prompts from a template, and only images whose caption has a keyword."""

import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from PIL import Image
from pydantic import Field, model_validator

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, whole_file, write_json, write_text
from diagvib.foundation.messages import say
from diagvib.foundation.progress import counting
from diagvib.foundation.seeding import name_seed
from diagvib.foundation.validation import Filled, InvalidField, Name, Strict, Text
from diagvib.scenes.photos.decoding import square
from diagvib.scenes.photos.listing import GENERATED

# Hidden, so that listings of photos skip them.
_JOURNAL, _LOCK = ".generation.jsonl", ".generation.lock"
_WORD = re.compile(r"[^\W_]+")
NO_KEYWORD = "the caption has none of the keywords"
FLAGGED = "the safety checker of the model flags it"
OF_BATCH = "another image of its batch is unsuitable"

_Model = Annotated[Text, Field(description="a folder, a public name, or package.module:function")]


class TextToImage(Strict):
    """A pipeline of the package diffusers, or a function (prompts, seeds, **options) -> images."""

    model: _Model
    revision: str | None = None
    """the version of a public model, such as a commit"""
    steps: Annotated[int, Field(ge=1)] = 50
    guidance: Annotated[float, Field(ge=0)] = 7.5
    size: Annotated[int, Field(ge=16, le=2048)] = 512
    """pixels per side of what the model draws"""
    negative: str = ""
    """what the images should not show"""
    half_precision: bool = False
    options: dict = Field(default_factory=dict)
    """further arguments of the pipeline's call, or of your function"""


class Captioner(Strict):
    """A captioning model of the package transformers, or a function (images, **options) -> texts."""

    model: _Model
    revision: str | None = None
    tokens: Annotated[int, Field(ge=2)] = 16
    """the greatest length of a caption"""
    beams: Annotated[int, Field(ge=1)] = 4
    options: dict = Field(default_factory=dict)
    """further arguments of its `generate`, or of your function"""


class Generation(Strict):
    """What `diagvib generate` makes: photos of each class on each background."""

    folder: Text
    """where the photos go, relative to the current folder: [copy/]background/class/NAME.png; the
    table FOLDER.csv is written beside it"""
    classes: Filled[dict[Name, Text]]
    """name of a class -> its words in prompts"""
    backgrounds: Filled[dict[Name, Text]]
    """name of a background -> its words in prompts"""
    template: Text
    """a prompt, with {class}, {background} and the names of `details`"""
    details: dict[str, Filled[list[str]]] = Field(default_factory=dict)
    """name -> its texts; the prompts of a folder are all combinations of them"""
    photos: Annotated[int, Field(ge=1)]
    """of each class on each background, in each copy, divided evenly among the prompts"""
    copies: Annotated[int, Field(ge=1)] = 1
    """with several, the folders 0, 1, ... hold as many sets of photos"""
    keywords: Filled[list[Text]] | dict[Name, Filled[list[Text]]]
    """words of which a caption must have one; or for each class its own"""
    reject: Literal["photo", "batch"] = "photo"
    """whether an unsuitable image is left out alone, or with all images of its batch"""
    batch: Annotated[int, Field(ge=1)] = 4
    """images made together"""
    attempts: Annotated[int, Field(ge=1)] = 400
    """images of one prompt without a suitable one, after which the command stops"""
    size: Annotated[int, Field(ge=16, le=2048)] = 224
    """pixels per side of the files"""
    seed: int = 0
    text_to_image: TextToImage
    captioner: Captioner

    @model_validator(mode="after")
    def _fits(self) -> "Generation":
        names = ["class", "background", *self.details]
        try:
            parts = [
                part[1:] for part in string.Formatter().parse(self.template) if part[1] is not None
            ]
        except ValueError as error:
            raise InvalidField("template", f"{error}; write {{{{ for a brace") from None
        fields = [name for name, _, _ in parts]
        for name, form, conversion in parts:
            if name not in names:
                raise InvalidField("template", f"has {{{name}}}, which `details` lacks")
            if form or conversion:
                raise InvalidField("template", f"write {{{name}}} without a format")
        for name in names:
            if name not in fields:
                raise InvalidField("template", f"lacks {{{name}}}")
        if {"class", "background"} & {*self.details}:
            raise InvalidField("details", "class and background have keys of their own")
        if isinstance(self.keywords, dict) and {*self.keywords} != {*self.classes}:
            raise InvalidField("keywords", "must name each class once, or be one list for all")
        for keyword in sorted(set().union(*map(self.keywords_of, self.classes))):
            if not _WORD.fullmatch(keyword):
                raise InvalidField(
                    "keywords",
                    f"{keyword!r} is not one word of letters and digits, as the words of a caption are",
                )
        return self

    def keywords_of(self, class_name: str) -> set[str]:
        words = self.keywords[class_name] if isinstance(self.keywords, dict) else self.keywords
        return {word.casefold() for word in words}

    def prompts(self, class_name: str, background: str) -> list[str]:
        """All prompts of a folder, the last detail changing fastest."""
        fixed = {"class": self.classes[class_name], "background": self.backgrounds[background]}
        return [
            self.template.format_map(fixed | dict(zip(self.details, texts, strict=True)))
            for texts in product(*self.details.values())
        ]

    @property
    def cells(self) -> "list[Cell]":
        copies = [str(number) for number in range(self.copies)] if self.copies > 1 else [""]
        return [Cell(*names) for names in product(copies, self.backgrounds, self.classes)]


class Cell(NamedTuple):
    """A folder of photos."""

    copy: str
    background: str
    class_name: str

    @property
    def path(self) -> str:
        return "/".join(filter(None, self))


# Of the table of images.
_COLUMNS = ["photo", *Cell._fields, "prompt", "seed", "caption", "accepted", "reason"]


class Drawing(NamedTuple):
    """An image of a text-to-image model; flagged: whether its safety checker rejects it."""

    image: Image.Image
    flagged: bool = False


@dataclass(frozen=True)
class Models:
    """draw: prompts and as many seeds to drawings; caption: images to texts."""

    draw: Callable[[Sequence[str], Sequence[int]], Sequence[Drawing]]
    caption: Callable[[Sequence[Image.Image]], Sequence[str]]


def has_keyword(caption: str, keywords: set[str]) -> bool:
    """Whether one of the words of a caption is a keyword; `dogs` is not `dog`."""
    return not keywords.isdisjoint(_WORD.findall(caption.casefold()))


class Journal:
    """The images of a cell so far, a line of JSON for each. Where the process was killed, the last
    line, or batch, may be incomplete."""

    def __init__(self, folder: Path, cell: Cell):
        self.folder, self.path = folder, folder / cell.path / _JOURNAL
        self.rows, self.confirmed = _read_journal(self.path), 0

    @property
    def accepted(self) -> int:
        return sum(row["accepted"] for row in self.rows)

    def recorded(self, seeds: Sequence[int]) -> list[dict]:
        """The next batch, if all of it is recorded and its photos are there. Otherwise none, and all
        rows from there on are dropped."""
        batch = self.rows[self.confirmed : self.confirmed + len(seeds)]
        photos = [self.folder / row["photo"] for row in batch if row["accepted"]]
        if [row["seed"] for row in batch] == [*seeds] and all(map(Path.exists, photos)):
            self.confirmed += len(batch)
            return batch
        del self.rows[self.confirmed :]
        return []

    def append(self, batch: Sequence[dict]) -> None:
        self.rows += batch
        self.confirmed = len(self.rows)
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))


def _read_journal(path: Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def check_record(generation: Generation, folder: Path, versions: Mapping[str, str]) -> None:
    """Record what a folder's photos are made with. DiagvibError if it has photos that are made
    otherwise, or by something else."""
    path, definition = folder / GENERATED, generation.model_dump(mode="json", exclude={"folder"})
    if not path.exists():
        if folder.exists() and any(folder.iterdir()):
            raise DiagvibError(f"{folder}: has files that were not generated; name a new folder")
        write_json(path, {"generation": definition, "versions": dict(versions)})
        return
    record = read_json(path)
    for key, value in definition.items():
        if record["generation"].get(key) != value:
            raise DiagvibError(
                f"{folder}: its photos were made with another value of `{key}`; name a new folder, or "
                "restore it to continue"
            )
    for package, version in versions.items():
        if (previous := record["versions"].get(package)) != version:
            say(
                f"{folder}: begun with {package} {previous}, continued with {version}; images may differ"
            )


def generate(generation: Generation, models: Models) -> pd.DataFrame:
    """Make the photos that are missing; the table of all images, also of those that are rejected.
    Several processes may work on one folder, each on another cell; a process that was killed
    continues where it was, with the same images."""
    folder = Path(generation.folder)
    total = len(generation.cells) * generation.photos
    accepted = sum(Journal(folder, cell).accepted for cell in generation.cells)
    with counting(f"generate {folder}", total - accepted, "photos") as advance:
        for cell in generation.cells:
            (folder / cell.path).mkdir(parents=True, exist_ok=True)
            with suppress(Timeout), FileLock(folder / cell.path / _LOCK, timeout=0):
                _generate_cell(generation, cell, models, advance)
    return _write_table(generation)


def _generate_cell(
    generation: Generation, cell: Cell, models: Models, advance: Callable[[int], None]
) -> None:
    journal = Journal(Path(generation.folder), cell)
    prompts = generation.prompts(cell.class_name, cell.background)
    for number, prompt in enumerate(prompts):
        missing = len(range(number, generation.photos, len(prompts)))
        attempt = fruitless = 0
        while missing:
            batch = Batch(cell, number, prompt, attempt, min(generation.batch, missing))
            rows = journal.recorded(batch.seeds(generation.seed))
            if not rows:
                rows = _make(generation, batch, models)
                journal.append(rows)
                advance(sum(row["accepted"] for row in rows))
            accepted = sum(row["accepted"] for row in rows)
            missing, attempt = missing - accepted, attempt + len(rows)
            fruitless = 0 if accepted else fruitless + len(rows)
            if fruitless >= generation.attempts:
                raise DiagvibError(
                    f"{generation.folder}/{cell.path}: of {fruitless} images of the prompt "
                    f"{prompt!r}, none is suitable, the last because {rows[-1]['reason']} (caption: "
                    f"{rows[-1]['caption']!r}); change template, keywords or models, and name a new folder"
                )


class Batch(NamedTuple):
    """Images made together. attempt: how many images of the prompt there were before."""

    cell: Cell
    number: int
    prompt: str
    attempt: int
    size: int

    def seeds(self, seed: int) -> list[int]:
        attempts = range(self.attempt, self.attempt + self.size)
        return [name_seed(seed, *self.cell, self.number, attempt) for attempt in attempts]

    def photo(self, position: int) -> str:
        return f"{self.cell.path}/{self.number:03d}-{self.attempt + position:05d}.png"


def _make(generation: Generation, batch: Batch, models: Models) -> list[dict]:
    """Make a batch of images, and write those that are suitable; their rows."""
    seeds = batch.seeds(generation.seed)
    drawings = models.draw([batch.prompt] * batch.size, seeds)
    captions = models.caption([drawing.image for drawing in drawings])
    rows = []
    for position, reason in enumerate(_reasons(generation, batch.cell, drawings, captions)):
        photo = "" if reason else batch.photo(position)
        if photo:
            _write_photo(Path(generation.folder) / photo, drawings[position].image, generation.size)
        row = {"photo": photo, **batch.cell._asdict(), "prompt": batch.prompt}
        row |= {"seed": seeds[position], "caption": " ".join(captions[position].split())}
        rows.append({**row, "accepted": not reason, "reason": reason})
    return rows


def _reasons(
    generation: Generation, cell: Cell, drawings: Sequence[Drawing], captions: Sequence[str]
) -> list[str]:
    """Why each image of a batch is rejected; empty for those that are suitable."""
    keywords = generation.keywords_of(cell.class_name)
    reasons = [
        FLAGGED if drawing.flagged else "" if has_keyword(caption, keywords) else NO_KEYWORD
        for drawing, caption in zip(drawings, captions, strict=True)
    ]
    if generation.reject == "batch" and any(reasons):
        return [reason or OF_BATCH for reason in reasons]
    return reasons


def _write_photo(path: Path, image: Image.Image, size: int) -> None:
    with whole_file(path) as temporary:
        pixels = square(np.asarray(image.convert("RGB")), size)
        Image.fromarray(pixels).save(temporary, "PNG")


def table_path(generation: Generation) -> Path:
    """Beside the folder, so that it is none of the photos."""
    folder = Path(generation.folder)
    return folder.with_name(f"{folder.name}.csv")


def _write_table(generation: Generation) -> pd.DataFrame:
    """Write the table: a row for each image of all cells so far."""
    folder = Path(generation.folder)
    rows = [row for cell in generation.cells for row in Journal(folder, cell).rows]
    table = pd.DataFrame(rows, columns=_COLUMNS).astype({"accepted": bool})
    with whole_file(table_path(generation)) as temporary:
        table.to_csv(temporary, index=False)
    return table
