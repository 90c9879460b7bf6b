"""The page's sortable tables: heads, and rows of cells with text, sort key, small print and
kind."""

import re
from collections.abc import Iterator

import pandas as pd

from diagvib.results.accuracy import ACCURACY_NOTE, ACCURACY_TITLE, accuracy_lines
from diagvib.results.average_methods import AVERAGE_NOTE, AVERAGE_TITLE, average_table
from diagvib.results.gap_methods import GAPS_NOTE, GAPS_TITLE, HEADS, gap_lines
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.paper import (
    METRIC_TITLES,
    interval,
    metric_titles,
    paper_percent,
    percent,
    points,
)
from diagvib.results.selection_average import OVER, RULES_NOTE, RULES_TITLE, rule_lines, rule_text
from diagvib.results.shown import (
    UNTUNED,
    agreement_lines,
    reference_lines,
    selection_lines,
    untuned_baselines,
    with_contrasts,
)
from diagvib.results.uncertainty import FEWEST


def _cell(text: str, value: float | int | None = None, small: str = "", kind: str = "") -> dict:
    """value: the sort key of the cell, if not the text; NaN sorts last, as an empty field."""
    sort = {} if value is None else {"value": "" if value != value else f"{value:.6g}"}
    return {"text": text, "small": small, "kind": kind, **sort}


def result_tables(frames: dict[str, pd.DataFrame], known: KnownStudies) -> list[dict]:
    """One table per metric: rows (baseline, study), columns factors, the paper's numbers in the
    cells."""
    rows, untuned = (
        with_contrasts(frames["metrics"], frames["contrasts"]),
        untuned_baselines(frames),
    )
    tables = []
    for metric, title in metric_titles(known).items():
        table = rows[rows["metric"] == metric]
        if len(table):
            factors = [
                factor for factor in known.factors(table["study"]) if factor in set(table["target"])
            ]
            groups = table.groupby(["baseline", "study"], sort=False)
            lines = [
                [
                    _cell(f"{baseline} {UNTUNED}" if baseline in untuned else baseline),
                    _cell(known.title(study), place),
                    *(_result(group, factor) for factor in factors),
                ]
                for place, ((baseline, study), group) in enumerate(groups)
            ]
            tables.append(
                {
                    "title": title,
                    "heads": ["baseline", "study", *factors],
                    "rows": lines,
                    "paper": table["paper_mean"].notna().any(),
                }
            )
    return tables


def _result(rows: pd.DataFrame, factor: str) -> dict:
    found = rows[rows["target"] == factor]
    if not len(found):
        return _cell("", float("nan"))
    row = found.iloc[0]
    paper = ""
    if row["paper_mean"] == row["paper_mean"]:
        paper = f"paper {paper_percent(row['paper_mean'], row['paper_stderr'])}"
        paper += f", {points(row['difference'])}" if row["n"] else ""
    return _cell(
        percent(*row[["mean", "stderr", "n", "expected"]], row["metric"] not in METRIC_TITLES),
        row["mean"] if row["n"] else float("nan"),
        paper,
        "missing" if row["n"] == 0 else "",
    )


def comparison_rows(comparison: pd.DataFrame, known: KnownStudies) -> dict:
    """Every cell of the paper for which something ran."""
    ran = comparison[comparison["n"] > 0]
    rows = [
        [
            _cell(r.table, place),
            _cell(known.title(r.study)),
            _cell(r.baseline),
            _cell(r.target),
            _cell(r.metric),
            _cell(f"{100 * r.ours:.1f}", r.ours),
            _cell(f"{100 * r.paper:.0f}", r.paper),
            _cell(points(r.difference), r.difference),
            _cell(_spread(r.uncertainty), r.uncertainty),
            _cell(
                r.verdict,
                small="; ".join(filter(None, (r.reason, r.mentions))),
                kind="missing" if r.verdict == "differs" else "",
            ),
        ]
        for place, r in enumerate(ran.itertuples(index=False))
    ]
    return {
        "title": f"Cell by cell: {len(ran)} cells of the paper's {len(comparison)}",
        "rows": rows,
        "heads": [
            "table",
            "study",
            "baseline",
            "factor",
            "metric",
            "ours",
            "paper",
            "difference",
            "±",
            "verdict",
        ],
    }


