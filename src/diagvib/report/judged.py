"""Methods on studies with two cues, each compared with its ERM: what figures draw and sentences
say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from types import SimpleNamespace

import pandas as pd

from diagvib.results.metric_sets.gaps import BASELINE, CUE_GAPS, REFERENCE
from diagvib.results.table import interval
from diagvib.results.uncertainty import FEWEST
from diagvib.studies.known_studies import KnownStudies

# Methods that widen another gap are described one by one, up to this number.
_MOST_SENTENCES = 3


@dataclass(frozen=True)
class Judged:
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
    supervision, then by the worse of the two gaps, widest first.
    """

    title: str
    binding: str
    methods: list[Judged]

    @property
    def ran(self) -> list[Judged]:
        return [method for method in self.methods if method.ran]

    @property
    def about(self) -> str:
        return f"{self.title}, {self.binding or 'mean over bindings'}"

    @property
    def cues(self) -> dict[int, str]:
        return cue_names(self.binding)


def cue_names(binding: str) -> dict[int, str]:
    """`hue` by the number of the cue; `cue 1` for several bindings together."""
    factors = binding.split("-")[1:]
    return {cue: factors[cue - 1] if binding else f"cue {cue}" for cue in CUE_GAPS}


def comparisons(
    gaps: pd.DataFrame, whac: pd.DataFrame, known_studies: KnownStudies
) -> dict[str, list[Comparison]]:
    """Of each study with two cues, every binding; if there are several, their mean comes first.
    gaps: the set's rows of the table `metrics`; whac: the table `whac_a_mole`."""
    by_study: dict[str, list[Comparison]] = {}
    for (study, binding), rows in gaps.groupby(["study", "binding"], sort=False):
        verdicts = whac[(whac["study"] == study) & (whac["binding"] == binding)]
        samples = known_studies.repetitions([study])
        comparison = Comparison(
            known_studies.title(study), binding, _judged(rows, verdicts, binding, samples)
        )
        by_study.setdefault(study, []).append(comparison)
    return {
        study: sorted(
            study_comparisons, key=lambda study_comparison: study_comparison.binding != ""
        )
        for study, study_comparisons in by_study.items()
    }


def _judged(gaps: pd.DataFrame, whac: pd.DataFrame, binding: str, samples: str) -> list[Judged]:
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
        methods.append(Judged(*names[:4], words, *numbers, samples))
    models = [method.model for method in methods]

    def rank(method: Judged) -> tuple:
        # A supervision of another name comes last.
        supervision = [*labels, method.supervision].index(method.supervision)
        worst = method.worst_gap if method.ran else 1
        return models.index(method.model), not method.is_reference, supervision, worst

    return sorted(methods, key=rank)


def _rows(table: pd.DataFrame, key: str) -> dict:
    """The rows by their value of `key`; unlike those of `itertuples`, they can be pickled."""
    return {row[key]: SimpleNamespace(**row) for row in table.to_dict("records")}


def reference_sentence(comparison: Comparison, method: Judged) -> str:
    """The accuracy that an ERM loses, in a sentence."""
    cues, target = comparison.cues, comparison.binding.partition("-")[0] or "the target"
    setting_text = f"{comparison.title}{'' if comparison.binding else ', mean over bindings'}"
    places = {gap: f"where {cues[cue]} misleads" for cue, gap in CUE_GAPS.items()}
    places["joint_gap"] = "where both mislead"
    losses_text, unseen, untold = [], [], []
    for gap, setting in places.items():
        row = method.rows[gap]
        reach = f"95 %: {interval(row.low, row.high, change=True)}"
        if isnan(row.low):
            untold.append(f"{whole_points(row.mean)} points {setting}")
        elif row.high < 0:
            losses_text.append(f"{-whole_points(row.mean)} points {setting} ({reach})")
        else:
            unseen.append(f"{setting} ({reach})")
    text = (
        f"{method.baseline} recognises {target} in {round(100 * method.mean('id_accuracy'), 6):.0f} % of "
        f"in-distribution images ({setting_text})."
    )
    text += f" It loses {_listed(losses_text)}." if losses_text else ""
    text += f" No loss is seen {_listed(unseen)}." if unseen else ""
    if untold:
        text += f" Measured, without an interval: {_listed(untold)}; "
        text += f"fewer than {FEWEST} {method.samples} cannot show an effect."
    return text


def gap_sentences(comparison: Comparison) -> Iterator[str]:
    """The methods that narrow or widen each gap, in sentences."""
    methods, cues = comparison.ran, comparison.cues
    if not methods:
        yield f"No run of {comparison.title} has finished yet, so there are no numbers to show."
        return
    with_verdict = [
        method_run
        for method_run in methods
        if set(method_run.cues("no verdict")) < set(method_run.verdicts)
    ]
    if not with_verdict and any(not method_run.is_reference for method_run in methods):
        yield "No ERM with the same model was run on the same bindings, so none of these methods' gaps is judged."
    opens = [method_run for method_run in with_verdict if method_run.opens_another]
    opens.sort(key=lambda method_run: method_run.verdicts[method_run.cues("worse")[0]].difference)
    for method in opens[:_MOST_SENTENCES]:
        better, worse = (
            method.verdicts[method.cues(verdict)[0]] for verdict in ("better", "worse")
        )
        yield (
            f"{method.named}: the gap of {cues[better.cue]} shrinks from "
            f"{whole_points(better.reference_gap)} to {whole_points(better.gap)} points, that of "
            f"{cues[worse.cue]} grows from {whole_points(worse.reference_gap)} to "
            f"{whole_points(worse.gap)}."
        )
    if opens[_MOST_SENTENCES:]:
        yield f"{_joined(opens[_MOST_SENTENCES:])} too: one gap shrinks, the other grows."
    for verdict, verb in (("better", "narrow"), ("worse", "widen")):
        for cue_numbers in ([1, 2], [1], [2]):
            mitigating = [
                method_run
                for method_run in with_verdict
                if not method_run.opens_another and method_run.cues(verdict) == cue_numbers
            ]
            if mitigating:
                gaps = (
                    "both gaps"
                    if len(cue_numbers) == 2
                    else f"the gap of {cues[cue_numbers[0]]} alone"
                )
                yield f"{_joined(mitigating)} {verb}{'s' * (len(mitigating) == 1)} {gaps}."
    if with_verdict and not any(method_run.cues("worse") for method_run in with_verdict):
        few_samples = all(
            row.n < FEWEST for method_run in with_verdict for row in method_run.verdicts.values()
        )
        yield (
            f"Fewer than {FEWEST} {with_verdict[0].samples} cannot show whether a method widens a gap."
            if few_samples
            else "For no method does the 95 % interval show a wider gap than ERM's."
        )


def whole_points(gap: float) -> int:
    """`-40`: points of accuracy."""
    return round(100 * gap)


def _joined(methods: Sequence[Judged]) -> str:
    return _listed([method.baseline for method in methods])


def _listed(texts: Sequence[str]) -> str:
    """`a, b and c`."""
    *all_but_last, last = texts
    return f"{', '.join(all_but_last)} and {last}" if all_but_last else last
