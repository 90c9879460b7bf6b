"""The explorer: a page that shows test images by cell, with the predictions of one run or of two beside
each other. A folder of plain files, which opens from the disk.

All images are counted; a sample is shown, the first of each cell, so that the folder stays below about
20 MB however many runs and images there are.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import chain, product
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
import pyarrow.compute as pc
import torch
from PIL import Image

from diagvib.foundation.files import read_metadata, read_table, write_text
from diagvib.report.report_data import ReportData
from diagvib.report.sheets import images_at, webp_address
from diagvib.results.read_runs import run_folder
from diagvib.results.reader_tables import in_order
from diagvib.scenes import load_scene
from diagvib.scenes.prepared import is_prepared
from diagvib.scenes.scene import Renderer
from diagvib.settings.method_settings import has_probabilities
from diagvib.studies.recipes import read_recipes

# The most images shown in all, of one dataset, and of one cell; and the most datasets.
_IMAGES, _OF_DATASET, _OF_CELL, _DATASETS = 8000, 432, 12, 250
_SIDE, _COLUMNS = 56, 24  # pixels of a thumbnail; thumbnails in a row of the sprite


def write_explorer(report_data: ReportData, recipes: Path, out: Path) -> None:
    """Write {out}/index.html, and a file for each dataset that it loads on demand, in place of those
    that are there.

    recipes: the folder of all recipes, from which images are rendered where there are no image
    files. A dataset is left out without either, or if these are of other images than the predictions.
    """
    shutil.rmtree(out, ignore_errors=True)
    runs = report_data.frames["runs"]
    by_dataset = runs[runs["status"] == "ok"].groupby(["study", "binding", "sample"], sort=False)
    datasets = sorted(
        by_dataset, key=lambda dataset_runs: dataset_runs[0][2]
    )  # all of sample 0 come first
    image_limit = min(_OF_DATASET, _IMAGES // max(1, min(len(datasets), _DATASETS)))
    images = partial(image_data, report_data, recipes, cache(partial(_renderer, report_data)))
    index = []
    for (study, binding, sample), dataset_runs in datasets[:_DATASETS]:
        if dataset := dataset_of_runs(
            report_data, images, dataset_runs.to_dict("records"), image_limit
        ):
            file = f"{study}_{binding}_{sample}.js"
            # Names may run together: study `a_b` with `c-d`, and `a` with `b_c-d`.
            if file in {entry["file"] for entry in index}:
                file = f"{len(index)}+{file}"
            write_text(out / file, f"loaded({json.dumps(dataset, separators=(',', ':'))});\n")
            index.append(
                {
                    "study": study,
                    "binding": binding,
                    "sample": sample,
                    "title": report_data.known_studies.title(study),
                    "runs": [*dataset["runs"]],
                    "file": file,
                }
            )
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True
    )
    page = environment.get_template("explorer.html.j2").render(index=index, datasets=len(datasets))
    write_text(out / "index.html", page)


def dataset_of_runs(
    report_data: ReportData, read_images: Callable, runs: list[dict], image_limit: int
) -> dict | None:
    """The runs on one dataset, as the page's script reads them; None if there are no images."""
    target, *cues = factors = runs[0]["binding"].split("-")
    predictions = _predictions(report_data, runs[0])
    combinations = predictions[factors].drop_duplicates()
    cells, misleading = _cells(report_data, runs[0], combinations)
    per_cell = max(1, min(_OF_CELL, image_limit // len(combinations)))
    numbers = np.sort(predictions.groupby(factors, sort=False).head(per_cell).index)[:image_limit]
    images = read_images(runs[0], numbers, predictions[factors])
    if images is None:
        return None
    rows = [*dict.fromkeys(row for row, *_ in cells)]
    classes, run_facts = {name: number for number, name in enumerate(rows)}, {}
    for run in runs:
        run_predictions = predictions if run is runs[0] else _predictions(report_data, run)
        if run_predictions[factors].equals(predictions[factors]):  # otherwise of other images
            name = run["baseline"] + (f", seed {run['seed']}" if run["seed"] else "")
            sheet = run_predictions.loc[numbers]
            run_facts[name] = {
                "counts": _counts(run_predictions, factors, cells),
                "predicted": [classes.setdefault(c, len(classes)) for c in sheet["prediction"]],
                "percent": [round(100 * float(p), 1) for p in sheet.get("confidence", ())],
            }
    return {
        "target": target,
        "cues": cues,
        "rows": rows,
        "columns": [
            ", ".join(map(" ".join, zip(cues, column, strict=True)))
            for column in dict.fromkeys(cell[1:] for cell in cells)
        ],
        "points": [*cells.values()],
        "misleading": misleading,
        "classes": [*classes],
        **_shown_images(predictions.loc[numbers], factors, [*cells]),
        "runs": run_facts,
        "side": _SIDE,
        "across": _COLUMNS,
        "sprite": webp_address(_sprite(images)),
    }


def _shown_images(images: pd.DataFrame, factors: list[str], cells: list[tuple]) -> dict[str, list]:
    """The images shown, in the order of the sprite: the number of each one's cell, its row in the
    dataset, and what else is known of it."""
    cell_numbers = {cell: number for number, cell in enumerate(cells)}
    details = images.drop(columns=[*factors, "prediction"]).select_dtypes(exclude="number")
    return {
        "cells": [cell_numbers[c] for c in images[factors].itertuples(index=False, name=None)],
        "numbers": images.index.tolist(),
        "about": [
            ", ".join(f"{name} {value}" for name, value in row.items() if value)
            for row in details.to_dict("records")
        ],
    }


def _cells(
    report_data: ReportData, run: dict, combinations: pd.DataFrame
) -> tuple[dict[tuple, list[str]], list[list[str]]]:
    """Class of the target and those of the cues -> the other classes that these point to; and for
    each such cell, the cues that mislead in it: that point to other classes alone. A row of
    combinations: classes of a tested image."""
    known_studies, factors = report_data.known_studies, [*combinations]
    classes = dict(load_scene(known_studies.studies[run["study"]].scene).factors)
    trained = read_metadata(_predictions_file(report_data, run)).get("trained", {})
    cue_labels = known_studies.cue_label(run["study"], factors, run["sample"], trained)

    # As on the page, with the shortcut's cells on the diagonal.
    classes |= zip(
        factors, known_studies.classes(run["study"], factors, run["sample"]), strict=False
    )
    rows, *columns = (in_order(combinations[name], classes[name]) for name in factors)
    pointed_to, misleading = {}, []
    for row, *column in product(rows, *columns):
        by_cue = {
            name: labels.get(label, ())
            for name, label, labels in zip(factors[1:], column, cue_labels, strict=False)
        }
        pointed_to[row, *column] = sorted({*chain(*by_cue.values())} - {row})
        misleading.append([name for name, labels in by_cue.items() if labels and row not in labels])
    return pointed_to, misleading


def _predictions_file(report_data: ReportData, run: dict) -> Path:
    return run_folder(report_data.runs, run) / "predictions.parquet"


def _predictions(report_data: ReportData, run: dict) -> pd.DataFrame:
    settings = {
        entry["name"]: entry["settings"] for entry in report_data.settings.get("baselines", ())
    }
    predictions = read_table(_predictions_file(report_data, run)).to_pandas()
    if has_probabilities(settings.get(run["baseline"])):
        return predictions
    return predictions.drop(columns="confidence")


def _counts(predictions: pd.DataFrame, by: list[str], cells: dict) -> list[list[int]]:
    """Of all test images of each cell: right, wrong as the cue says, wrong otherwise."""
    counts = {cell: [0, 0, 0] for cell in cells}
    for (*cell, predicted), n in predictions.groupby([*by, "prediction"]).size().items():
        outcome = 0 if predicted == cell[0] else 1 if predicted in cells[tuple(cell)] else 2
        counts[tuple(cell)][outcome] += n
    return [[int(n) for n in cell_counts] for cell_counts in counts.values()]


def _renderer(report_data: ReportData, scene: str) -> Renderer:
    size, device = report_data.settings["image_size"], torch.device("cpu")
    return load_scene(scene).rendering(report_data.prepared(scene), size, device)


def image_data(
    report_data: ReportData,
    recipes: Path,
    renderer: Callable[[str], Renderer],
    run: dict,
    rows: np.ndarray,
    labels: pd.DataFrame,
) -> Sequence[np.ndarray] | None:
    """Test images uint8[H, W, 3] in these rows: from a file, or rendered. None if there are none
    that have these labels, row by row."""
    study, binding, by = run["study"], run["binding"], [*labels]
    name = report_data.known_studies.studies[study].scene
    scene, prepared = load_scene(name), report_data.prepared(name)
    sample = 0 if scene.replicates == "seeds" else run["sample"]
    file = report_data.images / study / binding / str(sample) / "test.parquet"
    recipe = recipes / study / f"{binding}.parquet"
    if file.exists():
        table = read_table(file, by)
    elif recipe.exists() and is_prepared(prepared):
        table_of_recipes, metadata = read_recipes(recipe)
        if metadata["sources_digest"] != scene.catalogue(prepared).digest:
            return None
        table = table_of_recipes.filter(
            (pc.field("sample") == sample) & (pc.field("split") == "test")
        )
    else:
        return None
    if not np.array_equal(table.select(by).to_pandas().to_numpy(str), labels.to_numpy(str)):
        return None
    return images_at(file, rows) if file.exists() else renderer(name)(table.take(rows)).numpy()


def _sprite(images: Sequence[np.ndarray]) -> Image.Image:
    """All images as thumbnails, in rows of _COLUMNS."""
    sprite = Image.new("RGB", (_SIDE * _COLUMNS, _SIDE * -(-len(images) // _COLUMNS)))
    for number, image in enumerate(images):
        small = Image.fromarray(image).resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        sprite.paste(small, (_SIDE * (number % _COLUMNS), _SIDE * (number // _COLUMNS)))
    return sprite
