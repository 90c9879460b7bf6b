"""All tables: those of the results, with the papers' numbers beside ours."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from diagvib.foundation.files import write_json, write_text
from diagvib.reproduction.agreement import (
    agreement_sentence,
    agreement_table,
    rule_sentence,
    simulated_sentence,
)
from diagvib.reproduction.comparability import judge_runs, scratch_note, source_note
from diagvib.reproduction.published import beside_papers, is_comparable, of_paper
from diagvib.reproduction.verdicts import (
    COMPARED,
    KEYS,
    LEAST_SAMPLES,
    MARGIN,
    comparison_table,
    verdict_sentence,
)
from diagvib.results import TIDY
from diagvib.results.known_studies import KnownStudies, known_studies
from diagvib.results.read_runs import Collected, mixed_note, read_runs, versions
from diagvib.results.table import (
    Frames,
    Table,
    by_section,
    describe_doubtful,
    describe_missing,
    latex,
    markdown,
    markdown_with_code,
    points,
)
from diagvib.results.tables import (
    baseline_settings,
    make_tables,
    mark_doubtful,
    metrics_of,
    result_tables,
    time_table,
    with_warnings,
    write_tidy,
)

VERDICT = "Comparison with the paper"
MARKED = (
    "A mark after our number compares it with the paper's: `=` agrees, the whole 95 % interval of the difference lies "
    f"within {100 * MARGIN:.0f} points; `≠` differs, it reaches beyond that and excludes zero; `?` cannot tell, neither "
    f"of these or fewer than {LEAST_SAMPLES} samples. The paper states neither the divisor of its spreads nor what the "
    "standard deviation in its Table 2 is taken over; here it is that of paired differences over the samples."
)


def all_tables(collected: Collected, settings: dict, tuned: Path | None = None) -> Frames:
    """Every tidy table by name. The column `sources` of the aggregated ones says what they were
    made from.

    Tables with a paper's numbers have no rows if no study of that paper is configured. settings:
    the configuration; tuned: folder of tuning results.
    """
    frame, studies_known = collected.frame, known_studies(settings)
    baselines = baseline_settings(frame["baseline"].unique(), settings)
    frames = make_tables(collected, studies_known, baselines, tuned)
    judgements = judge_runs(frame, collected.made, settings)
    ours = metrics_of(frames, "shortcut")
    comparison = comparison_table(ours, frame, judgements)
    comparison = comparison if of_paper(frame["study"]) else comparison[:0]
    metrics = beside_papers(frames["metrics"], frame, studies_known, baselines)
    verdicts = comparison[[*KEYS, "verdict"]]
    frames |= {
        "metrics": with_warnings(
            metrics.merge(verdicts, how="left", on=KEYS).fillna({"verdict": ""}), frame
        ),
        "comparison": comparison,
        "agreement": agreement_table(comparison),
    }
    sources = " and ".join(sorted(set(frame["sources"].dropna())))
    single = ("runs", "run_times")
    return {
        name: frames[name] if name in single else frames[name].assign(sources=sources)
        for name in TIDY
    }


def shown_tables(tables: Frames, known_studies: KnownStudies) -> list[Table]:
    """Every table for readers that has rows, in the order of the page: those of tables.md,
    tables.tex and the report. tables: the tidy ones."""
    all_shown = [*result_tables(tables, known_studies), *verdict_tables(tables, known_studies)]
    all_shown.append(time_table(tables["run_times"]))
    runs = tables["runs"]
    studies = runs["study"].unique()
    return [
        replace(
            mark_doubtful(table, runs, known_studies),
            about=[known_studies.in_words(text, studies) for text in table.about],
        )
        for table in all_shown
        if table.rows
    ]


def verdict_found(comparison: pd.DataFrame) -> list[str]:
    """How many cells agree with the paper's, and why others cannot be compared."""
    reason_counts = comparison.loc[
        comparison["verdict"] == "not comparable", "reason"
    ].value_counts()
    reasons = [
        f"Not comparable, {count} cells: {reason}." for reason, count in reason_counts.items()
    ]
    return [verdict_sentence(comparison), *reasons]