def agreement_rows(agreement: pd.DataFrame) -> dict:
    """The joint statement, and the groups of cells behind it."""
    heads, lines = agreement_lines(agreement)
    rows = [
        [
            *map(_cell, line[:2]),
            *(_cell(text, float(text)) for text in line[2:7]),
            _cell(line[7], kind="missing" if line[7] == "differs" else ""),
        ]
        for line in lines
    ]
    return {"title": "Joint statement", "heads": heads, "rows": rows}


def reference_rows(reference: pd.DataFrame, known: KnownStudies) -> dict:
    heads, lines = reference_lines(reference, known)
    rows = [
        [
            _cell(line[0], place),
            *map(_cell, line[1:4]),
            _cell(line[4], row.ours),
            _cell(line[5], row.paper_low),
            _cell(line[6], row.paper_resnet18),
        ]
        for place, (line, row) in enumerate(
            zip(lines, reference.itertuples(index=False), strict=True)
        )
    ]
    return {
        "title": "Every number compared with the paper's nine models",
        "heads": heads,
        "rows": rows,
    }


def accuracy_rows(accuracy: pd.DataFrame, known: KnownStudies) -> dict:
    """Accuracies by test group, for the studies judged by them."""
    heads, lines = accuracy_lines(accuracy, known)
    rows = [
        [
            _cell(line[0], place),
            *map(_cell, line[1:-4]),
            *(_cell(text, _first_number(text)) for text in line[-4:]),
        ]
        for place, line in enumerate(lines)
    ]
    return {"title": ACCURACY_TITLE, "note": ACCURACY_NOTE, "heads": heads, "rows": rows}


def gap_rows(methods: pd.DataFrame, known: KnownStudies) -> dict:
    """Gaps of studies with two cues, for each binding and their mean; the paper's numbers in small
    print."""
    once = methods.drop_duplicates(["study", "baseline", "binding"])
    rows = [
        [
            _cell(known.title(study), place),
            *map(_cell, names),
            *(
                _cell(
                    text,
                    _first_number(text),
                    f"paper {paper}" if paper else "",
                    "missing" if text == "-" else "",
                )
                for text, paper in zip(ours, theirs or [""] * len(ours), strict=True)
            ),
        ]
        for place, (study, (names, ours, theirs)) in enumerate(
            zip(once["study"], gap_lines(once), strict=True)
        )
    ]
    return {"title": GAPS_TITLE, "note": GAPS_NOTE, "heads": ["study", *HEADS], "rows": rows}


def average_rows(methods: pd.DataFrame, known: KnownStudies) -> dict:
    """Accuracies on the test environment, for each binding and their mean; the paper's in small
    print."""
    heads, lines, notes = average_table(methods, known, of_all=False)
    rows = [
        [
            *map(_cell, names),
            *(
                _cell(
                    text,
                    _first_number(text),
                    f"paper {paper}" if paper else "",
                    "missing" if text == "-" else "",
                )
                for text, paper in zip(ours, theirs or [""] * len(ours), strict=True)
            ),
        ]
        for names, ours, theirs in lines
    ]
    return {
        "title": AVERAGE_TITLE,
        "note": AVERAGE_NOTE,
        "heads": heads,
        "rows": rows,
        "notes": notes,
    }


