"""Recipes: everything needed to render one image, drawn from a study's cells and a dataset sample's
classes."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_metadata, open_parquet, write_table
from diagvib.foundation.seeding import named_generator
from diagvib.scenes.scene import Catalogue, Scene
from diagvib.studies.binding import Binding, spreads
from diagvib.studies.dataset_sample import DatasetSample
from diagvib.studies.rows import SPLITS
from diagvib.studies.scarcity import split_counts, whole_shares
from diagvib.studies.study import Study


def recipe_schema(scene: Scene, environments: bool) -> pa.Schema:
    """Columns of a recipe: where it belongs, the class of every factor, and further columns of the
    scene."""
    names = ["split", "group", *(["environment"] if environments else []), *scene.factors]
    texts = [(name, pa.string()) for name in names]
    return pa.schema([("sample", pa.int16()), *texts, *scene.columns])


@dataclass(frozen=True)
class Draw:
    """A dataset sample of a (study, binding) to be drawn. Roles that are not bound are summed out.

    counts: images per split (train, val, test) or test group.
    """

    study: Study
    binding: Binding
    sample: DatasetSample
    counts: dict[str, int]
    scene: Scene
    catalogue: Catalogue

    def generator(self, part: str) -> np.random.Generator:
        return named_generator(self.study.name, self.binding.name, self.sample.number, part)

    def blocks(self, split: str) -> Iterator[tuple[str | None, int, pd.DataFrame]]:
        """For each group that a split draws for, as in `split_counts`: the number of images, and
        its cells with weights."""
        study = self.study
        cells = study.cells(split, self.sample.added_cue)
        keys = [f"{role}_class" for role in study.bound]
        keys += ["environment", "group"] if study.names_environments else ["group"]
        if split == "test":
            cells["weight"] *= cells["group"].map(study.group_weights)
        for group, count in split_counts(study, self.counts, split).items():
            table = cells if group is None else cells[cells["group"] == group]
            yield group, count, table.groupby(keys, as_index=False)["weight"].sum()

    def recipes(self, splits: Sequence[str]) -> pd.DataFrame:
        """The recipes of these splits, each seeded by its name. Columns as in `recipe_schema`."""
        scene, dealt, sources = self.scene, None, {}
        if self.study.as_published:
            return pd.concat([self.published(split) for split in splits])
        shares_out = hasattr(scene, "share_out")
        if shares_out:
            dealt = self.deal(self.generator("shares"))
        split_names = SPLITS if shares_out else splits
        dataset = pd.concat(
            [self.split(split, dealt).assign(split=split) for split in split_names],
            ignore_index=True,
        )
        if shares_out:
            arguments = dataset.copy(), self.catalogue
            sources = scene.drawn_once("share_out", self.generator("sources"), *arguments)
        recipes = dataset.assign(sample=self.sample.number, **sources)
        return recipes[recipes["split"].isin(splits)]

    def published(self, split: str) -> pd.DataFrame:
        """The recipes of a split of a study as published: every photo, in each cell that it fits.
        The training images are in random order. DiagvibError for a scene that is no photo set."""
        scene, cells = self.scene, self.study.cells(split, self.sample.added_cue)
        if not hasattr(scene, "every_photo"):
            raise DiagvibError(
                f"study {self.study.name}: as_published: {scene.name} is no photo set; leave this key out"
            )
        rows = cells.filter(["group", "environment"])
        for role, factor in zip(self.study.bound, self.binding.factors, strict=True):
            classes = self.sample.chosen(factor, self.study.roles[role], scene.factors[factor])
            names = np.asarray(classes, dtype=object)
            rows[factor] = names[cells[f"{role}_class"]]
        rows = rows.assign(
            **{f: default for f, default in scene.unless_bound.items() if f not in rows}
        )
        # Cells may differ in roles alone that are not bound.
        photos = scene.every_photo(rows.drop_duplicates(), self.catalogue, split)
        if photos.empty:
            raise DiagvibError(f"study {self.study.name}: there are no photos of the split {split}")
        photos = photos.assign(sample=self.sample.number, split=split)
        if split != "train":
            return photos
        return photos.iloc[self.generator(split).permutation(len(photos))]

    def split(self, split: str, dealt: Mapping[tuple, np.ndarray] | None) -> pd.DataFrame:
        """The recipes of one split, in random order.

        Cells get their exact share of the images (rounded by largest remainder, as the published
        generator fixes the size of each mode); everything else is uniform and independent. dealt:
        from `deal`, for a scene that assigns its sources afterwards; its columns are then missing
        here.
        """
        generator, sample, factors = self.generator(split), self.sample, self.scene.factors
        parts = []
        for group, count, share in self.blocks(split):
            quotas = dealt[split, group] if dealt else quotas_of(count, share["weight"], generator)
            parts.append(share.loc[np.repeat(share.index, quotas)])
        recipes = pd.concat(parts, ignore_index=True)
        recipes = recipes.iloc[generator.permutation(len(recipes))].reset_index(drop=True)
        index = {f: generator.integers(0, len(sample.classes[f]), len(recipes)) for f in factors}
        classes = dict(sample.classes)
        for role, factor in zip(self.study.bound, self.binding.factors, strict=True):
            classes[factor] = sample.chosen(factor, self.study.roles[role], factors[factor])
            index[factor] = recipes[f"{role}_class"].to_numpy()
        names = {f: np.asarray(classes[f], dtype=object)[index[f]] for f in factors}
        for factor in self.scene.unless_bound.keys() - set(self.binding.factors):
            names[factor][:] = self.scene.unless_bound[factor]
        for column in names.values():
            # A scene that changed these would change what images are.
            column.flags.writeable = False
        realized = {}
        if not dealt:
            realized = self.scene.realized(dict(names), split, self.catalogue, generator)
        spread_factors = spreads(self.study, self.binding)
        for factor in spread_factors:
            if factor not in self.scene.spreads:
                raise DiagvibError(
                    f"study {self.study.name}: spread: the scene {self.scene.name} has none for {factor}, only "
                    f"for {', '.join(self.scene.spreads) or 'no factor'}"
                )
        for factor in self.scene.spreads:  # in their order, since two may change the same columns
            if factor in spread_factors:
                realized = self.scene.narrow(
                    realized, factor, classes[factor], spread_factors[factor]
                )
        return pd.DataFrame({**recipes.filter(["group", "environment"]), **names, **realized})

    def deal(self, generator: np.random.Generator) -> dict[tuple[str, str | None], np.ndarray]:
        """Allocate each cell's images to the splits, and the groups of the test, if no source may
        be used twice.

        Splits with the same cells in the same proportions share one allocation, in which each cell
        has its exact share, so that a published number of photos is used up exactly. In each split,
        a cell has at least its share there, rounded down. Keys and cells as in `blocks`.
        """
        lots: dict[tuple, tuple[np.ndarray, list[tuple[str, str | None, int]]]] = {}
        for split in SPLITS:
            for group, count, share in self.blocks(split):
                weights = share.pop("weight").to_numpy()
                proportions = tuple((weights / weights.sum()).round(9))
                lot = (proportions, *share.itertuples(index=False, name=None))
                lots.setdefault(lot, (weights, []))[1].append((split, group, count))
        dealt_photos = {}
        for weights, takers in lots.values():
            numbers = np.array([count for *_, count in takers])
            total = quotas_of(numbers.sum(), weights, generator)
            floors = np.stack([whole_shares(count, weights)[0] for count in numbers])
            dealt = _in_turn(total, numbers)
            if (dealt < floors).any():  # rare; in all other cases, datasets stay as they were
                dealt = floors + _in_turn(total - floors.sum(0), numbers - floors.sum(1))
            dealt_photos |= {taker[:2]: photos for taker, photos in zip(takers, dealt, strict=True)}
        return dealt_photos


def _in_turn(cells: np.ndarray, takers: np.ndarray) -> np.ndarray:
    """Deal out the images of these cells, one cell after the other, to takers in turn: how many each
    gets of each, int64[takers, cells]. cells, takers: numbers of images with the same sum."""
    turns = np.concatenate([(np.arange(count) + 0.5) / count for count in takers])
    order = np.argsort(turns, kind="stable")
    taker = np.repeat(np.arange(len(takers)), takers)[order]
    dealt = np.zeros((len(takers), len(cells)), dtype=int)
    np.add.at(dealt, (taker, np.repeat(np.arange(len(cells)), cells)), 1)
    return dealt


def quotas_of(count: int, weights: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Whole numbers with sum count, proportional to weights; the largest remainders get the rest,
    ties at random."""
    quotas, rests = whole_shares(count, np.asarray(weights))
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
    parts = [
        Draw(study, binding, sample, counts, scene, catalogue).recipes(splits) for sample in samples
    ]
    schema = recipe_schema(scene, study.names_environments)
    return pa.Table.from_pandas(pd.concat(parts), schema=schema, preserve_index=False)


