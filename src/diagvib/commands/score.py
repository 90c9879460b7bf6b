"""`diagvib score`: predictions that were made elsewhere, through the studies of a configuration."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from diagvib.commands.evaluate import OWN_OUTPUTS, baseline_name, write_files
from diagvib.commands.fitted_classifier import read_classes
from diagvib.commands.run import run_workflow
from diagvib.foundation.errors import DiagvibError, some_names, within
from diagvib.foundation.files import file_sha256, read_table, write_text
from diagvib.foundation.messages import say
from diagvib.methods.predictions import CONFIDENCE, FILE, PREDICTION, RECIPES, image_name
from diagvib.methods.registry import PREDICTIONS
from diagvib.models.fitted import check_names, check_numbers
from diagvib.results.evaluation import below_chance
from diagvib.scenes import load_scene
from diagvib.scenes.photos.scene import CATALOGUE, Photos
from diagvib.settings.keys import ResolvedConfiguration
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import overridden, without_baseline_keys
from diagvib.studies.recipes import read_recipes, select_recipes
from diagvib.studies.study import SPLITS

_EXAMPLES = 3


def score(
    path: Path,
    base: Path,
    studies: Sequence[str] | None = None,
    classes: str | None = None,
    overrides: Sequence[str] | None = None,
    root: str | None = None,
    cores: int | None = None,
) -> tuple[Path, ResolvedConfiguration]:
    """Write configuration.yaml, baselines.yaml and predictions.csv to the root: a baseline, named
    after the table, whose predictions are these. Draws the images' recipes, to know which images
    there are. Returns the configuration's path and content.

    classes: as of `read_classes`. DiagvibError for test images without a prediction, and for files
    and classes that are unknown or there twice.
    """
    mapping, table = read_classes(classes), read_predictions(path)
    name = "scored_" + baseline_name(re.sub(r"[^\w-]", "_", path.stem))
    settings = without_baseline_keys(overridden(base, [*overrides] if overrides else None))
    settings |= {"studies": [*studies]} if studies else {}
    settings["root"] = root or f"outputs/score/{name.removeprefix('scored_')}"
    predictions = Path(settings["root"], "predictions.csv")
    method = {"name": PREDICTIONS, "file": str(predictions)}
    entry = {"method": method, **OWN_OUTPUTS, "origin": "diagvib score; predictions made elsewhere"}
    choices = {"images": "render"}  # none is looked at
    write = partial(write_files, settings, {name: entry}, choices, (base, path), [predictions])
    file, config = write()
    if config.dataset_count < config.samples or config.seeds > 1:  # which would all be the same
        choices |= {"seeds": 1, "samples": config.dataset_count}
        file, config = write()
    if run_workflow(str(file), ["--quiet", "all", "--cores", str(cores or 1), "recipes"]):
        raise DiagvibError(f"{base}: the images could not be drawn")
    with within(str(path)):
        scored = scored_images(table, datasets(config), mapping)
    write_text(predictions, scored.to_csv(index=False, lineterminator="\n"))
    method |= {"sha256": file_sha256(predictions), "probabilities": CONFIDENCE in scored}
    file, config = write()
    baselines = file.with_name("baselines.yaml")
    say(
        f"{path}: predictions of {len(scored):,} test images, as the baseline {name} of {baselines}"
    )
    return file, config


def read_predictions(path: Path) -> pd.DataFrame:
    """The columns file, prediction, and confidence if there is one. DiagvibError for a table without
    the first two, with empty cells, or with a file twice; OSError if it cannot be opened."""
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
    except ValueError as error:
        raise DiagvibError(f"{path}: no table of predictions ({error})") from None
    if lost := [name for name in (FILE, PREDICTION) if name not in table]:
        raise DiagvibError(
            f"{path}: no column {lost[0]} among {some_names([*table])}; the columns file and "
            "prediction are needed"
        )
    names = [name for name in (FILE, PREDICTION, CONFIDENCE) if name in table]
    heads = pd.read_csv(path, dtype=str, header=None, nrows=1, skipinitialspace=True).iloc[0]
    _refuse(path, "columns are there twice", [name for name in names if [*heads].count(name) > 1])
    table = table[names].apply(lambda column: column.str.strip())
    empty = (table[FILE] == "") | (table[PREDICTION] == "")
    _refuse(
        path,
        "rows without a file or a prediction",
        [f"line {k + 2}" for k in np.flatnonzero(empty)],
    )
    doubled = table.loc[table[FILE].duplicated(), FILE].unique()
    _refuse(path, "files with several predictions", doubled)
    if CONFIDENCE in table:
        values = pd.to_numeric(table[CONFIDENCE], errors="coerce")
        invalid = table.loc[~values.between(0, 1), FILE]
        _refuse(path, "rows whose confidence is no probability from 0 to 1", invalid)
    return table


def _refuse(location: object, problem: str, names: Sequence[str], remedy: str = "") -> None:
    """DiagvibError with the number and the first three of these names, if there are any."""
    if len(names):
        where = f"{location}: " if location else ""
        raise DiagvibError(
            f"{where}{len(names):,} {problem}: {some_names([*names], _EXAMPLES)}{remedy}"
        )


@dataclass(frozen=True)
class Dataset:
    """The images of a dataset. names: by split, of each image, its own and, of a photo, that of its
    file. classes: all of the target; present: those that there are images of. recipes: the digest
    of the test images'. photos: the files of all photos, of which a study may leave out some; values:
    their table's -> the target's class."""

    title: str
    names: Mapping[str, Sequence[tuple[str, ...]]]
    classes: Sequence[str]
    present: Sequence[str]
    recipes: str
    photos: frozenset[str] = frozenset()
    values: Mapping[str, str] = field(default_factory=dict)


def datasets(config: ResolvedConfiguration) -> Iterator[Dataset]:
    """Those of a configuration whose recipes are drawn."""
    layout = Layout(config.root)
    for study, binding in config.datasets:
        scene_name = config.study(study).scene
        scene, prepared = load_scene(scene_name), layout.prepared(scene_name)
        target, path = binding.split("-")[0], layout.recipes(study, binding)
        recipes, metadata = read_recipes(path)
        photos, values = frozenset(), {}
        if isinstance(scene, Photos):
            photos = frozenset(read_table(prepared / CATALOGUE)["path"].to_pylist())
            values = scene.class_values(target)
        for sample in range(config.dataset_count):
            names, labels = {}, set()
            for split in SPLITS:
                rows = select_recipes(recipes, sample, split, path)
                labels |= set(rows[target].to_pylist())
                image = {"study": study, "binding": binding, "sample": sample, "split": split}
                names[split] = _names(image, rows, scene.source_files(rows, prepared))
            present = [name for name in scene.factors[target] if name in labels]
            digest = metadata["digests"][f"{sample}/test"]
            title = f"{study} {binding} {sample}"
            yield Dataset(title, names, scene.factors[target], present, digest, photos, values)


def _names(image: dict, rows: pa.Table, files: Sequence[str] | None) -> list[tuple[str, ...]]:
    names = [image_name(image, row) for row in range(len(rows))]
    return [*zip(names, files, strict=True)] if files else [(name,) for name in names]


def scored_images(
    table: pd.DataFrame, scored_datasets: Iterator[Dataset], mapping: Mapping[str, str]
) -> pd.DataFrame:
    """The predictions of all test images, by the images' names and the classes' names. table: from
    `read_predictions`; mapping: a prediction -> a class.

    A file may have more folders in front than an image's name, or fewer if that names one image.
    """
    scored_datasets = [*scored_datasets]
    rows = rows_of_files(table[FILE], scored_datasets)
    lost = [
        images[-1]
        for dataset in scored_datasets
        for images in dataset.names["test"]
        if not any(name in rows for name in images)
    ]
    total = sum(len(dataset.names["test"]) for dataset in scored_datasets)
    _refuse("", f"of {total:,} test images have no prediction", lost)
    parts = []
    for dataset in scored_datasets:
        numbers = [
            next(rows[name] for name in images if name in rows) for images in dataset.names["test"]
        ]
        part = table.iloc[numbers].reset_index(drop=True)
        labels = class_names(part[PREDICTION], dataset, mapping)
        names = [images[0] for images in dataset.names["test"]]
        part = part.assign(**{FILE: names, PREDICTION: labels, RECIPES: dataset.recipes})
        if CONFIDENCE in part:
            low = below_chance(part[CONFIDENCE].astype(float).to_numpy(), len(dataset.classes))
            problem = (
                f"confidences below 1/{len(dataset.classes)}, so another class would be predicted"
            )
            _refuse("", problem, part[FILE].iloc[low])
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def rows_of_files(files: Sequence[str], scored_datasets: Sequence[Dataset]) -> dict[str, int]:
    """The row of each test image that a file is of, by the image's name. DiagvibError for files that
    are of no image of these datasets, and images that several files are of."""
    tested = _image_names(scored_datasets, "test")
    other_names = _image_names(scored_datasets, "train", "val") - tested
    other_names |= frozenset().union(*(dataset.photos for dataset in scored_datasets)) - tested
    tested_endings, other_endings = _endings(tested), _endings(other_names)
    rows: dict[str, int] = {}
    unknown, doubled = [], []
    for row, file in enumerate(files):
        if name := _named(file, tested, tested_endings):
            if rows.setdefault(name, row) != row:
                doubled.append(file)
        elif not _named(file, other_names, other_endings):
            unknown.append(file)
    example = min(tested, key=lambda name: (len(name), name))
    _refuse(
        "", "files are of no image of these studies", unknown, f"; images are called like {example}"
    )
    _refuse("", "files are of an image that another row is of, too", doubled)
    return rows


def _image_names(scored_datasets: Sequence[Dataset], *splits: str) -> set[str]:
    """All names of the images of these splits."""
    return {
        name
        for dataset in scored_datasets
        for split in splits
        for image_names in dataset.names[split]
        for name in image_names
    }


def _endings(names: set[str]) -> dict[str, str]:
    """The end of a path -> the name that ends with it; empty if several do."""
    endings = {}
    for name in names:
        parts = name.split("/")
        for start in range(1, len(parts)):
            ending = "/".join(parts[start:])
            endings[ending] = "" if ending in endings else name
    return endings


def _named(file: str, names: set[str], endings: Mapping[str, str]) -> str:
    """The name of the image that a file is of; empty if there is none."""
    parts = file.replace("\\", "/").removeprefix("./").split("/")
    paths = ["/".join(parts[start:]) for start in range(len(parts))]
    whole = next((path for path in paths if path in names), "")
    return whole or endings.get(paths[0], "")


def class_names(predictions: pd.Series, dataset: Dataset, mapping: Mapping[str, str]) -> list[str]:
    """The classes that predictions mean: those of the mapping; or by name; or as in the photos' table;
    or by number, counted among the classes that there are images of, as in the tables of `diagvib
    export --png`."""
    values = [*predictions.unique()]
    numbers = {str(number): name for number, name in enumerate(dataset.present)}
    names = {name: name for name in dataset.classes}
    called = f"{dataset.title}: the classes are {some_names(dataset.present, 10)}"
    if mapping:
        check_names("class", mapping.values(), names, called)
        check_names("prediction", values, mapping, "give each one a class by --classes")
        return [*predictions.map(mapping)]
    meanings = names, dataset.values, numbers
    fitting = [meaning for meaning in meanings if {*values} <= {*meaning}]
    if len({tuple(map(meaning.get, values)) for meaning in fitting}) > 1:
        raise DiagvibError(
            f"{dataset.title}: predictions such as {values[0]} may be names or numbers of classes, or the "
            f"table's values; say which class each means by --classes, such as {values[0]}={fitting[0][values[0]]}"
        )
    if not fitting:
        remedy = f"{called}, or numbers from 0 to {len(numbers) - 1}; or use --classes"
        check_names("class", values, {*names} | {*numbers}, remedy)
        check_names("class", values, names, remedy)
    if fitting[0] is numbers:
        check_numbers({}, (), dataset.values)
    return [*predictions.map(fitting[0])]
