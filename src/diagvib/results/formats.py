"""The paper's tables in the paper's layout with our numbers: Markdown and LaTeX (Tables 2, A2-A9,
Figs. 4a, 5a)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from diagvib.results.accuracy import ACCURACY_NOTE, ACCURACY_TITLE, accuracy_lines
from diagvib.results.agreement import (
    agreement_sentence,
    rule_sentence,
    simulated_sentence,
)
from diagvib.results.comparability import NOT_TUNED
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.paper import (
    METRIC_TITLES,
    PAPER_CUES,
    describe_missing,
    metric_titles,
    paper_percent,
    percent,
    points,
)
from diagvib.results.reference import reference_note
from diagvib.results.sections import sections
from diagvib.results.selection import AS_RUN, rule_name
from diagvib.results.verdicts import KEYS, LEAST_SAMPLES, MARGIN, VERDICTS, verdict_sentence

MARKS = {"agrees": "=", "differs": "≠", "cannot tell": "?"}  # next to compared numbers
UNTUNED = "†"
_NUMBERS = (
    "Percent: mean ± standard error over the dataset samples (CHGO minus ZGO: ± standard deviation). n is "
    "shown if it is 1 or smaller than configured; `-` is a missing run. A spread below 0.05 says little about other "
    "samples and is not printed; near 0 and 100, the 95 % bound follows in brackets."
)
LEGEND = (
    f"{_NUMBERS} Each spread is that of one factor's mean over cues, taken over the dataset samples with divisor "
    "n - 1. The paper states neither its divisor nor what the standard deviation in its Table 2 is taken over; "
    "here it is that of paired differences over the samples. A mark after our number compares it with the "
    f"paper's: `=` agrees, the whole 95 % interval of the difference lies within {100 * MARGIN:.0f} points; "
    "`≠` differs, it reaches beyond that and excludes zero; `?` cannot tell, neither of these or fewer than "
    f"{LEAST_SAMPLES} samples. {UNTUNED} settings {NOT_TUNED}."
)


@dataclass(frozen=True)
class Block:
    """One table: a study's numbers of one metric. rows: name and one text per factor."""

    metric: str
    study: str
    factors: list[str]
    rows: list[tuple[str, list[str]]]
    notes: list[str]


def blocks(tables: dict[str, pd.DataFrame], known: KnownStudies) -> Iterator[Block]:
    """The paper's tables, metric by metric and study by study; below each baseline, the paper's row
    if there is one."""
    rows = with_contrasts(tables["metrics"], tables["contrasts"])
    verdicts, untuned = (
        tables["comparison"].set_index(KEYS)["verdict"].to_dict(),
        untuned_baselines(tables),
    )
    for metric in metric_titles(known):
        for study, table in rows[rows["metric"] == metric].groupby("study", sort=False):
            factors = [f for f in known.factors([study]) if f in set(table["target"])]
            lines = []
            for baseline, own in table.groupby("baseline", sort=False):
                lines += _lines(
                    baseline, own.set_index("target"), factors, verdicts, baseline in untuned
                )
            yield Block(metric, study, factors, lines, _notes(table, tables["runs"], known))


def untuned_baselines(tables: dict[str, pd.DataFrame]) -> set[str]:
    """The baselines whose verdicts all rest on untuned settings."""
    told = [
        tables["comparison"][["baseline", "mentions"]],
        tables["reference"][["baseline", "protocol"]],
    ]
    return {
        name
        for table in told
        for name, text in table.itertuples(index=False, name=None)
        if NOT_TUNED in text
    }


def with_contrasts(metrics: pd.DataFrame, contrasts: pd.DataFrame) -> pd.DataFrame:
    """The rows of contrasts (Table 2) after those of the others, their spread as stderr."""
    contrasts = contrasts.rename(columns={"std": "stderr", "paper_std": "paper_stderr"})
    return pd.concat([metrics, contrasts]) if len(contrasts) else metrics


def _lines(
    baseline: str, own: pd.DataFrame, factors: list[str], verdicts: dict, untuned: bool
) -> list[tuple[str, list[str]]]:
    ours, theirs = [], []
    for factor in factors:
        row = own.loc[factor] if factor in own.index else None
        known = row is not None and row["paper_mean"] == row["paper_mean"]
        mark = (
            MARKS.get(verdicts.get((row["study"], baseline, factor, row["metric"])), "")
            if known
            else ""
        )
        numbers = ["mean", "stderr", "n", "expected"]
        text = "" if row is None else percent(*row[numbers], row["metric"] not in METRIC_TITLES)
        ours.append(f"{text} {mark}".strip())
        theirs.append(paper_percent(*row[["paper_mean", "paper_stderr"]]) if known else "")
    name = f"{baseline} {UNTUNED}" if untuned else baseline
    return [(name, ours), *([("paper", theirs)] if any(theirs) else [])]


