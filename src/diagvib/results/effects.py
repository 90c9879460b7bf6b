"""What findings are made of: differences of accuracies that intervals show, and what a reader must know
of the runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np
import pandas as pd

from diagvib.results.cells import RUN_KEYS, mean_over_seeds
from diagvib.results.combinations import change_interval, different_images, run_warnings
from diagvib.results.reader_tables import Frames, interval
from diagvib.results.uncertainty import FEWEST, image_interval, sample_interval
from diagvib.studies.known_studies import KnownStudies


@dataclass(frozen=True)
class Effect:
    """A difference of accuracies and its 95 % interval."""

    change: float
    low: float
    high: float

    @property
    def is_shown(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    @property
    def reach(self) -> str:
        """`95 % interval: 3.1 to 15.1 points lower`, or `-15.1 to +1.2 points`."""
        if isnan(self.low):
            return "too few samples for an interval"
        if not self.is_shown:
            return f"95 % interval: {interval(self.low, self.high, change=True)} points"
        smallest, largest = sorted((abs(self.low), abs(self.high)))
        direction = "higher" if self.low > 0 else "lower"
        return f"95 % interval: {100 * smallest:.1f} to {100 * largest:.1f} points {direction}"


def effect_of(
    tables: Frames, known_studies: KnownStudies, changed_keys: dict, reference_keys: dict
) -> Effect:
    """Of one accuracy less another, paired by sample. changed_keys, reference_keys: the columns of
    runs, and `group`."""
    references = _by_sample(tables, reference_keys).add_suffix("_reference")
    pairs = _by_sample(tables, changed_keys).join(references, how="inner")
    pairs = pairs.dropna(subset=["accuracy", "accuracy_reference"])
    accuracies = pairs["accuracy"], pairs["accuracy_reference"]
    shared = bool(known_studies.seeded([changed_keys["study"]]))
    images = (different_images(pairs[name], shared) for name in ("images", "images_reference"))
    return Effect(*change_interval(*accuracies, *images))


def interval_of(tables: Frames, known_studies: KnownStudies, keys: dict) -> tuple[float, float]:
    """The 95 % interval of one accuracy over the samples; over their images, if there are fewer than
    FEWEST, or they do not differ. keys: as of `effect_of`."""
    values = _by_sample(tables, keys).dropna(subset=["accuracy"])
    low, high = sample_interval(values["accuracy"])
    images = different_images(values["images"], bool(known_studies.seeded([keys["study"]])))
    if isnan(low) and images > 0:
        low, high = map(float, image_interval(values["accuracy"].mean(), images))
    return low, high


def _by_sample(tables: Frames, keys: dict) -> pd.DataFrame:
    """Accuracy and number of images by sample."""
    runs, group = tables.get("runs", pd.DataFrame(columns=RUN_KEYS)), keys["group"]
    conditions = [runs[key].eq(name) for key, name in keys.items() if key != "group"]
    names = [f"{group}_accuracy", f"{group}_n"]
    key_runs = runs[np.logical_and.reduce(conditions)].reindex(columns=[*RUN_KEYS, *names])
    columns = mean_over_seeds(key_runs, names).set_index("sample")[names].astype(float)
    return columns.set_axis(["accuracy", "images"], axis=1)


def unseen(effect: Effect) -> str:
    if isnan(effect.low):
        return f"fewer than {FEWEST} samples cannot show an effect"
    return f"no effect is seen ({effect.reach})"


def ends_of(row: pd.Series) -> tuple[float, float]:
    return row.get("low", nan), row.get("high", nan)


def cautions(tables: Frames, *baselines: str, studies: Sequence[str]) -> str:
    """What a reader must know of a finding from these runs, as sentences: missing, doubtful,
    combinations without test images."""
    if (runs := tables.get("runs")) is None:
        return ""
    runs = runs[runs["baseline"].isin(baselines) & runs["study"].isin(studies)]
    missing = int((runs["status"] != "ok").sum())
    texts = [run_warnings(runs)]
    if missing:
        texts.insert(0, f"{missing} of {len(runs)} runs {'is' if missing == 1 else 'are'} missing")
    text = "; ".join(filter(None, texts))
    return f" Caution: {text}." if text else ""


def first_bindings(metric_rows: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """Study, target, cue, and rows of the table `metrics`: of the first binding of each study, and of
    the baselines with numbers for it."""
    rows = metric_rows[(metric_rows["study"] != "") & (metric_rows["binding"] != "")]
    for study, study_rows in rows.groupby("study", sort=False):
        study_rows = study_rows[study_rows["binding"] == study_rows["binding"].iloc[0]]
        study_rows = study_rows[
            study_rows["baseline"].isin(study_rows.loc[study_rows["mean"].notna(), "baseline"])
        ]
        if study_rows.empty:
            continue
        yield (
            study,
            study_rows["target"].iloc[0],
            study_rows["cue"].iloc[0] or "the cue",
            study_rows,
        )