def rule_tables(rules: pd.DataFrame, known: KnownStudies) -> dict:
    """Title, note, and a table of runs and one of random searches if there are any; the trial in
    small print."""
    found = []
    for over, title in OVER.items():
        if len(own := rules[rules["over"] == over]):
            heads, lines = rule_lines(own, known)
            rows = [
                [
                    _cell(names[0], place),
                    *map(_cell, names[1:]),
                    *(
                        _cell(
                            text,
                            row.get("mean"),
                            trial,
                            "missing" if text == "-" else "",
                        )
                        for row, (text, trial) in ((row, rule_text(row)) for row in cells)
                    ),
                ]
                for place, (names, cells) in enumerate(lines)
            ]
            found.append({"title": title, "heads": heads, "rows": rows})
    return {"title": RULES_TITLE, "note": RULES_NOTE, "tables": found}


def _first_number(text: str) -> float:
    found = re.search(r"-?\d+(\.\d+)?", text)
    return float(found[0]) if found else float("nan")


def folded_tables(frames: dict[str, pd.DataFrame], known: KnownStudies = SHIPPED) -> list[dict]:
    """Means over all bindings with intervals; comparisons of two baselines; other rules for
    choosing the epoch."""
    found = [
        _overall(frames["overall"], known),
        _contrasts(frames["baselines"], known),
        *_selection(frames["selection"], known),
    ]
    return [table for table in found if table["rows"]]


def _overall(overall: pd.DataFrame, known: KnownStudies) -> dict:
    rows = [
        [
            _cell(r.baseline),
            _cell(known.title(r.study), place),
            _cell(
                "-" if r.n == 0 else f"{100 * r.mean:.1f}",
                r.mean,
                kind="missing" if r.n == 0 else "",
            ),
            _cell(interval(r.low, r.high), r.low),
            _cell(str(r.samples), r.samples),
            _cell(str(r.bindings), r.bindings),
            _cell(f"{r.n} of {r.expected}", r.n),
        ]
        for place, r in enumerate(overall.itertuples(index=False))
    ]
    return {
        "title": "Mean over all bindings and samples",
        "rows": rows,
        "note": "95 % interval over the means of the dataset samples, for these bindings; none for fewer than "
        f"{FEWEST} samples.",
        "heads": ["baseline", "study", "mean", "95 % interval", "samples", "bindings", "runs"],
    }


def _contrasts(contrasts: pd.DataFrame, known: KnownStudies) -> dict:
    rows = [
        [
            _cell(known.title(r.study), place),
            _cell(r.first),
            _cell(r.second),
            _cell(points(r.difference), r.difference),
            _cell(interval(r.low, r.high, change=True), r.low),
            _cell(str(r.samples), r.samples),
            _cell(str(r.bindings), r.bindings),
        ]
        for place, r in enumerate(contrasts.itertuples(index=False))
    ]
    return {
        "title": "Baselines compared, paired by dataset",
        "rows": rows,
        "note": "First minus second, in points, over all bindings and samples that both have; 95 % interval "
        "over the means of the dataset samples, not corrected for the number of comparisons; none for "
        f"fewer than {FEWEST} samples.",
        "heads": [
            "study",
            "first",
            "second",
            "difference",
            "95 % interval",
            "samples",
            "bindings",
        ],
    }


def _selection(selection: pd.DataFrame, known: KnownStudies) -> Iterator[dict]:
    """One table per metric."""
    for metric, own in selection.groupby("metric", sort=False):
        heads, lines = selection_lines(own, known)
        rows = [
            [
                _cell(study, place),
                _cell(baseline),
                _cell(rule),
                *(
                    _cell(text, mean, change, "missing" if text == "-" else "")
                    for text, change, mean in cells
                ),
            ]
            for place, ((study, baseline, rule), cells) in enumerate(lines)
        ]
        yield {
            "title": f"With other selection rules: {metric_titles(known)[metric]}",
            "heads": heads,
            "rows": rows,
            "note": "Other selection rules applied to the same runs, from the test accuracies recorded after every "
            "epoch; below each number, the change from the rule as run, in points. The oracle looks at the "
            "test images: it is not a result but an upper bound for every rule.",
        }


def _spread(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f}"
