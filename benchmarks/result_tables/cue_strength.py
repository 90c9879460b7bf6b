"""The map of shortcuts: how strong, and how visible, a cue must be."""

from itertools import pairwise, permutations
from types import SimpleNamespace

import numpy as np
import pandas as pd
from result_file import REPOSITORY

from diagvib.report.curves import cue_strength_figures
from diagvib.results.known_studies import SHIPPED
from diagvib.results.metric_sets.cue_strength import LEAST, cue_strength, half_way_tables
from diagvib.results.uncertainty import sample_interval
from result_tables.committed import FACTORS, Row, gain, percent, runs

# Folders with a map.
MAPS = ("laptop", "frozen", "cue_strength")
# Spreads of the cue's classes, from the usual one down, and the studies without counter-examples.
SPREADS = {100: "zgo", 50: "zgo-spread-50", 25: "zgo-spread-25", 10: "zgo-spread-10"}


def strength(folder: str) -> pd.DataFrame:
    """The map of shortcuts of all its baselines."""
    return cue_strength(runs(folder).fillna({"cue": ""}), SHIPPED)


def half_way_table(folder: str, baseline: str) -> list[Row]:
    """Half-way strengths with intervals, of one baseline at one spread."""
    frame = strength(folder).query("baseline == @baseline")
    (made,) = half_way_tables(frame, FACTORS)
    return [row[2:] for row in (made.heads, *made.rows)]


def visibility_table(folder: str, baseline: str) -> list[Row]:
    """Accuracy where the cue misleads without counter-examples, by spread of the cue's classes, of
    the pairs in which the cue costs at least LEAST at one of these; and what the smallest spread
    changes, paired by sample."""
    own = runs(folder).query("baseline == @baseline")
    without = own[own["study"] == "zso"].groupby("target")["id_accuracy"].mean()
    heads = [f"{spread} %" for spread in SPREADS]
    rows = [["target", "cue", *heads, "without a shortcut", "10 % less 100 %"]]
    for target, cue in permutations(FACTORS, 2):
        pair = own.query("target == @target and cue == @cue")
        values = pair.pivot(index="sample", columns="study", values="ood_accuracy")
        values = values.reindex(columns=[*SPREADS.values()])
        if (without[target] - values.mean()).max() < LEAST or values.isna().any(axis=None):
            continue
        numbers = map(percent, [*values.mean(), without[target]])
        rows.append([target, cue, *numbers, gain(values, SPREADS[10], SPREADS[100])])
    return rows


def falls(folder: str, baseline: str) -> str:
    """Whether accuracy rises with the share of counter-examples."""
    shares = strength(folder).drop_duplicates("study").set_index("study")["counter_examples"]
    own = runs(folder).query("baseline == @baseline and study in @shares.index")
    own = own.assign(share=own["study"].map(shares))
    steps = []
    for _, curve in own.groupby("binding"):
        values = curve.pivot(index="share", columns="sample", values="ood_accuracy").to_numpy()
        steps += pairwise(values)
    changes = np.array([(after - before).mean() for before, after in steps])
    certain = sum(sample_interval(after, before)[1] < 0 for before, after in steps)
    return (
        f"In {(changes < -1e-9).sum()} of {len(steps)} steps from one share to the next, the mean accuracy falls, by at "
        f"most {-100 * changes.min():.1f}\npoints; the 95 % interval of the change, paired by sample, is below 0 in "
        f"{certain or 'none'} of them."
    )


def strength_figure(folder: str) -> None:
    """The curves, beside the runs."""
    material = SimpleNamespace(frames={"cue_strength": strength(folder)}, known=SHIPPED)
    drawing = next(cue_strength_figures(material)).draw()
    path = REPOSITORY / "docs/results" / folder / "cue_strength.png"
    drawing.savefig(path, dpi=110, metadata={"Software": None})


def strength_csv(folder: str) -> str:
    return strength(folder).to_csv(index=False, float_format="%.10g")
