"""Read the tables of docs/results, and write numbers as the pages have them."""

import pandas as pd
from result_file import REPOSITORY

from diagvib.results.tidy_tables import with_seeds
from diagvib.results.uncertainty import sample_interval

Row = list[str]
# In the order of the paper's FAAvg in ZGO.
FACTORS = ("position", "hue", "lightness", "shape", "scale", "texture")
STUDIES = ("zso", "zgo", "cgo-1", "cgo-2", "cgo-3", "chgo", "fgo-5", "fgo-10", "fgo-20")
# Groups of images with two cues, of shape or texture by position and hue.
GROUPS = {
    "common": "both agree",
    "no-cue-1": "position misleads",
    "no-cue-2": "hue misleads",
    "neither": "both mislead",
}
PHOTO_GROUPS = {
    "common": "both agree",
    "no-cue-1": "ground misleads",
    "no-cue-2": "neighbour misleads",
    "neither": "both mislead",
}


def read(name: str) -> pd.DataFrame:
    return with_seeds(pd.read_csv(REPOSITORY / f"docs/results/{name}.csv"))


def runs(folder: str) -> pd.DataFrame:
    return read(f"{folder}/runs")


def tested(runs: pd.DataFrame) -> pd.Series:
    """Accuracy where the cue misleads or, in ZSO, which has no cue, on all images."""
    return runs["ood_accuracy"].fillna(runs["id_accuracy"])


def misled_accuracy(runs: pd.DataFrame) -> pd.Series:
    """Accuracy where every cue misleads. Where only the first of two cues goes with the target
    (CUE-1-95), it misleads in two groups of images."""
    accuracy = runs.get("ood_accuracy", pd.Series(float("nan"), runs.index))
    if "neither_accuracy" not in runs:
        return accuracy
    groups = ["no-cue-1", "neither"]
    of_groups, images = (
        runs[[f"{group}_{what}" for group in groups]].set_axis(groups, axis="columns")
        for what in ("accuracy", "n")
    )
    first = (of_groups * images).sum(axis="columns") / images.sum(axis="columns")
    both = runs["neither_accuracy"].fillna(accuracy)
    return both.where(runs["study"] != "cue-1-95", first)


def by_sample(folder: str, column: str, study: str) -> pd.DataFrame:
    """A column of runs.csv by dataset sample, a column per baseline."""
    return (
        runs(folder)
        .query("study == @study")
        .pivot(index="sample", columns="baseline", values=column)
    )


def studies(frame: pd.DataFrame) -> list[str]:
    return [name for name in STUDIES if name in frame.index]


def records(frame: pd.DataFrame) -> list:
    return list(frame.itertuples(index=False))


def gain(values: pd.DataFrame, name: str, reference: str) -> str:
    """What a baseline has more than another, with its interval; blank for that one itself."""
    more = values[name] - values[reference]
    low, high = sample_interval(values[name], values[reference])
    text = f"{more.mean() * 100:+z.1f} ({low * 100:+z.1f} to {high * 100:+z.1f})"
    return text if name != reference else ""


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def plus_minus(mean: float, error: float) -> str:
    """In whole percent; no spread is printed where none was seen."""
    return f"{100 * mean:.0f} ± {100 * error:.0f}" if 100 * error >= 0.5 else f"{100 * mean:.0f}"
