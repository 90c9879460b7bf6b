"""Methods on studies with two cues, each compared with its ERM: what figures draw and sentences
say."""

from dataclasses import dataclass
from math import isclose, nan
from types import SimpleNamespace

import pandas as pd

from diagvib.papers.whac_a_mole.against_erm import REFERENCE
from diagvib.papers.whac_a_mole.groups import CUE_GAPS
from diagvib.results.metric_sets.metric_set import BASELINE
from diagvib.results.reader_tables import Frames, metrics_of
from diagvib.studies.known_studies import KnownStudies


@dataclass(frozen=True)
class MethodGaps:
    """A baseline: its rows of `gaps` by metric, and its rows of `whac_a_mole` by cue (empty for an
    ERM). labels: its supervision in words; empty if that is not known. samples: what repetitions
    are called."""

    baseline: str
    model: str
    method: str
    supervision: str
    labels: str
    rows: dict
    verdicts: dict
    samples: str

    @property
    def is_reference(self) -> bool:
        return self.method == REFERENCE

    @property
    def ran(self) -> bool:
        return self.rows["id_accuracy"].n > 0

    @property
    def worst_gap(self) -> float:
        """The mean gap of the cue that costs more; NaN if nothing ran."""
        return min(self.mean(metric) for metric in CUE_GAPS.values())

    def mean(self, metric: str) -> float:
        return self.rows[metric].mean

    def verdict(self, cue: int) -> str:
        """`worse`, `better`, `cannot tell`, `no verdict`; empty for an ERM."""
        if cue in self.verdicts:
            return self.verdicts[cue].verdict
        return "" if self.is_reference else "no verdict"

    def cues(self, verdict: str) -> list[int]:
        return [cue for cue in CUE_GAPS if self.verdict(cue) == verdict]

    @property
    def is_judged(self) -> bool:
        return any(row.verdict != "no verdict" for row in self.verdicts.values())

    @property
    def opens_another(self) -> bool:
        """Whether it narrows one cue's gap and widens the other's."""
        return bool(self.cues("better") and self.cues("worse"))

    @property
    def named(self) -> str:
        """`group_dro, labels of hue alone`."""
        return f"{self.baseline}, {self.labels}" if self.labels else self.baseline


@dataclass(frozen=True)
class Comparison:
    """The methods of a study with two cues, under one binding (empty: the mean over all).

    title: of the study. methods: those with rows, sorted by model, ERM first, then by their
    supervision, then by the worse of the two gaps, widest first. bindings: how many the study has.
    """

    title: str
    binding: str
    methods: list[MethodGaps]
    bindings: int = 1

    @property
    def ran(self) -> list[MethodGaps]:
        return [method for method in self.methods if method.ran]

    def reference_gap(self, method: MethodGaps, metric: str) -> float:
        """A gap of a method's ERM on the bindings and samples that both have; NaN without one. The
        joint gap is known only if these are all that the ERM has."""
        if method.is_reference:
            return method.mean(metric)
        shared = {CUE_GAPS[cue]: verdict.reference_gap for cue, verdict in method.verdicts.items()}
        if metric in shared or not shared:
            return shared.get(metric, nan)
        name = method.verdicts[1].reference
        erm = next((erm for erm in self.ran if erm.baseline == name), None)
        is_same = erm and all(isclose(gap, erm.mean(key)) for key, gap in shared.items())
        return erm.mean(metric) if is_same else nan

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.binding or 'mean over bindings'}"

    @property
    def cues(self) -> dict[int, str]:
        return cue_names(self.binding)


def cue_names(binding: str) -> dict[int, str]:
    """`hue` by the number of the cue; `cue 1` for several bindings together."""
    factors = binding.split("-")[1:]
    return {cue: factors[cue - 1] if binding else f"cue {cue}" for cue in CUE_GAPS}


def comparisons_of(tables: Frames, known_studies: KnownStudies) -> dict[str, list[Comparison]]:
    """`comparisons` of the tidy tables."""
    return comparisons(metrics_of(tables, "gaps"), tables["whac_a_mole"], known_studies)


def comparisons(
    gaps: pd.DataFrame, whac: pd.DataFrame, known_studies: KnownStudies
) -> dict[str, list[Comparison]]:
    """Of each study with two cues, every binding; if there are several, their mean comes first.
    gaps: the set's rows of the table `metrics`; whac: the table `whac_a_mole`."""
    by_study: dict[str, list[Comparison]] = {}
    for (study, binding), rows in gaps.groupby(["study", "binding"], sort=False):
        verdicts = whac[(whac["study"] == study) & (whac["binding"] == binding)]
        methods = _methods(rows, verdicts, binding, known_studies.repetitions([study]))
        bindings = gaps.loc[(gaps["study"] == study) & (gaps["binding"] != ""), "binding"]
        title = known_studies.title(study)
        comparison = Comparison(title, binding, methods, bindings.nunique())
        by_study.setdefault(study, []).append(comparison)
    return {
        study: sorted(
            study_comparisons, key=lambda study_comparison: study_comparison.binding != ""
        )
        for study, study_comparisons in by_study.items()
    }


def _methods(
    gaps: pd.DataFrame, whac: pd.DataFrame, binding: str, samples: str
) -> list[MethodGaps]:
    # From least to most; a single cue comes before all cues.
    labels = {
        "none": "no group labels",
        "environments": "labels of environments",
        "cue_types": "cue types known",
        **{f"cue-{cue}": f"labels of {name} alone" for cue, name in cue_names(binding).items()},
        "cues": "labels of both cues",
    }
    methods = []
    for names, rows in gaps.groupby(BASELINE, sort=False):
        baseline, _, _, supervision = names[:4]
        words = labels.get(supervision, supervision and f"labels of {supervision}")
        verdicts = whac[whac["baseline"] == baseline]
        numbers = _rows(rows, "metric"), _rows(verdicts, "cue")
        methods.append(MethodGaps(*names[:4], words, *numbers, samples))
    models = [method.model for method in methods]

    def rank(method: MethodGaps) -> tuple:
        # A supervision of another name comes last.
        supervision = [*labels, method.supervision].index(method.supervision)
        worst = method.worst_gap if method.ran else 1
        return models.index(method.model), not method.is_reference, supervision, worst

    return sorted(methods, key=rank)


def _rows(table: pd.DataFrame, key: str) -> dict:
    """The rows by their value of `key`; unlike those of `itertuples`, they can be pickled."""
    return {row[key]: SimpleNamespace(**row) for row in table.to_dict("records")}
