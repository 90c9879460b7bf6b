"""Recipes: everything needed to render one image, drawn from a study's cells and a dataset sample's classes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_metadata, open_parquet, write_table
from diagvib.foundation.seeding import named_generator
from diagvib.foundation.validation import validated
from diagvib.scenes import load_scene
from diagvib.scenes.scene import Catalogue, Scene
from diagvib.studies.binding import Binding
from diagvib.studies.dataset_sample import DatasetSample
from diagvib.studies.rows import MAIN, SPLITS, Row
from diagvib.studies.study import Study


def recipe_schema(scene: Scene, environments: bool) -> pa.Schema:
    """Columns of a recipe: where it belongs, the class of every factor, and what the scene holds beside these."""
    return pa.schema([
        ("sample", pa.int16()), ("split", pa.string()), ("group", pa.string()),
        *([("environment", pa.string())] if environments else []),
        *((factor, pa.string()) for factor in scene.factors), *scene.columns])


def split_counts(study: Study, counts: dict[str, int], split: str) -> dict[str | None, int]:
    """How many images of each group a split holds; key None where the groups are drawn together, by their weights.

    So they are in train and val; in test, where `counts` names none of the study's groups, but `test`.
    """
    if split != "test" or not set(study.groups) & counts.keys():
        return {None: counts[split]}
    return {group: counts[group] for group in study.groups}


def draw_split(study: Study, binding: Binding, sample: DatasetSample, split: str, counts: dict[str, int], scene: Scene,
               catalogue: Catalogue, generator: np.random.Generator) -> pd.DataFrame:
    """Draw the recipes of one split, in random order.

    binding: of the study's bound roles; other roles are summed out. counts: images per split (train, val, test) or
    test group. Cells get their exact share of the images (rounded by largest remainder, as the published generator
    fixes the size of each mode); everything else is uniform and independent. Columns as `recipe_schema`, without sample
    and split.
    """
    cells, roles = study.cells(split, sample.added_cue), dict(zip(study.bound, binding.factors, strict=True))
    keys = [*(f"{role}_class" for role in roles), *(["environment"] if study.names_environments else []), "group"]
    parts = []
    if split == "test":
        cells["weight"] *= cells["group"].map(study.group_weights)
    for group, count in split_counts(study, counts, split).items():
        table = cells if group is None else cells[cells["group"] == group]
        share = table.groupby(keys, as_index=False)["weight"].sum()
        parts.append(share.loc[np.repeat(share.index, _quotas(count, share["weight"].to_numpy(), generator))])
    drawn = pd.concat(parts, ignore_index=True)
    drawn = drawn.iloc[generator.permutation(len(drawn))].reset_index(drop=True)
    chosen = dict(sample.classes)
    chosen |= {f: sample.chosen(f, study.roles[role], scene.factors[f]) for role, f in roles.items()}
    index = {f: generator.integers(0, len(sample.classes[f]), len(drawn)) for f in scene.factors}
    index |= {factor: drawn[f"{role}_class"].to_numpy() for role, factor in roles.items()}
    names = {f: np.asarray(chosen[f], dtype=object)[index[f]] for f in scene.factors}
    placed = drawn[[key for key in ("group", "environment") if key in drawn]]
    environment = drawn["environment"].to_numpy() if "environment" in drawn else None
    return pd.DataFrame({**placed, **names, **scene.realize(names, split, catalogue, generator, environment)})


def _quotas(count: int, weights: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Whole numbers summing to count, proportional to weights; the largest remainders get the rest, ties at random."""
    exact = count * weights / weights.sum()
    quotas = np.floor(exact + 1e-9).astype(int)
    order = np.lexsort((generator.random(len(weights)), -np.round(exact - quotas, 9)))
    quotas[order[:count - quotas.sum()]] += 1
    return quotas


def draw_recipes(study: Study, binding: Binding, samples: Sequence[DatasetSample], counts: dict[str, int],
                 scene: Scene, catalogue: Catalogue) -> pa.Table:
    """All recipes of a (study, binding): every dataset sample and split, each seeded by its name."""
    parts = []
    for sample in samples:
        for split in SPLITS:
            generator = named_generator(study.name, binding.name, sample.number, split)
            frame = draw_split(study, binding, sample, split, counts, scene, catalogue, generator)
            parts.append(frame.assign(sample=sample.number, split=split))
    schema = recipe_schema(scene, study.names_environments)
    return pa.Table.from_pandas(pd.concat(parts), schema=schema, preserve_index=False)


def write_recipes(path: str | Path, recipes: pa.Table, metadata: dict) -> None:
    write_table(path, recipes.replace_schema_metadata(None), metadata)


class _Definition(BaseModel):
    """Of a study's definition, as a recipe file's metadata have it, what says which groups and environments it has."""

    rows: list[Row]


def read_recipes(path: str | Path, sample: int | None = None, split: str | None = None) -> tuple[pa.Table, dict]:
    """A recipe file's table (of one dataset sample and split, if named) and metadata.

    DiagvibError if the file is absent, damaged, of another schema, or holds no such dataset sample.
    """
    with open_parquet(path) as file:
        metadata = file_metadata(file, path)
        table = file.read()
    absent = next((key for key in ("study", "binding", "roles", "scene", "definition") if key not in metadata), None)
    if absent:
        raise DiagvibError(f"{path}: not a recipe file, its metadata lack {absent}; delete it and run again, it will "
                           "be made anew")
    scene = load_scene(metadata["scene"])
    rows = validated(_Definition, metadata["definition"], f"{path}: definition").rows
    environments = sorted({row.environment for row in rows})
    schema = recipe_schema(scene, environments != [MAIN])
    if not table.schema.equals(schema):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise DiagvibError(f"{path}: not a recipe file; columns {columns} expected; delete it and run again, it will "
                           "be made anew")
    check_recipes(table, path, {
        "split": SPLITS, **scene.factors, "group": sorted({row.group for row in rows}),
        "environment": environments})
    return select_recipes(table, sample, split, path), metadata


def check_recipes(table: pa.Table, path: str | Path, known: Mapping[str, Sequence[str]],
                  largest: Mapping[str, int] | None = None) -> None:
    """DiagvibError naming the file, its row (from 0) and column for an empty field or a value that does not exist.

    known: all values of those columns that have a few. largest: of those columns of whole numbers that have one.
    """
    for field in table.schema:
        column, name = table[field.name], field.name
        if name in known:
            good, wanted = pc.is_in(column, pa.array(known[name])), f"one of {', '.join(known[name])}"
        elif pa.types.is_floating(field.type):
            good, wanted = pc.is_finite(column), "a finite number"
        elif pa.types.is_integer(field.type):
            last = (largest or {}).get(name, 2**31 - 1)
            good = pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, last))
            wanted = f"a number from 0 to {last}"
        elif pa.types.is_string(field.type):
            good, wanted = pc.greater(pc.utf8_length(column), 0), "a name"
        else:
            good, wanted = pc.is_valid(column), "a value"
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
