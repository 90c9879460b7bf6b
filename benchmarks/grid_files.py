"""Run folders of a full grid, with real file formats and sizes, from the generative model in
`synthetic_grid.py`. asr and the VAEs also have exhibits, of as many pictures as theirs."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from synthetic_grid import right_per_class

from diagvib.foundation.files import METADATA_KEY
from diagvib.methods.method import Visualisation
from diagvib.provenance.finished import file_digests
from diagvib.results.read_runs import run_folder
from diagvib.scenes.digits.factors import FACTORS, classes
from diagvib.training.visualisations import visualisation_table
from synthetic_runs import CLASSES


def write_grid(runs: Path, expected: list[dict], per_class: int = 3333, epochs: int = 30) -> None:
    """Write run folders as `diagvib train` leaves them, files directly in place. expected: may have
    `provenance` (`provenance.expected`)."""
    for run in expected:
        _write(run_folder(runs, run), run, per_class, epochs)


def _write(folder: Path, run: dict, per_class: int, epochs: int) -> None:
    folder.mkdir(parents=True)
    names = {key: run[key] for key in ("baseline", "study", "binding", "sample")}
    source = {"sources": "official", "comparable": True}
    right, groups = right_per_class(run, per_class), ("id", "ood") if run["cue"] else ("id",)
    table = _predictions(run["target"], len(groups), right, per_class)
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps({**names, **source})})
    pq.write_table(table, folder / "predictions.parquet", compression="zstd")
    pq.write_table(
        _exhibits(run["baseline"]).replace_schema_metadata(table.schema.metadata),
        folder / "exhibits.parquet",
        compression="zstd",
    )
    group = {"accuracy": right / per_class, "n": 3 * per_class, "per_class": {}}
    (folder / "metrics.json").write_text(
        json.dumps(
            {
                **names,
                "target": run["target"],
                "cue": run["cue"],
                **source,
                "groups": dict.fromkeys(groups, group),
                "selected_epoch": epochs,
                "epochs": epochs,
                "val_loss": 0.5,
            }
        )
    )
    (folder / "history.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "epoch": e,
                    "train_loss": 1 / e,
                    "train_accuracy": 1 - 0.5 / e,
                    "val_loss": 1.1 / e + e / 300,
                    "val_accuracy": 1 - 0.6 / e,
                }
            )
            + "\n"
            for e in range(1, epochs + 1)
        )
    )
    (folder / "run.json").write_text(
        json.dumps(
            {
                "settings": {"batch_size": 64, "lr": 2e-4},
                "seed": 1332,
                "device": "cpu",
                "precision": "fp32",
                "versions": {"diagvib": "0.1.0"},
                "seconds": {"train": 1.5, "test": 0.5},
                "images_per_second": 1000.0,
                **run.get("provenance", {}),
                "files": file_digests(folder),
            }
        )
    )


def _predictions(target: str, groups: int, right: int, per_class: int) -> pa.Table:
    n = groups * 3 * per_class
    label = np.tile(np.repeat(np.arange(3), per_class), groups)
    place = np.tile(np.arange(per_class), groups * 3)
    predicted = np.where(place < right, label, (label + 1) % 3)
    codes = {factor: label if factor == target else place % 3 for factor in FACTORS}
    columns = {factor: np.array(classes(factor)[:3])[code] for factor, code in codes.items()}
    return pa.table(
        {
            "group": np.repeat(["id", "ood"][:groups], 3 * per_class),
            **columns,
            "prediction": np.array(classes(target)[:3])[predicted],
            "confidence": np.full(n, 0.5, dtype=np.float32),
        }
    )


# As many test images as a run shows.
SHOWN = 12


@cache
def _exhibits(baseline: str) -> pa.Table:
    """As a run of that baseline would have them: the same pictures of coloured squares for every
    run."""
    pixels = np.full((SHOWN, 128, 128, 3), 128, dtype=np.uint8)
    for place, picture in enumerate(pixels):
        picture[8 * place : 8 * place + 20, 40:60] = [20 * place, 255 - 20 * place, 100]
    strips = {
        "asr": ("input", "lensed", "difference"),
        "vae": ("input", "reconstruction"),
        "factor_vae": ("input", "reconstruction"),
    }.get(baseline, ())
    latent = range(12 if baseline.endswith("vae") else 0)
    images, predicted = torch.from_numpy(pixels), torch.eye(3)[torch.arange(SHOWN) % 3]
    pictures = [Visualisation(what, images, predicted) for what in strips]
    pictures += [
        Visualisation("traversal", images[:7], None, d, range(-3, 4), 6 - d / 2) for d in latent
    ]
    shown = {"group": "id", **{factor: classes(factor)[0] for factor in FACTORS}}
    return visualisation_table(pictures, pa.Table.from_pylist([shown] * SHOWN), CLASSES)
