"""All tables: those of the results, with the papers' numbers beside ours."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from diagvib.foundation.files import write_json, write_text
from diagvib.papers.diagvib6.agreement import agreement_table, variance_ratio
from diagvib.papers.diagvib6.comparability import judge_runs
from diagvib.papers.diagvib6.published import PAPER_KEYS, of_paper
from diagvib.papers.diagvib6.verdict_tables import VERDICT, verdict_found, verdict_tables
from diagvib.papers.diagvib6.verdicts import comparison_table
from diagvib.papers.notes import scratch_note, source_note
from diagvib.results import TIDY
from diagvib.results.published import beside_papers, is_comparable
from diagvib.results.read_runs import Collected, mixed_note, read_runs, versions
from diagvib.results.reader_tables import (
    Frames,
    Table,
    by_section,
    describe_doubtful,
    describe_missing,
    latex,
    markdown,
    markdown_with_code,
    metrics_of,
)
from diagvib.results.tidy_tables import (
    baseline_settings,
    make_tables,
    marked,
    result_tables,
    time_table,
    with_warnings,
    write_scores,
    write_tidy,
)
from diagvib.studies.known_studies import KnownStudies, known_studies


def all_tables(
    collected: Collected, settings: dict, studies_known: KnownStudies, tuned: Path | None = None
) -> Frames:
    """Every tidy table by name. The column `sources` of the aggregated ones says what they were
    made from.

    Tables with a paper's numbers have no rows if no study of that paper is configured. settings:
    the configuration; tuned: folder of tuning results.
    """
    frame = collected.frame
    baselines = baseline_settings(frame["baseline"].unique(), settings)
    frames = make_tables(collected, studies_known, baselines, tuned)
    judgements = judge_runs(frame, collected.provenance, settings)
    ours = metrics_of(frames, "shortcut")
    comparison = comparison_table(ours, frame, judgements)
    comparison = comparison if of_paper(frame["study"]) else comparison[:0]
    metrics = beside_papers(frames["metrics"], frame, studies_known, baselines)
    verdicts = comparison[[*PAPER_KEYS, "verdict"]]
    frames |= {
        "metrics": with_warnings(
            metrics.merge(verdicts, how="left", on=PAPER_KEYS).fillna({"verdict": ""}), frame
        ),
        "comparison": comparison,
        "agreement": agreement_table(comparison, variance_ratio(frame)),
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
    studies = tables["runs"]["study"].unique()
    return [
        replace(
            table,
            introduction=[known_studies.in_words(text, studies) for text in table.introduction],
        )
        for table in marked(all_shown, tables, known_studies)
        if table.rows
    ]


def write_tables(
    collected: Collected,
    out: Path,
    settings: dict,
    studies_known: KnownStudies,
    tuned: Path | None = None,
    scores: Path | None = None,
) -> None:
    """The tidy tables as CSV and Parquet; those for readers as Markdown and LaTeX; the numbers for
    git, to the folder `scores`; and then versions.json."""
    tables, frame = all_tables(collected, settings, studies_known, tuned), collected.frame
    provenance = versions(collected)
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
    if scores:
        write_scores(tables["metrics"], studies_known, scores)
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
    scores: Path | None = None,
) -> pd.DataFrame:
    """Read every expected run under `runs`, write `results.TABLE_FILES` to `out`; returns the frame
    of `read_runs`.

    threads: the most processes that read; tuned: folder of tuning results, if any; scores: folder
    for the numbers for git, if they are wanted.
    """
    studies_known = known_studies(settings)
    collected = read_runs(runs, expected, threads, studies_known)
    write_tables(collected, out, settings, studies_known, tuned, scores)
    return collected.frame