def write_recipes(path: Path, recipes: pa.Table, metadata: dict) -> None:
    """metadata: what made them; the digest of each dataset sample's splits is added."""
    table = recipes.replace_schema_metadata(None)
    sample_splits = table.select(["sample", "split"]).group_by(["sample", "split"]).aggregate([])
    digests = {
        f"{row['sample']}/{row['split']}": _digest(select_recipes(table, **row, path=path))
        for row in sample_splits.to_pylist()
    }
    write_table(path, table, {**metadata, "digests": digests})


def _digest(table: pa.Table) -> str:
    """sha256, as hex, of a table's content."""
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        return hashlib.sha256(sink.getvalue()).hexdigest()


def read_recipes(path: Path) -> tuple[pa.Table, dict]:
    """A recipe file's table and metadata. DiagvibError if the file is missing or damaged."""
    with open_parquet(path) as file:
        return file.read(), file_metadata(file, path)


def select_recipes(table: pa.Table, sample: int, split: str, path: Path) -> pa.Table:
    """The recipes of one dataset sample and split. path: of the file, for the DiagvibError if there
    are none."""
    recipes = table.filter((pc.field("sample") == sample) & (pc.field("split") == split))
    if not len(recipes):
        raise DiagvibError(
            f"{path}: no recipes for dataset sample {sample}, split {split}; the file has the samples "
            f"up to {pc.max(table['sample']).as_py()}"
        )
    return recipes
