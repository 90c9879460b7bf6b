"""What the gaps of methods on a study with two cues show, in sentences and bars."""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan

from diagvib.papers.whac_a_mole.comparison import Comparison, MethodGaps
from diagvib.papers.whac_a_mole.groups import CUE_GAPS
from diagvib.results.uncertainty import FEWEST

# Methods that widen another gap are described one by one, up to this number.
_MOST_SENTENCES = 3


def loss_bars(
    comparison: Comparison, method: MethodGaps
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Accuracies in distribution, with its 95 % interval, and where cues mislead."""
    inside, cues = method.rows["id_accuracy"], comparison.cues
    places = {gap: f"{cues[cue]} misleads" for cue, gap in CUE_GAPS.items()}
    places["joint_gap"] = "both mislead"
    misled = {place: inside.mean + method.rows[gap].mean for gap, place in places.items()}
    intervals = {"in distribution": (inside.low, inside.high)}
    return {"in distribution": inside.mean, **misled}, intervals


def reference_sentence(comparison: Comparison, method: MethodGaps) -> str:
    """The accuracy that an ERM loses, in a sentence."""
    cues, target = comparison.cues, comparison.binding.partition("-")[0] or "the target"
    setting_text = f"{comparison.title}{'' if comparison.binding else ', mean over bindings'}"
    places = {gap: f"where {cues[cue]} misleads" for cue, gap in CUE_GAPS.items()}
    places["joint_gap"] = "where both mislead"
    losses_text, unseen, untold = [], [], []
    for gap, setting in places.items():
        row = method.rows[gap]
        if isnan(row.low):
            untold.append(f"{in_points(row.mean)} {setting}")
        elif row.high < 0:
            reach = f"95 %: {-100 * row.high:.1f} to {-100 * row.low:.1f}"
            losses_text.append(f"{in_points(-row.mean)} {setting} ({reach})")
        else:
            largest = max(0, -row.low)
            unseen.append(f"{(whole_points if unseen else in_points)(largest)} {setting}")
    text = (
        f"{method.baseline} recognises {target} in {round(100 * method.mean('id_accuracy'), 6):.0f} % of "
        f"in-distribution images ({setting_text})."
    )
    text += f" It loses {_listed(losses_text)}." if losses_text else ""
    if unseen:
        degree = "No further" if losses_text else "No"
        text += f" {degree} loss is seen; 95 % intervals reach {_listed(unseen)}."
    if untold:
        text += f" Measured, without an interval: {_listed(untold)}; "
        text += f"fewer than {FEWEST} {method.samples} cannot show an effect."
    return text


def gap_sentences(comparison: Comparison) -> list[str]:
    """The methods that narrow or widen each gap, in sentences."""
    if not comparison.ran:
        return [f"No run of {comparison.title} has finished yet, so there are no numbers to show."]
    methods = [method for method in comparison.ran if method.is_judged]
    if not methods:
        if all(method.is_reference for method in comparison.ran):
            return []
        return [
            "No ERM with the same model was run on the same bindings, so none of these methods' gaps is judged."
        ]
    return [
        *_one_for_another(methods, comparison.cues),
        *_one_direction(methods, comparison.cues),
        *_none_widened(methods),
        *([] if comparison.binding else _fewer_bindings(methods, comparison.bindings)),
    ]


def _one_for_another(methods: Sequence[MethodGaps], cues: Mapping[int, str]) -> Iterator[str]:
    """Of methods that narrow one gap and widen the other: those that widen it most, one by one."""

    def widening(method: MethodGaps) -> float:
        return method.verdicts[method.cues("worse")[0]].difference

    opening = sorted((method for method in methods if method.opens_another), key=widening)
    for method in opening[:_MOST_SENTENCES]:
        better, worse = (
            method.verdicts[method.cues(verdict)[0]] for verdict in ("better", "worse")
        )
        yield (
            f"{method.named}: the loss to {cues[better.cue]} shrinks from "
            f"{-whole_points(better.reference_gap)} to {in_points(-better.gap)}, that to "
            f"{cues[worse.cue]} grows from {-whole_points(worse.reference_gap)} to "
            f"{-whole_points(worse.gap)}."
        )
    if remainder := opening[_MOST_SENTENCES:]:
        yield f"{_joined(remainder)} too: one gap shrinks, the other grows."


def _one_direction(methods: Sequence[MethodGaps], cues: Mapping[int, str]) -> Iterator[str]:
    """The methods that only narrow gaps, then those that only widen them."""
    gaps = {(1, 2): "both gaps"} | {
        (cue,): f"the gap of {name} alone" for cue, name in cues.items()
    }
    for verdict, verb in (("better", "narrow"), ("worse", "widen")):
        for numbers, words in gaps.items():
            similar = [
                method
                for method in methods
                if not method.opens_another and tuple(method.cues(verdict)) == numbers
            ]
            if similar:
                yield f"{_joined(similar)} {verb}{'s' * (len(similar) == 1)} {words}."


def _none_widened(methods: Sequence[MethodGaps]) -> Iterator[str]:
    """That no method is seen to widen a gap, if so."""
    if any(method.cues("worse") for method in methods):
        return
    if all(row.n < FEWEST for method in methods for row in method.verdicts.values()):
        yield f"Fewer than {FEWEST} {methods[0].samples} cannot show whether a method widens a gap."
    else:
        yield "For no method does the 95 % interval show a wider gap than ERM's."


def _fewer_bindings(methods: Sequence[MethodGaps], total: int) -> Iterator[str]:
    """On how many bindings the methods are compared, where ERM lacks some."""
    for count in dict.fromkeys(method.verdicts[1].bindings for method in methods):
        names = _joined([method for method in methods if method.verdicts[1].bindings == count])
        if count < total:
            yield f"{names}: compared on the bindings that ERM has, too, {count} of {total}."


def whole_points(gap: float) -> int:
    """`-40`: points of accuracy."""
    return round(100 * gap)


def in_points(gap: float) -> str:
    """`40 points`; `less than half a point`, but `0 points` of exactly 0."""
    points = whole_points(gap)
    if points == 0 and gap:
        return "less than half a point"
    return f"{points} point{'s' * (abs(points) != 1)}"


def _joined(methods: Sequence[MethodGaps]) -> str:
    return _listed([method.baseline for method in methods])


def _listed(texts: Sequence[str]) -> str:
    """`a, b and c`."""
    *all_but_last, last = texts
    return f"{', '.join(all_but_last)} and {last}" if all_but_last else last
