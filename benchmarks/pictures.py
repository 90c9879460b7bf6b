"""Draw the findings as pictures, from committed tables, for light and for dark pages.

    python benchmarks/pictures.py

Writes docs/pictures/NAME-light.png and NAME-dark.png.
"""

from collections.abc import Callable
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import typer
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from result_file import REPOSITORY
from result_tables.committed import GROUPS, read, runs, tested
from result_tables.comparison import TOLD, beside_erm, compared, label, misled

from diagvib.report.style import (
    INK,
    MUTED,
    PALETTE,
    RULE,
    Drawing,
    new_figure,
    save_figure,
    text_on,
)
from diagvib.results.uncertainty import sample_interval
from diagvib.scenes.digits.factors import FACTORS

OUT = REPOSITORY / "docs/pictures"
NETWORKS = {
    "small_cnn": "a small CNN, trained end to end",
    "lite0": "a linear layer on ImageNet features (Lite0)",
}
# The same protocol for both: runs on two cues, and on environments.
COMPARED = {
    "small_cnn": ("cues_tuned", "environments_tuned"),
    "lite0": ("frozen_cues", "frozen_environments_tuned"),
}


class Theme(NamedTuple):
    paper: str
    ink: str
    muted: str
    rule: str
    blue: str
    vermilion: str
    green: str
    purple: str

    @property
    def style(self) -> dict:
        texts = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
        papers = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
        colours = dict.fromkeys(texts, self.ink) | dict.fromkeys(papers, self.paper)
        return colours | {"axes.edgecolor": self.muted}

    def scale(self, *ends: str) -> LinearSegmentedColormap:
        return LinearSegmentedColormap.from_list("points", ends)


THEMES = {
    "light": Theme("#ffffff", INK, MUTED, RULE, *PALETTE[:3], PALETTE[7]),
    "dark": Theme(
        "#14181f", "#e6e9ed", "#9aa5b1", "#39424d", "#58b0ea", "#f28b4b", "#35c496", "#c3a1e6"
    ),
}


def follows(theme: Theme) -> Drawing:
    """Points lost to each cue without counter-examples, by task; bold if the interval excludes 0."""
    figure = new_figure(10.4, 5.2)
    scale = theme.scale(theme.paper, theme.vermilion)
    for axes, network in zip(figure.subplots(1, 2), NETWORKS, strict=True):
        results = runs("cue_strength").query("baseline == @network")
        values = results.assign(accuracy=tested(results))
        without = values[values["study"] == "zso"].set_index(["target", "sample"])["accuracy"]
        _cells(axes, len(FACTORS), len(FACTORS))
        for row, target in enumerate(FACTORS):
            alone = f"{100 * without[target].mean():.0f} %"
            axes.text(row, row, alone, ha="center", va="center", color=theme.muted, fontsize=9)
        shortcut = values[values["study"] == "zgo"].groupby(["target", "cue"])
        for (target, cue), part in shortcut:
            cell = FACTORS.index(cue), FACTORS.index(target)
            pair = without[target], part.set_index("sample")["accuracy"]
            _draw_points(axes, cell, pair, scale(max(0.0, (pair[0] - pair[1]).mean())), 11)
        axes.set_xticks(range(len(FACTORS)), FACTORS)
        axes.set_yticks(range(len(FACTORS)), FACTORS)
        axes.set_title(NETWORKS[network], pad=12, fontsize=11)
        axes.set_xlabel("points lost if ... gives the answer away in training", fontsize=10)
    figure.axes[0].set_ylabel("task: recognise ...", fontsize=10)
    note = "diagonal: accuracy without a shortcut. Bold: the 95 % interval over three dataset samples excludes 0"
    return _titled(
        figure,
        "A small CNN follows position most and texture not at all;\n"
        "ImageNet features follow hue most, then position and shape",
        note,
    )


