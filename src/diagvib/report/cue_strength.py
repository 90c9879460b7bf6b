"""The map of shortcuts: for each target and cue, accuracy where the cue misleads by its share of
counter-examples."""

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from diagvib.report.figure import Figure, Material
from diagvib.report.style import (
    MUTED,
    RULE,
    Drawing,
    add_legend,
    by_baseline,
    draw_chance,
    new_figure,
)
from diagvib.results.metric_sets.cue_strength import TITLE

_CAPTION = (
    "Accuracy where the cue misleads. Rows: targets; columns: cues. Bands: 95 % intervals over the dataset samples. "
    "Broken lines: without a shortcut. Vertical lines: half-way strengths."
)


def cue_strength_figures(material: Material) -> Iterator[Figure]:
    """A figure for each spread with a line for each baseline; then, for baselines with several
    spreads, one with a line for each of these."""
    frame, known = material.frames["cue_strength"], material.known
    if frame.empty:
        return
    factors, chance = known.factors(frame["study"]), known.chance(frame["study"].iloc[0])
    for spread, own in frame.groupby("spread", sort=False):
        about = TITLE + ("" if spread == 1 else f": spread {100 * spread:g} %")
        draw = partial(curves, own, "baseline", factors, chance)
        name = f"cue_strength/spread_{100 * spread:g}"
        yield Figure(name, about, draw, TITLE, _CAPTION, folded=spread < 1)
    for baseline, own in frame.groupby("baseline", sort=False):
        if own["spread"].nunique() > 1:
            named = own.assign(spread=[f"spread {100 * each:g} %" for each in own["spread"]])
            draw = partial(curves, named, "spread", factors, chance)
            title = f"How visible a cue must be: {baseline}"
            yield Figure(f"cue_strength/{baseline}", title, draw, TITLE, _CAPTION)


def curves(frame: pd.DataFrame, by: str, factors: list[str], chance: float) -> Drawing:
    """A panel for each target and cue, a line for each value of the column `by`. frame: of
    `cue_strength`; factors: of the scene. Panels of pairs that are not configured are left out."""
    targets, cues = (
        [factor for factor in factors if factor in set(frame[role])] for role in ("target", "cue")
    )
    figure = new_figure(1.35 * len(cues) + 1.2, 1.25 * len(targets) + 1)
    grid = figure.subplots(len(targets), len(cues), sharex=True, sharey=True, squeeze=False)
    looks, shares = by_baseline(frame[by].unique()), np.unique(frame["counter_examples"])
    for (target, cue), axes in zip(product(targets, cues), grid.flat, strict=True):
        if target == targets[0]:
            axes.set_title(cue, loc="center")
        if cue == cues[0]:
            axes.text(-0.5, 0.5, target, rotation=90, va="center", transform=axes.transAxes)
        own = frame[(frame["target"] == target) & (frame["cue"] == cue)]
        if own.empty:
            axes.set_axis_off()
            continue
        draw_chance(axes, chance)
        for name, curve in own.groupby(by, sort=False):
            _draw_curve(axes, str(name), curve, looks[name])
    ticks = shares[np.unique([0, 1, len(shares) // 2, len(shares) - 1])]
    axes.set_xscale("symlog", linthresh=shares[1], linscale=0.5)
    axes.set(ylim=(-0.03, 1.03), yticks=[0, 0.5, 1], xlim=(0, shares[-1] * 1.15))
    axes.set_xticks(ticks, [f"{100 * share:g}" for share in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    figure.supxlabel("training images in which the cue misleads, %", fontsize=9)
    add_legend(figure)
    return figure


def _draw_curve(axes: Axes, name: str, curve: pd.DataFrame, look: tuple[str, str]) -> None:
    colour, marker = look
    x, mean, low, high = curve[["counter_examples", "mean", "low", "high"]].to_numpy().T
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    line = {"color": colour, "linewidth": 1.3, "marker": marker, "markersize": 3}
    axes.plot(x, mean, label=name, clip_on=False, **line)
    without, half = curve[["without", "half_way"]].iloc[0]
    axes.axhline(without, color=colour, linewidth=0.8, linestyle=(0, (4, 2)), alpha=0.7)
    if 0 < half < 1:
        axes.axvline(half, color=colour, linewidth=0.8, alpha=0.7)
    axes.grid(axis="y", color=RULE, linewidth=0.5)
    axes.tick_params(labelsize=7, color=MUTED)
    axes.set_axisbelow(True)
