"""The data of the page's matrix: every P_ij with its spread, n, missing runs, the paper's numbers,
example images."""

import pandas as pd

from diagvib.report.heat_maps import without_cues
from diagvib.report.overviews import contrast_name
from diagvib.report.sheets import scene_sample
from diagvib.report.style import accuracy_colours
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.paper import paper_percent, percent
from diagvib.results.shortcut import OOD
from diagvib.results.shown import MARKS, matrix_columns
from diagvib.results.verdicts import PAPER_SAMPLES
from diagvib.scenes import load_scene
from diagvib.settings.grid import folder_name
from diagvib.studies.study import Study


def matrix_data(
    frames: dict[str, pd.DataFrame], examples: dict[str, str], known: KnownStudies = SHIPPED
) -> dict:
    """Everything the page's script needs, as plain data. examples: data address of a picture for
    each binding.

    `cells[study][baseline]["target cue"]` holds value (percent), text, n, expected, id, and missing
    (reasons).
    """
    p = frames["p_matrix"]
    return {
        "examples": examples,
        "studies": {study: _study(study, p, known) for study in p["study"].unique()},
        "cells": _cells(p, _missing(frames["runs"])),
        "paper": _paper(frames["comparison"], known),
    }


def _study(name: str, p: pd.DataFrame, known: KnownStudies) -> dict:
    """What the script needs of a study. alone: the study without cues whose column is shown next to
    this one's."""
    study, factors = known.studies[name], known.factors([name])
    own, sample = p[(p["study"] == name) & (p["group"] == OOD)], scene_sample(study.scene, 0)
    alone, chance = without_cues(p, factors, known), known.chance(name)
    found = {
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
        "train": {},
        "ood": [],
    }
    if len(study.cues) == 1:
        train, test = (study.cells(split, sample.added_cue) for split in ("train", "test"))
        found["train"] = {
            f"{target} {cue}": round(100 * weight, 1)
            for target, cue, weight in train[[*_roles(study), "weight"]].itertuples(index=False)
        }
        found["ood"] = [
            f"{target} {cue}"
            for target, cue in test.loc[test["group"] == OOD, _roles(study)].itertuples(index=False)
        ]
    return found


def _roles(study: Study) -> list[str]:
    return [f"{role}_class" for role in study.bound]


def _cells(p: pd.DataFrame, missing: dict[tuple, list[str]]) -> dict:
    inside = {
        (r.study, r.baseline, r.target, r.cue): r
        for r in p[p["group"] != OOD].itertuples(index=False)
    }
    cells: dict = {}
    for row in p[(p["group"] == OOD) | (p["cue"] == "")].itertuples(index=False):
        key = (row.study, row.baseline, row.target, row.cue)
        cells.setdefault(row.study, {}).setdefault(row.baseline, {})[
            f"{row.target} {row.cue}".strip()
        ] = {
            "value": round(100 * row.mean, 2) if row.n else None,
            "n": int(row.n),
            "expected": int(row.expected),
            "text": percent(row.mean, row.stderr, row.n, row.expected),
            "id": percent(inside[key].mean, inside[key].stderr, inside[key].n, inside[key].expected)
            if row.cue
            else "",
            "missing": missing.get(key, []),
        }
    return cells


def _missing(runs: pd.DataFrame) -> dict[tuple, list[str]]:
    found: dict[tuple, list[str]] = {}
    for run in runs[runs["status"] != "ok"].itertuples(index=False):
        reason = f"sample {run.sample}: {run.status} ({run.reason})"
        found.setdefault((run.study, run.baseline, run.target, run.cue), []).append(reason)
    return found


def _paper(comparison: pd.DataFrame, known: KnownStudies) -> dict:
    """`[study][baseline][target]`: a sentence for each of the paper's numbers on this row of the
    matrix."""
    names = {
        "faavg": "FAAvg, the mean over the row's cues",
        "famin": "FAMin, the row's worst cue",
        **{metric: contrast_name(metric, known) for metric in known.contrasts},
    }
    found: dict = {}
    for row in comparison.itertuples(index=False):
        spread = (
            row.paper_stderr * PAPER_SAMPLES**0.5
            if row.metric in known.contrasts
            else row.paper_stderr
        )
        ours = percent(row.ours, row.stderr, row.n, row.expected) if row.n > 0 else "-"
        mark = f" {MARKS.get(row.verdict, '')}".rstrip()
        why = [text for text in (row.reason, row.mentions) if text and row.n > 0]
        verdict = ": ".join([row.verdict, *(["; ".join(why)] if why else [])])
        name = names[row.metric] if known.studies[row.study].cues else "accuracy without a cue"
        text = f"{name}: paper {paper_percent(row.paper, spread)}, ours {ours}{mark} ({verdict})"
        found.setdefault(row.study, {}).setdefault(row.baseline, {}).setdefault(
            row.target, []
        ).append(text)
    return found
