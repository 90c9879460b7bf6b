"""How strong, and how visible, a cue must be before a network takes it: accuracy where it misleads,
by the share of counter-examples in training, and the share that makes up for half of the loss."""

from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np
import pandas as pd

from diagvib.results.cells import mean_over_seeds
from diagvib.results.metric_sets.metric_set import NUMBERS, numbers
from diagvib.results.reader_tables import Table, in_order
from diagvib.results.uncertainty import FEWEST, estimate, sample_interval
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.rows import TARGET
from diagvib.studies.study import Study

# A curve, and the columns that are the same in all its rows.
CURVE = ["baseline", "target", "cue", "spread"]
DOSE = ["spread", "counter_examples"]
HALF_WAY = ["half_way", "half_way_low", "half_way_high"]
COLUMNS = [*CURVE, "study", "counter_examples", *NUMBERS, "without", *HALF_WAY]
# With a smaller loss to the cue, no half-way strength is computed.
SMALLEST_LOSS = 0.1
# Shares at which the interval is computed, per curve.
_STEPS = 41
TITLE = "How strong a cue must be"
_INTRODUCTION = (
    "Half-way strength: the percentage of training images in which the cue must mislead to win back half of the accuracy "
    "that the shortcut costs where it misleads; interpolated on a logarithmic axis, after means that fall are pooled. In "
    f"brackets the 95 % interval over the {{samples}}, none for fewer than {FEWEST}. `<` and `>`: beyond the smallest "
    "and the largest share. `-`: runs, or the study without a shortcut, are missing. `no loss`: the cue costs less than "
    f"{100 * SMALLEST_LOSS:.0f} points. Spread: how much the cue's classes differ, in percent of the usual."
)


def dose(study: Study) -> tuple[float, float] | None:
    """The spread of a study's cue, and the share of the training images in which it misleads, if
    that is equally often in each cell; None for a study of another design."""
    spread = dict.fromkeys(study.cues, 1.0) | (study.spread or {})
    if study.adds or list(study.roles) != [TARGET, *spread] or len(spread) != 1:
        return None
    cells, classes = study.cells("train"), study.roles[TARGET]
    misleads = cells[f"{study.cues[0]}_class"] != cells[f"{TARGET}_class"]
    share = cells.loc[misleads, "weight"].sum()
    expected_weights = np.where(misleads, share / (classes - 1), 1 - share) / classes
    evenly_spread = len({*study.roles.values()}) == 1 and np.allclose(
        cells["weight"], expected_weights
    )
    return (*spread.values(), round(float(share), 9)) if evenly_spread else None


def cue_strength(runs: pd.DataFrame, known_studies: KnownStudies) -> pd.DataFrame:
    """COLUMNS: accuracy where the cue misleads by curve and share of counter-examples, for curves
    with at least two shares above 0, of studies with as many classes as the first; without:
    accuracy without a shortcut, which is that of the curve's own study without a relation, if there
    is one, and otherwise of the headline's, if that has the same scene. Of curves that two scenes
    have alike in name, the first.

    runs: RUN_KEYS, and accuracies on the groups id and ood.
    """
    runs = mean_over_seeds(runs, ["id_accuracy", "ood_accuracy"])
    runs = runs.assign(scene=[known_studies.studies[name].scene for name in runs["study"]])
    studies = runs["study"].unique()
    dosed_runs = runs.merge(_dosed_studies(studies, known_studies), on=["study", "scene"])
    headline, by = known_studies.headline(studies), ["baseline", "scene", "target", "sample"]
    control = runs[runs["study"] == (headline.without if headline else "")]
    control = control.astype({"id_accuracy": float}).groupby(by)["id_accuracy"].mean()
    dosed_runs = dosed_runs.join(control.rename("without"), on=by)
    rows, curves = [], []
    for (*keys, _), curve in dosed_runs.groupby([*CURVE, "scene"], sort=False):
        table = curve.pivot(index=DOSE[1], columns="sample")
        if len(table) > 2 and table.index[0] <= 0 and keys not in curves:
            curves.append(keys)
            rows += _curve_rows(keys, table, known_studies.chance(curve["study"].iloc[0]))
    return pd.DataFrame(rows, columns=COLUMNS)


def _dosed_studies(studies: Sequence[str], known_studies: KnownStudies) -> pd.DataFrame:
    """The studies that have a dose: study, DOSE, scene. One for each dose and scene, with as many
    classes as the first."""
    rows = [(name, *dosed) for name in studies if (dosed := dose(known_studies.studies[name]))]
    doses = pd.DataFrame(rows, columns=["study", *DOSE])
    definitions = [known_studies.studies[name] for name in doses["study"]]
    doses["scene"] = [study.scene for study in definitions]
    classes = [study.roles[TARGET] for study in definitions]
    return doses[np.equal(classes, classes[:1])].drop_duplicates([*DOSE, "scene"])


