"""Tables from runs: aggregated over samples and cues, compared with the paper, written in every form."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import open_parquet, read_table, write_json, write_table, write_text
from diagvib.results.agreement import agreement_table
from diagvib.results.comparability import judge_runs
from diagvib.results.formats import latex_matrices, latex_tables, markdown_matrices, markdown_tables
from diagvib.results.metrics import accuracy_array, chgo_minus_zgo, estimate, faavg, famin
from diagvib.results.paper import beside_paper
from diagvib.results.read_runs import Collected, history_table, read_runs, run_times, versions
from diagvib.results.reference import likeness_table, reference_table
from diagvib.results.selection import selection_table
from diagvib.results.uncertainty import baseline_comparisons, overall_table, sample_interval
from diagvib.results.verdicts import comparison_table, summary_table
from diagvib.studies.study import GROUPS

# The tidy tables, each as CSV and as Parquet.
TIDY = ("runs", "p_matrix", "metrics", "chgo_minus_zgo", "comparison", "summary", "agreement", "reference", "likeness",
        "overall", "baselines", "selection", "run_times")

# What `tabulate` writes under results/tables.
TABLE_FILES = (*(f"{name}.{kind}" for name in TIDY for kind in ("csv", "parquet")), "history.parquet", "versions.json",
               "tables.md", "tables.tex", "p_matrix.md", "p_matrix.tex")


def p_matrix(frame: pd.DataFrame) -> pd.DataFrame:
    """P_ij (ZSO: P_i, cue empty) per study, baseline and group: mean, stderr, n, expected. (Paper, Sec. 3.4.)"""
    rows = []
    for (study, baseline, target, cue), runs in frame.groupby(["study", "baseline", "target", "cue"], sort=False):
        for group in GROUPS if cue else GROUPS[:1]:
            mean, stderr, n = estimate(runs[f"{group}_accuracy"])
            rows.append({"study": study, "baseline": baseline, "target": target, "cue": cue, "group": group,
                         "mean": mean, "stderr": stderr, "n": n, "expected": len(runs)})
    columns = ["study", "baseline", "target", "cue", "group", "mean", "stderr", "n", "expected"]
    return pd.DataFrame(rows, columns=columns)


def metrics_table(frame: pd.DataFrame) -> pd.DataFrame:
    """FAAvg, FAMin and in-distribution accuracy over the configured cues, the paper's numbers beside them.

    Columns: study, baseline, target, metric, mean, stderr, low, high, n, expected, cues, paper_mean, paper_stderr,
    difference. low, high: 95 % t interval over the samples. For ZSO faavg is P_i, on its one group.
    """
    rows = []
    for (study, baseline, target), runs in frame.groupby(["study", "baseline", "target"], sort=False):
        correlated = (runs["cue"] != "").all()
        for metric, reduce, group in _METRICS if correlated else [("faavg", faavg, "id")]:
            acc = accuracy_array(runs, runs[f"{group}_accuracy"])
            mean, stderr, n = reduce(acc)
            low, high = sample_interval(acc.min(axis=1) if metric == "famin" else acc.mean(axis=1))
            rows.append({"study": study, "baseline": baseline, "target": target, "metric": metric, "mean": mean,
                         "stderr": stderr, "low": low, "high": high, "n": n, "expected": len(acc),
                         "cues": acc.shape[1] if correlated else 0})
    columns = ["study", "baseline", "target", "metric", "mean", "stderr", "low", "high", "n", "expected", "cues"]
    return beside_paper(pd.DataFrame(rows, columns=columns), "stderr", is_comparable(frame))


_METRICS: list[tuple[str, Callable, str]] = [("faavg", faavg, "ood"), ("famin", famin, "ood"),
                                             ("id_accuracy", faavg, "id")]


def chgo_table(frame: pd.DataFrame) -> pd.DataFrame:
    """CHGO minus ZGO per baseline and target, where both studies are configured (paper, Table 2).

    Columns: baseline, target, mean, std, n, expected, cues, paper_mean, paper_std, difference.
    """
    rows = []
    for (baseline, target), runs in frame.groupby(["baseline", "target"], sort=False):
        chgo, zgo = (runs[runs["study"] == study] for study in ("chgo", "zgo"))
        if len(chgo) and len(zgo):
            acc = accuracy_array(chgo, chgo["ood_accuracy"])
            change = chgo_minus_zgo(acc, accuracy_array(zgo, zgo["ood_accuracy"]))
            rows.append({"study": "chgo", "baseline": baseline, "target": target, "metric": "improvement_over_zgo",
                         "mean": change.mean, "std": change.std, "n": change.n, "expected": len(acc),
                         "cues": acc.shape[1]})
    columns = ["study", "baseline", "target", "metric", "mean", "std", "n", "expected", "cues"]
    table = beside_paper(pd.DataFrame(rows, columns=columns), "std", is_comparable(frame))
    return table.drop(columns=["study", "metric"])


def is_comparable(frame: pd.DataFrame) -> bool:
    """Whether something ran, and all that ran used the paper's sources."""
    ok = frame[frame["status"] == "ok"]
    return bool(len(ok)) and bool(ok["comparable"].astype(bool).all())


def source_note(frame: pd.DataFrame, settings: dict) -> str:
    """What must stand on everything made from other sources than the paper's; empty where nothing must.

    While nothing has run, the configuration's `sources` decide.
    """
    ran = sorted(set(frame[frame["status"] == "ok"]["sources"]))
    if is_comparable(frame) or (not ran and settings.get("sources", "official") == "official"):
        return ""
    return f"Made from {' and '.join(ran or [settings['sources']])} sources: not comparable to the paper."


