"""Run folders made from a known model, so that every aggregate has a closed form.

The model: of each target class, `right` of `PER_CLASS` test images are predicted correctly and the
others are not; `right` is a fixed function of (baseline, study, pair, sample). Hence the accuracy
of a run is exactly right / PER_CLASS.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from conftest import REPOSITORY
from diagvib import __version__
from diagvib.foundation.files import read_json, read_metadata, write_json, write_table, write_text
from diagvib.methods.method import Visualisation
from diagvib.metrics import mean_per_class_accuracy
from diagvib.papers.all_tables import tabulate
from diagvib.provenance.finished import file_digests
from diagvib.results.read_runs import run_folder
from diagvib.results.reader_tables import Frames, metrics_of
from diagvib.results.tidy_tables import read_tables
from diagvib.scenes import load_scene
from diagvib.scenes.digits.factors import FACTORS, classes
from diagvib.settings.layout import LOOKS, Run
from diagvib.studies.binding import chosen_bindings
from diagvib.studies.known_studies import SHIPPED, KnownStudies
from diagvib.studies.study import load_study
from diagvib.training.visualisations import visualisation_schema, visualisation_table

PER_CLASS = 20
CLASSES = ("first", "second", "third")


def run_of(baseline: str, study: str, binding: str, sample: int) -> dict:
    return Run(baseline, study, binding, sample).keys


def expected_runs(baselines, studies, bindings, samples: int) -> list[dict]:
    """The names of runs: every shipped study with those of the bindings that it
    has."""
    factors = load_scene("digits").factors
    return [
        run_of(baseline, study, binding.name, sample)
        for baseline in baselines
        for study in studies
        for binding in chosen_bindings(load_study(study), bindings, factors)
        for sample in range(samples)
    ]


def right(run: dict, group: str) -> int:
    """How many of PER_CLASS images of each class a run predicts correctly."""
    if group == "id" or not run["cue"]:
        return PER_CLASS - 1
    step = {
        "zgo": 0,
        "cgo-1": 3,
        "chgo": 2,
        "fgo-20": 12,
    }
    dominance = FACTORS.index(run["cue"]) - FACTORS.index(
        run["target"]
    )  # later factors are weaker shortcuts
    return min(PER_CLASS, max(0, 4 + dominance + step.get(run["study"], 0) + run["sample"] % 3))


def accuracy(run: dict, group: str) -> float:
    return right(run, group) / PER_CLASS


def write_pictures(folder: Path) -> None:
    """Write to a run folder what an autoencoder of two latent dimensions might record for four
    images, all noise; and that half of what speaks for its predictions lies in a quarter of an
    image."""
    noise = np.random.default_rng(0).integers(0, 255, (18, 16, 16, 3), dtype=np.uint8)
    pixels, predicted = torch.from_numpy(noise), torch.eye(3)[[0, 1, 2, 0]]
    latent = [
        Visualisation(
            "traversal", pixels[8 + 3 * position :][:3], None, position, (-1, 0, 1), 2.5 - position
        )
        for position in range(2)
    ]
    pictures = [
        Visualisation("input", pixels[:4], predicted),
        Visualisation("reconstruction", pixels[4:8]),
        *latent,
        Visualisation(LOOKS, pixels[14:], predicted),
    ]
    text = {"group": "id", **{factor: classes(factor)[0] for factor in FACTORS}}
    content = visualisation_table(pictures, pa.Table.from_pylist([text] * 4), CLASSES)
    metrics = read_json(folder / "metrics.json")
    looks = {factor: {"share": 0.5, "area": 0.25} for factor in metrics["binding"].split("-")}
    write_json(folder / "metrics.json", metrics | {"saliency": looks})
    path = folder / "exhibits.parquet"
    write_table(path, content, read_metadata(path))
    note_files(folder)


def write_run(runs: Path, run: dict, comparable: bool = True, tracked: bool = False) -> Path:
    """tracked: the run recorded test accuracies: in its third and last epoch its own, before that
    0.1 more per epoch."""
    groups = ("id", "ood") if run["cue"] else ("id",)
    mistakes = dict(zip(CLASSES, CLASSES[1:] + CLASSES[:1], strict=True))
    rows = [
        {
            "group": group,
            **dict.fromkeys(FACTORS, CLASSES[i % 3]),
            run["target"]: label,
            "prediction": label if i < right(run, group) else mistakes[label],
        }
        for group in groups
        for label in CLASSES
        for i in range(PER_CLASS)
    ]
    return write_predicted(runs, run, rows, comparable, groups if tracked else ())


def write_cells(
    runs: Path,
    run: dict,
    predict: Callable[[dict, int], int],
    images: int = 20,
    known_studies: KnownStudies = SHIPPED,
    comparable: bool = False,
) -> Path:
    """A run with this many test images of each tested cell. predict: of a row of `Study.cells`, and
    the number of the image, the index of the class that is predicted."""
    study, factors = known_studies.studies[run["study"]], run["binding"].split("-")
    classes = known_studies.classes(run["study"], factors, run["sample"])
    roles = [*zip(factors, study.bound, classes, strict=True)]
    record = ["group", *(["environment"] if study.names_environments else [])]
    rows = [
        {name: cell[name] for name in record}
        | {factor: names[cell[f"{role}_class"]] for factor, role, names in roles}
        | {"prediction": classes[0][predict(cell, position)]}
        for cell in study.cells("test").to_dict("records")
        for position in range(images)
    ]
    return write_predicted(runs, run, rows, comparable)


# Waterbirds: a published split of which 95 % of either bird are on its own ground.
PHOTOS = {"studies_from": [str(REPOSITORY / "config/photos/waterbirds/studies.yaml")]}
GROUND = {("landbird", "land"): 3498, ("landbird", "water"): 184}
GROUND |= {("waterbird", "land"): 56, ("waterbird", "water"): 1057}
TRAINED = {"-".join(cell): count for cell, count in GROUND.items()}


def photo_run(baseline: str, seed: int = 0) -> dict:
    return run_of(baseline, "waterbirds", "bird-place", seed)


def write_photos(
    runs: Path, run: dict, right: dict[tuple[str, str], int], images: int = 20, doubts=()
) -> Path:
    """A run on Waterbirds. right: of each combination with test photos, how many of `images` are
    recognised."""
    birds = ("landbird", "waterbird")
    rows = [
        {"group": "all", "bird": bird, "place": place}
        | {"prediction": bird if position < hits else birds[bird == birds[0]]}
        for (bird, place), hits in right.items()
        for position in range(images)
    ]
    return write_predicted(runs, run, rows, trained=TRAINED, doubts=doubts)


def write_predicted(
    runs: Path,
    run: dict,
    rows: list[dict],
    comparable: bool = False,
    tracked=(),
    trained: dict[str, int] | None = None,
    doubts=(),
) -> Path:
    """A run with these predictions. rows: of each test image, its group, factors and prediction;
    tracked: the groups whose accuracy it recorded, as in `write_run`; trained: training images of
    each combination, by default as many as test images."""
    folder = run_folder(runs, run)
    facts = {key: run[key] for key in ("baseline", "study", "binding", "sample")}
    facts |= {"sources": "official" if comparable else "embedded", "comparable": comparable}
    kinds = ["-".join(row[role] for role in run["binding"].split("-")) for row in rows]
    record = {**facts, "trained": trained or dict(Counter(kinds))}
    write_table(folder / "predictions.parquet", pa.Table.from_pylist(rows), record)
    groups = {
        group: {
            "accuracy": mean_per_class_accuracy(part[run["target"]], part["prediction"]),
            "n": len(part),
        }
        for group, part in pd.DataFrame(rows).groupby("group")
    }
    write_json(folder / "metrics.json", {**facts, "groups": groups, "doubts": [*doubts]})
    history = [
        {
            "epoch": e,
            "train_loss": 1 / e,
            "train_accuracy": 1 - 0.5 / e,
            "val_loss": 1.1 / e,
            "val_accuracy": 1 - 0.6 / e,
            **{f"{group}_accuracy": accuracy(run, group) + 0.1 * (3 - e) for group in tracked},
        }
        for e in (1, 2, 3)
    ]
    write_text(folder / "history.jsonl", "".join(json.dumps(row) + "\n" for row in history))
    output = {
        "settings": {"batch_size": 64, "learning_rate": 2e-4},
        "seed": 1332,
        "device": "cpu",
        "precision": "fp32",
        "versions": {"diagvib": __version__, "python": "3.11.2", "torch": "2.11.0"},
        "seconds": {"train": 1.5, "test": 0.5},
        "images_per_second": 1000.0,
    }
    write_table(folder / "exhibits.parquet", visualisation_schema(FACTORS).empty_table(), facts)
    write_json(folder / "run.json", {"run": "/".join(folder.parts[-4:]), **output})
    note_files(folder)
    return folder


def tabulated(root: Path, expected: list[dict], settings: dict, *metric_sets: str) -> Frames:
    """The tables of the runs below a root, which are then below it, too; and of these sets of metrics
    their rows, by name."""
    tabulate(root / "runs", root / "tables", expected, settings)
    tables = read_tables(root / "tables")
    return tables | {name: metrics_of(tables, name) for name in metric_sets}


def note_files(folder: Path) -> None:
    """Note a run's files in its run.json, as they are now."""
    record = json.loads((folder / "run.json").read_text())
    write_json(folder / "run.json", record | {"files": file_digests(folder)})


def settings(
    name: str = "erm", supervision: str = "none", options: dict | None = None, **changed
) -> dict:
    """A baseline's settings: a method with its options."""
    return {
        "model": {"name": "small_cnn"},
        "method": {"name": name, "supervision": supervision, **(options or {})},
        "batch_size": 32,
        "optimiser": {"name": "adam", "lr": 1e-3},
        "normalise": "dataset",
        **changed,
    }


def configured(baselines: dict[str, dict]) -> dict:
    """A configuration on embedded sources with these baselines: name -> settings."""
    entries = [{"name": name, "settings": outputs} for name, outputs in baselines.items()]
    return {"sources": "embedded", "baselines": entries}
