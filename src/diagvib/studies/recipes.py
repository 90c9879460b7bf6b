"""Recipes: everything needed to render one image, drawn from a study's cells and a dataset sample's classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_metadata, open_parquet, write_table
from diagvib.foundation.seeding import named_generator
from diagvib.scenes.digits.digits import DIGIT_SIZE
from diagvib.scenes.digits.factors import FACTORS, REALIZATION_COLUMNS, Binding, classes, draw_realizations
from diagvib.scenes.digits.textures import TEXTURE_SIZE
from diagvib.studies.study import CLASSES_PER_FACTOR, GROUPS, SPLITS, DatasetSample, Study

RECIPE_SCHEMA = pa.schema([
    ("sample", pa.int16()), ("split", pa.string()), ("group", pa.string()),
    *((factor, pa.string()) for factor in FACTORS),
    ("position_row", pa.float64()), ("position_column", pa.float64()), ("hue_degrees", pa.float64()),
    ("lightness_1", pa.float64()), ("lightness_2", pa.float64()), ("scale_factor", pa.float64()),
    ("digit", pa.int32()), ("crop_row", pa.int16()), ("crop_column", pa.int16()),
])


@dataclass(frozen=True)
class DigitPool:
    """Which prepared digits may serve which shape in which split.

    label: int[D]; split: str[D] (train, val, test); row number = digit index.
    """

    label: np.ndarray
    split: np.ndarray

    def instances(self, split: str, shape: str) -> np.ndarray:
        """Digit indices of a shape in a split. DiagvibError if there is none."""
        found = np.flatnonzero((self.split == split) & (self.label == int(shape)))
        if not len(found):
            raise DiagvibError(f"prepared digits: no instance of shape {shape} in split {split}; prepare them again")
        return found


def split_counts(study: Study, counts: dict[str, int], split: str) -> dict[str | None, int]:
    """How many images of each group a split holds; for train and val the groups are drawn together (key None)."""
    if split != "test":
        return {None: counts[split]}
    return {group: counts[group] for group in GROUPS if study.has_group(group)}


def draw_split(study: Study, factors: Sequence[str], sample: DatasetSample, split: str, counts: dict[str, int],
               digits: DigitPool, generator: np.random.Generator) -> pd.DataFrame:
    """Draw the recipes of one split, in random order.

    factors: bound to the study's roles in order; roles without a factor are summed out. counts: images per split
    (train, val) and test group (id, ood). Cells get their exact share of the images (rounded by largest remainder, as
    the published generator fixes the size of each mode); everything else is uniform and independent. Columns as
    RECIPE_SCHEMA, without sample and split.
    """
    cells = study.cells(split, sample.added_cue)
    roles = dict(zip(study.roles, factors, strict=False))
    parts = []
    for group, count in split_counts(study, counts, split).items():
        table = cells if group is None else cells[cells["group"] == group]
        share = table.groupby([*(f"{role}_class" for role in roles), "group"], as_index=False)["weight"].sum()
        parts.append(share.loc[np.repeat(share.index, _quotas(count, share["weight"].to_numpy(), generator))])
    drawn = pd.concat(parts, ignore_index=True)
    drawn = drawn.iloc[generator.permutation(len(drawn))].reset_index(drop=True)
    index = {f: generator.integers(0, CLASSES_PER_FACTOR, len(drawn)) for f in FACTORS}
    index |= {factor: drawn[f"{role}_class"].to_numpy() for role, factor in roles.items()}
    names = {f: np.asarray(sample.classes[f], dtype=object)[index[f]] for f in FACTORS}
    return pd.DataFrame({"group": drawn["group"].to_numpy(), **names, **_realize(names, split, digits, generator)})


def _quotas(count: int, weights: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Whole numbers summing to count, proportional to weights; the largest remainders get the rest, ties at random."""
    exact = count * weights / weights.sum()
    quotas = np.floor(exact + 1e-9).astype(int)
    order = np.lexsort((generator.random(len(weights)), -np.round(exact - quotas, 9)))
    quotas[order[:count - quotas.sum()]] += 1
    return quotas


