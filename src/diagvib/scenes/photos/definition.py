"""Photo sets: any labelled photos as a scene, defined in YAML. `config/scenes/*.yaml`, or a file of
the user's that a study names as its scene."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from diagvib.foundation.validation import Filled, InvalidField, Line, Strict, Text, repeated
from diagvib.scenes.photos.labels import tidy
from diagvib.scenes.photos.watermark import TEXT
from diagvib.scenes.scene import Classes, FactorName, check_joined
from diagvib.scenes.shapes import PATTERNS, SHAPES

_Value = str | int | float | bool
_Values = _Value | Filled[list[_Value]]


def _texts(values: object) -> list[str]:
    return [tidy(str(value)) for value in (values if isinstance(values, list) else [values])]


def _shared(values: dict[str, list[str]]) -> str | None:
    return repeated([value for class_values in values.values() for value in class_values])


class Factor(Strict):
    """One factor of a photo set."""

    column: str = ""
    """the table's column, or the pattern's field; default: the factor's name"""
    classes: Classes | dict[str, _Values]
    """the classes, if the column holds their names; or for each class the value that stands for it,
    or several. Photos with other values are left out"""

    @model_validator(mode="after")
    def _apart(self) -> Factor:
        if (twice := _shared(self.values)) is not None:
            raise InvalidField("classes", f"the value {twice} stands for two classes")
        if len(self.classes) < 2:
            raise InvalidField("classes", "at least two classes are needed")
        return self

    @property
    def values(self) -> dict[str, list[str]]:
        """Class -> the values that stand for it."""
        if isinstance(self.classes, dict):
            return {name: _texts(values) for name, values in self.classes.items()}
        return {name: [tidy(name)] for name in self.classes}


class Split(Strict):
    """The published split of a photo set."""

    column: str = "split"
    train: _Values = "train"
    val: _Values = "val"
    test: _Values = "test"

    @model_validator(mode="after")
    def _apart(self) -> Split:
        if (twice := _shared(self.values)) is not None:
            raise ValueError(f"the value {twice} stands for two splits")
        return self

    @property
    def values(self) -> dict[str, list[str]]:
        """Split -> the values that stand for it."""
        return {split: _texts(getattr(self, split)) for split in ("train", "val", "test")}


class Watermark(Strict):
    """A watermark as on ImageNet-W (Li et al., 2023), drawn after a photo is cropped and scaled. It
    makes a factor `watermark`, whose classes are absent and present."""

    points_to: str
    """the class that it makes networks predict; runs note its probability"""
    font: str | None = None
    """a font file; default: the installed font closest to the paper's"""
    text: Text = TEXT
    """the watermark's text; with another than the paper's, results are not comparable to it"""


class StandIns(Strict):
    """Drawn photos for `sources: embedded`: a shape for each class of the first factor, a pattern
    for each class of the second. They are not comparable to a paper's."""

    each: Annotated[int, Field(ge=1)] = 100
    """of each combination of classes, in each lot"""
    size: Annotated[int, Field(ge=16, le=512)] = 96
    lots: list[str] = Field([""])
    """the values of `lot`"""
    shapes: dict[str, Literal[tuple(SHAPES)]]
    patterns: dict[str, Literal[tuple(PATTERNS)]]


