"""Every table for readers: those of tables.md, tables.tex and the report."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from diagvib.results.accuracy import ACCURACY_NOTE, ACCURACY_TITLE, accuracy_lines
from diagvib.results.agreement import agreement_sentence, rule_sentence, simulated_sentence
from diagvib.results.average_methods import AVERAGE_NOTE, AVERAGE_TITLE, average_table
from diagvib.results.comparability import NOT_TUNED
from diagvib.results.gap_methods import GAPS_NOTE, GAPS_TITLE, HEADS, gap_blocks
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.paper import (
    METRIC_TITLES,
    PAPER_CUES,
    describe_missing,
    interval,
    metric_titles,
    paper_percent,
    percent,
    points,
    with_paper,
)
from diagvib.results.reference import reference_note
from diagvib.results.selection import AS_RUN, rule_name
from diagvib.results.selection_average import OVER, RULES_NOTE, RULES_TITLE, rule_lines, rule_text
from diagvib.results.table import Table, by_section, latex, markdown
from diagvib.results.uncertainty import FEWEST
from diagvib.results.verdicts import KEYS, LEAST_SAMPLES, MARGIN, VERDICTS, verdict_sentence

MARKS = {"agrees": "=", "differs": "≠", "cannot tell": "?"}  # next to compared numbers
UNTUNED = "†"
NUMBERS = (
    "Percent: mean ± standard error over the dataset samples (CHGO minus ZGO: ± standard deviation). n is "
    "shown if it is 1 or smaller than configured; `-` is a missing run. A spread below 0.05 says little about other "
    "samples and is not printed; near 0 and 100, the 95 % bound follows in brackets."
)
LEGEND = (
    "Each spread is that of one factor's mean over cues, taken over the dataset samples with divisor "
    "n - 1. The paper states neither its divisor nor what the standard deviation in its Table 2 is taken over; "
    "here it is that of paired differences over the samples. A mark after our number compares it with the "
    f"paper's: `=` agrees, the whole 95 % interval of the difference lies within {100 * MARGIN:.0f} points; "
    "`≠` differs, it reaches beyond that and excludes zero; `?` cannot tell, neither of these or fewer than "
    f"{LEAST_SAMPLES} samples. {UNTUNED} settings {NOT_TUNED}."
)


SHORTCUT = "Accuracy where the shortcut misleads"
VERDICT = "Comparison with the paper"
REFERENCE = "Compared with the paper's nine models"
SELECTION = "With other selection rules"
OVERALL = "Over all bindings"
MATRICES = "P_ij: accuracy in percent where the cue misleads (without cues: on all test images)"


def shown_tables(tables: Mapping[str, pd.DataFrame], known: KnownStudies = SHIPPED) -> list[Table]:
    """Every table that has rows, in the order of the page; those of a section follow each other.

    tables: from `tables.make_tables` or `tables.read_tables`.
    """
    found = [
        *_verdicts(tables, known),
        *_reference(tables["reference"], known),
        *_shortcut(tables, known),
        *_gaps(tables["gap_methods"], known),
        *_average(tables["average_methods"], known),
        *_rules(tables["selection_average"], known),
        *_accuracy(tables["accuracy"], known),
        *_selection(tables["selection"], known),
        *_overall(tables, known),
        *_run_times(tables["run_times"]),
    ]
    return [table for table in found if table.rows]


def _verdicts(tables: Mapping[str, pd.DataFrame], known: KnownStudies) -> Iterator[Table]:
    comparison, agreement = tables["comparison"], tables["agreement"]
    if not len(comparison):
        return
    about = [verdict_sentence(comparison)]
    if len(agreement):
        about += [agreement_sentence(agreement), rule_sentence()]
    about.append(simulated_sentence())
    heads, rows = agreement_lines(agreement)
    yield Table("agreement", "All cells together", heads, rows, section=VERDICT, about=about)
    columns = [verdict.replace(" ", "_") for verdict in VERDICTS]
    rows = [
        [row["by"], row["name"], str(row["cells"]), *(str(row[c]) for c in columns)]
        for row in tables["summary"].to_dict("records")
    ]
    heads = ["by", "name", "cells", *VERDICTS]
    yield Table("summary", "Verdicts", heads, rows, section=VERDICT, about=about, folded=True)
    ran = comparison[comparison["n"] > 0]
    title = f"Cell by cell: {len(ran)} cells of the paper's {len(comparison)}"
    heads = ["table", "study", "baseline", "factor", "metric", "ours", "paper", "difference"]
    heads += ["±", "verdict", "remarks"]
    rows = [
        [
            r.table,
            known.title(r.study),
            r.baseline,
            r.target,
            r.metric,
            f"{100 * r.ours:.1f}",
            f"{100 * r.paper:.0f}",
            points(r.difference),
            "-" if r.uncertainty != r.uncertainty else f"{100 * r.uncertainty:.1f}",
            r.verdict,
            "; ".join(filter(None, (r.reason, r.mentions))),
        ]
        for r in ran.itertuples(index=False)
    ]
    yield Table("comparison", title, heads, rows, section=VERDICT, about=about, folded=True)


def _reference(reference: pd.DataFrame, known: KnownStudies) -> Iterator[Table]:
    """Models without a comparable cell, compared with the paper's nine."""
    if len(reference):
        heads, rows = reference_lines(reference, known)
        about = [reference_note(reference)]
        yield Table(
            "reference", "Every number", heads, rows, section=REFERENCE, about=about, folded=True
        )