def _curve_rows(keys: list, table: pd.DataFrame, chance: float) -> Iterator[dict]:
    """The rows of one curve. table: by share of counter-examples and sample."""
    shares, accuracies = table.index.to_numpy(), table["ood_accuracy"].to_numpy(float)
    # With so many, the cue says nothing about the target.
    unrelated = np.isclose(shares[-1], 1 - chance)
    without = accuracies[-1] if unrelated else table["without"].to_numpy()[0]
    half = dict(zip(HALF_WAY, half_way(shares, accuracies, without), strict=True))
    for share, name, values in zip(shares, table["study"].iloc[:, 0], accuracies, strict=True):
        row = dict(zip(CURVE, keys, strict=True)) | {"study": name, DOSE[1]: share}
        yield {**row, **numbers(estimate(values)), "without": estimate(without).mean, **half}


def half_way(
    shares: np.ndarray, values: np.ndarray, without: np.ndarray
) -> tuple[float, float, float]:
    """The share of counter-examples at which accuracy is half-way between that at share 0 and that
    without a shortcut, and its 95 % interval.

    shares: float[K], from 0 on; values: float[K, samples]; without: float[samples]; a sample that
    lacks a run is left out. 0 and infinity are beyond the smallest and the largest share. NaN for a
    loss below SMALLEST_LOSS, and for the ends with fewer than FEWEST samples.

    Estimated from the means by isotonic regression, then linearly between logarithms of shares. The
    interval has the shares at which the interval of twice the difference between the accuracy and
    the half-way one, paired by sample (`sample_interval`), contains 0; and all between these.
    Simulated in benchmarks/README.md.
    """
    complete = ~np.isnan([*values, without]).any(axis=0)
    values, without = values[:, complete], without[complete]
    if not complete.any() or without.mean() - values[0].mean() < SMALLEST_LOSS:
        return np.nan, np.nan, np.nan
    from sklearn.isotonic import IsotonicRegression

    means = values.mean(axis=1)
    rising = IsotonicRegression().fit_transform(np.arange(len(means)), means)[1:]
    logs, level = np.log(shares[1:]), (means[0] + without.mean()) / 2
    position = np.searchsorted(rising, level)
    middle = -np.inf if position == 0 else np.inf
    if 0 < position < len(rising):
        middle = np.interp(
            level, rising[position - 1 : position + 1], logs[position - 1 : position + 1]
        )
    if len(without) < FEWEST:
        return float(np.exp(middle)), np.nan, np.nan

    def change(log: float) -> tuple[float, float]:
        interpolated = np.array([np.interp(log, logs, sample) for sample in values[1:].T])
        return sample_interval(
            np.stack([interpolated, interpolated]), np.stack([values[0], without])
        )

    grid = np.linspace(logs[0], logs[-1], _STEPS)
    low = max(takewhile(lambda log: change(log)[1] < 0, grid), default=-np.inf)
    high = min(takewhile(lambda log: change(log)[0] > 0, grid[::-1]), default=np.inf)
    strengths = np.exp([middle, min(low, middle), max(high, middle)])
    return tuple(strengths.tolist())


def half_way_tables(frame: pd.DataFrame, factors: Sequence[str]) -> Iterator[Table]:
    """Half-way strengths by target and cue. frame: from `cue_strength`."""
    cues = in_order(frame["cue"], factors)
    rows = []
    for (baseline, spread, target), curves in frame.groupby(
        ["baseline", "spread", "target"], sort=False
    ):
        texts = {cue: half_way_text(curve) for cue, curve in curves.groupby("cue", sort=False)}
        rows.append([baseline, f"{100 * spread:g}", target, *(texts.get(cue, "") for cue in cues)])
    heads = ["baseline", "spread", TARGET, *cues]
    yield Table("Half-way strength by cue, %", heads, rows, [], TITLE, [_INTRODUCTION])


def half_way_text(curve: pd.DataFrame) -> str:
    """`3.2 (1.1 to 8.0)`, in percent; `-` where runs are missing."""
    row, shares = curve.iloc[0], curve["counter_examples"]

    def text(share: float) -> str:
        if share == 0:
            return f"< {100 * shares.iloc[1]:.3g}"
        return f"> {100 * shares.iloc[-1]:.3g}" if np.isinf(share) else f"{100 * share:.1f}"

    middle, low, high = row[HALF_WAY]
    if np.isnan(middle):
        return "no loss" if row["without"] - row["mean"] < SMALLEST_LOSS else "-"
    return text(middle) + ("" if np.isnan(low) else f" ({text(low)} to {text(high)})")
