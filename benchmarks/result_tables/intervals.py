"""The intervals of committed tables and entries of the leaderboard by the rule of today: of
differences from the runs, of others from the tables' own means and standard errors."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from result_file import REPOSITORY

from diagvib.papers.whac_a_mole.against_erm import whac_a_mole
from diagvib.papers.whac_a_mole.gaps import Gaps
from diagvib.papers.whac_a_mole.groups import GAPS
from diagvib.results.cells import CELL_COLUMNS
from diagvib.results.metric_sets.metric_set import Results, over_samples
from diagvib.results.tidy_tables import baseline_settings, with_seeds
from diagvib.results.uncertainty import EDGE, FEWEST, half_width, unlike
from diagvib.studies.known_studies import known_studies

_KEYS = ["study", "baseline", "binding", "target", "cue", "metric"]
# Entries made before they had counts are of these runs.
_ENTRIES = REPOSITORY / "docs/results/frozen_whac_a_mole"


def interval_files() -> Iterator[tuple[Path, str]]:
    """Each committed file that has intervals and is not made from runs alone, and its text."""
    for path in sorted((REPOSITORY / "docs/results").glob("*/metrics.csv")):
        yield path, metrics_csv(path)
    path, (gaps, baselines) = _ENTRIES / "whac_a_mole.csv", _gaps(_ENTRIES)
    verdicts = whac_a_mole(gaps, baselines)
    yield path, _replaced(path, verdicts, ["baseline", "cue"], ["low", "high", "verdict"])
    for path in sorted((REPOSITORY / "leaderboard/whac-95").glob("*.json")):
        yield path, _entry(path)


def metrics_csv(path: Path) -> str:
    """The text of a table `metrics`."""
    rows = pd.read_csv(path)
    of_means = rows.assign(**{key: rows.get(key, "") for key in _KEYS})
    ends = [interval_of(*row) for row in rows[["mean", "stderr", "n"]].itertuples(index=False)]
    of_means[["low", "high"]] = np.array(ends, dtype=float)
    if rows["metric"].isin(GAPS).any():
        gaps, baselines = _gaps(path.parent)
        of_gaps = over_samples(gaps, [*GAPS], baselines, Gaps.differences)
        of_means = pd.concat([of_means[~rows["metric"].isin(GAPS)], of_gaps])
    return _replaced(path, of_means, [key for key in _KEYS if key in rows], ["low", "high"])


def interval_of(mean: float, stderr: float, n: int) -> tuple[float, float]:
    """`sample_interval` of n accuracies with this mean and standard error."""
    if n < FEWEST or (stderr == 0 and min(mean, 1 - mean) >= EDGE):
        return np.nan, np.nan
    reach = half_width(n - 1) * stderr
    (fall,), (rise,) = unlike(np.array([mean]), n)
    return max(mean - max(reach, fall), 0.0), min(mean + max(reach, rise), 1.0)


def _gaps(folder: Path) -> tuple[pd.DataFrame, dict[str, dict]]:
    """The gaps of a folder's runs on studies with two cues, and the settings of their baselines."""
    runs, studies = with_seeds(pd.read_csv(folder / "runs.csv")), known_studies({})
    runs = runs[runs["study"].isin(studies.judged_by("gaps", runs["study"].unique()))]
    baselines = baseline_settings(runs["baseline"].unique(), {})
    results = Results(runs, pd.DataFrame(columns=CELL_COLUMNS), studies, baselines)
    return Gaps().of_run(results), baselines


def _replaced(path: Path, rows: pd.DataFrame, keys: list[str], columns: list[str]) -> str:
    """A table's text with these columns of other rows, which have the same keys."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    names = map(tuple, rows[keys].astype(object).fillna("").astype(str).to_numpy())
    values = rows[columns].astype(object).map(_text).to_numpy()
    replacements = dict(zip(names, values, strict=True))
    table[columns] = [replacements[tuple(row)] for row in table[keys].to_numpy()]
    return table.to_csv(index=False)


def _text(value: object) -> str:
    return "" if pd.isna(value) else value if isinstance(value, str) else f"{value:.10g}"


def _entry(path: Path) -> str:
    """The text of an entry whose runs are in _ENTRIES."""
    text, rows = path.read_text(), pd.read_csv(_ENTRIES / "metrics.csv")
    entry = json.loads(text)
    ends = rows[rows["baseline"] == entry["baseline"]].set_index("metric")
    for number in entry["metrics"]:
        for key in ("low", "high"):
            new = json.dumps(ends.loc[number["metric"], key])
            block = rf'("metric": "{number["metric"]}",[^{{}}]*"{key}": )[^,\n]*'
            text = re.sub(block, lambda found, new=new: f"{found[1]}{new}", text)
    return text