def _notes(table: pd.DataFrame, runs: pd.DataFrame, known: KnownStudies) -> list[str]:
    contrast = known.contrasts.get(table["metric"].iloc[0])
    studies = {contrast.study, contrast.reference} if contrast else set(table["study"])
    concerned = runs[runs["study"].isin(studies) & runs["baseline"].isin(set(table["baseline"]))]
    few = sorted({(r.target, int(r.cues)) for r in table.itertuples() if 0 < r.cues < PAPER_CUES})
    notes = (
        [f"over the configured cues only: {', '.join(f'{t} {c} of {PAPER_CUES}' for t, c in few)}"]
        if few
        else []
    )
    return notes + describe_missing(concerned)


def markdown_tables(
    tables: dict[str, pd.DataFrame], note: str = "", known: KnownStudies = SHIPPED
) -> str:
    """Summary of the verdicts, the paper's tables, those of other studies, missing runs and run
    times.

    note: what must come first. Parts that the configured studies have nothing for are left out.
    """
    paper, metric = len(tables["comparison"]) > 0, None
    parts = [
        "# Tables",
        *(["", f"**{note}**"] if note else []),
        *(_verdicts(tables, known) if paper else []),
        *(["", LEGEND] if len(tables["metrics"]) else []),
        *(["", simulated_sentence()] if paper else []),
    ]
    for block in blocks(tables, known):
        if block.metric != metric:
            metric = block.metric
            parts += ["", f"## {metric_titles(known)[metric]}"]
        rows = [[f"*{name}*" if name == "paper" else name, *cells] for name, cells in block.rows]
        parts += [
            "",
            f"### {known.title(block.study)}",
            "",
            *markdown_table(["baseline", *block.factors], rows),
        ]
        parts += ["", *(f"- {line}" for line in block.notes)] if block.notes else []
    parts += [
        *_sections(tables, known),
        *_accuracy(tables["accuracy"], known),
        *_selection(tables["selection"], known),
    ]
    missing = describe_missing(tables["runs"])
    parts += [
        "",
        "## Missing runs",
        "",
        *([f"- {line}" for line in missing] or ["None: every configured run is complete."]),
    ]
    return "\n".join([*parts, *_run_times(tables["run_times"])]) + "\n"


def _verdicts(tables: dict[str, pd.DataFrame], known: KnownStudies) -> list[str]:
    return [
        "",
        verdict_sentence(tables["comparison"]),
        "",
        *_agreement(tables["agreement"]),
        *_reference(tables, known),
        *_summary(tables["summary"]),
    ]


def _accuracy(accuracy: pd.DataFrame, known: KnownStudies) -> list[str]:
    """Accuracies by group; empty if no study is judged by them."""
    if not len(accuracy):
        return []
    heads, rows = accuracy_lines(accuracy, known)
    return ["", f"## {ACCURACY_TITLE}", "", ACCURACY_NOTE, "", *markdown_table(heads, rows)]


def _sections(tables: dict[str, pd.DataFrame], known: KnownStudies) -> Iterator[str]:
    for title, note, parts in sections(tables, known):
        yield from ("", f"## {title}", "", note)
        for part in parts:
            yield from ("", f"### {part.title}", "", *markdown_table(part.heads, part.rows))
            yield from ("", *(f"- {line}" for line in part.notes)) if part.notes else ()


