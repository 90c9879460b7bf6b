"""The set of metrics `shortcut` (DiagViB-6, Sec. 3.4): P_ij, FAAvg, FAMin, in-distribution
accuracy, contrasts."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from diagvib.papers.diagvib6 import factor_ranks, published
from diagvib.papers.diagvib6.finding import (
    CURVES,
    MATRIX,
    overall_sentence,
    shortcut_findings,
    shortcut_sentences,
)
from diagvib.results.cells import RUN_KEYS
from diagvib.results.metric_sets.cue_strength import cue_strength, half_way_tables
from diagvib.results.metric_sets.metric_set import (
    KEYS,
    NO_INTERVAL,
    NOT_TUNED,
    NUMBERS,
    UNTUNED,
    Finding,
    MetricSet,
    Results,
    by_sample,
    describe,
    numbers,
    pivot,
    untuned_notes,
)
from diagvib.results.metrics import accuracy_array, faavg, famin
from diagvib.results.reader_tables import (
    Frames,
    Table,
    describe_missing,
    interval,
    of_samples,
    points,
)
from diagvib.results.uncertainty import FEWEST, estimate, sample_interval
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.metric_needs import ID, OOD

METRIC_TITLES = {
    "faavg": "FAAvg: mean over cues of the accuracy where the shortcut misleads",
    "famin": "FAMin: the worst cue",
    "id_accuracy": "In-distribution accuracy, mean over cues",
}
# Name, its aggregation, and the test group.
_METRICS = [("faavg", faavg, OOD), ("famin", famin, OOD), ("id_accuracy", faavg, ID)]
# How a number compares with the paper's.
MARKS = {"agrees": "=", "differs": "≠", "cannot tell": "?"}
PERCENT = (
    "Percent: mean ± standard error over the {samples}. n is shown if it is 1 or smaller than configured; `-` is a "
    "missing run. A spread below 0.05 points says little about other samples and is not printed; near 0 and 100, the 95 % "
    "bound follows in brackets. With n = 1, the brackets have the 95 % interval over the images of that sample."
)
_SPREAD = (
    "Spreads are taken over the {samples}, with divisor n - 1; that of a difference of studies is the standard "
    "deviation of the differences paired by sample. "
    f"{UNTUNED} settings not tuned."
)
OVERALL = "Over all bindings"


class Shortcut(MetricSet):
    """METRIC_TITLES over the configured cues, and contrasts of studies; without cues, faavg is P_i
    on the only group. The tables `p_matrix`, `overall`, `baselines`, `cue_strength`,
    `asymmetry` and `ranking`."""

    summary = "ood_accuracy"
    title = "Accuracy where the shortcut misleads"
    heads = METRIC_TITLES

    def names(self, study: str, known_studies: KnownStudies) -> Sequence[str]:
        return list(METRIC_TITLES)

    def of_run(self, results: Results) -> pd.DataFrame:
        return results.runs.reindex(columns=[*RUN_KEYS, f"{ID}_accuracy", f"{OOD}_accuracy"])

    def metrics(self, results: Results) -> pd.DataFrame:
        rows = [
            {**describe(row["baseline"], results.baselines), "binding": "", "cue": "", **row}
            for row in (
                *means_over_cues(results.runs),
                *cue_contrasts(results.runs, results.known_studies),
            )
        ]
        frame = pd.DataFrame(rows, columns=[*KEYS, "metric", *NUMBERS, "images", "cues"])
        return frame.assign(note=frame["baseline"].map(untuned_notes(results.baselines)))

    def tables(self, results: Results) -> Frames:
        accuracies = self.of_run(results)
        return {
            "p_matrix": p_matrix(results.runs),
            "overall": overall_table(results.runs),
            "baselines": baseline_comparisons(results.runs),
            "cue_strength": cue_strength(accuracies, results.known_studies),
            "asymmetry": factor_ranks.factor_pairs(accuracies, results.known_studies),
            "ranking": factor_ranks.factor_ranks(accuracies, results.known_studies),
        }

    def shown(
        self, metric_rows: pd.DataFrame, tables: Frames, known_studies: KnownStudies
    ) -> Iterator[Table]:
        """The paper's tables, metric by metric and study by study; below each baseline, the paper's
        row if there is one."""
        contrasts = {metric: contrast.title for metric, contrast in known_studies.contrasts.items()}
        for metric, title in (METRIC_TITLES | contrasts).items():
            for study, rows in metric_rows[metric_rows["metric"] == metric].groupby(
                "study", sort=False
            ):
                factors = {f: f for f in known_studies.factors([study]) if f in set(rows["target"])}
                tuned = ~rows["note"].fillna("").astype(str).str.endswith(NOT_TUNED)
                marked = rows["baseline"].where(tuned, rows["baseline"] + f" {UNTUNED}")
                yield Table(
                    f"{known_studies.title(study)}: {title}",
                    *pivot(
                        rows.assign(baseline=marked), "target", factors, self.text, ["baseline"]
                    ),
                    study_notes(rows, tables["runs"], known_studies),
                    self.title,
                    [PERCENT, _SPREAD],
                )
        yield from factor_ranks.factor_tables(tables, known_studies)
        yield from _overall(tables, known_studies)
        strength = tables["cue_strength"]
        yield from half_way_tables(strength, known_studies.factors(strength["study"]))

    def findings(self, tables: Frames, known_studies: KnownStudies) -> Iterator[Finding]:
        return shortcut_findings(self.title, tables, known_studies)

    def sentences(self, tables: Frames, known_studies: KnownStudies) -> dict[str, list[str]]:
        curves, matrix = shortcut_sentences(tables, known_studies)
        overall = overall_sentence(tables["baselines"], known_studies)
        winner = factor_ranks.factor_sentence(tables, known_studies)
        texts = {CURVES: curves, MATRIX: matrix, OVERALL: overall, factor_ranks.TITLE: winner}
        return {title: [text] if text else [] for title, text in texts.items()}

    def paper_number(self, row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
        return published.paper_number(row, known_studies, settings)

    def text(self, row: Mapping) -> str:
        """A number and its verdict. The paper gives the spread of a contrast as a standard
        deviation."""
        change = row["metric"] not in METRIC_TITLES
        spread = row["stderr"] * (row["n"] ** 0.5 if change else 1)
        text = of_samples({**row, "stderr": spread}, change)
        return f"{text} {MARKS.get(row.get('verdict'), '')}".strip()


METRIC_SET = Shortcut()


def means_over_cues(runs: pd.DataFrame) -> Iterator[dict]:
    """The metrics of each study, baseline and target."""
    keys = ["study", "baseline", "target"]
    for names, target_runs in runs.groupby(keys, sort=False):
        description = dict(zip(keys, names, strict=True))
        correlated = (target_runs["cue"] != "").all()
        for metric, reduce, group in _METRICS if correlated else [("faavg", faavg, ID)]:
            acc = accuracy_array(target_runs, f"{group}_accuracy")
            cues = acc.shape[-1] if correlated else 0
            images = _images(target_runs, group) * (1 if metric == "famin" else max(cues, 1))
            description |= {"metric": metric, "cues": cues, "images": images}
            yield description | numbers(reduce(acc))


def cue_contrasts(runs: pd.DataFrame, known_studies: KnownStudies) -> Iterator[dict]:
    """A study minus its reference per baseline and target, if both are configured (paper, Table 2:
    CHGO minus ZGO), paired by sample."""
    for metric, contrast in known_studies.contrasts.items():
        for (baseline, target), target_runs in runs.groupby(["baseline", "target"], sort=False):
            pair = [
                target_runs[target_runs["study"] == name]
                for name in (contrast.study, contrast.reference)
            ]
            common = set.intersection(*(set(study_runs["cue"]) for study_runs in pair))
            if common:
                pair = [study_runs[study_runs["cue"].isin(common)] for study_runs in pair]
                accuracies, reference_accuracies = (
                    accuracy_array(study_runs, f"{OOD}_accuracy") for study_runs in pair
                )
                description = {"study": contrast.study, "baseline": baseline, "target": target}
                description |= {"metric": metric, "cues": accuracies.shape[-1]}
                # Paired by sample and cue. The standard deviation over the samples' means over the
                # cues, with ddof 1, is compared with the paper's spread, which is taken to be the
                # same; the paper does not state its ddof.
                yield description | numbers(faavg(accuracies - reference_accuracies), NO_INTERVAL)


def study_notes(rows: pd.DataFrame, runs: pd.DataFrame, known_studies: KnownStudies) -> list[str]:
    contrast = known_studies.contrasts.get(rows["metric"].iloc[0])
    studies = {contrast.study, contrast.reference} if contrast else set(rows["study"])
    concerned = runs[runs["study"].isin(studies) & runs["baseline"].isin(set(rows["baseline"]))]
    possible_cues = known_studies.possible_cues(rows["study"].iloc[0])
    unequal = rows.groupby("target")["cues"].nunique().max() > 1
    targets_lacking_cues = {
        (r.target, int(r.cues), f" ({r.baseline})" if unequal else "")
        for r in rows.itertuples()
        if 0 < r.cues < possible_cues[r.target]
    }
    texts = ", ".join(
        f"{name} {cues} of {possible_cues[name]}{study_words}"
        for name, cues, study_words in sorted(targets_lacking_cues)
    )
    notes = [f"over the configured cues only: {texts}"] if targets_lacking_cues else []
    return notes + describe_missing(concerned)


def p_matrix(frame: pd.DataFrame) -> pd.DataFrame:
    """P_ij (without cues P_i, cue empty) per study, baseline and group: mean, stderr, n, expected
    (paper, Sec. 3.4)."""
    rows, keys = [], ["study", "baseline", "target", "cue"]
    for names, runs in frame.groupby(keys, sort=False):
        for group in (ID, OOD) if names[-1] else (ID,):
            accuracy = estimate(by_sample(runs, f"{group}_accuracy"))
            expected = len(accuracy.samples)
            rows.append((*names, group, *accuracy, expected, _images(runs, group)))
    columns = [*keys, "group", "mean", "stderr", "n", "expected", "images"]
    return pd.DataFrame(rows, columns=columns)


def _images(runs: pd.DataFrame, group: str) -> float:
    """The mean number of images in a run's test group; NaN if runs do not say."""
    return runs[f"{group}_n"].mean() if f"{group}_n" in runs else np.nan


