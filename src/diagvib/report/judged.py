"""The data for figures and sentences about gaps: the methods of a study and binding, each with its
ERM."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from diagvib.results.gaps import BASELINE, CUE_GAPS, REFERENCE

# What a method is told, from least to most; a single cue comes before all cues.
_SUPERVISION = ("none", "environments", "cue_types", "cue", "cues")


@dataclass(frozen=True)
class Judged:
    """A baseline: its rows of `gaps` by metric, and its rows of `whac_a_mole` by cue (empty for an
    ERM)."""

    baseline: str
    model: str
    method: str
    supervision: str
    rows: dict
    verdicts: dict

    @property
    def is_reference(self) -> bool:
        return self.method == REFERENCE

    @property
    def ran(self) -> bool:
        return self.rows["id_accuracy"].n > 0

    @property
    def worst_gap(self) -> float:
        """The mean gap of the cue that costs more; NaN if nothing ran."""
        return min(self.mean(metric) for metric in CUE_GAPS.values()) if self.ran else float("nan")

    def mean(self, metric: str) -> float:
        return self.rows[metric].mean

    def verdict(self, cue: int) -> str:
        """`worse`, `better`, `cannot tell`, `no verdict`; empty for an ERM."""
        return self.verdicts[cue].verdict if cue in self.verdicts else ""

    def cues(self, verdict: str) -> list[int]:
        return [cue for cue in CUE_GAPS if self.verdict(cue) == verdict]

    @property
    def opens_another(self) -> bool:
        """Whether it narrows one cue's gap and widens the other's."""
        return bool(self.cues("better") and self.cues("worse"))


def bindings_of(gaps: pd.DataFrame, study: str) -> list[str]:
    """The bindings of a study; if there are several, the empty one, their mean, comes first."""
    return sorted(gaps.loc[gaps["study"] == study, "binding"].unique(), key=bool)


def judged_methods(
    gaps: pd.DataFrame, whac: pd.DataFrame, study: str, binding: str
) -> list[Judged]:
    """The baselines with rows, sorted: by model, ERM first, then by what they are told, then by the
    worse of the two gaps, widest first. gaps, whac: from `gaps.gaps_tables`."""
    own = gaps[(gaps["study"] == study) & (gaps["binding"] == binding)]
    whac = whac[(whac["study"] == study) & (whac["binding"] == binding)]
    found = [
        Judged(
            *names[:4],
            rows={row.metric: row for row in rows.itertuples(index=False)},
            verdicts={
                row.cue: row for row in whac[whac["baseline"] == names[0]].itertuples(index=False)
            },
        )
        for names, rows in own.groupby(BASELINE, sort=False)
    ]
    models = list(dict.fromkeys(one.model for one in found))
    return sorted(
        found,
        key=lambda one: (
            models.index(one.model),
            not one.is_reference,
            _supervision_rank(one.supervision),
            one.supervision,
            not one.ran,
            one.worst_gap if one.ran else 0,
        ),
    )


def _supervision_rank(supervision: str) -> int:
    names = [name for name in _SUPERVISION if name == supervision] or (
        ["cue"] if supervision.startswith("cue-") else []
    )
    return _SUPERVISION.index(names[0]) if names else len(_SUPERVISION)


def cue_names(binding: str) -> dict[int, str]:
    """`hue` by the number of the cue; `cue 1` for several bindings together."""
    factors = binding.split("-")[1:]
    return {cue: factors[cue - 1] if binding else f"cue {cue}" for cue in CUE_GAPS}


def supervision_words(supervision: str, cues: dict[int, str]) -> str:
    """`told hue alone`; empty if it is not known what a method is told."""
    known = {
        "none": "told nothing",
        "cue_types": "told which factors are cues",
        "cues": "told both cues",
        "environments": "told environments",
        **{f"cue-{cue}": f"told {name} alone" for cue, name in cues.items()},
    }
    return known.get(supervision, supervision and f"told {supervision}")


def whole_points(gap: float) -> str:
    """`-40`: points of accuracy."""
    return f"{round(100 * gap)}"


def joined(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
