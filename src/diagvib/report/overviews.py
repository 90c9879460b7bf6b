"""Figures over many cells at once: ours against the paper's, symmetry, dominance of factors,
training curves."""

from itertools import permutations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from diagvib.report.style import (
    BASELINE_COLOURS,
    HELD_OUT,
    INK,
    MUTED,
    RULE,
    TESTED_ID,
    TESTED_OOD,
    TRAINED,
    by_baseline,
    new_figure,
    styled,
)
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.uncertainty import sample_interval
from diagvib.results.verdicts import COMPARED, DECIDED


def paper_scatter(comparison: pd.DataFrame, baselines: list[str]) -> Figure | None:
    """Every compared cell: the paper's number on the x axis, ours on the y axis; a panel per kind
    of number.

    comparison: the table of `verdicts.comparison_table`. Bars are the 95 % intervals of the
    difference; cells that differ are ringed, undecided ones pale. None if nothing could be
    compared.
    """
    rows = comparison[comparison["verdict"].isin(COMPARED)]
    kinds = {
        "faavg": "FAAvg (Tables A2-A9)",
        "famin": "FAMin (Tables A3-A9)",
        **{metric: f"{contrast_name(metric)} (Table 2)" for metric in SHIPPED.contrasts},
    }
    panels = {title: rows[rows["metric"] == metric] for metric, title in kinds.items()}
    panels = {title: cells for title, cells in panels.items() if len(cells)}
    if not panels:
        return None
    with styled():
        figure = new_figure(3.5 * len(panels) + 0.3, 4.3)
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        looks = by_baseline(baselines)
        for axes, (title, cells) in zip(grid, panels.items(), strict=True):
            _draw_scatter(axes, cells, looks)
            counts = [f"{(cells['verdict'] == verdict).sum()} {verdict}" for verdict in COMPARED]
            axes.set_title(f"{title}\n{', '.join(counts)}", fontsize=9)
            axes.set_xlabel("paper")
        grid[0].set_ylabel("ours")
        handles = {
            label: handle
            for axes in grid
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles.keys(), loc="outside upper left", ncols=5, fontsize=8
        )
    return figure


def contrast_name(metric: str, known: KnownStudies = SHIPPED) -> str:
    """`CHGO minus ZGO`."""
    contrast = known.contrasts[metric]
    return f"{known.title(contrast.study)} minus {known.title(contrast.reference)}"


def _draw_scatter(axes: Axes, cells: pd.DataFrame, looks: dict[str, tuple[str, str]]) -> None:
    ends = cells[["paper", "ours"]].to_numpy()
    low, high = min(0, ends.min()) - 0.02, max(1, ends.max()) + 0.02
    if cells["metric"].isin(SHIPPED.contrasts).all():
        low, high = ends.min() - 0.05, ends.max() + 0.05
    axes.plot([low, high], [low, high], color=MUTED, linewidth=1)
    axes.errorbar(
        cells["paper"],
        cells["ours"],
        yerr=cells["uncertainty"],
        fmt="none",
        ecolor=RULE,
        elinewidth=0.8,
        zorder=1,
    )
    for baseline, (colour, marker) in looks.items():
        own = cells[cells["baseline"] == baseline]
        for told, alpha in ((True, 1), (False, 0.35)):
            some = own[own["verdict"].isin(DECIDED) == told]
            if len(some):
                axes.plot(
                    some["paper"],
                    some["ours"],
                    linestyle="none",
                    marker=marker,
                    markersize=4,
                    color=colour,
                    markeredgewidth=0,
                    alpha=alpha,
                    label=baseline if told else f"{baseline}, cannot tell",
                )
    differ = cells[cells["verdict"] == "differs"]
    axes.plot(
        differ["paper"],
        differ["ours"],
        linestyle="none",
        marker="o",
        markersize=9,
        markerfacecolor="none",
        markeredgecolor=INK,
        markeredgewidth=0.6,
        alpha=0.7,
        label="differs" if len(differ) else "_",
    )
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")