def _shortcut(tables: Mapping[str, pd.DataFrame], known: KnownStudies) -> Iterator[Table]:
    """The paper's tables, metric by metric and study by study; below each baseline, the paper's row
    if there is one."""
    rows = with_contrasts(tables["metrics"], tables["contrasts"])
    verdicts = tables["comparison"].set_index(KEYS)["verdict"].to_dict()
    untuned = untuned_baselines(tables)
    for metric, title in metric_titles(known).items():
        for study, table in rows[rows["metric"] == metric].groupby("study", sort=False):
            factors = [f for f in known.factors([study]) if f in set(table["target"])]
            lines = []
            for baseline, own in table.groupby("baseline", sort=False):
                lines += _lines(
                    baseline, own.set_index("target"), factors, verdicts, baseline in untuned
                )
            yield Table(
                f"{metric}_{study}",
                f"{known.title(study)}: {title}",
                ["baseline", *factors],
                lines,
                _notes(table, tables["runs"], known),
                SHORTCUT,
                [NUMBERS, LEGEND],
            )


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
) -> list[list[str]]:
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
    return with_paper([name], ours, theirs if any(theirs) else [])


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


def _gaps(methods: pd.DataFrame, known: KnownStudies) -> Iterator[Table]:
    for place, (title, rows) in enumerate(gap_blocks(methods, known)):
        yield Table(f"gaps_{place}", title, HEADS, rows, section=GAPS_TITLE, about=[GAPS_NOTE])


def _average(methods: pd.DataFrame, known: KnownStudies) -> Iterator[Table]:
    if len(methods):
        heads, lines, notes = average_table(methods, known)
        rows = [row for line in lines for row in with_paper(*line)]
        yield Table("average", "All studies", heads, rows, notes, AVERAGE_TITLE, [AVERAGE_NOTE])


def _rules(rules: pd.DataFrame, known: KnownStudies) -> Iterator[Table]:
    for over, title in OVER.items():
        if len(own := rules[rules["over"] == over]):
            heads, lines = rule_lines(own, known)
            rows = [
                [
                    *names,
                    *(
                        f"{text} ({trial})" if trial else text
                        for text, trial in map(rule_text, cells)
                    ),
                ]
                for names, cells in lines
            ]
            yield Table(over, title, heads, rows, section=RULES_TITLE, about=[RULES_NOTE])


def _accuracy(accuracy: pd.DataFrame, known: KnownStudies) -> Iterator[Table]:
    if len(accuracy):
        heads, rows = accuracy_lines(accuracy, known)
        yield Table(
            "accuracy", "All groups", heads, rows, section=ACCURACY_TITLE, about=[ACCURACY_NOTE]
        )


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


