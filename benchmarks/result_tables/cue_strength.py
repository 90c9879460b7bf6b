"""The map of shortcuts: how strong, and how visible, a cue must be."""

from functools import cache
from itertools import chain, permutations, product
from types import SimpleNamespace

import pandas as pd
from result_file import REPOSITORY

from diagvib.report.curves import cue_strength_figures
from diagvib.results.metric_sets.cue_strength import SMALLEST_LOSS, cue_strength, half_way_tables
from diagvib.studies.known_studies import SHIPPED
from result_tables.committed import FACTORS, Row, gain, percent, runs, tested

# Folders with a map.
MAPS = ("laptop", "frozen", "cue_strength")
# Spreads of the cue's classes, from the usual one down, and how the names of their studies end.
SPREADS = {100: "", 50: "-spread-50", 25: "-spread-25", 10: "-spread-10"}


@cache
def strength(folder: str) -> pd.DataFrame:
    """The map of shortcuts of all its baselines."""
    return cue_strength(runs(folder).fillna({"cue": ""}), SHIPPED)


def half_way_table(folder: str, baseline: str, spread: float = 1) -> list[Row]:
    """Half-way strengths with intervals, of one baseline at one spread."""
    frame = strength(folder).query("baseline == @baseline and spread == @spread")
    (made,) = half_way_tables(frame, FACTORS)
    return [row[2:] for row in (made.heads, *made.rows)]


def visibility_table(folder: str, baseline: str) -> list[Row]:
    """What a cue without counter-examples costs where it misleads, in points, by spread of its
    classes (those that ran): accuracy with it less that without a relation at the same spread,
    paired by sample; and the latter at the usual and the smallest spread. Of the pairs with a cost
    of at least SMALLEST_LOSS at one of these."""
    own = runs(folder).query("baseline == @baseline")
    ran = {spread: end for spread, end in SPREADS.items() if f"zgo{end}" in own["study"].to_numpy()}
    without = own[own["study"] == "zso"].pivot(
        index="sample", columns="target", values="id_accuracy"
    )
    heads = [f"{spread} %" for spread in ran]
    rows = [["target", "cue", *heads, "no relation, 100 %", "no relation, 10 %"]]
    for target, cue in permutations(FACTORS, 2):
        pair = own.query("target == @target and cue == @cue")
        values = pair.pivot(index="sample", columns="study", values="ood_accuracy")
        values["zso"] = without[target]
        both = [(f"zgo{ending}", f"zso{ending}") for ending in ran.values()]
        if (
            not {*chain(*both)} <= {*values}
            or max((values[free] - values[shortcut]).mean() for shortcut, free in both)
            < SMALLEST_LOSS
        ):
            continue
        costs = [gain(values, shortcut, free) for shortcut, free in both]
        ends = [percent(values[free].mean()) for _, free in (both[0], both[-1])]
        rows.append([target, cue, *costs, *ends])
    return rows


def hidden_table(folder: str) -> list[Row]:
    """Points lost to position and hue with the usual differences between their classes and with a
    tenth of them, by network."""
    own = runs(folder)
    keys = ["baseline", "study", "target", "cue"]
    means = own.fillna({"cue": ""}).assign(accuracy=tested(own)).groupby(keys)["accuracy"].mean()
    rows = [["task", "cue", "small CNN, usual", "a tenth", "ImageNet features, usual", "a tenth"]]
    for target, cue in product(("lightness", "shape", "scale", "texture"), ("position", "hue")):
        row = [target, cue]
        for network, end in product(("small_cnn", "lite0"), ("", "-spread-10")):
            # Without a shortcut, the usual differences have one run for all cues.
            free = means[network, f"zso{end}", target, cue if end else ""]
            row.append(f"{100 * (free - means[network, f'zgo{end}', target, cue]):.0f}")
        rows.append(row)
    return rows


def strength_figures(folder: str) -> None:
    """The curves, beside the runs: at the usual spread, and small_cnn's with several spreads."""
    report_data = SimpleNamespace(frames={"cue_strength": strength(folder)}, known_studies=SHIPPED)
    drawn = {figure.name: figure for figure in cue_strength_figures(report_data)}
    names = {"cue_strength/spread_100": "cue_strength", "cue_strength/small_cnn": "visibility"}
    for figure, name in names.items():
        path = REPOSITORY / "docs/results" / folder / f"{name}.png"
        drawn[figure].draw().savefig(path, dpi=110, metadata={"Software": None})


def strength_csv(folder: str) -> str:
    return strength(folder).to_csv(index=False, float_format="%.10g")
