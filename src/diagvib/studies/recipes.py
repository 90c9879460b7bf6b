"""Recipes: everything needed to render one image, drawn from a study's cells and a dataset sample's
classes."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

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
from diagvib.studies.scarcity import split_counts, whole_shares
from diagvib.studies.study import Study


def recipe_schema(scene: Scene, environments: bool) -> pa.Schema:
    """Columns of a recipe: where it belongs, the class of every factor, and further columns of the
    scene."""
    return pa.schema(
        [
            ("sample", pa.int16()),
            ("split", pa.string()),
            ("group", pa.string()),
            *([("environment", pa.string())] if environments else []),
            *((factor, pa.string()) for factor in scene.factors),
            *scene.columns,
        ]
    )


def _blocks(
    study: Study, sample: DatasetSample, split: str, counts: dict[str, int]
) -> Iterator[tuple[str | None, int, pd.DataFrame]]:
    """For each group that a split draws for, as in `split_counts`: the number of images, and its
    cells with weights."""
    cells = study.cells(split, sample.added_cue)
    keys = [
        *(f"{role}_class" for role in study.bound),
        *(["environment"] if study.names_environments else []),
        "group",
    ]
    if split == "test":
        cells["weight"] *= cells["group"].map(study.group_weights)
    for group, count in split_counts(study, counts, split).items():
        table = cells if group is None else cells[cells["group"] == group]
        yield group, count, table.groupby(keys, as_index=False)["weight"].sum()


def draw_split(
    study: Study,
    binding: Binding,
    sample: DatasetSample,
    split: str,
    counts: dict[str, int],
    scene: Scene,
    catalogue: Catalogue,
    generator: np.random.Generator,
    dealt: Mapping[tuple, np.ndarray] | None = None,
) -> pd.DataFrame:
    """Draw the recipes of one split, in random order.

    binding: of the study's bound roles; other roles are summed out. counts: images per split
    (train, val, test) or test group. Cells get their exact share of the images (rounded by largest
    remainder, as the published generator fixes the size of each mode); everything else is uniform
    and independent. dealt: from `deal`, for a scene that assigns its sources afterwards; its
    columns are then missing here. Columns as in `recipe_schema`, without sample and split.
    """
    roles, parts = dict(zip(study.bound, binding.factors, strict=True)), []
    for group, count, share in _blocks(study, sample, split, counts):
        quotas = (
            dealt[split, group] if dealt else _quotas(count, share["weight"].to_numpy(), generator)
        )
        parts.append(share.loc[np.repeat(share.index, quotas)])
    drawn = pd.concat(parts, ignore_index=True)
    drawn = drawn.iloc[generator.permutation(len(drawn))].reset_index(drop=True)
    chosen = dict(sample.classes)
    chosen |= {
        f: sample.chosen(f, study.roles[role], scene.factors[f]) for role, f in roles.items()
    }
    index = {f: generator.integers(0, len(sample.classes[f]), len(drawn)) for f in scene.factors}
    index |= {factor: drawn[f"{role}_class"].to_numpy() for role, factor in roles.items()}
    names = {f: np.asarray(chosen[f], dtype=object)[index[f]] for f in scene.factors}
    placed = drawn[[key for key in ("group", "environment") if key in drawn]]
    for column in names.values():
        column.flags.writeable = False  # a scene that changed these would change what images are
    realized = {}
    if not dealt:
        realized = scene.realized(MappingProxyType(names), split, catalogue, generator)
    return pd.DataFrame({**placed, **names, **realized})


def deal(
    study: Study, sample: DatasetSample, counts: dict[str, int], generator: np.random.Generator
) -> dict[tuple[str, str | None], np.ndarray]:
    """Allocate each cell's images to the splits, and the groups of the test, if no source may be
    used twice.

    Splits with the same cells in the same proportions share one allocation, in which each cell has
    its exact share, so that a published number of photos is used up exactly. Keys and
    cells as in `_blocks`.
    """
    lots: dict[tuple, list[tuple[str, str | None, int]]] = {}
    for split in SPLITS:
        for group, count, share in _blocks(study, sample, split, counts):
            weights = share.pop("weight")
            lot = (
                tuple((weights / weights.sum()).round(9)),
                *share.itertuples(index=False, name=None),
            )
            lots.setdefault(lot, []).append((split, group, count))
    found = {}
    for (weights, *_), takers in lots.items():
        numbers = [count for *_, count in takers]
        total = _quotas(sum(numbers), np.array(weights), generator)
        turns = np.argsort(
            np.concatenate([(np.arange(count) + 0.5) / count for count in numbers]), kind="stable"
        )
        taker, cells = (
            np.repeat(np.arange(len(numbers)), numbers)[turns],
            np.repeat(np.arange(len(total)), total),
        )
        found |= {
            (split, group): np.bincount(cells[taker == number], minlength=len(total))
            for number, (split, group, _) in enumerate(takers)
        }
    return found


def _quotas(count: int, weights: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Whole numbers with sum count, proportional to weights; the largest remainders get the rest,
    ties at random."""
    quotas, rests = whole_shares(count, weights)
    order = np.lexsort((generator.random(len(weights)), -rests))
    quotas[order[: count - quotas.sum()]] += 1
    return quotas


