"""Figures from tables: heat maps of P_ij, curves over studies, study sheets; the same bytes from the same tables."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from diagvib.foundation.parallel import in_processes
from diagvib.report.examples import factor_sheet, write_examples
from diagvib.report.overviews import asymmetry, dominance, paper_scatter, training_curves
from diagvib.report.sheets import study_sheet
from diagvib.report.style import (
    ACCURACY,
    HELD_OUT,
    INK,
    MUTED,
    NOT_CONFIGURED,
    RULE,
    accuracy_colours,
    by_baseline,
    new_figure,
    save_figure,
    styled,
)
from diagvib.report.visualisation_sheets import exhibit_figures
from diagvib.results.metrics import CHANCE
from diagvib.results.paper import PAPER_CUES
from diagvib.results.tables import read_histories, read_tables, source_note, telling_bindings
from diagvib.scenes.digits.factors import FACTORS, Binding
from diagvib.scenes.digits.prepare import load_prepared

# From no shortcut to nothing but the shortcut, with fewer and fewer generalization opportunities (paper, Figs. 4b, 5b).
ROUTES = {"cgo": ("zso", "cgo-3", "cgo-2", "cgo-1", "zgo"), "fgo": ("zso", "fgo-20", "fgo-10", "fgo-5", "zgo")}


def heat_map(p: pd.DataFrame, study: str, baseline: str) -> Figure:
    """P_ij of one study and baseline on the fixed scale, ZSO's P_i as a column beside it (paper, Figs. 4a, 5a).

    p: the table of `tables.p_matrix`. Missing cells are hatched, cells that are not configured blank grey; n stands in
    the cell where samples are missing.
    """
    own = p[p["baseline"] == baseline]
    paired = own[(own["study"] == study) & (own["group"] == "ood")]
    columns = {factor: paired[paired["cue"] == factor].set_index("target") for factor in FACTORS} if len(paired) else {}
    alone = own[own["study"] == "zso"].set_index("target")
    with styled():
        figure = new_figure(6.4 if columns else 3.4, 4.3)
        axes = figure.add_subplot()
        for j, (cue, rows) in enumerate(columns.items()):
            for i, target in enumerate(FACTORS):
                if cue != target:
                    _draw_value(axes, i, j + 1.25, rows.loc[target] if target in rows.index else None)
        for i, target in enumerate(FACTORS if len(alone) else ()):
            _draw_value(axes, i, 0, alone.loc[target] if target in alone.index else None)
        _label_heat_map(axes, list(columns), bool(len(alone)))
        axes.set_title(f"{study.upper()}, {baseline}", pad=26 if columns else 12)
        _accuracy_bar(figure, axes)
    return figure


def _draw_value(axes: Axes, row: int, column: float, value: pd.Series | None) -> None:
    place = {"xy": (column + 0.03, row + 0.03), "width": 0.94, "height": 0.94, "linewidth": 0}
    if value is None:
        axes.add_patch(Rectangle(**place, facecolor=NOT_CONFIGURED))
    elif value["n"] == 0:
        axes.add_patch(Rectangle(**place, facecolor="white", hatch="////", edgecolor=MUTED))
        axes.text(column + 0.5, row + 0.5, "missing", ha="center", va="center", fontsize=7, color=INK,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})
    else:
        fill, ink = accuracy_colours(value["mean"])
        axes.add_patch(Rectangle(**place, facecolor=fill))
        partial = value["n"] < value["expected"]
        axes.text(column + 0.5, row + (0.4 if partial else 0.5), f"{value['mean']:.2f}", ha="center", va="center",
                  fontsize=9, color=ink)
        if partial:
            axes.text(column + 0.5, row + 0.74, f"n={value['n']:.0f}/{value['expected']:.0f}", ha="center", va="center",
                      fontsize=6.5, color=ink)


def _label_heat_map(axes: Axes, cues: list[str], with_zso: bool) -> None:
    left = 0 if with_zso else 1.25
    axes.set(xlim=(left, 7.25 if cues else 1), ylim=(6, 0), aspect="equal")
    axes.set_yticks(np.arange(6) + 0.5, FACTORS)
    ticks = ([(0.5, "ZSO")] if with_zso else []) + [(j + 1.75, cue) for j, cue in enumerate(cues)]
    axes.set_xticks([x for x, _ in ticks], [name for _, name in ticks])
    axes.tick_params(length=0, labelbottom=False, labeltop=True, pad=4, labelsize=8.5)
    axes.set_ylabel("target factor")
    if cues:
        axes.text(4.25, -0.62, "cue factor", ha="center", va="bottom")
    axes.spines[:].set_visible(False)


def _accuracy_bar(figure: Figure, axes: Axes) -> None:
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), ACCURACY), ax=axes, shrink=0.82, aspect=22, pad=0.03)
    bar.set_ticks([0, CHANCE, 0.5, 1], labels=["0", "chance 1/3", "0.5", "1"])
    bar.ax.axhline(CHANCE, color=INK, linewidth=1.4)
    bar.set_label("mean per-class accuracy")
    bar.outline.set_visible(False)


def shown_routes(metrics: pd.DataFrame) -> dict[str, list[str]]:
    """The configured studies of each route, two at least; without a route whose studies another one shows as well."""
    there = {route: [s for s in studies if s in set(metrics["study"])] for route, studies in ROUTES.items()}
    found: dict[str, list[str]] = {}
    for route, studies in sorted(there.items(), key=lambda item: -len(item[1])):
        if len(studies) > 1 and not any(set(studies) <= set(other) for other in found.values()):
            found[route] = studies
    return found


def study_curves(metrics: pd.DataFrame, metric: str, route: str,
                 reference: pd.DataFrame | None = None) -> Figure | None:
    """FAAvg or FAMin along a route of studies, a panel per target factor, a line per baseline, bands of one stderr.

    metrics: the table of `tables.metrics_table`. Studies that are not configured are left out of the axis; a missing
    point is a cross on the floor, an incomplete one hollow. reference: the table of `reference.reference_table`; where
    it has a row, the range of the paper's nine is a grey band and its resnet18 a dashed line.
    None if fewer than two studies of the route are configured.
    """
    rows = _of_metric(metrics, metric)
    studies = [study for study in ROUTES[route] if study in set(rows["study"])]
    targets = [factor for factor in FACTORS if factor in set(rows["target"])]
    if len(studies) < 2:
        return None
    columns = min(3, len(targets))
    with styled():
        figure = new_figure(2.6 * columns + 1.2, 2.35 * -(-len(targets) // columns) + 0.7)
        grid = figure.subplots(-(-len(targets) // columns), columns, sharex=True, sharey=True, squeeze=False)
        for axes, target in zip(grid.flat, targets, strict=False):
            if reference is not None:
                _draw_reference(axes, _of_metric(reference[reference["target"] == target], metric), studies)
            _draw_panel(axes, rows[rows["target"] == target], studies, by_baseline(metrics["baseline"].unique()))
            axes.set_title(_panel_title(metrics, target))
        for axes in grid.flat[len(targets):]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel({"faavg": "FAAvg", "famin": "FAMin"}[metric])
        drawn = [axes.get_legend_handles_labels() for axes in grid.flat]
        handles = {label: handle for both in drawn for handle, label in zip(*both, strict=True)}
        labels = list(handles)
        figure.legend(handles.values(), labels, loc="outside upper left", ncols=min(5, len(labels)), fontsize=8.5)
    return figure


def _of_metric(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Of ZSO, which has no cue, its one number stands for every metric."""
    return rows[(rows["metric"] == metric) | ((rows["study"] == "zso") & (rows["metric"] == "faavg"))]


