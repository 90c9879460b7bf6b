"""The report's first sentences: the most telling bindings in words and bars."""

import pandas as pd

from diagvib.report.style import accuracy_colours
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metric_sets.shortcut import telling_bindings
from diagvib.studies.study import Headline


def headlines(p: pd.DataFrame, known: KnownStudies) -> list[dict]:
    """The most telling binding of each of three baselines in words and bars; only baselines and
    studies that ran."""
    bindings, headline = telling_bindings(p, known), known.headline(p["study"])
    best = bindings[bindings["shortcut"].notna()].drop_duplicates("baseline").head(3)
    return [
        {"text": _text(row, bindings, headline, known), "bars": _bars(row, headline, known)}
        for row in best.itertuples(index=False)
    ]


def _text(row, bindings: pd.DataFrame, headline: Headline, known: KnownStudies) -> str:
    model, target, cue, chance = row.baseline, row.target, row.cue, known.chance(headline.shortcut)
    text = f"When {cue} gives {target} away in training ({known.title(headline.shortcut)}), "
    whom = model
    if row.without == row.without:
        whom = "it"
        text = (
            f"Without a shortcut ({known.title(headline.without)}), {model} recognises {target} in "
            f"{_percent(row.without)} of the test images. {text}"
        )
    text += (
        f"{whom} is right in {_percent(row.shortcut)} of the images in which {cue} misleads; chance "
        f"is {_percent(chance)}."
    )
    if row.shortcut < chance / 2:
        text += f" It has learnt {cue} instead of {target}."
    if row.recovered == row.recovered:
        verb = "bring it back to" if row.recovered > row.shortcut + 0.05 else "leave it at"
        text += f" {known.studies[row.by].opportunity} {verb} {_percent(row.recovered)}."
    pairs = bindings.set_index(["baseline", "target", "cue"])["shortcut"].dropna()
    if (model, cue, target) in pairs:
        text += (
            f" The other way round, with {target} as the cue, {cue} is recognised in "
            f"{_percent(pairs[model, cue, target])} of such images."
        )
    return text


def _bars(row, headline: Headline, known: KnownStudies) -> list[dict]:
    points = [
        (headline.without, row.without),
        (headline.shortcut, row.shortcut),
        (row.by, row.recovered),
    ]
    return [
        {
            "study": known.title(study),
            "meaning": known.studies[study].meaning,
            "value": value,
            "text": _percent(value),
            "colour": accuracy_colours(value, known.chance(study))[0],
            "chance": known.chance(study),
        }
        for study, value in points
        if study and value == value
    ]


def _percent(value: float) -> str:
    return f"{round(100 * value, 6):.0f} %"
