"""Which factor wins: every pair of factors both ways round, and the factors by how often, and by how
much, they mislead."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from diagvib.papers.diagvib6.factor_ranks import TITLE, ranked_study
from diagvib.report.report_data import Figure, ReportData
from diagvib.report.style import (
    HELD_OUT,
    MUTED,
    RULE,
    TRAINED,
    Drawing,
    add_legend,
    new_panels,
)

_PAIRS = (
    "Each row is a pair, the factor that wins on average first (i, then j): the further to the right, the more clearly. "
    "Where both marks agree, i wins what j loses. Thin lines: 95 % intervals over the {samples}, if there are "
    "three. Described, not tested."
)
_RANKS = (
    "Means over the targets. Accuracy lost: relative to no shortcut. Thin lines: 95 % intervals over the {samples}, if "
    "there are three. Described, not tested."
)
_DOTS = {TRAINED: "o", HELD_OUT: "D"}


def rank_figures(report_data: ReportData) -> Iterator[Figure]:
    """On the page, those of the study that the tables show; of others, files only."""
    known_studies = report_data.known_studies
    for name, words, draw, caption in (
        ("ranking", "how often each factor misleads", rank_dots, _RANKS),
        ("asymmetry", "which factor of each pair wins", pair_dots, _PAIRS),
    ):
        frame = report_data.frames[name]
        for study in frame.loc[frame["n"] > 0, "study"].unique():
            study_rows = frame[frame["study"] == study]
            on_page = study == ranked_study(frame, known_studies)
            yield Figure(
                f"{name}/{study}",
                f"{known_studies.title(study)}: {words}",
                partial(draw, study_rows, known_studies.title(study)),
                TITLE if on_page else "",
                known_studies.in_words(caption, [study]),
                folded=study_rows["factor"].nunique() == 1 and name == "ranking",
            )


def pair_dots(frame: pd.DataFrame, title: str) -> Drawing:
    """A panel for each baseline, a row for each pair. frame: of `factor_pairs`, of one study; title: the
    study's."""
    means = frame.pivot(index=["baseline", "factor", "opponent"], columns="metric", values="mean")
    margins = means["margin"].groupby(["factor", "opponent"], sort=False).mean()
    pairs = frame[["factor", "opponent"]].drop_duplicates()  # in the scene's order
    rows = {pair: row for row, pair in enumerate(pairs.itertuples(index=False, name=None))}
    words = [
        " > ".join(pair if margins[pair] >= 0 else pair[::-1])
        if margins[pair] == margins[pair]
        else ", ".join(pair)
        for pair in rows
    ]
    parts = frame[frame["metric"].isin(["p_ij", "p_ji"])]
    points = []
    for row in parts.to_dict("records"):
        pair = row["factor"], row["opponent"]
        recognised = (row["metric"] == "p_ij") == (not margins[pair] < 0)
        points.append(row | {"row": rows[pair], "colour": TRAINED if recognised else HELD_OUT})
    points = [point if point["colour"] == TRAINED else _errors(point) for point in points]
    labels = {
        TRAINED: "P_ij: i is recognised where j misleads",
        HELD_OUT: "1 - P_ji: j is not recognised where i misleads",
    }
    factors = [pair[0] for pair in rows]
    groups = [row for row in range(1, len(rows)) if factors[row] != factors[row - 1]]
    return _panels(points, words, labels, title, groups)


def rank_dots(frame: pd.DataFrame, title: str) -> Drawing:
    """A panel for each baseline, a row for each factor. frame: of `factor_ranks`, of one study."""
    order = pd.Index(frame["factor"].unique())
    colours = {"errors": TRAINED, "loss": HELD_OUT}
    points = [
        row | {"row": order.get_loc(row["factor"]), "colour": colours[row["metric"]]}
        for row in frame[frame["metric"].isin(colours)].to_dict("records")
    ]
    labels = {TRAINED: "errors where it misleads", HELD_OUT: "accuracy lost to it"}
    return _panels(points, list(order), labels, title)


def _errors(point: dict) -> dict:
    """The share of errors, of an accuracy."""
    return point | {"mean": 1 - point["mean"], "low": 1 - point["high"], "high": 1 - point["low"]}


def _panels(
    points: list[dict],
    row_names: list[str],
    labels: dict[str, str],
    title: str,
    groups: Sequence[int] = (),
) -> Drawing:
    """points: records of a tidy table, with the number of a row and a colour; row_names: from
    the first row on; groups: rows above which there is a line."""
    baselines = list(dict.fromkeys(point["baseline"] for point in points))
    # With too few samples for an interval, the mean alone.
    least = np.nanmin([0, *(point[key] for point in points for key in ("low", "mean"))])
    wide = 0.08 * max(map(len, row_names)) + 0.3
    figure, panels = new_panels(len(baselines), 2, (3.6, 0.24 * len(row_names) + 0.6), (wide, 0.8))
    for axes, baseline in zip(panels, baselines, strict=True):
        for point in (point for point in points if point["baseline"] == baseline):
            _draw_point(axes, point)
        axes.set_title(f"{title}, {baseline}")
        axes.set_yticks(range(len(row_names)), row_names)
        axes.set(xlim=(least - 0.02, 1.02), ylim=(len(row_names) - 0.5, -0.5))
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
        axes.tick_params(axis="y", length=0)
        axes.hlines([row - 0.5 for row in groups], *axes.get_xlim(), color=RULE, linewidth=0.8)
        axes.grid(axis="x", color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
    for colour, label in labels.items():
        panels[0].plot([], [], _DOTS[colour], color=colour, markersize=5, label=label)
    for axes in panels:
        axes.set_xlabel("test images, %", fontsize=8)
    add_legend(figure)
    return figure


def _draw_point(axes: Axes, point: dict) -> None:
    """A dot with its interval; beside it, how many samples or targets it lacks."""
    recognised = point["colour"] == TRAINED
    row = point["row"] + (-0.14 if recognised else 0.14)
    if not point["n"]:
        if recognised:
            axes.text(0.02, point["row"], "missing", va="center", fontsize=7, color=MUTED)
        return
    axes.hlines(row, point["low"], point["high"], color=point["colour"], linewidth=1, alpha=0.5)
    axes.plot(
        point["mean"],
        row,
        _DOTS[point["colour"]],
        color=point["colour"],
        markersize=4.5,
        clip_on=False,
    )
    notes = [f"n={point['n']}/{point['expected']}"] if point["n"] < point["expected"] else []
    if point.get("bindings", np.inf) < point.get("possible", 0):
        notes.append(f"{point['bindings']} of {point['possible']} targets")
    if notes and recognised:
        inwards = {"ha": "right", "xytext": (-5, 0)} if point["mean"] > 0.5 else {"xytext": (5, 0)}
        look = {"textcoords": "offset points", "va": "center", "fontsize": 6.5, "color": MUTED}
        axes.annotate(", ".join(notes), (point["mean"], row), **look, **inwards)