def _selection(selection: pd.DataFrame, known: KnownStudies) -> Iterator[Table]:
    """One table per metric."""
    about = [
        "Other selection rules applied to the same runs, from the test accuracies recorded after every epoch. In "
        "brackets: the change from the rule as run, in points. The oracle looks at the test images: it is not a result "
        "but an upper bound for every rule."
    ]
    for metric, rows in selection.groupby("metric", sort=False):
        heads, lines = selection_lines(rows, known)
        texts = [
            [*names, *(f"{text} ({change})" if change else text for text, change, _ in cells)]
            for names, cells in lines
        ]
        title = metric_titles(known)[metric]
        yield Table(f"selection_{metric}", title, heads, texts, [], SELECTION, about, folded=True)


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


def _overall(tables: Mapping[str, pd.DataFrame], known: KnownStudies) -> Iterator[Table]:
    none = f"none for fewer than {FEWEST} samples."
    about = [
        "The means of dataset samples over all bindings. 95 % intervals: over the dataset samples, for these "
        f"bindings; {none}"
    ]
    rows = [
        [
            r.baseline,
            known.title(r.study),
            "-" if r.n == 0 else f"{100 * r.mean:.1f}",
            interval(r.low, r.high),
            str(r.samples),
            str(r.bindings),
            f"{r.n} of {r.expected}",
        ]
        for r in tables["overall"].itertuples(index=False)
    ]
    heads = ["baseline", "study", "mean", "95 % interval", "samples", "bindings", "runs"]
    title = "Mean over all bindings and samples"
    yield Table("overall", title, heads, rows, [], OVERALL, about, folded=True)
    rows = [
        [
            known.title(r.study),
            r.first,
            r.second,
            points(r.difference),
            interval(r.low, r.high, change=True),
            str(r.samples),
            str(r.bindings),
        ]
        for r in tables["baselines"].itertuples(index=False)
    ]
    heads = ["study", "first", "second", "difference", "95 % interval", "samples", "bindings"]
    note = (
        "First minus second, in points, over all bindings and samples that both have. The intervals are not corrected "
        "for the number of comparisons."
    )
    title = "Baselines compared, paired by dataset"
    yield Table("baselines", title, heads, rows, [note], OVERALL, about, folded=True)


def _run_times(times: pd.DataFrame) -> Iterator[Table]:
    if not len(times):
        return
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
    yield Table("run_times", "Mean over runs", heads, rows, section="Run times")


def matrix_tables(p: pd.DataFrame, known: KnownStudies = SHIPPED) -> list[Table]:
    """Every P_ij matrix in percent: rows target factors, columns cue factors (none without
    cues)."""
    shown = p[(p["group"] == "ood") | (p["cue"] == "")]
    found = []
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
        heads = ["target", *(cue or "no cue" for cue in cues)]
        title = f"{known.title(study)}, {baseline}"
        found.append(
            Table(f"{study}_{baseline}", title, heads, rows, section=MATRICES, about=[NUMBERS])
        )
    return found


def matrix_columns(cues: pd.Series, factors: Sequence[str]) -> list[str]:
    """Columns of a P_ij matrix: all factors, or the cue combinations of a study with several cues;
    '' for none."""
    asked = list(dict.fromkeys(cues))
    return list(factors) if asked != [""] and set(asked) <= set(factors) else asked


def markdown_page(tables: Sequence[Table], note: str, runs: pd.DataFrame) -> str:
    """Tables by section, then the missing runs. note: what must come first."""
    parts = ["# Tables", *(["", f"**{note}**"] if note else [])]
    for title, about, own in by_section(tables):
        parts += ["", f"## {title}"]
        parts += [line for text in about for line in ("", text)]
        parts += [line for table in own for line in ("", *markdown(table))]
    missing = [f"- {line}" for line in describe_missing(runs)]
    parts += ["", "## Missing runs", ""]
    return "\n".join([*parts, *(missing or ["None: every configured run is complete."])]) + "\n"


def latex_page(tables: Sequence[Table], note: str) -> str:
    """Tables by section; what is said about a section is a comment."""
    parts = ["% needs \\usepackage{booktabs}", *([f"% {note}"] if note else [])]
    for title, about, own in by_section(tables):
        parts += ["", f"% {title}", *(f"% {text}" for text in about)]
        parts += [line for table in own for line in ("", *latex(table, note))]
    return "\n".join(parts) + "\n"