def asymmetry(
    p: pd.DataFrame, baseline: str, study: str, known: KnownStudies = SHIPPED
) -> Figure | None:
    """P_ij against 1 - P_ji: on the line, one factor wins what the other loses. None without such
    pairs.

    p: the table of `shortcut.p_matrix`. Bars are one standard error; each unordered pair is drawn
    once, its first factor (in the scene's order) as target i.
    """
    own = p[
        (p["baseline"] == baseline) & (p["study"] == study) & (p["group"] == "ood") & (p["n"] > 0)
    ]
    cells = {(r.target, r.cue): r for r in own.itertuples(index=False)}
    factors = known.factors([study])
    bindings = [
        (i, j)
        for a, i in enumerate(factors)
        for j in factors[a + 1 :]
        if (i, j) in cells and (j, i) in cells
    ]
    if not bindings:
        return None
    with styled():
        figure = new_figure(4.9, 4.9)
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1)
        for i, j in bindings:
            there, back = cells[i, j], cells[j, i]
            axes.errorbar(
                1 - back.mean,
                there.mean,
                xerr=np.nan_to_num(back.stderr),
                yerr=np.nan_to_num(there.stderr),
                fmt="o",
                markersize=5,
                color=TRAINED,
                ecolor=RULE,
                elinewidth=1.2,
            )
            right = 1 - back.mean < 0.7
            axes.annotate(
                f"{i}-{j}",
                (1 - back.mean, there.mean),
                xytext=(6 if right else -6, 4),
                textcoords="offset points",
                fontsize=7,
                ha="left" if right else "right",
            )
        axes.set(
            xlim=(-0.03, 1.03),
            ylim=(-0.03, 1.03),
            aspect="equal",
            xlabel="1 - P_ji: how often i misleads about j",
            ylabel="P_ij: how well i is recognised while j misleads",
            title=f"{known.title(study)}, {baseline}: wins and losses of pairs",
        )
    return figure


def pair_wins(runs: pd.DataFrame, factors: list[str]) -> dict[tuple[str, str], np.ndarray]:
    """For each pair (i, j) that ran both ways, (acc_ij + 1 - acc_ji) / 2, float[samples], NaN where
    a run is missing.

    1: i is always recognised though j misleads, and always misleads where j is the target. runs: of
    one study and baseline.
    """
    acc = runs.pivot(index="sample", columns=["target", "cue"], values="ood_accuracy").astype(
        np.float64
    )
    return {
        (i, j): ((acc[i, j] + 1 - acc[j, i]) / 2).to_numpy()
        for i, j in permutations(factors, 2)
        if (i, j) in acc and (j, i) in acc
    }


def dominance_table(runs: pd.DataFrame, study: str, known: KnownStudies = SHIPPED) -> pd.DataFrame:
    """How each factor does against the others: baseline, factor, mean, low, high (95 %), n samples,
    opponents.

    For each opponent j of factor i, the mean of acc_ij (i is recognised though j misleads) and 1 -
    acc_ji (i misleads when j is the target): 1 is a factor that always wins, 0 one that always
    loses. runs: the frame of `read_runs.collect_runs`.
    """
    rows = []
    for baseline, own in runs[(runs["study"] == study) & (runs["cue"] != "")].groupby(
        "baseline", sort=False
    ):
        pairs = pair_wins(own, known.factors([study]))
        for i in known.factors([study]):
            wins = [values for (winner, _), values in pairs.items() if winner == i]
            if wins:
                values = np.mean(wins, axis=0)
                values = values[~np.isnan(values)]
                low, high = sample_interval(values)
                rows.append(
                    {
                        "baseline": baseline,
                        "factor": i,
                        "mean": values.mean() if len(values) else np.nan,
                        "low": low,
                        "high": high,
                        "n": len(values),
                        "opponents": len(wins),
                    }
                )
    return pd.DataFrame(
        rows, columns=["baseline", "factor", "mean", "low", "high", "n", "opponents"]
    )


