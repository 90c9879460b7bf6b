"""Studies: which cells are trained and tested, how often, in which environment. A study is data, not code.

The shipped ones stand in `config/studies/*.yaml`; a configuration names further files (`studies_from`).
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field, field_validator, model_validator

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import definition_path, read_yaml
from diagvib.foundation.validation import Name, Strict, validated

SPLITS = ("train", "val", "test")
TARGET = "target"
MAIN = "main"  # the environment of a study that names none

# A role's class index, or `added`: the cue class that the dataset sample adds to the cell's target class.
Cell = list[int | Literal["added"]]
Relations = dict[str, Literal["same", "other"]]

# What each set of metrics needs: the test groups that a study must have, and whether it may have others.
METRICS = {"shortcut": (("id", "ood"), False), "accuracy": ((), True)}


class Row(Strict):
    """Some cells of a study: where they stand, and how often they occur together."""

    splits: Annotated[list[Literal["train", "val", "test"]], Field(min_length=1)]
    group: Name
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    environment: Name = MAIN
    cells: Literal["others"] | Relations | list[Cell]

    @field_validator("splits")
    @classmethod
    def _each_once(cls, splits: list[str]) -> list[str]:
        if len(set(splits)) < len(splits):
            raise ValueError(f"{', '.join(splits)} names a split twice")
        return splits

    @field_validator("cells", mode="before")
    @classmethod
    def _known_form(cls, cells: object) -> object:
        if isinstance(cells, dict) and cells and all(value in ("same", "other") for value in cells.values()):
            return cells
        indices = isinstance(cells, list) and cells and all(
            isinstance(cell, list) and cell and all(c == "added" or (type(c) is int and c >= 0) for c in cell)
            for cell in cells)
        if cells == "others" or indices:
            return cells
        raise ValueError("cells are a list of class indices in the order of the roles, like [[0, 0], [1, 1]], relations "
                         f"to the target's class, like {{cue: same}} or {{cue: other}}, or others; not {cells!r}")


class Study(Strict):
    """A table of weighted cells over named roles, as in `config/studies/*.yaml`.

    roles: number of classes of each role, `target` first. bound: the roles to which a binding gives a factor; what
    other roles say is summed out. metrics: the set of metrics by which results are judged. opportunity: how headlines
    name what this study offers against a shortcut.
    """

    name: Name
    title: Annotated[str, Field(min_length=1, max_length=64)]
    meaning: Annotated[str, Field(min_length=1)]
    scene: Annotated[str, Field(min_length=1)] = "digits"
    metrics: Literal["shortcut", "accuracy"] = "shortcut"
    roles: dict[Name, Annotated[int, Field(ge=2)]]
    bound: Annotated[list[str], Field(min_length=1)]
    opportunity: str = ""
    rows: Annotated[list[Row], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _all_roles_are_bound(cls, value: object) -> object:
        if isinstance(value, dict) and "bound" not in value and isinstance(value.get("roles"), dict):
            return {**value, "bound": list(value["roles"])}
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> "Study":
        if next(iter(self.roles), None) != TARGET:
            raise ValueError(f"roles: the first role must be `{TARGET}`, not {next(iter(self.roles), 'none')}")
        if self.bound != [role for role in self.roles if role in self.bound] or self.bound[0] != TARGET:
            raise ValueError(f"bound: {', '.join(self.bound)} are not roles in their order, `{TARGET}` first; the roles "
                             f"are {', '.join(self.roles)}")
        for number, row in enumerate(self.rows):
            self._check_row(number, row)
        for split in SPLITS:
            if not any(split in row.splits for row in self.rows):
                raise ValueError(f"rows: no row names the split {split}")
        self._check_groups()
        # A dataset sample adds to each target class a cue class that is not the diagonal's.
        for added_cue in product((1, 2), (0, 2), (0, 1)) if self._adds else [None]:
            self._check_cells(added_cue)
        return self

    @property
    def _adds(self) -> bool:
        return any(isinstance(row.cells, list) and any("added" in cell for cell in row.cells) for row in self.rows)

    def _check_row(self, number: int, row: Row) -> None:
        where = f"rows.{number}: cells"
        if row.cells == "others":
            if "train" in row.splits:
                raise ValueError(f"{where}: `others` are the cells that no training row names, so a row with the split "
                                 "train cannot have them; list its cells")
        elif isinstance(row.cells, dict):
            unknown = next((role for role in row.cells if role not in self.roles or role == TARGET), None)
            if unknown:
                raise ValueError(f"{where}: {unknown} is no role beside `{TARGET}`; those are "
                                 f"{', '.join(list(self.roles)[1:]) or 'none'}")
        else:
            for cell in row.cells:
                self._check_cell(where, cell)

    def _check_cell(self, where: str, cell: Cell) -> None:
        if len(cell) != len(self.roles):
            raise ValueError(f"{where}: {cell} has {len(cell)} class indices; {len(self.roles)} roles "
                             f"({', '.join(self.roles)}) need {len(self.roles)}")
        for (role, classes), index in zip(self.roles.items(), cell, strict=True):
            if index == "added":
                if role == TARGET or list(self.roles.values()) != [3, 3]:
                    raise ValueError(f"{where}: `added` stands for a cue's class and needs two roles of three classes")
            elif index >= classes:
                raise ValueError(f"{where}: {cell}: {role} has {classes} classes, so its indices are 0 to {classes - 1}")

    def _check_groups(self) -> None:
        needed, others = METRICS[self.metrics]
        needed = needed if self.cues else needed[:1]
        absent = [group for group in needed if group not in self.groups]
        if absent:
            raise ValueError(f"rows: no row of the split test has the group {absent[0]}, which the metrics "
                             f"`{self.metrics}` need")
        extra = [] if others else [group for group in self.groups if group not in METRICS[self.metrics][0]]
        if extra:
            raise ValueError(f"rows: the metrics `{self.metrics}` know the groups {', '.join(needed)}, not {extra[0]}; "
                             "choose other metrics")

    def _check_cells(self, added_cue: tuple[int, ...] | None) -> None:
        """For one choice of added cue classes: no row without cells or with one twice, no cell in two test groups, no
        target class that is not trained."""
        tested: dict[tuple[int, ...], str] = {}
        trained = {cell[0] for row in self.rows if "train" in row.splits for cell in self._row_cells(row, added_cue)}
        for number, row in enumerate(self.rows):
            cells, where = self._row_cells(row, added_cue), f"rows.{number}: cells"
            if not cells:
                raise ValueError(f"{where}: `{row.cells}` name no cell" + (
                    ", as the rows of the train split name all" if row.cells == "others" else ""))
            twice = next((cell for cell in cells if cells.count(cell) > 1), None)
            if twice:
                raise ValueError(f"{where}: {list(twice)} stands twice, or may by way of `added`; list it once, and give "
                                 "it a row of its own if it shall weigh more")
            unknown = {cell[0] for cell in cells} - trained
            if unknown:
                raise ValueError(f"{where}: target class {min(unknown)} is in no row of the train split, so that "
                                 "nothing could learn it; add a training cell of it, or take its cells out")
            for cell in cells if "test" in row.splits else ():
                if tested.setdefault(cell, row.group) != row.group:
                    raise ValueError(f"{where}: {list(cell)} is tested in the group {row.group} and in {tested[cell]}, "
                                     "or may be by way of `added`; give it to one of them")

    @property
    def cues(self) -> tuple[str, ...]:
        """The roles beside the target that a binding gives a factor to."""
        return tuple(self.bound[1:])

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the test split, in the order of the rows."""
        return tuple(dict.fromkeys(row.group for row in self.rows if "test" in row.splits))

    @property
    def environments(self) -> tuple[str, ...]:
        """The training environments, in the order of the rows; (`main`,) where none is named."""
        return tuple(dict.fromkeys(row.environment for row in self.rows if "train" in row.splits))

    @property
    def names_environments(self) -> bool:
        return any(row.environment != MAIN for row in self.rows)

    def cells(self, split: str, added_cue: Sequence[int] | None = None) -> pd.DataFrame:
        """The cells of a split, one row each.

        added_cue: the cue class index that CGO adds to target class 0, 1, 2. Columns: `{role}_class` for every role,
        group, weight, and environment where the study names any. Weights sum to one over train and over val, and
        within each group of test. DiagvibError for an unknown split or where `added_cue` is needed and not given.
        """
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        records = []
        for row in self.rows:
            if split in row.splits:
                cells = self._row_cells(row, added_cue)
                records += [(*cell, row.group, row.weight / len(cells), row.environment) for cell in cells]
        columns = [*(f"{role}_class" for role in self.roles), "group", "weight", "environment"]
        frame = pd.DataFrame(records, columns=columns)
        per = frame["group"] if split == "test" else np.zeros(len(frame))
        frame["weight"] /= frame.groupby(per)["weight"].transform("sum")
        return frame if self.names_environments else frame.drop(columns="environment")

    def _row_cells(self, row: Row, added_cue: Sequence[int] | None) -> list[tuple[int, ...]]:
        every = list(product(*(range(classes) for classes in self.roles.values())))
        if row.cells == "others":
            trained = {cell for other in self.rows if "train" in other.splits
                       for cell in self._row_cells(other, added_cue)}
            return [cell for cell in every if cell not in trained]
        if isinstance(row.cells, dict):
            at = {list(self.roles).index(role): relation == "same" for role, relation in row.cells.items()}
            return [cell for cell in every if all((cell[i] == cell[0]) == same for i, same in at.items())]
        return [self._resolve(cell, added_cue) for cell in row.cells]

    def _resolve(self, cell: Cell, added_cue: Sequence[int] | None) -> tuple[int, ...]:
        if "added" in cell and added_cue is None:
            raise DiagvibError(f"study {self.name}: its cells depend on the dataset sample; give added_cue")
        return tuple(int(added_cue[cell[0]]) if index == "added" else index for index in cell)