def _realize(names: dict[str, np.ndarray], split: str, digits: DigitPool, generator: np.random.Generator) -> dict:
    """A realization for each image and factor, as recipe columns."""
    columns = {}
    for factor in ("position", "hue", "lightness", "scale"):
        lookup = {name: i for i, name in enumerate(classes(factor))}
        values = draw_realizations(factor, np.array([lookup[c] for c in names[factor]], dtype=int), generator)
        columns |= dict(zip(REALIZATION_COLUMNS[factor], values.T, strict=True))
    instance = np.empty(len(names["shape"]), dtype=np.int64)
    for shape in np.unique(names["shape"].astype(str)):
        rows = np.flatnonzero(names["shape"] == shape)
        instance[rows] = generator.choice(digits.instances(split, shape), len(rows))
    # 0 to 215, as in the published generator; 216 would fit too.
    crops = generator.integers(0, TEXTURE_SIZE - DIGIT_SIZE, (2, len(instance)))
    return columns | {"digit": instance, "crop_row": crops[0], "crop_column": crops[1]}


def draw_recipes(study: Study, binding: Binding, samples: Sequence[DatasetSample], counts: dict[str, int],
                 digits: DigitPool) -> pa.Table:
    """All recipes of a (study, pair): every dataset sample and split, each seeded by its name."""
    factors = [binding.target, binding.cue] if binding.cue else [binding.target]
    parts = []
    for sample in samples:
        for split in SPLITS:
            generator = named_generator(study.name, binding.name, sample.number, split)
            frame = draw_split(study, factors, sample, split, counts, digits, generator)
            parts.append(frame.assign(sample=sample.number, split=split))
    return pa.Table.from_pandas(pd.concat(parts), schema=RECIPE_SCHEMA, preserve_index=False)


def write_recipes(path: str | Path, recipes: pa.Table, metadata: dict) -> None:
    write_table(path, recipes.replace_schema_metadata(None), metadata)


def read_recipes(path: str | Path, sample: int | None = None, split: str | None = None) -> tuple[pa.Table, dict]:
    """A recipe file's table (of one dataset sample and split, if named) and metadata.

    DiagvibError if the file is absent, damaged, of another schema, or holds no such dataset sample.
    """
    with open_parquet(path) as file:
        metadata = file_metadata(file, path)
        table = file.read()
    if not table.schema.equals(RECIPE_SCHEMA):
        columns = ", ".join(f"{field.name} ({field.type})" for field in RECIPE_SCHEMA)
        raise DiagvibError(f"{path}: not a recipe file; columns {columns} expected; delete it and run again, it will "
                           "be made anew")
    check_recipes(table, path)
    return select_recipes(table, sample, split, path), metadata


def check_recipes(table: pa.Table, path: str | Path) -> None:
    """DiagvibError naming the file, its row (from 0) and column for an empty field, a class, split or group that does
    not exist, or a realization that cannot be rendered. Whether there is such a digit the renderer knows."""
    known = {"split": SPLITS, "group": GROUPS, **{factor: classes(factor) for factor in FACTORS}}
    for field in table.schema:
        column, name = table[field.name], field.name
        if name in known:
            good, wanted = pc.is_in(column, pa.array(known[name])), f"one of {', '.join(known[name])}"
        elif pa.types.is_floating(field.type):
            good, wanted = pc.is_finite(column), "a finite number"
        else:
            last = TEXTURE_SIZE - DIGIT_SIZE if name.startswith("crop") else 2**31 - 1
            good = pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, last))
            wanted = f"a number from 0 to {last}"
        good = pc.fill_null(good, False)
        if not pc.all(good, min_count=0).as_py():
            row = pc.index(good, False).as_py()
            raise DiagvibError(f"{path}: row {row}: {name} is {column[row].as_py()!r}, not {wanted}; delete the file "
                               "and run again, it will be made anew")


def select_recipes(table: pa.Table, sample: int | None, split: str | None, path: str | Path) -> pa.Table:
    """The recipes of one dataset sample and split, where named. path: of the file, for the DiagvibError if there are
    none."""
    last = pc.max(table["sample"]).as_py()
    if sample is not None:
        table = table.filter(pc.field("sample") == sample)
    if split is not None:
        table = table.filter(pc.field("split") == split)
    if not len(table):
        raise DiagvibError(f"{path}: no recipes for dataset sample {sample}, split {split}; "
                           + ("the file is empty" if last is None else f"it holds samples 0 to {last}"))
    return table