class PhotoSet(Strict):
    """Labelled photos: a table of files and factors, or a path pattern such as
    `{background}/{breed}/*`."""

    folder: str | None = None
    """the folder of the photos, relative to this file; default: the folder named like this file in
    the configuration's `mirror`"""
    table: str | list[str] | None = None
    """a table in the folder, with a row for each photo: CSV, TSV, JSON lines or Parquet; several
    are joined by the columns that they share, and those that fit a name with `*`, such as
    `*/metadata.csv`, stand below each other, with paths relative to their folders. A column `folder`
    is added: the first folder of a photo's path that not all share"""
    file: str = "file"
    """the table's column with the path of a photo, or with its name if there is only one of that
    name"""
    photos: str = ""
    """the subfolder that these paths are relative to; default: the folder itself"""
    pattern: str | None = None
    """instead of a table: the paths of the photos in the folder; {name} is a field, * any text
    without a slash, ** any text"""
    factors: Filled[dict[FactorName, Factor | Classes]]
    """name of a factor -> its classes, or its column and classes"""
    split: Split | None = None
    """the split of each photo, by a column; default: any photo may be in any split, but only in
    one"""
    unit: str | None = None
    """the column that says which person, animal or place a photo shows; all photos of one are in one
    split"""
    lot: str | None = None
    """the column that divides photos into lots: each training environment takes its photos from a
    different lot, as long as there are enough"""
    size: Annotated[int, Field(ge=16, le=1024)] = 224
    """pixels per side to which photos are scaled, before they are scaled to `image_size`"""
    crop: bool = True
    """whether only the middle square of a photo is used"""
    upright: bool = True
    """whether photos are turned as their EXIF says"""
    keep_twins: bool = False
    """whether photos that are there twice are used, as in some benchmarks"""
    watermark: Watermark | None = None
    """a watermark as a further factor; default: there is none"""
    groups: str | None = None
    """a JSON file in the folder, class index -> group, as of ImageNet-9: photos whose class is
    given as a group's number, such as 00_dog, are of the group's first class"""
    licence: Line = ""
    """an SPDX identifier"""
    citation: Line = ""
    published: int | dict[str, int] | dict[str, dict[str, int]] | None = None
    """the number of photos of each combination of classes (and lot) that were published, or of
    those with a class of the last factor, or of each split (or `all`), by combinations or by
    classes: {train: {landbird-land: 3498, ...}}; with others, results are not comparable to a
    paper's"""
    stand_ins: StandIns | None = None
    """drawn photos for `sources: embedded`; default: there are none"""

    @model_validator(mode="after")
    def _has_its_columns(self) -> PhotoSet:
        if (self.table is None) == (self.pattern is None):
            raise ValueError("exactly one of the keys `table` and `pattern` is needed")
        if self.pattern is not None:
            fields = re.findall("{(.*?)}", self.pattern)
            for field in fields:
                if not field.isidentifier() or fields.count(field) > 1 or field == "path":
                    raise InvalidField(
                        "pattern", f"{{{field}}}: a field is one word, used once, and not path"
                    )
            for column in self.columns:
                if column not in fields:
                    raise InvalidField("pattern", f"has no field {{{column}}}")
        check_joined(self.classes)
        if self.watermark and "watermark" in self.factors:
            raise InvalidField(
                "factors.watermark", "is the factor that the key `watermark` makes; rename yours"
            )
        if self.watermark and self.watermark.points_to not in next(iter(self.classes.values())):
            raise InvalidField("watermark.points_to", "is not a class of the first factor")
        if self.stand_ins is not None:
            drawn_classes = [self.stand_ins.shapes, self.stand_ins.patterns]
            if [sorted(shapes) for shapes in drawn_classes] != [
                sorted(names) for names in self.classes.values()
            ]:
                raise InvalidField(
                    "stand_ins", "`shapes` and `patterns` must name the classes of the two factors"
                )
        return self

    @property
    def tables(self) -> list[str]:
        """The files of the table; empty where paths say what photos show."""
        return [self.table] if isinstance(self.table, str) else self.table or []

    @property
    def parts(self) -> dict[str, Factor]:
        """The factors, each with its column."""
        return {
            name: part
            if isinstance(part, Factor) and part.column
            else Factor(column=name, classes=part.classes if isinstance(part, Factor) else part)
            for name, part in self.factors.items()
        }

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Factor -> its classes."""
        return {name: tuple(part.values) for name, part in self.parts.items()}

    @property
    def columns(self) -> list[str]:
        """The columns that are needed besides the file's."""
        further_columns = [self.split.column if self.split else None, self.unit, self.lot]
        return [*(part.column for part in self.parts.values()), *filter(None, further_columns)]