def dominance(runs: pd.DataFrame, study: str, known: KnownStudies = SHIPPED) -> Figure | None:
    """Factors ranked by how they do against the others, a panel per baseline. None if no pair ran
    both ways."""
    table, others = dominance_table(runs, study, known), len(known.factors([study])) - 1
    if not table["n"].sum():
        return None
    baselines = list(table["baseline"].unique())
    columns = min(3, len(baselines))
    with styled():
        figure = new_figure(max(5.6, 3 * columns + 0.4), 2.2 * -(-len(baselines) // columns) + 0.5)
        grid = figure.subplots(-(-len(baselines) // columns), columns, squeeze=False, sharex=True)
        for axes, baseline in zip(grid.flat, baselines, strict=False):
            _draw_ranking(
                axes,
                table[table["baseline"] == baseline].sort_values("mean", na_position="first"),
                others,
            )
            axes.set_title(baseline)
        for axes in grid.flat[len(baselines) :]:
            axes.set_visible(False)
        figure.supxlabel(
            "dominance: 1 wins against every other factor, 0 loses against all; bars 95 % intervals",
            fontsize=8,
        )
    return figure


def _draw_ranking(axes: Axes, rows: pd.DataFrame, others: int) -> None:
    """others: the number of opponents of each factor."""
    y = np.arange(len(rows))
    axes.axvline(0.5, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.hlines(y, rows["low"], rows["high"], color=RULE, linewidth=3)
    axes.plot(rows["mean"], y, "o", color=TRAINED, markersize=6, clip_on=False)
    for at, (mean, n) in enumerate(zip(rows["mean"], rows["n"], strict=True)):
        if n == 0:
            axes.text(0.02, at, "missing", va="center", fontsize=7, color=MUTED)
        else:
            axes.annotate(
                f"{mean:.2f}",
                (mean, at),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
    few = rows["opponents"] < others
    axes.set_yticks(
        y,
        [
            f"{f} ({k} of {others})" if part else f
            for f, k, part in zip(rows["factor"], rows["opponents"], few, strict=True)
        ],
    )
    axes.set(xlim=(0, 1), ylim=(-0.6, len(rows) - 0.2))


# With fewer runs each is drawn: the median of two opposite ones is a run that does not exist.
MANY_RUNS = 5
_WATCHED = {"train": (TRAINED, "training"), "val": (HELD_OUT, "validation")}
_TESTED = (TESTED_ID, TESTED_OOD, *BASELINE_COLOURS[3:])


def training_curves(
    history: pd.DataFrame, baseline: str, known: KnownStudies = SHIPPED
) -> Figure | None:
    """Every run of a baseline: loss and accuracy over epochs, a column per study, a line per run.

    history: the table of `read_runs.history_table`. With many runs, the median is thick and the
    runs pale. The accuracy on the test groups is included if it was recorded
    (`training.track_test`). None if no epoch was recorded.
    """
    own = history[history["baseline"] == baseline]
    if not len(own):
        return None
    studies = list(own["study"].unique())
    groups = [column.removesuffix("_accuracy") for column in own if column.endswith("_accuracy")]
    watched = _WATCHED | {
        group: (_TESTED[i % len(_TESTED)], f"test, {group}")
        for i, group in enumerate(g for g in groups if g not in _WATCHED)
    }
    with styled():
        figure = new_figure(max(4.2, 1.75 * len(studies) + 0.7), 3.9)
        grid = figure.subplots(2, len(studies), sharex=True, sharey="row", squeeze=False)
        for column, study in zip(grid.T, studies, strict=True):
            rows = own[own["study"] == study]
            for axes, measure in zip(column, ("loss", "accuracy"), strict=True):
                for of, (colour, label) in watched.items():
                    if f"{of}_{measure}" in rows and rows[f"{of}_{measure}"].notna().any():
                        _draw_runs(axes, rows, f"{of}_{measure}", colour, label)
            runs = len(rows.drop_duplicates(["binding", "sample"]))
            column[0].set_title(
                f"{known.title(study)}, {runs} run{'s' if runs > 1 else ''}", fontsize=8.5
            )
            column[1].set(ylim=(-0.02, 1.02), xlabel="epoch")
            column[1].axhline(
                known.chance(study), color=MUTED, linewidth=0.9, linestyle=(0, (1, 2))
            )
            column[0].set_ylim(bottom=0)
        grid[0, 0].set_ylabel("loss")
        grid[1, 0].set_ylabel("accuracy")
        drawn = [axes.get_legend_handles_labels() for axes in grid[1]]
        handles = {label: handle for both in drawn for handle, label in zip(*both, strict=True)}
        figure.legend(
            handles.values(),
            handles.keys(),
            title=baseline,
            loc="outside upper left",
            ncols=4,
            fontsize=8,
        )
    return figure


def _draw_runs(axes: Axes, rows: pd.DataFrame, column: str, colour: str, label: str) -> None:
    table = rows.pivot(index="epoch", columns=["binding", "sample"], values=column)
    epochs = table.index.to_numpy(dtype=np.float64)
    lines = [np.column_stack([epochs, values]) for values in table.to_numpy().T]
    if len(lines) < MANY_RUNS:
        axes.add_collection(
            LineCollection(lines, colors=colour, linewidths=1.2, alpha=0.8, label=label)
        )
    else:
        # Drawn as pixels in the SVG too: thousands of lines would take megabytes.
        axes.add_collection(
            LineCollection(lines, colors=colour, linewidths=0.5, alpha=0.25, rasterized=True)
        )
        # A median over fewer runs than started would jump where a run stopped early.
        whole = table.notna().sum(axis=1) >= len(lines) / 2
        axes.plot(epochs[whole], table.median(axis=1)[whole], color=colour, label=label)
    axes.set_xlim(min(0.5, epochs[0]), epochs[-1] + 0.5)
    axes.tick_params(colors=INK, labelsize=7.5)