class Contrast(Strict):
    """The accuracy on a study's held-out cells minus that of a reference study (paper, Table 2: CHGO minus ZGO)."""

    study: Name
    reference: Name
    metric: Name
    title: str


class Headline(Strict):
    """Which studies the report's first sentence compares."""

    without: Name
    shortcut: Name


class StudyFile(Strict):
    """One file of studies: a benchmark. routes: studies in the order in which curves show them."""

    title: Annotated[str, Field(min_length=1)]
    routes: dict[Name, Annotated[list[Name], Field(min_length=2)]] = {}
    contrasts: dict[Name, Contrast] = {}
    headline: Headline | None = None
    studies: Annotated[dict[Name, dict], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_studies(self) -> "StudyFile":
        named = {f"routes.{name}": route for name, route in self.routes.items()}
        named |= {f"contrasts.{name}": [c.study, c.reference] for name, c in self.contrasts.items()}
        named |= {"headline": [self.headline.without, self.headline.shortcut]} if self.headline else {}
        for where, studies in named.items():
            unknown = next((study for study in studies if study not in self.studies), None)
            if unknown:
                raise ValueError(f"{where}: {unknown} is none of the file's studies, {', '.join(self.studies)}")
        return self


def parse_study(name: str, definition: Mapping, where: str = "study") -> Study:
    """A study from its definition. DiagvibError, naming file, study, key or row, for whatever is wrong with it."""
    if not isinstance(definition, Mapping):
        raise DiagvibError(f"{where}: studies.{name}: a mapping with title, meaning, roles and rows expected")
    return validated(Study, {**definition, "name": name}, f"{where}: studies.{name}")


@cache
def read_study_file(path: Path) -> tuple[StudyFile, dict[str, Study]]:
    """A file of studies and the studies in it. DiagvibError, naming the file, for whatever is wrong with it."""
    book = validated(StudyFile, read_yaml(path), str(path))
    return book, {name: parse_study(name, definition, str(path)) for name, definition in book.studies.items()}


def study_files(further: Sequence[str | Path] = ()) -> list[Path]:
    """The shipped files of studies, and a configuration's own."""
    return [*sorted(definition_path("studies").glob("*.yaml")), *(Path(path) for path in further)]


def load_studies(further: Sequence[str | Path] = ()) -> dict[str, Study]:
    """Every study by name: the shipped ones, and those of further files. DiagvibError for a name that occurs twice."""
    found: dict[str, Study] = {}
    for path in study_files(further):
        for name, study in read_study_file(path)[1].items():
            if name in found:
                raise DiagvibError(f"{path}: studies.{name}: there is another study of this name; choose another name")
            found[name] = study
    return found


def load_study(name: str, further: Sequence[str | Path] = ()) -> Study:
    """A study by name. DiagvibError, suggesting the nearest, if there is none of that name."""
    studies = load_studies(further)
    if name not in studies:
        raise unknown_name("study", name, studies)
    return studies[name]


def study_cells(name: str, split: str, added_cue: Sequence[int] | None = None) -> pd.DataFrame:
    """The cells of a study's split: {role}_class (class index) for every role, group, weight.

    name: e.g. `cgo-2`; split: train, val, test, or a test group (id, ood) alone; added_cue: for CGO, the cue class
    index added to target class 0, 1, 2. Weights sum to one over train and val, and within each group of test.
    """
    study = load_study(name)
    if split not in study.groups:
        return study.cells(split, added_cue)
    cells = study.cells("test", added_cue)
    return cells[cells["group"] == split].reset_index(drop=True)
