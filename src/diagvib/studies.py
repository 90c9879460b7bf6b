"""Studies and dataset samples: which cells are trained and tested, how often, and which classes stand in them.

A study is a table (`config/studies.yaml`), not code. This module reads it, checks it and writes it out as a frame.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pandas as pd

from diagvib.errors import DiagvibError, unknown_name
from diagvib.factors import FACTORS, classes
from diagvib.files import definition_path, read_yaml
from diagvib.randomness import named_generator
from diagvib.schemas import validate

SPLITS = ("train", "val", "test")
GROUPS = ("id", "ood")
CLASSES_PER_FACTOR = 3  # of a factor's classes, so many are selected in a dataset sample


@dataclass(frozen=True)
class Study:
    """A table of weighted cells over named roles. `rows` is as in `config/studies.yaml`."""

    name: str
    title: str
    meaning: str
    roles: tuple[str, ...]
    rows: tuple[dict, ...]
    datasets: str = "pair"

    @property
    def paired(self) -> bool:
        """Whether each (target, cue) pair has a dataset of its own."""
        return self.datasets == "pair"

    def cells(self, split: str, added_cue: tuple[int, ...] | None = None) -> pd.DataFrame:
        """The cells of a split, one row each.

        added_cue: the cue class index that CGO adds to target class 0, 1, 2. Columns: `{role}_class` for every role,
        group, weight, and environment where the study names any. Weights sum to one over train and over val, and
        within each group of test. DiagvibError for an unknown split or where `added_cue` is needed and not given.
        """
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        rows = [row for row in self.rows if split in row["splits"]]
        records = []
        for row in rows:
            cells = self._cells(row, added_cue)
            records += [(*cell, row["group"], row["weight"] / len(cells), row.get("environment")) for cell in cells]
        columns = [*(f"{role}_class" for role in self.roles), "group", "weight", "environment"]
        frame = pd.DataFrame(records, columns=columns)
        per = frame["group"] if split == "test" else np.zeros(len(frame))
        frame["weight"] /= frame.groupby(per)["weight"].transform("sum")
        return frame if any("environment" in row for row in rows) else frame.drop(columns="environment")

    def has_group(self, group: str) -> bool:
        return any("test" in row["splits"] and row["group"] == group for row in self.rows)

    def _cells(self, row: dict, added_cue) -> list[tuple[int, ...]]:
        if row["cells"] == "others":
            trained = {cell for other in self.rows if "train" in other["splits"]
                       for cell in self._cells(other, added_cue)}
            every = product(range(CLASSES_PER_FACTOR), repeat=len(self.roles))
            return [cell for cell in every if cell not in trained]
        return [self._resolve(cell, added_cue) for cell in row["cells"]]

    def _resolve(self, cell: list, added_cue) -> tuple[int, ...]:
        if "added" in cell and added_cue is None:
            raise DiagvibError(f"study {self.name}: its cells depend on the dataset sample; give added_cue")
        target = cell[self.roles.index("target")]
        return tuple(int(added_cue[target]) if c == "added" else c for c in cell)


def parse_study(name: str, definition: dict) -> Study:
    """A study from its (validated) definition. DiagvibError, naming the row, for cells that do not fit its roles."""
    study = Study(name, definition["title"], definition["meaning"], tuple(definition["roles"]),
                  tuple(definition["rows"]), definition["datasets"])
    for number, row in enumerate(study.rows):
        for cell in row["cells"] if row["cells"] != "others" else []:
            if len(cell) != len(study.roles):
                raise DiagvibError(f"study {name}: rows.{number}: cell {cell} has {len(cell)} class indices; "
                                   f"{len(study.roles)} roles ({', '.join(study.roles)}) need {len(study.roles)}")
    if not any("train" in row["splits"] for row in study.rows):
        raise DiagvibError(f"study {name}: no row names the train split")
    return study


@cache
def study_definitions() -> dict[str, dict]:
    """Every study of `config/studies.yaml`, validated, as plain data."""
    path = definition_path("studies.yaml")
    definitions = validate(read_yaml(path), "studies", str(path))
    return {name: value for name, value in definitions.items() if not name.startswith("_")}


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
def _published_samples() -> list[dict]:
    return read_yaml(definition_path("dataset_samples.yaml"))


def dataset_sample(number: int) -> DatasetSample:
    """Dataset sample `number`: the published five first (benchmark section 4), then drawn from the number."""
    if number < 0:
        raise DiagvibError(f"dataset sample {number}: numbers start at 0")
    published = _published_samples()
    if number < len(published):
        entry = published[number]
        return DatasetSample(number, {f: tuple(entry[f]) for f in FACTORS}, tuple(entry["added_cue"]))
    generator = named_generator("dataset sample", number)
    chosen = {factor: tuple(str(c) for c in generator.choice(classes(factor), CLASSES_PER_FACTOR, replace=False))
              for factor in FACTORS}
    others = [[c for c in range(CLASSES_PER_FACTOR) if c != s] for s in range(CLASSES_PER_FACTOR)]
    return DatasetSample(number, chosen, tuple(int(generator.choice(o)) for o in others))
