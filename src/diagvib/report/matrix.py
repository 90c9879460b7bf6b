"""P_ij, the accuracy by target and cue: heat maps (paper, Fig. 4a, 5a), and the data of the page's
matrix, with spreads, missing runs and example images."""

from collections.abc import Iterator
from functools import partial

import pandas as pd

from diagvib.report.report_data import Figure, ReportData
from diagvib.report.sheets import example_pictures
from diagvib.report.style import (
    INK,
    NOT_CONFIGURED,
    Drawing,
    accuracy_colours,
    accuracy_scale,
    new_figure,
    write,
)
from diagvib.results.reader_tables import in_order, of_samples
from diagvib.scenes import load_scene
from diagvib.settings.layout import folder_name, run_folder_name
from diagvib.studies.known_studies import KnownStudies, sample_of
from diagvib.studies.metric_needs import OOD


def heat_map_figures(report_data: ReportData) -> Iterator[Figure]:
    """Files only: the page has the matrix."""
    p, known_studies = report_data.frames["p_matrix"], report_data.known_studies
    for (study, baseline), _ in p.groupby(["study", "baseline"], sort=False):
        title = f"{known_studies.title(study)}, {baseline}: accuracy by target and cue"
        draw = partial(heat_map, p, study, baseline, known_studies)
        yield Figure(f"p_matrix/{study}_{baseline}", title, draw)


def heat_map(p: pd.DataFrame, study: str, baseline: str, known_studies: KnownStudies) -> Drawing:
    """P_ij of one study and baseline on the fixed scale, next to P_i of a study without cues.

    p: the table of `shortcut.p_matrix`. Cells that are not configured are blank; a cell shows n
    where samples are missing.
    """
    baseline_cells, chance = p[p["baseline"] == baseline], known_studies.chance(study)
    factors, cues, study_without_cue = matrix_columns(baseline_cells, study, known_studies)
    columns = ([""] if study_without_cue else []) + cues
    study_cells = baseline_cells[
        (baseline_cells["study"] == study) & (baseline_cells["group"] == OOD)
        | (baseline_cells["study"] == study_without_cue)
    ]
    means = study_cells.pivot(index="target", columns="cue", values="mean")
    figure = new_figure(3.4 + 0.5 * len(cues), 0.7 + 0.6 * len(factors))
    axes = figure.add_subplot(facecolor=NOT_CONFIGURED)
    scale = {"cmap": accuracy_scale(chance), "vmin": 0, "vmax": 1}
    image = axes.imshow(means.reindex(factors, columns=columns).astype(float), **scale)
    for row in study_cells.itertuples():
        text, ink = f"{row.mean:.2f}" if row.n else "missing", INK
        if row.n:
            ink = accuracy_colours(row.mean, chance)[1]
            text += f"\nn={row.n:.0f}/{row.expected:.0f}" if row.n < row.expected else ""
        cell = columns.index(row.cue), factors.index(row.target)
        write(axes, *cell, text, color=ink, fontsize=8)
    axes.set_yticks(range(len(factors)), factors)
    axes.set_xticks(
        range(len(columns)), [cue or known_studies.title(study_without_cue) for cue in columns]
    )
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0, labelsize=8.5)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="cue factor" if cues else "", ylabel="target factor")
    axes.set_title(f"{known_studies.title(study)}, {baseline}")
    bar = figure.colorbar(image, shrink=0.82, aspect=22, pad=0.03)
    ticks = dict(sorted({0: "0", 0.5: "0.5", 1: "1", chance: f"chance 1/{1 / chance:.0f}"}.items()))
    bar.set_ticks(list(ticks), labels=ticks.values())
    bar.ax.axhline(chance, color=INK, linewidth=1.4)
    bar.set_label("accuracy")
    bar.outline.set_visible(False)
    return figure


def matrix_columns(
    p: pd.DataFrame, study: str, known_studies: KnownStudies
) -> tuple[list[str], list[str], str]:
    """Rows and columns of a matrix of P_ij: the target factors and cues that are configured, and the
    study without cues to show: itself, or the first whose scene has these factors; empty if there is
    none."""
    factors = known_studies.factors([study])
    cues = p.loc[(p["study"] == study) & (p["group"] == OOD), "cue"]
    without = (
        [study]
        if not known_studies.studies[study].cues
        else p.loc[p["cue"] == "", "study"].unique()
    )
    study_without_cue = next(
        (name for name in without if known_studies.factors([name]) == factors), ""
    )
    targets = set(p.loc[p["study"].isin([study, study_without_cue]), "target"])
    columns = in_order(cues, factors)
    return [factor for factor in factors if factor in targets], columns, study_without_cue