def _draw_reference(axes: Axes, reference: pd.DataFrame, studies: list[str]) -> None:
    paper = reference.drop_duplicates("study").set_index("study")
    paper = paper[["paper_low", "paper_high", "paper_resnet18"]].astype(float).reindex(studies)
    if paper["paper_low"].notna().any():
        x = np.arange(len(studies))
        axes.fill_between(x, paper["paper_low"], paper["paper_high"], color=RULE, alpha=0.6, linewidth=0, zorder=0,
                          label="paper's nine, range (reference)")
        axes.plot(x, paper["paper_resnet18"], color=MUTED, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1,
                  label="paper's resnet18 (reference)")


def _panel_title(metrics: pd.DataFrame, target: str) -> str:
    cues = metrics[(metrics["target"] == target) & (metrics["study"] != "zso")]["cues"]
    few = len(cues) and cues.max() < PAPER_CUES
    return f"{target} ({cues.max():.0f} of {PAPER_CUES} cues)" if few else target


def _draw_panel(axes: Axes, rows: pd.DataFrame, studies: list[str], looks: dict[str, tuple[str, str]]) -> None:
    axes.axhline(CHANCE, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.text(-0.2, CHANCE + 0.015, "chance", ha="left", va="bottom", fontsize=7, color=MUTED)
    for baseline, (colour, marker) in looks.items():
        own = rows[rows["baseline"] == baseline].set_index("study").reindex(studies)
        x, mean, stderr = np.arange(len(studies)), own["mean"].to_numpy(), own["stderr"].fillna(0).to_numpy()
        axes.fill_between(x, mean - stderr, mean + stderr, color=colour, alpha=0.18, linewidth=0)
        axes.plot(x, mean, color=colour, marker=marker, markersize=5, label=baseline, clip_on=False)
        missing = (own["n"] == 0).to_numpy()
        partial = (own["n"] < own["expected"]).to_numpy() & ~missing
        for at, y, look in ((partial, mean, {"marker": marker, "markersize": 5, "markerfacecolor": "white"}),
                            (missing, np.zeros_like(mean), {"marker": "x", "markersize": 7, "mew": 2})):
            if at.any():
                axes.plot(x[at], y[at], linestyle="none", color=colour, clip_on=False, **look)
    axes.set(ylim=(0, 1), xlim=(-0.25, len(studies) - 0.75))
    axes.set_xticks(range(len(studies)), [study.upper() for study in studies], fontsize=7.5)
    axes.set_yticks([0, 0.5, 1])
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)


