"""Accuracy by combination of classes, of studies judged by `accuracy`: the numbers that show whether
a network follows a cue, and where."""

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import product

import numpy as np
import pandas as pd

from diagvib.results.metric_sets.metric_set import NUMBERS, Results, numbers
from diagvib.results.reader_tables import Frames, Table, doubtful, of_samples
from diagvib.results.uncertainty import FEWEST, estimate, image_interval, sample_interval
from diagvib.studies.known_studies import KnownStudies

CLASSES = ["target_class", "cue_class"]
_RUNS = ["study", "baseline", "binding", "target", "cue"]
_CHANGE = ["change", "change_low", "change_high"]
COLUMNS = [*_RUNS, *CLASSES, "trained", "images", *NUMBERS, "cue_label", "followed", *_CHANGE]


def combinations(results: Results) -> pd.DataFrame:
    """COLUMNS: a row for each tested combination of classes, by baseline and binding, of bindings
    whose classes are the same in all samples; a sample counts with all its seeds.

    trained, images: training and test images, means over the samples. cue_label: the class that
    the first cue points to, empty if none or several; followed: the share of predictions that are
    this class, where it is another one. change: accuracy less that of the same class of the target
    where the cue points to it, with its 95 % interval, of `change_interval`.
    """
    rows, runs, known_studies = [], results.runs, results.known_studies
    tested = results.cells.astype({"misled": float, "trained": float})
    for names, part in tested.groupby(_RUNS, sort=False):
        expected = runs[(runs[_RUNS] == list(names)).all(axis=1)]
        classes, *other_classes = _class_names(expected, known_studies)
        part = part[~part["sample"].isin(expected.loc[expected["status"] != "ok", "sample"])]
        if not other_classes:
            labels = [*filter(None, (results.cue_label[run] for run in expected.index))][:1]
            description = dict(zip(_RUNS, names, strict=True))
            cue_labels = _labels(classes[1:], *labels)
            part = part.assign(cue_label=part["cue_class"].map(cue_labels).fillna(""))
            samples, shared = expected["sample"].unique(), bool(known_studies.seeded(names[:1]))
            rows += [{**description, **row} for row in _of_binding(part, samples, shared)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _class_names(runs: pd.DataFrame, known_studies: KnownStudies) -> set[tuple]:
    return {
        tuple(known_studies.classes(run["study"], run["binding"].split("-"), run["sample"]))
        for run in runs.to_dict("records")
    }


def _labels(
    cue_classes: Sequence[Sequence[str]], label: Mapping[str, Set[str]] | None = None
) -> dict[str, str]:
    """The one class that the first cue points to in each combination of cues; or empty. A cue whose
    classes all point to the same class says nothing. cue_classes: of each cue."""
    label = label or {}
    says = len({*label.values()}) > 1
    single = {name: next(iter(names)) for name, names in label.items() if says and len(names) == 1}
    return {"-".join(names): single.get(names[0], "") for names in product(*cue_classes) if names}


def _of_binding(tested: pd.DataFrame, samples: np.ndarray, shared: bool) -> Iterator[dict]:
    """shared: whether all samples have the same test images."""
    keys = [*CLASSES, "cue_label"]
    sums = _by_sample(tested, keys)
    trained = tested.groupby(keys, sort=False)["trained"].mean()
    agreeing = tested[tested["cue_label"] == tested["target_class"]]
    agreeing_counts = _by_sample(agreeing, ["target_class"])
    for names, part in sums.groupby(level=keys, sort=False):
        part = part.droplevel(keys).reindex(samples)
        class_counts = (
            agreeing_counts.xs(names[0]).reindex(samples)
            if names[0] in agreeing_counts.index
            else part * np.nan
        )
        right, shares = part["correct"] / part["n"], class_counts["correct"] / class_counts["n"]
        misled = names[2] not in ("", names[0])
        images = (different_images(counts["n"], shared) for counts in (part, class_counts))
        change = change_interval(right, shares, *images)
        change = change if misled else (np.nan, np.nan, np.nan)
        yield {
            **dict(zip(keys, names, strict=True)),
            **numbers(estimate(right)),
            "trained": trained[names],
            "images": part["n"].mean(),
            "followed": (part["misled"] / part["n"]).mean() if misled else np.nan,
            **dict(zip(_CHANGE, change, strict=True)),
        }


def _by_sample(cells: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The counts of these cells, for each dataset sample: of several seeds, the mean."""
    by, counts = [*keys, "sample"], ["n", "correct", "misled"]
    sums = cells.groupby([*by, "seed"], sort=False)[counts].sum()
    return sums.groupby(level=by, sort=False).mean()


def different_images(counts: pd.Series, shared: bool) -> float:
    """How many images the samples have together: if they share them, as photos, those of one."""
    return counts.mean() if shared else counts.sum()


def change_interval(
    values: np.ndarray, references: np.ndarray, images: float = 0, usual_images: float = 0
) -> tuple[float, float, float]:
    """The mean of a difference of two accuracies on the same samples, with its 95 % interval over
    the samples; over all images of these samples, if there are fewer than FEWEST of them or the
    samples do not differ (Zou and Donner, 2008)."""
    values, references = np.asarray(values, float), np.asarray(references, float)
    complete = ~np.isnan(values + references)
    if not complete.any():
        return np.nan, np.nan, np.nan
    values, references = values[complete], references[complete]
    change = values.mean() - references.mean()
    low, high = sample_interval(values, references) if len(values) >= FEWEST else (np.nan, np.nan)
    if np.isnan(low) and images > 0 and usual_images > 0:
        (below, above), (reference_low, reference_high) = (
            image_interval(part.mean(), count)
            for part, count in ((values, images), (references, usual_images))
        )
        low = change - np.hypot(values.mean() - below, reference_high - references.mean())
        high = change + np.hypot(above - values.mean(), references.mean() - reference_low)
    return float(change), float(low), float(high)


def combination_tables(tables: Frames, known_studies: KnownStudies) -> Iterator[Table]:
    """For readers: of each study and binding, a row for each combination, a column for each
    baseline."""
    runs = tables["runs"]
    for (study, binding), rows in tables["combinations"].groupby(["study", "binding"], sort=False):
        baselines, lines = rows["baseline"].unique(), []
        for names, combination_rows in rows.groupby([*CLASSES, "cue_label"], sort=False):
            texts = {
                row["baseline"]: of_samples(row) for row in combination_rows.to_dict("records")
            }
            counts = combination_rows[["trained", "images"]].mean()
            trained, images = ("-" if count != count else f"{count:,.0f}" for count in counts)
            values = [texts.get(name, "-") for name in baselines]
            lines.append([*names[:2], names[2] or "-", trained, images, *values])
        heads = [rows["target"].iloc[0], rows["cue"].iloc[0] or "-", "the cue points to"]
        heads += ["trained on", "test images", *baselines]
        notes = untested_notes(runs[(runs["study"] == study) & (runs["binding"] == binding)])
        title = f"{known_studies.title(study)}, {binding}: accuracy by combination"
        yield Table(title, heads, lines, notes)


def untested_notes(runs: pd.DataFrame) -> list[str]:
    """`no test image of wren-land`, for each kind of run that says so."""
    names = runs["untested"].fillna("") if "untested" in runs else pd.Series(dtype=str)
    return [f"no test image of {cells}" for cells in names[names != ""].unique()]


def run_warnings(runs: pd.DataFrame) -> str:
    """What a reader must know of a number from these runs: `no test image of wren-land; 2 of 3 runs
    are doubtful`."""
    count = int(doubtful(runs).sum())
    text = f"{count} of {len(runs)} runs {'is' if count == 1 else 'are'} doubtful"
    return "; ".join([*untested_notes(runs), *[text] * (count > 0)])