def make_tables(collected: Collected, settings: dict) -> dict[str, pd.DataFrame]:
    """Every tidy table by name. The aggregated ones say in a column `sources` what they were made from."""
    frame = collected.frame
    sources = " and ".join(sorted(set(frame["sources"].dropna())))
    metrics, chgo = metrics_table(frame), chgo_table(frame)
    judged = judge_runs(frame, collected.made, settings)
    comparison = comparison_table(metrics, chgo, frame, settings, judged)
    reference = reference_table(metrics, chgo, comparison, judged)
    aggregated = {"p_matrix": p_matrix(frame), "metrics": metrics, "chgo_minus_zgo": chgo, "comparison": comparison,
                  "summary": summary_table(comparison), "agreement": agreement_table(comparison),
                  "reference": reference, "likeness": likeness_table(reference), "overall": overall_table(frame),
                  "baselines": baseline_comparisons(frame), "selection": selection_table(frame, collected.epochs)}
    return {"runs": frame, **{name: table.assign(sources=sources) for name, table in aggregated.items()},
            "run_times": run_times(collected)}


def write_tables(collected: Collected, out: Path, settings: dict) -> None:
    """Tidy CSV and Parquet (accuracies are fractions, an empty field is a missing number), Markdown and LaTeX."""
    tables, note = make_tables(collected, settings), source_note(collected.frame, settings)
    for name, table in tables.items():
        write_text(Path(out) / f"{name}.csv", table.to_csv(index=False, float_format="%.10g"))
    for name, table in {**tables, "history": history_table(collected)}.items():
        content = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        write_table(Path(out) / f"{name}.parquet", content, {"table": name})
    write_text(Path(out) / "tables.md", markdown_tables(tables, note))
    write_text(Path(out) / "tables.tex", latex_tables(tables, note))
    write_text(Path(out) / "p_matrix.md", markdown_matrices(tables["p_matrix"], note))
    write_text(Path(out) / "p_matrix.tex", latex_matrices(tables["p_matrix"], note))


def tabulate(runs: Path, out: Path, expected: Iterable[dict], settings: dict, threads: int = 1) -> pd.DataFrame:
    """Read every expected run under `runs`, write TABLE_FILES to `out`; returns the frame of `collect_runs`.

    threads: the most processes that read.
    """
    collected = read_runs(runs, expected, threads)
    frame = collected.frame
    write_tables(collected, out, settings)
    write_json(Path(out) / "versions.json", {
        **versions(collected), "sources": sorted(set(frame["sources"].dropna())), "comparable": is_comparable(frame),
        "settings": settings})
    return frame


def read_tables(tables: Path) -> dict[str, pd.DataFrame]:
    """The tidy tables by name. DiagvibError if one is absent or damaged."""
    frames = {}
    for name in TIDY:
        path = Path(tables) / f"{name}.csv"
        try:
            frames[name] = pd.read_csv(path, dtype={"id_n": float, "ood_n": float})
        except (OSError, ValueError) as error:
            raise DiagvibError(f"{path}: not readable ({one_line(error)}); run `diagvib tabulate` again") from None
        _check_columns(frames[name], path)
        for column in set(frames[name].columns) & {"cue", "reason", "sources", "mentions", "protocol"}:
            frames[name][column] = frames[name][column].astype(object).where(frames[name][column].notna(), "")
    return frames


def _check_columns(frame: pd.DataFrame, path: Path) -> None:
    """DiagvibError unless a table read from CSV has the rows, columns and numbers of its Parquet file."""
    with open_parquet(path.with_suffix(".parquet")) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    texts = [field.name for field in schema if field.name in frame and len(frame)
             and pa.types.is_floating(field.type) and not pd.api.types.is_numeric_dtype(frame[field.name])]
    if list(frame) != schema.names or len(frame) != rows or texts:
        what = f"its column {texts[0]} holds text" if texts else "its rows or columns are others"
        raise DiagvibError(f"{path}: not the table of {path.stem}.parquet beside it, {what}; run `diagvib tabulate` "
                           "again")


def read_histories(tables: Path, baseline: str) -> pd.DataFrame:
    """Every recorded epoch of a baseline's runs, as `collect.history_table` gives it."""
    return read_table(Path(tables) / "history.parquet", filters=pc.field("baseline") == baseline).to_pandas()


def telling_bindings(p: pd.DataFrame) -> pd.DataFrame:
    """Which pairs show a shortcut best: baseline, target, cue, zso, zgo, recovered, by (study); best first.

    p: the table of `p_matrix`. zso: accuracy without correlation; zgo: where the cue misleads after training on nothing
    but the shortcut; recovered: the best of the studies with generalization opportunities. NaN where nothing ran.
    """
    accuracy = p[((p["group"] == "ood") | (p["cue"] == "")) & (p["n"] > 0)]
    rows = []
    for (baseline, target, cue), _ in p[p["cue"] != ""].groupby(["baseline", "target", "cue"], sort=False):
        own = accuracy[(accuracy["baseline"] == baseline) & (accuracy["target"] == target)]
        means = own[own["cue"].isin(["", cue])].set_index("study")["mean"]
        others = means.drop(["zso", "zgo", "chgo"], errors="ignore")
        rows.append({"baseline": baseline, "target": target, "cue": cue, "zso": means.get("zso", np.nan),
                     "zgo": means.get("zgo", np.nan), "recovered": others.max() if len(others) else np.nan,
                     "by": others.idxmax() if len(others) else ""})
    found = pd.DataFrame(rows, columns=["baseline", "target", "cue", "zso", "zgo", "recovered", "by"])
    score = found["zso"].fillna(1) - 2 * found["zgo"] + found["recovered"].fillna(found["zgo"])
    return found.loc[score.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)
