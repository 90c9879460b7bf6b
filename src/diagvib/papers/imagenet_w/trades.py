"""Networks that rely less on one shortcut of ImageNet and more on another (Li et al., 2023, Table
4)."""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan

# Measure -> its head, and the sign with which it grows with a network's reliance on the shortcut.
_GAPS = {
    "in_w_gap": ("IN-W gap", -1),
    "carton_gap": ("Carton gap", 1),
    "sin_gap": ("SIN gap", -1),
    "in_r_gap": ("IN-R gap", -1),
    "in_9_gap": ("IN-9 gap", -1),
}
_MOST_SENTENCES = 3
_CAUTION = (
    "By the numbers as they are, as in the paper: no interval is given, and with ImageNet's 50 photos "
    "of cartons, 2 points of the Carton gap are one photo."
)


def trade_sentences(networks: Sequence[tuple[str, str, Mapping, Mapping]]) -> list[str]:
    """Of networks that narrow one gap and widen another: those that widen one most, each in a
    sentence, the names of the others, and how far to trust this; nothing if there are none.
    networks: name, name of the reference, and the measures of both."""
    trades = []
    for name, reference, values, reference_values in networks:
        wider = dict(_wider_by(values, reference_values))
        if min(wider.values(), default=0) < 0 < max(wider.values(), default=0):
            texts = {gap: _change(gap, values, reference_values) for gap in wider}
            narrowed, widened = (
                ", ".join(text for gap, text in texts.items() if sign * wider[gap] > 0)
                for sign in (-1, 1)
            )
            sentence = f"{name}, compared with {reference}: narrower {narrowed}; wider {widened}."
            trades.append((max(wider.values()), name, sentence))
    trades.sort(key=lambda trade: -trade[0])
    sentences = [sentence for _, _, sentence in trades[:_MOST_SENTENCES]]
    if others := [name for _, name, _ in trades[_MOST_SENTENCES:]]:
        sentences.append(f"Some gaps narrower and others wider, too: {', '.join(others)}.")
    return [*sentences, _CAUTION] if sentences else []


def _wider_by(values: Mapping, reference_values: Mapping) -> Iterator[tuple[str, float]]:
    """Of each gap that both have and that is not printed alike: by how much it is wider."""
    for gap, (_, sign) in _GAPS.items():
        change = values[gap] - reference_values[gap]
        if not isnan(change) and round(100 * change, 2):
            yield gap, sign * change


def _change(gap: str, values: Mapping, reference_values: Mapping) -> str:
    before, after = (f"{100 * numbers[gap]:+z.2f}" for numbers in (reference_values, values))
    return f"{_GAPS[gap][0]} ({before} to {after})"
