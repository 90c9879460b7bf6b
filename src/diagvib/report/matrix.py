"""The data of the page's matrix: every P_ij with its spread, n, missing runs, example images."""

import pandas as pd

from diagvib.report.examples import example_pictures
from diagvib.report.figure import Material
from diagvib.report.heat_maps import without_cues
from diagvib.report.style import accuracy_colours
from diagvib.results.known_studies import KnownStudies, sample_of
from diagvib.results.metric_sets.shortcut import OOD, matrix_columns
from diagvib.results.texts import percent
from diagvib.scenes import load_scene
from diagvib.settings.grid import folder_name


def matrix_data(material: Material) -> dict:
    """Everything the page's script needs, as plain data.

    `cells[study][baseline]["target cue"]` holds value (percent), text, n, expected, id, and missing
    (reasons). examples: of `example_pictures`.
    """
    p = material.frames["p_matrix"]
    return {
        "examples": example_pictures(material),
        "studies": {study: _study(study, p, material.known) for study in p["study"].unique()},
        "cells": _cells(p, _missing(material.frames["runs"])),
    }


def _study(name: str, p: pd.DataFrame, known: KnownStudies) -> dict:
    """What the script needs of a study. alone: the study without cues whose column is shown next to
    this one's; train, ood: cells, as indices of classes, with their shares."""
    study, factors, chance = known.studies[name], known.factors([name]), known.chance(name)
    own, sample = p[(p["study"] == name) & (p["group"] == OOD)], sample_of(study.scene, 0)
    alone = without_cues(p, factors, known)
    roles = [f"{role}_class" for role in study.bound]
    train, test = (study.cells(split, sample.added_cue) for split in ("train", "test"))
    if len(study.cues) != 1:
        train, test = train[:0], test[:0]
    return {
        "chance": 100 * chance,
        "colours": [accuracy_colours(i / 100, chance) for i in range(101)],
        "title": study.title,
        "meaning": study.meaning,
        "factors": factors,
        "scene": folder_name(study.scene),
        "classes": [  # of the target, of the cue
            {
                factor: sample.chosen(factor, study.roles[role], classes)
                for factor, classes in load_scene(study.scene).factors.items()
                if len(classes) >= study.roles[role]
            }
            for role in study.bound
        ],
        "cues": matrix_columns(own["cue"], factors) if len(own) else [],
        "alone": alone["study"].iloc[0] if len(alone) else "",
        "train": {
            " ".join(map(str, cell)): round(100 * weight, 1)
            for *cell, weight in train[[*roles, "weight"]].itertuples(index=False)
        },
        "ood": [
            " ".join(map(str, cell))
            for cell in test.loc[test["group"] == OOD, roles].itertuples(index=False)
        ],
    }


def _cells(p: pd.DataFrame, missing: dict[tuple, list[str]]) -> dict:
    keys = ["study", "baseline", "target", "cue"]
    inside = {
        key: percent(own["mean"], own["stderr"], own["n"], own["expected"])
        for key, own in p[p["group"] != OOD].set_index(keys).iterrows()
    }
    cells: dict = {}
    for row in p[(p["group"] == OOD) | (p["cue"] == "")].itertuples(index=False):
        key = row[:4]
        of_baseline = cells.setdefault(row.study, {}).setdefault(row.baseline, {})
        of_baseline[f"{row.target} {row.cue}".strip()] = {
            "value": round(100 * row.mean, 2) if row.n else None,
            "n": int(row.n),
            "expected": int(row.expected),
            "text": percent(row.mean, row.stderr, row.n, row.expected),
            "id": inside[key] if row.cue else "",
            "missing": missing.get(key, []),
        }
    return cells


def _missing(runs: pd.DataFrame) -> dict[tuple, list[str]]:
    found: dict[tuple, list[str]] = {}
    for run in runs[runs["status"] != "ok"].itertuples(index=False):
        reason = f"sample {run.sample}: {run.status} ({run.reason})"
        found.setdefault((run.study, run.baseline, run.target, run.cue), []).append(reason)
    return found