def draw_recipes(
    study: Study,
    binding: Binding,
    samples: Sequence[DatasetSample],
    counts: dict[str, int],
    scene: Scene,
    catalogue: Catalogue,
    splits: Sequence[str] = SPLITS,
) -> pa.Table:
    """All recipes of a (study, binding): every dataset sample and split, each seeded by its
    name."""
    schema, parts = recipe_schema(scene, study.names_environments), []
    for sample in samples:

        def named(part: str, number: int = sample.number) -> np.random.Generator:
            return named_generator(study.name, binding.name, number, part)

        shares_out = hasattr(scene, "share_out")
        dealt = deal(study, sample, counts, named("shares")) if shares_out else None
        dataset = pd.concat(
            [
                draw_split(
                    study, binding, sample, split, counts, scene, catalogue, named(split), dealt
                ).assign(split=split)
                for split in (SPLITS if shares_out else splits)
            ],
            ignore_index=True,
        )
        sources = {}
        if shares_out:
            sources = scene.share_out(dataset.copy(), catalogue, named("sources"))
        drawn = dataset.assign(sample=sample.number, **sources)
        parts.append(drawn[drawn["split"].isin(splits)])
    return pa.Table.from_pandas(pd.concat(parts), schema=schema, preserve_index=False)


def write_recipes(path: str | Path, recipes: pa.Table, metadata: dict) -> None:
    """metadata: what made them; the digest of each dataset sample's splits is added."""
    table = recipes.replace_schema_metadata(None)
    drawn = table.select(["sample", "split"]).group_by(["sample", "split"]).aggregate([])
    digests = {
        f"{row['sample']}/{row['split']}": _digest(select_recipes(table, **row, path=path))
        for row in drawn.to_pylist()
    }
    write_table(path, table, {**metadata, "digests": digests})


def _digest(table: pa.Table) -> str:
    """sha256, as hex, of a table's content."""
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        return hashlib.sha256(sink.getvalue()).hexdigest()


class _Definition(BaseModel):
    """The part of a study's definition in a recipe file's metadata that gives its groups and
    environments."""

    rows: list[Row]


def read_recipes(path: str | Path) -> tuple[pa.Table, dict]:
    """A recipe file's table and metadata. DiagvibError if the file is missing or damaged, or,
    naming row and column, holds something else."""
    with open_parquet(path) as file:
        metadata, table = file_metadata(file, path), file.read()
    if not {"study", "binding", "roles", "scene", "definition", "digests"} <= metadata.keys():
        raise DiagvibError(f"{path}: not a recipe file; {_AGAIN}")
    scene = load_scene(metadata["scene"])
    rows = validated(_Definition, metadata["definition"], f"{path}: definition").rows
    environments = sorted({row.environment for row in rows})
    schema = recipe_schema(scene, environments != [MAIN])
    if not table.schema.equals(schema):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise DiagvibError(f"{path}: not a recipe file; columns {columns} expected; {_AGAIN}")
    groups = sorted({row.group for row in rows})
    known = {"split": SPLITS, **scene.factors, "group": groups, "environment": environments}
    for name, column in zip(table.column_names, table.columns, strict=True):
        _check_column(name, column, known.get(name), path)
    return table, metadata


_AGAIN = "delete the file and run again to make a new one"


def _check_column(
    name: str, column: pa.ChunkedArray, known: Sequence[str] | None, path: str | Path
) -> None:
    """known: all values of a column with few values."""
    if known is not None:
        good = pc.is_in(column, pa.array(known))
    elif pa.types.is_floating(column.type):
        good = pc.is_finite(column)
    elif pa.types.is_integer(column.type):
        good = pc.greater_equal(column, 0)
    else:
        good = pc.is_valid(column)
    row = pc.index(pc.fill_null(good, False), False).as_py()
    if row >= 0:
        wanted = f"one of {', '.join(known)}" if known else "a value that a recipe can have"
        raise DiagvibError(
            f"{path}: row {row}: {name} is {column[row].as_py()!r}, not {wanted}; {_AGAIN}"
        )


def select_recipes(table: pa.Table, sample: int, split: str, path: str | Path) -> pa.Table:
    """The recipes of one dataset sample and split. path: of the file, for the DiagvibError if there
    are none."""
    found = table.filter((pc.field("sample") == sample) & (pc.field("split") == split))
    if not len(found):
        raise DiagvibError(
            f"{path}: no recipes for dataset sample {sample}, split {split}; the file has the samples "
            f"up to {pc.max(table['sample']).as_py()}"
        )
    return found