def _column(runs: pd.DataFrame) -> str:
    """The accuracy that counts in a study: on `ood` or, without cues, on `id`."""
    return f"{OOD if (runs['cue'] != '').any() else ID}_accuracy"


def overall_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Each baseline's mean over all bindings of a study, then over the samples: NUMBERS. A sample
    counts only if it has all bindings."""
    rows = []
    for (study, baseline), runs in frame.groupby(["study", "baseline"], sort=False):
        description = {"study": study, "baseline": baseline, "bindings": runs["binding"].nunique()}
        rows.append(description | numbers(estimate(by_sample(runs, _column(runs)))))
    return pd.DataFrame(rows, columns=["study", "baseline", *NUMBERS, "bindings"])


def baseline_comparisons(frame: pd.DataFrame) -> pd.DataFrame:
    """All pairs of baselines on every study: first minus second, over the bindings that both have,
    paired by sample."""
    rows = []
    for study, runs in frame.groupby("study", sort=False):
        baselines = runs.groupby("baseline", sort=False)
        for (baseline, baseline_runs), (reference, reference_runs) in combinations(baselines, 2):
            common_bindings = set(baseline_runs["binding"]) & set(reference_runs["binding"])
            if common_bindings:
                ours, theirs = (
                    by_sample(pair_runs[pair_runs["binding"].isin(common_bindings)], _column(runs))
                    for pair_runs in (baseline_runs, reference_runs)
                )
                change, ends = estimate(ours - theirs), sample_interval(ours, theirs)
                rows.append(
                    (study, baseline, reference, change.mean, *ends, change.n, len(common_bindings))
                )
    columns = ["study", "first", "second", "difference", "low", "high", "samples", "bindings"]
    return pd.DataFrame(rows, columns=columns)


def _overall(tables: Frames, known_studies: KnownStudies) -> Iterator[Table]:
    introduction = [
        "The means of {samples} over all bindings; a sample counts if all of them ran. 95 % intervals: over the "
        f"{{samples}}, for these bindings; none for fewer than {FEWEST} samples."
    ]
    rows = [
        [
            row["baseline"],
            known_studies.title(row["study"]),
            of_samples(row),
            interval(row["low"], row["high"]),
            str(row["bindings"]),
        ]
        for row in tables["overall"].to_dict("records")
    ]
    heads = ["baseline", "study", "mean", "95 % interval", "bindings"]
    title = "Mean over all bindings and samples"
    yield Table(title, heads, rows, [], OVERALL, introduction, folded=True)
    rows = [
        [
            known_studies.title(r.study),
            r.first,
            r.second,
            points(r.difference),
            interval(r.low, r.high, change=True),
            str(r.samples),
            str(r.bindings),
        ]
        for r in tables["baselines"].itertuples()
    ]
    heads = ["study", "first", "second", "difference", "95 % interval", "samples", "bindings"]
    note = (
        "First minus second, in points, over all bindings that both have. The intervals are not corrected for the "
        "number of comparisons."
    )
    title = "Baselines compared, paired by dataset"
    yield Table(title, heads, rows, [note], OVERALL, introduction, folded=True)
