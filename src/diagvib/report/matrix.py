"""What the page's matrix shows: every P_ij with its spread, n, holes, the paper's numbers and example images."""

import pandas as pd

from diagvib.report.style import accuracy_colours
from diagvib.results.formats import MARKS
from diagvib.results.metrics import CHANCE
from diagvib.results.paper import paper_percent, percent
from diagvib.scenes.digits.factors import FACTORS
from diagvib.studies.study import GROUPS, dataset_sample, load_study, study_cells


def matrix_data(frames: dict[str, pd.DataFrame], examples: dict[str, str]) -> dict:
    """Everything the page's script needs, as plain data. examples: data address of a picture per pair.

    `cells[study][baseline]["target cue"]` holds value (percent), text, n, expected, id, and holes (reasons).
    """
    p, sample = frames["p_matrix"], dataset_sample(0)
    return {
        "factors": FACTORS, "chance": 100 * CHANCE, "examples": examples, "classes": sample.classes,
        "colours": [accuracy_colours(i / 100) for i in range(101)],
        "studies": {study: _study(study, sample.added_cue) for study in p["study"].unique()},
        "cells": _cells(p, _holes(frames["runs"])), "paper": _paper(frames["comparison"]),
    }


def _study(name: str, added_cue: tuple[int, ...]) -> dict:
    study = load_study(name)
    found = {"title": name.upper(), "meaning": study.meaning, "paired": study.paired, "train": {}, "ood": []}
    if study.paired:
        train = study_cells(name, "train", added_cue)
        found["train"] = {f"{c.target_class}{c.cue_class}": round(100 * c.weight, 1) for c in train.itertuples()}
        if study.has_group("ood"):
            ood = study_cells(name, "ood", added_cue)
            found["ood"] = [f"{c.target_class}{c.cue_class}" for c in ood.itertuples()]
    return found


def _cells(p: pd.DataFrame, holes: dict[tuple, list[str]]) -> dict:
    inside = {(r.study, r.baseline, r.target, r.cue): r for r in p[p["group"] == "id"].itertuples(index=False)}
    cells: dict = {}
    for row in p.itertuples(index=False):
        if row.group != GROUPS[1] and row.cue:
            continue
        key = (row.study, row.baseline, row.target, row.cue)
        cells.setdefault(row.study, {}).setdefault(row.baseline, {})[f"{row.target} {row.cue}".strip()] = {
            "value": round(100 * row.mean, 2) if row.n else None, "n": int(row.n), "expected": int(row.expected),
            "text": percent(row.mean, row.stderr, row.n, row.expected),
            "id": percent(inside[key].mean, inside[key].stderr, inside[key].n, inside[key].expected) if row.cue else "",
            "holes": holes.get(key, [])}
    return cells


def _holes(runs: pd.DataFrame) -> dict[tuple, list[str]]:
    found: dict[tuple, list[str]] = {}
    for run in runs[runs["status"] != "ok"].itertuples(index=False):
        reason = f"sample {run.sample}: {run.status} ({run.reason})"
        found.setdefault((run.study, run.baseline, run.target, run.cue), []).append(reason)
    return found


def _paper(comparison: pd.DataFrame) -> dict:
    """`[study][baseline][target]`: one sentence per number of the paper that is about this row of the matrix."""
    names = {"faavg": "FAAvg, the mean over the row's cues", "famin": "FAMin, the row's worst cue",
             "improvement_over_zgo": "CHGO minus ZGO"}
    found: dict = {}
    for row in comparison.itertuples(index=False):
        spread = row.paper_stderr * 5**0.5 if row.metric == "improvement_over_zgo" else row.paper_stderr
        ours = percent(row.ours, row.stderr, row.n, row.expected) if row.n > 0 else "-"
        mark = f" {MARKS.get(row.verdict, '')}".rstrip()
        why = [text for text in (row.reason, row.mentions) if text and row.n > 0]
        verdict = ": ".join([row.verdict, *(["; ".join(why)] if why else [])])
        name = names[row.metric] if row.study != "zso" else "accuracy without a cue"
        text = f"{name}: paper {paper_percent(row.paper, spread)}, ours {ours}{mark} ({verdict})"
        found.setdefault(row.study, {}).setdefault(row.baseline, {}).setdefault(row.target, []).append(text)
    return found
