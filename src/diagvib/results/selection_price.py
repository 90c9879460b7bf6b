"""The price of selection: the accuracy of each run's worst test group, had its epoch been chosen on
validation images of another kind; from the accuracies that runs recorded after every epoch
(`training.track_test`). Nothing is trained again.

The validation images are simulated: of each group, so many images that the network of an epoch
recognises at the rate that was measured on the group's test images.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from diagvib.foundation.seeding import named_generator
from diagvib.results.cells import RUN_KEYS
from diagvib.results.metric_sets.metric_set import (
    KEYS,
    NUMBERS,
    concatenated,
    of_all_bindings,
    over_samples,
    pivot,
)
from diagvib.results.read_runs import SELECTABLE, Collected
from diagvib.results.reader_tables import Table, of_samples
from diagvib.studies.known_studies import KnownStudies
from diagvib.training.selection_rules import is_tested

AS_RUN, ORACLE = "as_run", "oracle"
# Validation images per test group; i.i.d. validation has as many in all.
IMAGES = (5, 20, 100)
# What each kind of validation is called, and what its score is.
KINDS = {
    "balanced": "equally many images of each group",
    "iid": "as many images as that in all, groups as in training",
    "worst": "the worst group of the balanced images",
}
RULES = [f"{kind}_{images}" for images in IMAGES for kind in KINDS]
HEADS = {
    AS_RUN: "as run",
    **{f"{kind}_{n}": f"{kind.replace('iid', 'i.i.d.')}, {n}" for n in IMAGES for kind in KINDS},
    ORACLE: "oracle",
}
COLUMNS = [*KEYS, "rule", *NUMBERS]
DRAWS = 200
TITLE = "The price of selection"
INTRODUCTION = (
    "Accuracy of the worst test group (percent, mean ± standard error over the {samples}) if the epoch had been chosen on "
    "validation images with equally many of each test group (balanced), with groups as in training (i.i.d.), or by the "
    f"worst group; the number is that of images per group. Mean over {DRAWS} simulated sets of images, drawn with the "
    "accuracies that were measured on the test images after each epoch. The oracle has the epoch whose worst group is best."
)


def selection_prices(collected: Collected, baselines: Mapping[str, dict]) -> pd.DataFrame:
    """COLUMNS: a row for each study, baseline, binding (empty: the mean over several) and rule, of
    runs that recorded their test accuracies; a sample that lacks one is left out."""
    shares, history = _training_shares(collected.cells), collected.history
    tested = history[[name for name in history if is_tested(name)]].notna().any(axis=1)
    rows = {
        run: _prices(collected.frame.loc[run], epochs, shares)
        for run, epochs in history[history[SELECTABLE] & tested].groupby(level=0)
    }
    rules = [AS_RUN, *RULES, ORACLE]
    values = pd.DataFrame.from_dict(rows, "index", columns=rules).astype(float)
    values = collected.frame[RUN_KEYS].join(values)
    has_values = values[AS_RUN].notna().groupby([values["study"], values["baseline"]])
    parts = [
        over_samples(study_values, rules, baselines, {})
        for _, study_values in values[has_values.transform("any")].groupby("study", sort=False)
    ]
    table = concatenated(parts, [*KEYS, "metric", *NUMBERS])
    return table.rename(columns={"metric": "rule"})[COLUMNS]


def _training_shares(cells: pd.DataFrame) -> pd.DataFrame:
    """The share of the training images that each test group's combinations have, by RUN_KEYS; NaN
    if a run does not note them."""
    classes = cells.drop_duplicates([*RUN_KEYS, "group", "target_class", "cue_class"])
    counts = classes.astype({"trained": float}).groupby([*RUN_KEYS, "group"], sort=False)
    images = counts["trained"].sum(min_count=1).unstack("group")
    return images.div(images.sum(axis=1), axis=0)


def _prices(run: pd.Series, epochs: pd.DataFrame, shares: pd.DataFrame) -> dict[str, float]:
    """The accuracy of the run's worst group by each rule; {} without at least two test groups."""
    key = tuple(run[RUN_KEYS])
    if key not in shares.index:
        return {}
    of_groups = shares.loc[key].dropna()
    columns = [f"{group}_accuracy" for group in of_groups.index]
    if len(columns) < 2 or not {*columns} <= {*epochs} or epochs[columns].isna().any(axis=None):
        return {}
    rates = epochs[columns].to_numpy(float).clip(0, 1)
    worst = rates.min(axis=1)
    prices = {AS_RUN: run[columns].astype(float).min(), ORACLE: worst.max()}
    for images in IMAGES:
        rng = named_generator("validation images", *key, images)
        for kind, scores in _scores(rates, of_groups.to_numpy(), images, rng).items():
            prices[f"{kind}_{images}"] = worst[scores.argmax(axis=1)].mean()
    return prices


def _scores(
    rates: np.ndarray, shares: np.ndarray, images: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Validation scores, float[DRAWS, epochs], of each of KINDS. rates: accuracies of epochs and
    groups."""
    shape = (DRAWS, *rates.shape)
    right = rng.binomial(images, rates, shape) / images
    counts = rng.multinomial(images * len(shares), shares, DRAWS)[:, None]
    as_trained = rng.binomial(counts, rates, shape).sum(axis=-1) / counts.sum(axis=-1)
    return {"balanced": right.mean(axis=-1), "iid": as_trained, "worst": right.min(axis=-1)}


def price_tables(prices: pd.DataFrame, known_studies: KnownStudies) -> Iterator[Table]:
    """For readers: a row for each study, baseline and binding, a column for each rule."""
    rows = of_all_bindings(prices)
    rows = rows.assign(study=rows["study"].map(known_studies.title))
    rules = {rule: head for rule, head in HEADS.items() if rule in set(rows["rule"])}
    lines = pivot(rows, "rule", rules, of_samples, ["study", "baseline", "binding"])
    yield Table("Worst test group", *lines, [], TITLE, [INTRODUCTION], folded=True)


def price_sentence(prices: pd.DataFrame, known_studies: KnownStudies) -> str:
    """What i.i.d. validation would cost, of the baseline that loses most; empty without epochs."""
    means = of_all_bindings(prices).pivot_table(
        index=["study", "baseline"], columns="rule", values="mean", sort=False
    )
    iid, balanced = (f"{kind}_{IMAGES[-1]}" for kind in ("iid", "balanced"))
    if not {iid, balanced} <= {*means}:
        return ""
    costs = (means[balanced] - means[iid]).dropna()
    if costs.empty:
        return ""
    study, baseline = costs.abs().idxmax()
    if abs(costs[study, baseline]) < 0.0005:
        return "Balanced and i.i.d. validation images would choose equally good epochs."
    return (
        f"The validation images matter most for {baseline} in {known_studies.title(study)}: with balanced ones, its "
        f"worst group would have {100 * means.loc[(study, baseline), balanced]:.1f} %, with i.i.d. ones "
        f"{100 * means.loc[(study, baseline), iid]:.1f} %."
    )
