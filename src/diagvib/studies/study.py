"""Studies and dataset samples: which cells are trained and tested, how often, and which classes stand in them.

A study is a table (`config/studies.yaml`), not code. This module reads it, checks it and writes it out as a frame.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import definition_path, read_yaml
from diagvib.foundation.schemas import validate
from diagvib.foundation.seeding import named_generator
from diagvib.scenes.digits.factors import FACTORS, classes

SPLITS = ("train", "val", "test")
GROUPS = ("id", "ood")
UNCORRELATED = "zso"  # the one study whose datasets have a target and no cue
CLASSES_PER_FACTOR = 3  # of a factor's classes, so many are selected in a dataset sample


@dataclass(frozen=True)
class Study:
    """A table of weighted cells over named roles. `rows` is as in `config/studies.yaml`."""

    name: str
    title: str
    meaning: str
    roles: tuple[str, ...]
    rows: tuple[dict, ...]
    datasets: str = "binding"

    @property
    def paired(self) -> bool:
        """Whether each (target, cue) pair has a dataset of its own."""
        return self.datasets == "binding"

    def cells(self, split: str, added_cue: tuple[int, ...] | None = None) -> pd.DataFrame:
        """The cells of a split, one row each.

        added_cue: the cue class index that CGO adds to target class 0, 1, 2. Columns: `{role}_class` for every role,
        group and weight. Weights sum to one over train and over val, and within each group of test. DiagvibError for an
        unknown split or where `added_cue` is needed and not given.
        """
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        rows = [row for row in self.rows if split in row["splits"]]
        records = []
        for row in rows:
            cells = self.row_cells(row, added_cue)
            records += [(*cell, row["group"], row["weight"] / len(cells)) for cell in cells]
        columns = [*(f"{role}_class" for role in self.roles), "group", "weight"]
        frame = pd.DataFrame(records, columns=columns)
        per = frame["group"] if split == "test" else np.zeros(len(frame))
        frame["weight"] /= frame.groupby(per)["weight"].transform("sum")
        return frame

    def has_group(self, group: str) -> bool:
        return any("test" in row["splits"] and row["group"] == group for row in self.rows)

    def row_cells(self, row: dict, added_cue: tuple[int, ...] | None) -> list[tuple[int, ...]]:
        """The cells that a row lists or stands for, as class indices in the order of the roles."""
        if row["cells"] == "others":
            trained = {cell for other in self.rows if "train" in other["splits"]
                       for cell in self.row_cells(other, added_cue)}
            every = product(range(CLASSES_PER_FACTOR), repeat=len(self.roles))
            return [cell for cell in every if cell not in trained]
        return [self._resolve(cell, added_cue) for cell in row["cells"]]

    def _resolve(self, cell: list, added_cue) -> tuple[int, ...]:
        if "added" in cell and added_cue is None:
            raise DiagvibError(f"study {self.name}: its cells depend on the dataset sample; give added_cue")
        target = cell[self.roles.index("target")]
        return tuple(int(added_cue[target]) if c == "added" else c for c in cell)


def parse_study(name: str, definition: dict, where: str = "") -> Study:
    """A study from its (validated) definition.

    where: the file named in messages. DiagvibError, naming study and row, for whatever could not be drawn, trained and
    shown: cells that do not fit the roles or stand twice, a split or a test group without cells.
    """
    study = Study(name, definition["title"], definition["meaning"], tuple(definition["roles"]),
                  tuple(definition["rows"]), definition["datasets"])
    where = f"{where}: study {name}" if where else f"study {name}"
    for number, row in enumerate(study.rows):
        _check_row(study, row, f"{where}: rows.{number}")
    _check_groups(study, where)
    # A dataset sample adds to each target class a cue class that is not the diagonal's.
    for added_cue in product((1, 2), (0, 2), (0, 1)):
        _check_cells(study, added_cue, where)
    return study


def _check_row(study: Study, row: dict, where: str) -> None:
    if row["cells"] == "others":
        if "train" in row["splits"]:
            raise DiagvibError(f"{where}: cells: others are the cells that no row with the split train names, so such "
                               "a row cannot have them; list its cells")
        return
    roles, needed = ", ".join(study.roles), len(study.roles)
    for cell in row["cells"]:
        if len(cell) != needed:
            raise DiagvibError(f"{where}: cell {cell} has {len(cell)} class indices; {needed} roles ({roles}) need "
                               f"{needed}")
        if cell[study.roles.index("target")] == "added":
            raise DiagvibError(f"{where}: cell {cell}: added stands for a cue class; give the target class as a number")


def _check_groups(study: Study, where: str) -> None:
    """Every split has rows, and the test split the groups that are measured: both, or without a cue the one."""
    for split in SPLITS:
        if not any(split in row["splits"] for row in study.rows):
            raise DiagvibError(f"{where}: no row names the {split} split; add one with {split} among its splits")
    needed = GROUPS if study.paired else GROUPS[:1]
    for group in GROUPS:
        if study.has_group(group) and group not in needed:
            raise DiagvibError(f"{where}: rows: a study with `datasets: target` has no cue, so its test split has the "
                               f"group id alone, not {group}")
        if group in needed and not study.has_group(group):
            raise DiagvibError(f"{where}: rows: no row of the test split has the group {group}; a study with "
                               f"`datasets: {study.datasets}` is measured on {' and '.join(needed)}")
    if (study.name == UNCORRELATED) == study.paired:
        raise DiagvibError(f"{where}: datasets: {study.datasets} given; {UNCORRELATED} alone is made for targets "
                           "without a cue, every other study for pairs")


def _check_cells(study: Study, added_cue: tuple[int, ...], where: str) -> None:
    """For one choice of added cue classes: no cell twice in a row or in both test groups, no row without cells, no
    target class that is not trained."""
    tested: dict[tuple[int, ...], str] = {}
    target = study.roles.index("target")
    trained = {cell[target] for row in study.rows if "train" in row["splits"]
               for cell in study.row_cells(row, added_cue)}
    for number, row in enumerate(study.rows):
        cells, place = study.row_cells(row, added_cue), f"{where}: rows.{number}"
        twice = next((cell for cell in cells if cells.count(cell) > 1), None)
        if twice:
            raise DiagvibError(f"{place}: cell {list(twice)} stands twice, or may by way of added; list it once, and "
                               "give it a row of its own if it shall weigh more")
        if not cells:
            raise DiagvibError(f"{place}: cells: others names no cell, as the rows of the train split name all")
        unknown = {cell[target] for cell in cells} - trained
        if unknown:
            raise DiagvibError(f"{place}: target class {min(unknown)} is in no row of the train split, so that nothing "
                               "could learn it; add a training cell of it, or take its cells out")
        for cell in cells if "test" in row["splits"] else ():
            if tested.setdefault(cell, row["group"]) != row["group"]:
                raise DiagvibError(f"{place}: cell {list(cell)} is tested in the group {row['group']} and in "
                                   f"{tested[cell]}, or may be by way of added; give it to one of them")


@cache
def study_definitions(path: Path | None = None) -> dict[str, dict]:
    """Every study of a file, default `config/studies.yaml`, checked, as plain data. DiagvibError naming study and
    row of what is wrong."""
    path = path or definition_path("studies.yaml")
    definitions = validate(read_yaml(path), "studies", str(path))
    studies = {name: value for name, value in definitions.items() if not name.startswith("_")}
    if not studies:
        raise DiagvibError(f"{path}: holds no study")
    for name, definition in studies.items():
        parse_study(name, definition, str(path))
    return studies


@cache
def load_study(name: str) -> Study:
    """A study by name. DiagvibError, suggesting the nearest, if there is none of that name."""
    definitions = study_definitions()
    if name not in definitions:
        raise unknown_name("study", name, definitions)
    return parse_study(name, definitions[name])


def study_cells(name: str, split: str, added_cue=None) -> pd.DataFrame:
    """The cells of a study's split: target_class, cue_class (indices 0..2), group, weight.

    name: e.g. `cgo-2`; split: train, val, test, or a test group (id, ood) alone; added_cue: for CGO, the cue class
    index added to target class 0, 1, 2. Weights sum to one over train and val, and within each group of test.
    """
    if split in GROUPS:
        cells = load_study(name).cells("test", added_cue)
        return cells[cells["group"] == split].reset_index(drop=True)
    return load_study(name).cells(split, added_cue)


@dataclass(frozen=True)
class DatasetSample:
    """One choice of three classes per factor (names, in class-index order), and the cue classes that CGO adds."""

    number: int
    classes: dict[str, tuple[str, ...]]
    added_cue: tuple[int, ...]


@cache
def published_samples(path: Path | None = None) -> list[dict]:
    """The entries of a file of dataset samples, default `config/dataset_samples.yaml`. DiagvibError as for
    `check_dataset_samples`."""
    path = path or definition_path("dataset_samples.yaml")
    entries = read_yaml(path)
    check_dataset_samples(entries, str(path))
    return entries


def check_dataset_samples(entries: list, where: str) -> None:
    """DiagvibError, naming entry and key, unless each gives three classes to every factor and an added cue class,
    which is not the diagonal's, to every target class. where: the file named in messages."""
    for number, entry in enumerate(validate(entries, "dataset_samples", where)):
        for factor in FACTORS:
            for name in entry[factor]:
                if name not in classes(factor):
                    raise unknown_name("class", name, classes(factor), f"{where}: {number}.{factor}")
        for target, cue in enumerate(entry["added_cue"]):
            if target == cue:
                raise DiagvibError(f"{where}: {number}.added_cue.{target}: {cue} is the cue class that target class "
                                   f"{target} has already; give another of 0, 1, 2")


def dataset_sample(number: int) -> DatasetSample:
    """Dataset sample `number`: the published five first (benchmark section 4), then drawn from the number."""
    if number < 0:
        raise DiagvibError(f"dataset sample {number}: numbers start at 0")
    published = published_samples()
    if number < len(published):
        entry = published[number]
        return DatasetSample(number, {f: tuple(entry[f]) for f in FACTORS}, tuple(entry["added_cue"]))
    generator = named_generator("dataset sample", number)
    chosen = {factor: tuple(str(c) for c in generator.choice(classes(factor), CLASSES_PER_FACTOR, replace=False))
              for factor in FACTORS}
    others = [[c for c in range(CLASSES_PER_FACTOR) if c != s] for s in range(CLASSES_PER_FACTOR)]
    return DatasetSample(number, chosen, tuple(int(generator.choice(o)) for o in others))
