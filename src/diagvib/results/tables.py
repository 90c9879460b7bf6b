"""Tables from runs: aggregated over samples and cues, compared with the paper, written in every
format."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import open_parquet, read_table, write_json, write_table, write_text
from diagvib.results import TIDY
from diagvib.results.agreement import agreement_table
from diagvib.results.average_methods import average_methods
from diagvib.results.comparability import baseline_settings, judge_runs, mixed_note
from diagvib.results.gap_methods import gap_methods
from diagvib.results.gaps import part_of
from diagvib.results.known_studies import known_studies
from diagvib.results.metric_sets import metric_tables
from diagvib.results.paper import of_paper
from diagvib.results.read_runs import Collected, history_table, read_runs, run_times, versions
from diagvib.results.reference import reference_table
from diagvib.results.selection import selection_table
from diagvib.results.selection_average import read_searches, selection_average
from diagvib.results.shortcut import is_comparable
from diagvib.results.shown import latex_page, markdown_page, matrix_tables, shown_tables
from diagvib.results.verdicts import comparison_table, summary_table
from diagvib.scenes import load_scene

# Text columns, in which empty fields may occur; otherwise CSV readers would take these for missing
# numbers.
_MAYBE_EMPTY = {
    "study",
    "binding",
    "target",
    "cue",
    "environment",
    "model",
    "method",
    "supervision",
    "reason",
    "sources",
    "mentions",
    "protocol",
    "reference",
    "note",
    "cue_1_verdict",
    "cue_2_verdict",
}


def source_note(frame: pd.DataFrame, settings: dict) -> str:
    """The note for everything made from sources other than the paper's, or from photos of which
    some were left out; empty if none is needed.

    If nothing has run yet, the configuration's `sources` decide.
    """
    ran = sorted(set(frame[frame["status"] == "ok"]["sources"]))
    made = f"Made from {' and '.join(ran or [settings.get('sources', 'official')])} sources"
    if is_comparable(frame) or (not ran and settings.get("sources", "official") == "official"):
        return f"{made}." if {*ran} - {"official"} else ""
    return f"{made}: not comparable to the paper."


def scratch_note(frame: pd.DataFrame, settings: dict) -> str:
    """Which baselines train on photos without published weights, where the papers start from them;
    empty if none do."""
    studies = known_studies(settings).studies
    photos = {
        name
        for name in frame["study"].unique()
        if name in studies and load_scene(studies[name].scene).replicates == "seeds"
    }
    own = frame[frame["study"].isin(photos)]
    models = {
        name: part_of(made, "model")
        for name, made in baseline_settings(own, [None] * len(own), settings).items()
    }
    scratch = [name for name, model in models.items() if not model.get("weights")]
    return (
        f"Trained from scratch, not from published weights as in the paper: {', '.join(scratch)}."
        if scratch
        else ""
    )


def make_tables(
    collected: Collected, settings: dict, tuned: Path | None = None
) -> dict[str, pd.DataFrame]:
    """Every tidy table by name. The column `sources` of the aggregated ones says what they were
    made from.

    Tables with a paper's numbers have no rows if no study of that paper is configured. tuned:
    folder of tuning results.
    """
    frame, known = collected.frame, known_studies(settings)
    sources = " and ".join(sorted(set(frame["sources"].dropna())))
    baselines = baseline_settings(frame, collected.made, settings)
    made = metric_tables(frame, collected.cells, known, baselines)
    judged = judge_runs(frame, collected.made, settings)
    comparison = comparison_table(made["metrics"], made["contrasts"], frame, settings, judged)
    comparison = comparison if of_paper(frame["study"]) else comparison[:0]
    made |= {
        "comparison": comparison,
        "summary": summary_table(comparison),
        "agreement": agreement_table(comparison),
        "reference": reference_table(made["metrics"], made["contrasts"], comparison, judged),
        "gap_methods": gap_methods(made["gaps"], made["whac_a_mole"], frame, known, baselines),
        "average_methods": average_methods(made["average"], frame, known, baselines),
        "selection": _selection(collected, known.judged_by("shortcut", frame["study"]), baselines),
        "selection_average": selection_average(collected, read_searches(tuned), known, baselines),
    }
    return {
        "runs": frame,
        **{name: made[name].assign(sources=sources) for name in TIDY if name in made},
        "run_times": run_times(collected),
    }


def _selection(
    collected: Collected, studies: list[str], baselines: dict[str, dict]
) -> pd.DataFrame:
    chosen = collected.frame["study"].isin(studies)
    epochs = [own for own, of in zip(collected.selectable(), chosen, strict=True) if of]
    return selection_table(collected.frame[chosen], epochs, baselines, collected.history)


def write_tables(
    collected: Collected, out: Path, settings: dict, tuned: Path | None = None
) -> None:
    """Tidy CSV and Parquet (accuracies are fractions, an empty field is a missing number), Markdown
    and LaTeX."""
    tables = make_tables(collected, settings, tuned)
    frame = collected.frame
    mixed = mixed_note(collected.made)
    note = " ".join(
        filter(None, [source_note(frame, settings), scratch_note(frame, settings), mixed])
    )
    known = known_studies(settings)
    for name, table in tables.items():
        write_text(Path(out) / f"{name}.csv", table.to_csv(index=False, float_format="%.10g"))
    for name, table in {
        **tables,
        "cells": collected.cells,
        "history": history_table(collected),
    }.items():
        content = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        write_table(Path(out) / f"{name}.parquet", content, {"table": name})
    shown, matrices = shown_tables(tables, known), matrix_tables(tables["p_matrix"], known)
    for name, text in {
        "tables.md": markdown_page(shown, note, frame),
        "tables.tex": latex_page(shown, note),
        "p_matrix.md": markdown_page(matrices, note, frame),
        "p_matrix.tex": latex_page(matrices, note),
    }.items():
        write_text(Path(out) / name, known.about_repetitions(text, frame["study"]))


def tabulate(
    runs: Path,
    out: Path,
    expected: Iterable[dict],
    settings: dict,
    threads: int = 1,
    tuned: Path | None = None,
) -> pd.DataFrame:
    """Read every expected run under `runs`, write `results.TABLE_FILES` to `out`; returns the frame
    of `collect_runs`.

    threads: the most processes that read; tuned: folder of tuning results, if any.
    """
    collected = read_runs(runs, expected, threads, known_studies(settings))
    frame = collected.frame
    write_tables(collected, out, settings, tuned)
    write_json(
        Path(out) / "versions.json",
        {
            **versions(collected),
            "sources": sorted(set(frame["sources"].dropna())),
            "comparable": is_comparable(frame),
            "mixed": mixed_note(collected.made),
            "settings": settings,
        },
    )
    return frame


def read_tables(tables: Path) -> dict[str, pd.DataFrame]:
    """The tidy tables by name. DiagvibError if one is missing or damaged."""
    frames = {}
    for name in TIDY:
        path = Path(tables) / f"{name}.csv"
        try:
            frames[name] = pd.read_csv(path)
            whole = {column: float for column in frames[name] if column.endswith("_n")}
            frames[name] = frames[name].astype(whole)
        except (OSError, ValueError) as error:
            raise DiagvibError(
                f"{path}: not readable ({one_line(error)}); run `diagvib tabulate` again"
            ) from None
        _check_columns(frames[name], path)
        for column in set(frames[name].columns) & _MAYBE_EMPTY:
            frames[name][column] = (
                frames[name][column].astype(object).where(frames[name][column].notna(), "")
            )
    return frames


def _check_columns(frame: pd.DataFrame, path: Path) -> None:
    """DiagvibError unless a table read from CSV has the rows, columns and numbers of its Parquet
    file."""
    with open_parquet(path.with_suffix(".parquet")) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    texts = [
        field.name
        for field in schema
        if field.name in frame
        and len(frame)
        and pa.types.is_floating(field.type)
        and not pd.api.types.is_numeric_dtype(frame[field.name])
    ]
    if list(frame) != schema.names or len(frame) != rows or texts:
        what = f"its column {texts[0]} contains text" if texts else "its rows or columns differ"
        raise DiagvibError(
            f"{path}: does not match {path.stem}.parquet next to it: {what}; run `diagvib tabulate` "
            "again"
        )


def read_histories(tables: Path, baseline: str) -> pd.DataFrame:
    """Every recorded epoch of a baseline's runs, as `read_runs.history_table` gives it."""
    return read_table(
        Path(tables) / "history.parquet", filters=pc.field("baseline") == baseline
    ).to_pandas()


def read_preferences(tables: Path, study: str) -> pd.DataFrame:
    """Every recorded epoch of a study's runs, with what their predictions on validation images
    agree with."""
    path = Path(tables) / "history.parquet"
    with open_parquet(path) as file:
        followed = [name for name in file.schema_arrow.names if name.startswith("val_follows_cue_")]
    columns = ["baseline", "study", "binding", "sample", "epoch", "val_accuracy", *followed]
    return read_table(path, columns, filters=pc.field("study") == study).to_pandas()