# So many make up for the start of a process.
FIGURES_A_PROCESS = 12

# The name of a figure, and what draws it (None: nothing to show).
Task = tuple[str, Callable[[], Figure | None]]


def draw_figures(tables: Path, out: Path, images: Path, settings: dict, prepared: Path | None = None,
                 runs: Path | None = None, threads: int = 1) -> list[Path]:
    """Every figure of the tables under `tables`, written under `out` as PNG and SVG; returns the paths.

    images: the folder of image files; the study sheets of the most telling pair are drawn from those that are there.
    prepared: the folder of prepared sources; examples of classes and pairs are rendered from it if it is there.
    runs: the folder of all runs; the pictures that some keep of what they do are shown. settings: the configuration.
    threads: the most processes that draw; the files do not depend on it.
    """
    frames = read_tables(tables)
    p = frames["p_matrix"]
    binding = sheet_binding(p)
    save = partial(_save, out=Path(out), note=source_note(frames["runs"], settings))
    # What takes longest comes first, so that all processes end together.
    tasks = list(chain(_examples(prepared, p, Path(out)), _training(frames["runs"], Path(tables)),
                       exhibit_figures(frames["runs"], runs, binding) if runs else (),
                       _curves(frames["metrics"], frames["reference"]), _overviews(frames), _sheets(p, binding, images),
                       _heat_maps(p)))
    return [path for written in in_processes(save, tasks, threads, FIGURES_A_PROCESS) for path in written]


def _save(task: Task, out: Path, note: str) -> list[Path]:
    """Draw and write one figure; no file where there is nothing to show."""
    name, draw = task
    figure = draw()
    if figure is None:
        return []
    if note:
        figure.supxlabel(note, fontsize=7, color=HELD_OUT, x=0.01, ha="left")
    return save_figure(figure, out / name)


def _overviews(frames: dict[str, pd.DataFrame]) -> Iterator[Task]:
    baselines = list(frames["p_matrix"]["baseline"].unique())
    yield "paper/scatter", partial(paper_scatter, frames["comparison"], baselines)
    yield "dominance/zgo", partial(dominance, frames["runs"])
    for name in baselines:
        yield f"asymmetry/zgo_{name}", partial(asymmetry, frames["p_matrix"], name)


def _training(runs: pd.DataFrame, tables: Path) -> Iterator[Task]:
    for baseline in runs["baseline"].unique():
        yield f"training/{baseline}", partial(_draw_training, tables, baseline)


def _draw_training(tables: Path, baseline: str) -> Figure | None:
    # Read here: all baselines' epochs together would be the most memory that drawing needs.
    return training_curves(read_histories(tables, baseline), baseline)


def _examples(prepared: Path | None, p: pd.DataFrame, out: Path) -> Iterator[Task]:
    if prepared is not None and (Path(prepared) / "sources.json").exists():
        yield "sheets/factors", partial(_draw_examples, Path(prepared), p, out)


def _draw_examples(prepared: Path, p: pd.DataFrame, out: Path) -> Figure:
    """The sheet of factor classes; writes the pairs' examples for the page on the way."""
    bindings = p.loc[p["cue"] != "", ["target", "cue"]].drop_duplicates()
    sources = load_prepared(prepared)
    write_examples(sources, [Binding(target, cue) for target, cue in bindings.itertuples(index=False, name=None)],
                   out / "examples")
    return factor_sheet(sources)


def _heat_maps(p: pd.DataFrame) -> Iterator[Task]:
    for baseline, study in p[["baseline", "study"]].drop_duplicates().itertuples(index=False, name=None):
        yield f"p_matrix/{study}_{baseline}", partial(heat_map, p, study, baseline)


def _curves(metrics: pd.DataFrame, reference: pd.DataFrame) -> Iterator[Task]:
    # Over a single cue FAMin is FAAvg.
    for metric in ("faavg", "famin") if metrics["cues"].max() > 1 else ("faavg",):
        for route in shown_routes(metrics):
            yield f"curves/{metric}_{route}", partial(study_curves, metrics, metric, route, reference)


def sheet_binding(p: pd.DataFrame) -> Binding | None:
    """The pair whose study sheets are drawn: the one that shows a shortcut best."""
    found = telling_bindings(p)
    return Binding(found["target"][0], found["cue"][0]) if len(found) else None


def _sheets(p: pd.DataFrame, binding: Binding | None, images: Path) -> Iterator[Task]:
    for study in p["study"].unique() if binding else ():
        folder = Path(images) / study / (binding.target if study == "zso" else binding.name) / "0"
        if folder.exists():
            yield (f"sheets/{study}_{binding.name}",
                   partial(study_sheet, folder / "train.parquet", folder / "test.parquet", binding))