def markdown_table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [
        f"| {' | '.join(heads)} |",
        "|" + "---|" * len(heads),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _summary(summary: pd.DataFrame) -> list[str]:
    columns = [verdict.replace(" ", "_") for verdict in VERDICTS]
    rows = [
        [row["by"], row["name"], str(row["cells"]), *(str(row[c]) for c in columns)]
        for _, row in summary.iterrows()
    ]
    return markdown_table(["by", "name", "cells", *VERDICTS], rows)


def _agreement(agreement: pd.DataFrame) -> list[str]:
    """The joint statements and the numbers behind them; empty if no cell was compared."""
    if not len(agreement):
        return []
    heads, rows = agreement_lines(agreement)
    return [
        agreement_sentence(agreement),
        "",
        rule_sentence(),
        "",
        *markdown_table(heads, rows),
        "",
    ]


def agreement_lines(agreement: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Heads and texts of `agreement.agreement_table`; of the smallest groups, those that differ."""
    shown = agreement[~agreement["by"].str.contains(",") | (agreement["statement"] == "differs")]
    rows = [
        [
            r.by,
            r.name,
            str(r.cells),
            points(r.mean_difference),
            f"{r.score:.2f}",
            f"{r.usual:.2f}",
            f"{r.p:.3f}",
            r.statement,
        ]
        for r in shown.itertuples(index=False)
    ]
    return [
        "by",
        "name",
        "compared",
        "mean difference",
        "RMS z",
        "90 % of honest below",
        "p",
        "statement",
    ], rows


def _reference(tables: dict[str, pd.DataFrame], known: KnownStudies) -> list[str]:
    """Models without a comparable cell, compared with the paper's nine; empty if every model has
    one."""
    reference = tables["reference"]
    if not len(reference):
        return []
    heads, rows = reference_lines(reference, known)
    return [
        "## Compared with the paper's nine models",
        "",
        reference_note(reference),
        "",
        *markdown_table(heads, rows),
        "",
        "## Verdicts",
        "",
    ]


def reference_lines(
    reference: pd.DataFrame, known: KnownStudies = SHIPPED
) -> tuple[list[str], list[list[str]]]:
    """Heads and texts of `reference.reference_table`."""
    rows = [
        [
            known.title(r.study),
            r.baseline,
            r.target,
            r.metric,
            f"{100 * r.ours:.1f}",
            f"{100 * r.paper_low:.0f} to {100 * r.paper_high:.0f}",
            f"{100 * r.paper_resnet18:.0f}",
        ]
        for r in reference.itertuples(index=False)
    ]
    return [
        "study",
        "baseline",
        "factor",
        "metric",
        "ours",
        "paper's nine",
        "paper's resnet18",
    ], rows


def _selection(selection: pd.DataFrame, known: KnownStudies) -> list[str]:
    """What other selection rules would have given; empty if no run recorded it."""
    if not len(selection):
        return []
    parts = [
        "",
        "## With other selection rules",
        "",
        "In brackets: the change from the rule as run, in points.",
    ]
    for metric, rows in selection.groupby("metric", sort=False):
        heads, lines = selection_lines(rows, known)
        texts = [
            [*names, *(f"{text} ({change})" if change else text for text, change, _ in cells)]
            for names, cells in lines
        ]
        parts += ["", f"### {metric_titles(known)[metric]}", "", *markdown_table(heads, texts)]
    return parts


def selection_lines(
    selection: pd.DataFrame, known: KnownStudies = SHIPPED
) -> tuple[list[str], list[tuple[list[str], list[tuple[str, str, float]]]]]:
    """Heads and lines of one metric's part of `selection.selection_table`: names, then for each
    factor the text, the change in points and the mean. The rule that a baseline itself selects by
    has one line, as run."""
    factors = [f for f in known.factors(selection["study"]) if f in set(selection["target"])]
    lines, others = [], selection[selection["rule"] != selection["selection"]]
    for (study, baseline, by, rule), own in others.groupby(
        ["study", "baseline", "selection", "rule"], sort=False
    ):
        cells = dict.fromkeys(factors, ("", "", float("nan")))
        for row in own.itertuples(index=False):
            change = "" if rule == AS_RUN or row.n == 0 else points(row.change)
            cells[row.target] = (
                percent(row.mean, row.stderr, row.n, row.expected),
                change,
                row.mean,
            )
        lines.append(([known.title(study), baseline, rule_name(rule, by)], list(cells.values())))
    return ["study", "baseline", "rule", *factors], lines


def _run_times(times: pd.DataFrame) -> list[str]:
    if not len(times):
        return []
    stages = [column for column in times if column.startswith("seconds_")]
    means = times.groupby("baseline", sort=False)[["images_per_second", *stages]].mean()
    rows = [
        [
            baseline,
            *("-" if v != v else f"{v:,.1f}" for v in row),
            f"{times['baseline'].eq(baseline).sum():,}",
        ]
        for baseline, row in zip(means.index, means.to_numpy(), strict=True)
    ]
    heads = [
        "baseline",
        "images/s",
        *(f"{stage.removeprefix('seconds_')}, s" for stage in stages),
        "runs",
    ]
    return ["", "## Run times, mean over runs", "", *markdown_table(heads, rows)]


def markdown_matrices(p: pd.DataFrame, note: str = "", known: KnownStudies = SHIPPED) -> str:
    """Every P_ij matrix: rows target factors, columns cue factors (none without cues), percent."""
    parts = [
        "# P_ij: accuracy on the group `ood` (without cues: on the only group), rows target, columns cue factors",
        "",
        *([f"**{note}**", ""] if note else []),
        _NUMBERS,
    ]
    for study, baseline, heads, rows in _matrices(p, known):
        parts += ["", f"## {known.title(study)}, {baseline}", "", *markdown_table(heads, rows)]
    return "\n".join(parts) + "\n"


def _matrices(
    p: pd.DataFrame, known: KnownStudies
) -> Iterator[tuple[str, str, list[str], list[list[str]]]]:
    """Study, baseline, heads and rows of every matrix."""
    shown = p[(p["group"] == "ood") | (p["cue"] == "")]
    for (study, baseline), own in shown.groupby(["study", "baseline"], sort=False):
        factors = known.factors([study])
        cues = matrix_columns(own["cue"], factors)
        cells = {
            (r.target, r.cue): percent(r.mean, r.stderr, r.n, r.expected)
            for r in own.itertuples(index=False)
        }
        rows = [
            [target, *(cells.get((target, cue), "") for cue in cues)]
            for target in factors
            if target in set(own["target"])
        ]
        yield study, baseline, ["target", *(cue or "no cue" for cue in cues)], rows


def matrix_columns(cues: pd.Series, factors: Sequence[str]) -> list[str]:
    """Columns of a P_ij matrix: all factors, or the cue combinations of a study with several cues;
    '' for none."""
    asked = list(dict.fromkeys(cues))
    return list(factors) if asked != [""] and set(asked) <= set(factors) else asked


def latex_tables(
    tables: dict[str, pd.DataFrame], note: str = "", known: KnownStudies = SHIPPED
) -> str:
    """The paper's tables as LaTeX (needs booktabs): one table environment per study and metric."""
    parts = [
        "% needs \\usepackage{booktabs}",
        *([f"% {note}"] if note else []),
        *(f"% {_latex(verdict_sentence(own))}" for own in [tables["comparison"]] if len(own)),
        *(f"% {_latex(text)}" for text in [agreement_sentence(tables["agreement"])] if text),
        *([f"% {reference_note(tables['reference'])}"] if len(tables["reference"]) else []),
        f"% {UNTUNED} settings {NOT_TUNED}; = agrees, ≠ differs, ? cannot tell",
    ]
    for block in blocks(tables, known):
        title = f"{known.title(block.study)}. {metric_titles(known)[block.metric]} (percent)."
        rows = [
            [r"\emph{paper}" if name == "paper" else _latex(name), *map(_latex, cells)]
            for name, cells in block.rows
        ]
        parts += [
            "",
            *_latex_table(
                f"{title} {note}".strip(), ["baseline", *block.factors], rows, block.notes
            ),
        ]
    for study, own in tables["accuracy"].groupby("study", sort=False):
        heads, rows = accuracy_lines(own, known)
        title = f"{known.title(study)}. {ACCURACY_TITLE}. {ACCURACY_NOTE} {note}".strip()
        parts += ["", *_latex_table(title, heads, [[*map(_latex, row)] for row in rows])]
    for _, text, found in sections(tables, known):
        parts += [
            line
            for one in found
            for line in (
                "",
                *_latex_table(
                    f"{one.title}. {text} {note}".strip(),
                    one.heads,
                    [[*map(_latex, row)] for row in one.rows],
                    one.notes,
                ),
            )
        ]
    return "\n".join(parts) + "\n"


def latex_matrices(p: pd.DataFrame, note: str = "", known: KnownStudies = SHIPPED) -> str:
    """Every P_ij matrix as a LaTeX table (needs booktabs), as `markdown_matrices`."""
    parts = ["% needs \\usepackage{booktabs}", *([f"% {note}"] if note else [])]
    for study, baseline, heads, rows in _matrices(p, known):
        where = "on the group ood; rows: target factors, columns: cue factors"
        where = "without a cue" if heads[1:] == ["no cue"] else where
        title = f"{known.title(study)}, {baseline}. Accuracy {where} (percent). {note}"
        parts += ["", *_latex_table(title.strip(), heads, [[*map(_latex, row)] for row in rows])]
    return "\n".join(parts) + "\n"


def _latex_table(
    title: str, heads: list[str], rows: list[list[str]], notes: Sequence[str] = ()
) -> list[str]:
    """Lines of a table environment. rows: cells already in LaTeX; notes become comments."""
    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
        r"\toprule",
        " & ".join(map(_latex, heads)) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(f"% {line}" for line in notes),
        r"\end{table}",
    ]


def _latex(text: str) -> str:
    for plain, escaped in (
        ("\\", r"\textbackslash{}"),
        ("_", r"\_"),
        ("%", r"\%"),
        ("&", r"\&"),
        ("±", r"$\pm$"),
        ("≤", r"$\leq$"),
        ("≥", r"$\geq$"),
        ("≠", r"$\neq$"),
        (UNTUNED, r"$\dagger$"),
        ("=", "$=$"),
    ):
        text = text.replace(plain, escaped)
    return text