def verdict_tables(tables: Frames, known_studies: KnownStudies) -> Iterator[Table]:
    """No tables if no cell can be compared."""
    comparison, agreement = tables["comparison"], tables["agreement"]
    if not comparison["verdict"].isin(COMPARED).any():
        return
    sentences = verdict_found(comparison)
    if len(agreement):
        sentences += [agreement_sentence(agreement), rule_sentence()]
    sentences += [MARKED, simulated_sentence()]
    # Of the smallest groups, those that differ.
    smallest = agreement["by"].str.contains(",", regex=False).astype(bool)
    stated = agreement[~smallest | (agreement["statement"] == "differs")]
    rows = [
        [
            r.by,
            r.name,
            str(r.cells),
            points(r.mean_difference) if r.by != "spread" else "-",
            f"{r.score:.2f}",
            f"{r.usual:.2f}",
            f"{r.p:.3f}",
            r.statement,
        ]
        for r in stated.itertuples()
    ]
    heads = ["by", "name", "compared", "mean difference", "score", "90 % of honest below", "p"]
    heads += ["statement"]
    yield Table("All cells together", heads, rows, section=VERDICT, about=sentences)
    cells_with_runs = comparison[comparison["n"] > 0]
    title = f"Cell by cell: {len(cells_with_runs)} cells of the paper's {len(comparison)}"
    heads = ["table", "study", "baseline", "factor", "metric", "ours", "paper", "difference"]
    heads += ["±", "verdict", "remarks"]
    rows = [
        [
            r.table,
            known_studies.title(r.study),
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
        for r in cells_with_runs.itertuples()
    ]
    yield Table(title, heads, rows, section=VERDICT, about=sentences, folded=True)


def write_tables(
    collected: Collected, out: Path, settings: dict, tuned: Path | None = None
) -> None:
    """The tidy tables as CSV and Parquet; those for readers as Markdown and LaTeX; versions.json."""
    tables, frame = all_tables(collected, settings, tuned), collected.frame
    studies_known, provenance = known_studies(settings), versions(collected)
    mixed = mixed_note(provenance["versions"])
    write_tidy(tables, collected, out)
    notes = source_note(frame, settings), scratch_note(frame, settings), mixed
    note = " ".join(filter(None, notes))
    page_tables, compared = shown_tables(tables, studies_known), []
    if len(tables["comparison"]) and VERDICT not in {table.section for table in page_tables}:
        compared = verdict_found(tables["comparison"])
    for name, text in {
        "tables.md": markdown_page(page_tables, note, frame, compared),
        "tables.tex": latex_page(page_tables, note),
    }.items():
        write_text(out / name, text)
    provenance |= {
        "sources": sorted(set(frame["sources"].dropna())),
        "comparable": is_comparable(frame),
        "mixed": mixed,
        "settings": settings,
    }
    write_json(out / "versions.json", provenance)


def markdown_page(
    tables: Sequence[Table], note: str, runs: pd.DataFrame, compared: Sequence[str]
) -> str:
    """Tables by section, then missing and doubtful runs. note: what must come first; compared: why
    nothing can be compared with the paper."""
    parts = ["# Tables", *([f"**{note}**"] if note else [])]
    for title, sentences, section_tables in by_section(tables):
        parts += [f"## {title}", *map(markdown_with_code, sentences)]
        parts += ["\n".join(markdown(table)) for table in section_tables]
    missing = [f"- {markdown_with_code(line)}" for line in describe_missing(runs)]
    missing = missing or ["None: every configured run is complete."]
    parts += [*compared, "## Missing runs", "\n".join(missing)]
    if doubtful := describe_doubtful(runs):
        parts += [
            "## Doubtful runs",
            "\n".join(f"- {markdown_with_code(line)}" for line in doubtful),
        ]
    return "\n\n".join(parts) + "\n"


def latex_page(tables: Sequence[Table], note: str) -> str:
    """Tables by section; what is said about a section is a comment."""
    parts = ["% needs \\usepackage{booktabs}", *([f"% {note}"] if note else [])]
    for title, sentences, section_tables in by_section(tables):
        parts += ["", f"% {title}", *(f"% {text}" for text in sentences)]
        parts += [line for table in section_tables for line in ("", *latex(table, note))]
    return "\n".join(parts) + "\n"


def tabulate(
    runs: Path,
    out: Path,
    expected: Iterable[dict],
    settings: dict,
    threads: int = 1,
    tuned: Path | None = None,
) -> pd.DataFrame:
    """Read every expected run under `runs`, write `results.TABLE_FILES` to `out`; returns the frame
    of `read_runs`.

    threads: the most processes that read; tuned: folder of tuning results, if any.
    """
    collected = read_runs(runs, expected, threads, known_studies(settings))
    write_tables(collected, out, settings, tuned)
    return collected.frame