def methods(theme: Theme) -> Drawing:
    """What each method gains over ERM where the cues mislead, by study and supervision."""
    listed = {}
    for network, folders in COMPARED.items():
        for folder in folders:
            for told, method in compared(folder)[["told", "method"]].drop_duplicates().to_numpy():
                for study, values in misled(folder).items():
                    if method != "erm" and method in values:
                        cell = network, study
                        pair = values[method].dropna(), values["erm"]
                        listed.setdefault((told, label(folder, method)), {})[cell] = pair
    means = {
        key: np.mean([(a - b).mean() for a, b in cells.values()]) for key, cells in listed.items()
    }
    order = sorted(listed, key=lambda key: ([*TOLD.values()].index(key[0]), -means[key]))
    figure = new_figure(13, 0.235 * len(order) + 2)
    scale = theme.scale(theme.vermilion, theme.paper, theme.blue)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (network, words) in zip(panels, NETWORKS.items(), strict=True):
        settings = {
            name: values for folder in COMPARED[network] for name, values in misled(folder).items()
        }
        _cells(axes, len(order), len(settings))
        for column, study in enumerate(settings):
            for row, key in enumerate(order):
                if pair := listed[key].get((network, study)):
                    gain = (pair[0] - pair[1]).mean()
                    _draw_points(axes, (column, row), pair, scale(0.5 + gain), 8.5, "+")
        heads = [
            f"{study.replace(', ', chr(10))}\nERM {100 * values['erm'].mean():.0f} %"
            for study, values in settings.items()
        ]
        axes.set_xticks(range(len(settings)), heads, fontsize=8)
        axes.set_title(words, pad=12, fontsize=11)
    panels[0].set_yticks(range(len(order)), [name for _, name in order], fontsize=9)
    for told in TOLD.values():
        rows = [row for row, key in enumerate(order) if key[0] == told]
        for axes in panels:
            axes.axhline(rows[-1] + 0.5, color=theme.ink, linewidth=1.1)
        look = {"rotation": 90, "va": "center", "ha": "center", "fontsize": 9, "color": theme.muted}
        middle = (rows[0] + rows[-1]) / 2
        words = (
            f"told {told}"
            if len(rows) > 2
            else "told\n" + told.replace(" which", "\nwhich").replace(" are", "\nare")
        )
        look |= {} if len(rows) > 2 else {"rotation": 0, "fontsize": 7}
        panels[0].annotate(
            words, (-0.3, middle), xycoords=("axes fraction", "data"), annotation_clip=False, **look
        )
    note = (
        "Points over ERM where every cue misleads. Bold: the 95 % interval over three dataset samples excludes 0. "
        "Empty: not run. † the head's last epoch was kept."
    )
    return _titled(
        figure,
        "Methods that are told the cues gain in nearly every study; of those told nothing, few do",
        note,
    )


def trade(theme: Theme) -> Drawing:
    """What a method gains where the cue misleads, against what it loses where the cue agrees."""
    colours = dict(
        zip(TOLD.values(), (theme.blue, theme.purple, theme.green, theme.vermilion), strict=True)
    )
    figure = new_figure(11.6, 5.4)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, (network, words) in zip(panels, NETWORKS.items(), strict=True):
        results = beside_erm(COMPARED[network][0]).query(
            "study == 'cue-1-95' and target == 'shape'"
        )
        means = results.groupby("method")[["agrees", "misleads"]].mean()
        images = results[[f"{group}_n" for group in GROUPS]].sum()
        share = images[["common_n", "no-cue-2_n"]].sum() / images.sum()
        erm = means.loc["erm"]
        gains = 100 * (means - erm).drop(index="erm")
        told = results.drop_duplicates("method").set_index("method")["told"]
        _draw_equal(axes, share, theme)
        for method, (price, gain) in gains.iterrows():
            axes.plot(price, gain, "o", color=colours[told[method]], markersize=6.5)
        folder = COMPARED[network][0]
        far = gains[gains.abs().max(axis=1) > 14].sort_values("misleads")
        _label_dots(axes, far, lambda name, folder=folder: label(folder, name), theme)
        axes.set_title(
            f"{words}\nERM: {100 * erm['agrees']:.0f} % (agrees), {100 * erm['misleads']:.0f} % (misleads)",
            fontsize=10.5,
        )
        axes.set(xlim=(-80, 22), ylim=(-42, 58), xlabel="points over ERM, cue agrees")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    panels[0].set_ylabel("points over ERM, cue misleads")
    for name, colour in colours.items():
        if name != "environments":
            panels[0].plot([], [], "o", color=colour, label=f"told {name}")
    panels[0].legend(loc="lower left", fontsize=9)
    note = (
        "CUE-1-95, shape by position: points over ERM, means over three dataset samples. Without a name: less than "
        "14 points from ERM"
    )
    return _titled(
        figure, "What is gained where the shortcut misleads is often paid for where it agrees", note
    )


