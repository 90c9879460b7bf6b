"""Tables 3 and 5 of Li et al. (2023), in their layout: a row per baseline with its gaps, for
UrbanCars the paper's."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd
import yaml

from diagvib.foundation.files import definition_path
from diagvib.results.gaps import (
    BASELINE,
    CUE_GAPS,
    FEWEST,
    REFERENCE,
    binding_names,
    network_of,
    part_of,
    training_shares,
)
from diagvib.results.known_studies import KnownStudies
from diagvib.results.paper import interval, percent, points, with_paper
from diagvib.results.shortcut import is_comparable
from diagvib.settings.baselines import changed

SHOWN = {
    "id_accuracy": "I.D. Acc",
    "cue_1_gap": "cue-1 gap",
    "cue_2_gap": "cue-2 gap",
    "joint_gap": "joint gap",
}
TABLES = {3: "methods without group labels", 5: "methods told the groups"}
GAPS_TITLE = "Whac-A-Mole: accuracy lost where a cue misleads"
GAPS_NOTE = (
    "Percent and points, mean ± standard error over the dataset samples. I.D. Acc: the accuracies of the four test "
    "groups, weighted like the training images. Gap: accuracy where cue 1, cue 2 or both mislead, minus I.D. Acc. In "
    "brackets: the 95 % interval of a cue's gap minus that of ERM with the same model, paired by sample; none with fewer "
    f"than {FEWEST} samples. The intervals are not corrected for the number of methods."
)
HEADS = [*BASELINE, "binding", *SHOWN.values()]
# Shares of the paper's training images: both cues agree with the target, cue 1 misleads, cue 2
# misleads, both do.
PAPER_SHARES = (0.9025, 0.0475, 0.0475, 0.0025)
_MADE = ["model", "weights", "method", "option"]
_COLUMNS = [
    "study",
    "table",
    *BASELINE,
    "binding",
    *(f"{metric}{part}" for metric in SHOWN for part in ("", "_stderr")),
    *(f"cue_{cue}_{part}" for cue in CUE_GAPS for part in ("difference", "low", "high", "verdict")),
    "n",
    "expected",
    *(f"paper_{metric}" for metric in SHOWN),
]


@cache
def read_urbancars_tables() -> pd.DataFrame:
    """Every number of the paper's Tables 3 and 5, as fractions.

    Columns: table, scene, binding, model, weights, method, option (of the method, `key=value`, or
    empty; all others are at their defaults), told, selection, metric, value. The paper's methods in
    Table 3 are all told `nothing`.
    """
    raw = pd.read_csv(definition_path("papers/urbancars.csv"), keep_default_na=False)
    return raw.assign(value=raw["percent"] / 100).drop(columns="percent")


def knows_groups(supervision: str) -> bool:
    """Whether a method that is told this knows the group of each training image."""
    return supervision in ("cues", "environments") or supervision.startswith("cue-")


def gap_methods(
    gaps: pd.DataFrame,
    whac: pd.DataFrame,
    runs: pd.DataFrame,
    known: KnownStudies,
    baselines: Mapping[str, dict],
) -> pd.DataFrame:
    """A row per study, table (3, 5), baseline and binding (empty: mean over several); ERM is in
    both tables.

    gaps, whac: of `gaps.gaps_tables`. Columns: mean and {metric}_stderr of SHOWN, each cue's
    difference from ERM with its interval and verdict, n, expected, paper_{metric} where the paper has this method,
    setting and scene; all as fractions.
    """
    judged = {(r.study, r.baseline, r.binding, r.cue): r for r in whac.itertuples(index=False)}
    rows = []
    for keys, own in gaps.groupby(["study", *BASELINE, "binding"], sort=False):
        about, found = (
            dict(zip(["study", *BASELINE, "binding"], keys, strict=True)),
            own.set_index("metric"),
        )
        row = {
            **about,
            **{metric: found.loc[metric, "mean"] for metric in SHOWN},
            **{f"{metric}_stderr": found.loc[metric, "stderr"] for metric in SHOWN},
            "n": found.loc["id_accuracy", "n"],
            "expected": found.loc["id_accuracy", "expected"],
        }
        for cue in CUE_GAPS:
            one = judged.get((about["study"], about["baseline"], about["binding"], cue))
            row |= {
                f"cue_{cue}_{part}": getattr(one, part, np.nan)
                for part in ("difference", "low", "high")
            }
            row[f"cue_{cue}_verdict"] = getattr(one, "verdict", "")
        labels = knows_groups(about["supervision"])
        for table in (3, 5) if about["method"] == REFERENCE else (5,) if labels else (3,):
            beside = _paper(row, table, runs, known, baselines.get(about["baseline"], {}))
            rows.append(
                {
                    **row,
                    "table": table,
                    **{f"paper_{metric}": beside.get(metric, np.nan) for metric in SHOWN},
                }
            )
    found = pd.DataFrame(rows, columns=_COLUMNS)
    return (
        found.sort_values(["study", "table"], kind="stable", ignore_index=True)
        if len(found)
        else found
    )


def _paper(
    row: Mapping, table: int, runs: pd.DataFrame, known: KnownStudies, settings: Mapping
) -> dict[str, float]:
    """The paper's numbers for a row with the same scene, binding, training shares, model with its
    weights, method with its options, and selection; none if anything differs, or if the runs'
    sources are not comparable."""
    study = known.studies[row["study"]]
    paper = read_urbancars_tables()
    supervision = row["supervision"] if knows_groups(row["supervision"]) else "none"
    wanted = {
        "table": table,
        "scene": study.scene,
        "supervision": supervision,
        **{key: row[key] for key in ("binding", "model", "method", "selection")},
    }
    found = paper[np.logical_and.reduce([paper[key] == value for key, value in wanted.items()])]
    found = found[
        np.array(
            [
                _is_published(settings, *one)
                for one in found[_MADE].itertuples(index=False, name=None)
            ],
            dtype=bool,
        )
    ]
    own = runs[(runs["study"] == row["study"]) & (runs["baseline"] == row["baseline"])]
    same = (
        len(found)
        and is_comparable(own)
        and np.allclose(list(training_shares(study).values()), PAPER_SHARES)
    )
    return dict(zip(found["metric"], found["value"], strict=True)) if same else {}


def _is_published(settings: Mapping, model: str, weights: str, method: str, option: str) -> bool:
    """Whether a baseline's network is this one with these weights, all of it trained, and whether
    its method has this option (`key=value`; empty: none) and otherwise its defaults."""
    own = {key: value for key, value in part_of(settings, "method").items() if key != "supervision"}
    key, _, value = option.partition("=")
    published = {"name": method, **({key: yaml.safe_load(value)} if option else {})}
    return network_of(settings) == {"name": model, "weights": weights} and changed(own) == changed(
        published
    )


def gap_lines(
    methods: pd.DataFrame, called: Sequence[str] | None = None
) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """For each row of `gap_methods`: its labels, our texts, and the paper's (none: []); under
    HEADS.

    called: what each row's binding is called, by default `binding_names`.
    """
    for row, name in zip(methods.to_dict("records"), called or binding_names(methods), strict=True):
        theirs = [row[f"paper_{metric}"] for metric in SHOWN]
        texts = (
            [f"{100 * theirs[0]:.1f}", *map(points, theirs[1:])] if theirs[0] == theirs[0] else []
        )
        yield (
            [*(row[key] for key in BASELINE), name],
            [_text(row, metric) for metric in SHOWN],
            texts,
        )


def _text(row: Mapping, metric: str) -> str:
    """`-24.7 ± 1.2 (-18.1 to -6.5)`: in brackets, the interval of the difference from ERM's gap."""
    numbers = (row[key] for key in (metric, f"{metric}_stderr", "n", "expected"))
    text = percent(*numbers, change=metric != "id_accuracy")
    cue = next((cue for cue, name in CUE_GAPS.items() if name == metric), None)
    low, high = (row[f"cue_{cue}_{end}"] if cue else np.nan for end in ("low", "high"))
    return text if low != low else f"{text} ({interval(low, high, change=True)})"


def gap_blocks(methods: pd.DataFrame, known: KnownStudies) -> Iterator[tuple[str, list[list[str]]]]:
    """Title and rows, under HEADS, of each study's two tables, for the mean over bindings; below
    ours, the paper's."""
    methods = methods.assign(called=binding_names(methods))
    of_all = set(
        methods.loc[methods["binding"] == "", ["study", "baseline"]].itertuples(
            index=False, name=None
        )
    )
    single = [
        pair not in of_all
        for pair in methods[["study", "baseline"]].itertuples(index=False, name=None)
    ]
    shown = methods[(methods["binding"] == "") | np.array(single, dtype=bool)]
    for (study, table), own in shown.groupby(["study", "table"], sort=False):
        rows = [row for line in gap_lines(own, [*own["called"]]) for row in with_paper(*line)]
        yield (
            f"{known.title(study)}: {TABLES[table]} (laid out like Table {table} of the paper)",
            rows,
        )