def matrix_data(report_data: ReportData) -> dict:
    """Everything the page's script needs, as plain data.

    `cells[study][baseline]["target cue"]` holds value (percent), text, n, expected, id, and missing
    (reasons). examples: of `example_pictures`. baselines: those with cells.
    """
    p = report_data.frames["p_matrix"]
    return {
        "examples": example_pictures(report_data),
        "samples": report_data.samples,
        "studies": {
            study: study_matrix(study, p, report_data.known_studies)
            for study in p["study"].unique()
        },
        "cells": matrix_cells(p, report_data.frames["runs"]),
        "baselines": [*p["baseline"].unique()],
    }


def study_matrix(name: str, p: pd.DataFrame, known_studies: KnownStudies) -> dict:
    """A study as the script needs it. alone: the study without cues whose column is shown next to
    this one's; train, ood: cells, as indices of classes, with their shares."""
    study, chance = known_studies.studies[name], known_studies.chance(name)
    sample, factors = sample_of(study.scene, 0), load_scene(study.scene).factors
    targets, cues, study_without_cue = matrix_columns(p, name, known_studies)
    roles = [f"{role}_class" for role in study.bound]
    train, test = (study.cells(split, sample.added_cue) for split in ("train", "test"))
    if len(study.cues) != 1:
        train, test = train[:0], test[:0]
    # A cell may be in several rows of the study, such as those of environments.
    shares = train.groupby(roles, sort=False)["weight"].sum()
    return {
        "chance": 100 * chance,
        "colours": [accuracy_colours(i / 100, chance) for i in range(101)],
        "title": known_studies.title(name),
        "meaning": study.meaning,
        "factors": targets,
        "scene": folder_name(study.scene),
        "classes": [  # of the target, of the cue
            {
                factor: sample.chosen(factor, study.roles[role], classes)
                for factor, classes in factors.items()
                if len(classes) >= study.roles[role]
            }
            for role in study.bound
        ],
        "cues": cues,
        "alone": study_without_cue,
        "train": {
            " ".join(map(str, cell)): float(f"{100 * share:.3g}") for cell, share in shares.items()
        },
        "ood": [
            " ".join(map(str, cell))
            for cell in test.loc[test["group"] == OOD, roles].itertuples(index=False)
        ],
    }


def matrix_cells(p: pd.DataFrame, runs: pd.DataFrame) -> dict:
    keys = ["study", "baseline", "target", "cue"]
    missing = {
        key: [
            f"sample {run_folder_name(run.sample, run.seed)}: {run.status} ({run.reason})"
            for run in failed_runs.itertuples()
        ]
        for key, failed_runs in runs[runs["status"] != "ok"].groupby(keys)
    }
    cells: dict = {}
    for key, groups in p.groupby(keys, sort=False):
        study, baseline, target, cue = key
        texts = [*map(of_samples, groups.to_dict("records"))]
        last = groups.iloc[-1]  # of a study with cues, where the cue misleads
        of_baseline = cells.setdefault(study, {}).setdefault(baseline, {})
        of_baseline[f"{target} {cue}".strip()] = {
            "value": round(100 * float(last["mean"]), 6) if last["n"] else None,
            "whole": f"{round(100 * last['mean'], 6):.0f}" if last["n"] else "",
            "n": int(last["n"]),
            "expected": int(last["expected"]),
            "text": texts[-1],
            "id": texts[0] if cue else "",
            "missing": missing.get(key, []),
        }
    return cells


def pair_table(matrix: dict) -> dict | None:
    """The accuracies of a page with one target and at most one cue, for which no matrix is needed: a
    row for each study, a column for each baseline. None if there are several. matrix: of
    `matrix_data`."""
    studies, cells = matrix["studies"], matrix["cells"]
    pairs = {key for study in cells.values() for baseline in study.values() for key in baseline}
    targets = {pair.partition(" ")[0] for pair in pairs}
    cues = {pair.partition(" ")[2] for pair in pairs} - {""}
    if len(targets) != 1 or len(cues) > 1:
        return None
    (target,), cue = targets, "".join(cues)
    rows = [
        study
        | {
            "cells": [
                _pair_cell(cells[name].get(baseline, {}), target, cue, study)
                for baseline in matrix["baselines"]
            ]
        }
        for name, study in studies.items()
    ]
    return {"target": target, "cue": cue, "rows": rows}


def _pair_cell(cells: dict, target: str, cue: str, study: dict) -> dict:
    """A cell of the table: its text, its colours, and its class in the style sheet."""
    cell = cells.get(f"{target} {cue}" if study["cues"] else target)
    if cell is None:
        return {"text": "not configured", "look": "blank"}
    if cell["value"] is None:
        return {"text": "missing", "look": "missing"}
    fill, ink = study["colours"][round(cell["value"])]
    return {"text": cell["text"], "style": f"background:{fill};color:{ink}"}