def half_way(theme: Theme) -> Drawing:
    """How many counter-examples win back half of what a shortcut costs, by pair and network."""
    table = read("cue_strength/cue_strength").query("spread == 1").dropna(subset="half_way")
    table = table.drop_duplicates(["baseline", "target", "cue"])
    ends = 0.004, 0.7
    columns = ["half_way", "half_way_low", "half_way_high"]
    table[columns] = table[columns].clip(*ends)
    order = np.log(table.set_index(["target", "cue"])["half_way"]).groupby(level=[0, 1]).mean()
    order = [*order.sort_values(kind="stable").index]
    figure = new_figure(7.6, 0.235 * len(order) + 1.7)
    axes = figure.add_subplot()
    looks = dict(
        zip(NETWORKS, ((theme.blue, "o", -0.16), (theme.vermilion, "D", 0.16)), strict=True)
    )
    for record in table.itertuples():
        colour, marker, shift = looks[record.baseline]
        row = order.index((record.target, record.cue)) + shift
        axes.hlines(
            row, record.half_way_low, record.half_way_high, color=colour, linewidth=1, alpha=0.45
        )
        axes.plot(record.half_way, row, marker, color=colour, markersize=5, clip_on=False)
    for network, (colour, marker, _) in looks.items():
        axes.plot([], [], marker, color=colour, label=NETWORKS[network])
    axes.set_yticks(range(len(order)), [f"{target}, by {cue}" for target, cue in order])
    axes.set(xscale="log", xlim=ends, ylim=(len(order) - 0.4, -0.6))
    ticks = {
        0.004: "< 0.5",
        0.01: "1",
        0.02: "2",
        0.05: "5",
        0.1: "10",
        0.2: "20",
        0.5: "50",
        0.7: "more",
    }
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.minorticks_off()
    axes.grid(axis="x", color=theme.rule, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("counter-examples among the training images, %")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=2, fontsize=9)
    note = "Thin lines: 95 % intervals over three dataset samples. Rows: task, by cue. Only losses of 10 points or more"
    return _titled(
        figure,
        "Half of what a shortcut costs is won back\nwith few counter-examples on hue, with many on texture",
        note,
    )


PICTURES: dict[str, Callable[[Theme], Drawing]] = {
    "follows": follows,
    "methods": methods,
    "trade": trade,
    "half-way": half_way,
}


def _titled(figure: Drawing, title: str, note: str) -> Drawing:
    figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, fontweight="bold")
    figure.supxlabel(note, x=0.01, ha="left", fontsize=8.5)
    return figure


def _cells(axes: Axes, rows: int, columns: int) -> None:
    """Axes for a table of cells, with heads on top."""
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_points(
    axes: Axes,
    cell: tuple[int, int],
    pair: tuple[pd.Series, pd.Series],
    fill: tuple,
    size: float,
    sign: str = "-",
) -> None:
    """The mean difference of a pair of accuracies by sample, in points; bold if its interval excludes
    0."""
    first, second = pair
    second = second.reindex(first.index)
    low, high = sample_interval(first, second)
    axes.add_patch(
        mpl.patches.Rectangle(
            (cell[0] - 0.48, cell[1] - 0.46), 0.96, 0.92, facecolor=fill, linewidth=0
        )
    )
    text = f"{100 * (first - second).mean():{sign}.0f}".replace("-0", "0").replace("+0", "0")
    weight = "bold" if low > 0 or high < 0 else "normal"
    axes.text(
        *cell,
        text,
        ha="center",
        va="center",
        fontsize=size,
        fontweight=weight,
        color=text_on(to_hex(fill)),
    )


def _draw_equal(axes: Axes, share: float, theme: Theme) -> None:
    """Lines of equal accuracy over all test images. share: of images where the cue agrees."""
    price = np.array([-80, 22])
    axes.axhline(0, color=theme.muted, linewidth=0.8)
    axes.axvline(0, color=theme.muted, linewidth=0.8)
    for points in (-20, -10, 0, 10, 20):
        gain = (points - share * price) / (1 - share)
        axes.plot(price, gain, color=theme.rule, linewidth=1, zorder=0)
        words = f"{points:+d} overall" if points else "as ERM overall"
        angle = np.degrees(np.arctan(-share / (1 - share) * 0.72))
        spot = -64, (points + share * 64) / (1 - share) + 0.7
        if spot[1] < 56:
            axes.text(
                *spot,
                words,
                fontsize=7.5,
                color=theme.muted,
                rotation=angle,
                rotation_mode="anchor",
                va="bottom",
            )


def _label_dots(
    axes: Axes, dots: pd.DataFrame, name_of: Callable[[str], str], theme: Theme
) -> None:
    """Names beside dots; of those near the vertical axis in a column, moved apart. dots: columns of
    x and y, sorted by y."""
    column = 3.5
    height = -np.inf
    for method, (price, gain) in dots.iterrows():
        if price < -30:
            axes.text(price + 1.8, gain, name_of(method), fontsize=8.5, va="center")
            continue
        height = max(gain, height + 3.6)
        axes.plot([price, column - 0.4], [gain, height], color=theme.muted, linewidth=0.6)
        axes.text(column, height, name_of(method), fontsize=8.5, va="center")


def main() -> None:
    for theme_name, theme in THEMES.items():
        with mpl.rc_context(theme.style | {"savefig.dpi": 110}):
            for name, draw in PICTURES.items():
                save_figure(draw(theme), OUT / f"{name}-{theme_name}", ("png",))


if __name__ == "__main__":
    typer.run(main)
