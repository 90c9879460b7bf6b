"""The paper's tables in the paper's form, ours filled in: Markdown and LaTeX (Tables 2 and A2-A9, Figs. 4a and 5a)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from diagvib.results.agreement import SIMULATED, agreement_sentence, marks_sentence, simulated_lines, simulated_sentence
from diagvib.results.comparability import NOT_TUNED
from diagvib.results.paper import METRIC_TITLES, PAPER_CUES, describe_holes, paper_percent, percent, points
from diagvib.results.reference import reference_note, reference_sentences
from diagvib.results.selection import AS_RUN, RULES
from diagvib.results.verdicts import KEYS, LEAST_SAMPLES, MARGIN, VERDICTS, verdict_sentence
from diagvib.scenes.digits.factors import FACTORS

# How a compared number is marked.
MARKS = {"agrees": "=", "differs": "≠", "cannot tell": "?"}
UNTUNED = "†"
LEGEND = ("Percent, mean ± standard error over the dataset samples (CHGO minus ZGO: ± standard deviation). n is "
          "given where it is 1 or smaller than configured; `-` is a missing run. Spreads are over the dataset samples "
          "of one factor's mean over cues, with divisor n - 1; the paper does not state its divisor, nor for Table 2 "
          "over what its standard deviation is taken: here it is over the samples, of paired differences. Beside the "
          f"paper's numbers `=` agrees: the whole 95 % interval of the difference lies within {100 * MARGIN:.0f} "
          "points; `≠` differs: it does not, and excludes zero; `?` cannot tell: neither, or fewer than "
          f"{LEAST_SAMPLES} samples. {UNTUNED} settings {NOT_TUNED}.")


@dataclass(frozen=True)
class Block:
    """One table: a study's numbers of one metric. rows: name and one text per factor."""

    metric: str
    study: str
    factors: list[str]
    rows: list[tuple[str, list[str]]]
    notes: list[str]


def blocks(tables: dict[str, pd.DataFrame]) -> Iterator[Block]:
    """The paper's tables, metric by metric and study by study; below each baseline the paper's row where it has one."""
    rows = with_chgo(tables["metrics"], tables["chgo_minus_zgo"])
    verdicts, untuned = tables["comparison"].set_index(KEYS)["verdict"].to_dict(), untuned_baselines(tables)
    for metric in METRIC_TITLES:
        for study, table in rows[rows["metric"] == metric].groupby("study", sort=False):
            factors = [f for f in FACTORS if f in set(table["target"])]
            lines = []
            for baseline, own in table.groupby("baseline", sort=False):
                lines += _lines(baseline, own.set_index("target"), factors, verdicts, baseline in untuned)
            yield Block(metric, study, factors, lines, _notes(table, tables["runs"]))


def untuned_baselines(tables: dict[str, pd.DataFrame]) -> set[str]:
    """The baselines whose every verdict rests on settings that nobody tuned."""
    told = [tables["comparison"][["baseline", "mentions"]], tables["reference"][["baseline", "protocol"]]]
    return {name for table in told for name, text in table.itertuples(index=False, name=None) if NOT_TUNED in text}


def with_chgo(metrics: pd.DataFrame, chgo: pd.DataFrame) -> pd.DataFrame:
    """The rows of Table 2 (CHGO minus ZGO) behind those of the others, their spread as stderr."""
    chgo = chgo.assign(study="chgo", metric="improvement_over_zgo")
    chgo = chgo.rename(columns={"std": "stderr", "paper_std": "paper_stderr"})
    return pd.concat([metrics, chgo]) if len(chgo) else metrics


def _lines(baseline: str, own: pd.DataFrame, factors: list[str], verdicts: dict,
           untuned: bool) -> list[tuple[str, list[str]]]:
    ours, theirs = [], []
    for factor in factors:
        row = own.loc[factor] if factor in own.index else None
        known = row is not None and row["paper_mean"] == row["paper_mean"]
        mark = MARKS.get(verdicts.get((row["study"], baseline, factor, row["metric"])), "") if known else ""
        text = "" if row is None else percent(*row[["mean", "stderr", "n", "expected"]])
        ours.append(f"{text} {mark}".strip())
        theirs.append(paper_percent(*row[["paper_mean", "paper_stderr"]]) if known else "")
    name = f"{baseline} {UNTUNED}" if untuned else baseline
    return [(name, ours), *([("paper", theirs)] if any(theirs) else [])]


def _notes(table: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    studies = {"chgo", "zgo"} if (table["metric"] == "improvement_over_zgo").all() else set(table["study"])
    concerned = runs[runs["study"].isin(studies) & runs["baseline"].isin(set(table["baseline"]))]
    partial = table[table["study"] != "zso"]
    few = sorted({(r.target, int(r.cues)) for r in partial.itertuples() if r.cues < PAPER_CUES})
    notes = [f"over the configured cues only: {', '.join(f'{t} {c} of {PAPER_CUES}' for t, c in few)}"] if few else []
    return notes + describe_holes(concerned)


def markdown_tables(tables: dict[str, pd.DataFrame], note: str = "") -> str:
    """Summary of the verdicts, then the paper's tables, holes and run times. note: what must stand above all else."""
    parts = ["# Tables", "", *([f"**{note}**", ""] if note else []), verdict_sentence(tables["comparison"]), "",
             *_agreement(tables["agreement"]), *_reference(tables), *_summary(tables["summary"]), "", LEGEND, "",
             simulated_sentence()]
    metric = None
    for block in blocks(tables):
        if block.metric != metric:
            metric = block.metric
            parts += ["", f"## {METRIC_TITLES[metric]}"]
        rows = [[f"*{name}*" if name == "paper" else name, *cells] for name, cells in block.rows]
        parts += ["", f"### {block.study.upper()}", "", *markdown_table(["baseline", *block.factors], rows)]
        parts += ["", *(f"- {line}" for line in block.notes)] if block.notes else []
    parts += _selection(tables["selection"])
    holes = describe_holes(tables["runs"])
    parts += ["", "## Missing runs", "", *([f"- {line}" for line in holes] or ["None: every configured run is there."])]
    return "\n".join([*parts, *_run_times(tables["run_times"]), *_simulated()]) + "\n"


def markdown_table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {' | '.join(row)} |" for row in rows)]


def _summary(summary: pd.DataFrame) -> list[str]:
    columns = [verdict.replace(" ", "_") for verdict in VERDICTS]
    rows = [[row["by"], row["name"], str(row["cells"]), *(str(row[c]) for c in columns)] for _, row in
            summary.iterrows()]
    return markdown_table(["by", "name", "cells", *VERDICTS], rows)


def _agreement(agreement: pd.DataFrame) -> list[str]:
    """The joint statements and what they rest on; nothing where no cell was compared."""
    if not len(agreement):
        return []
    heads, rows = agreement_lines(agreement)
    return [agreement_sentence(agreement), "", marks_sentence(), "", *markdown_table(heads, rows), ""]


def agreement_lines(agreement: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Heads and texts of `agreement.agreement_table`."""
    rows = [[r.by, r.name, str(r.cells), str(r.decided), points(r.mean_difference), f"{r.rms_z:.2f}", share(r.agreeing),
             share(r.order), f"{r.statement}{f' ({r.reason})' if r.reason else ''}"]
            for r in agreement.itertuples(index=False)]
    return ["by", "name", "compared", "decided", "mean difference", "RMS z", "agree", "same order", "statement"], rows


def share(value: float) -> str:
    return "-" if value != value else f"{100 * value:.0f} %"


def _reference(tables: dict[str, pd.DataFrame]) -> list[str]:
    """Models without a comparable cell beside the paper's nine; nothing where every model has one."""
    reference = tables["reference"]
    if not len(reference):
        return []
    heads, rows = reference_lines(reference)
    return ["## Beside the paper's nine", "", reference_note(reference), "",
            *(f"- {line}" for line in reference_sentences(reference, tables["likeness"])), "",
            *markdown_table(heads, rows), "", "## Verdicts", ""]


def reference_lines(reference: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Heads and texts of `reference.reference_table`."""
    rows = [[r.study.upper(), r.baseline, r.target, r.metric, f"{100 * r.ours:.1f}",
             f"{100 * r.paper_low:.0f} to {100 * r.paper_high:.0f}", f"{100 * r.paper_resnet18:.0f}",
             f"{r.rank} of {r.of}"] for r in reference.itertuples(index=False)]
    return ["study", "baseline", "factor", "metric", "ours", "paper's nine", "paper's resnet18", "rank"], rows


def _selection(selection: pd.DataFrame) -> list[str]:
    """What other rules of choosing the epoch would have given; nothing where no run noted it."""
    if not len(selection):
        return []
    parts = ["", "## Had another epoch been chosen", "", "In brackets the change to the rule as run, in points."]
    for metric, rows in selection.groupby("metric", sort=False):
        heads, lines = selection_lines(rows)
        texts = [[*names, *(f"{text} ({change})" if change else text for text, change, _ in cells)]
                 for names, cells in lines]
        parts += ["", f"### {METRIC_TITLES[metric]}", "", *markdown_table(heads, texts)]
    return parts


def selection_lines(selection: pd.DataFrame) -> tuple[list[str], list[tuple[list[str], list[tuple[str, str, float]]]]]:
    """Heads and lines of one metric's part of `selection.selection_table`: names, then per factor text, change in
    points and mean."""
    factors, lines = [f for f in FACTORS if f in set(selection["target"])], []
    for (study, baseline, rule), own in selection.groupby(["study", "baseline", "rule"], sort=False):
        cells = dict.fromkeys(factors, ("", "", float("nan")))
        for row in own.itertuples(index=False):
            change = "" if rule == AS_RUN or row.n == 0 else points(row.change)
            cells[row.target] = (percent(row.mean, row.stderr, row.n, row.expected), change, row.mean)
        lines.append(([study.upper(), baseline, RULES[rule]], list(cells.values())))
    return ["study", "baseline", "rule", *factors], lines


def _run_times(times: pd.DataFrame) -> list[str]:
    if not len(times):
        return []
    stages = [column for column in times if column.startswith("seconds_")]
    means = times.groupby("baseline", sort=False)[["images_per_second", *stages]].mean()
    rows = [[baseline, *("-" if v != v else f"{v:,.1f}" for v in row), f"{times['baseline'].eq(baseline).sum():,}"]
            for baseline, row in zip(means.index, means.to_numpy(), strict=True)]
    heads = ["baseline", "images/s", *(f"{stage.removeprefix('seconds_')}, s" for stage in stages), "runs"]
    return ["", "## Run times, mean over runs", "", *markdown_table(heads, rows)]


def _simulated() -> list[str]:
    heads, rows = simulated_lines()
    return ["", "## What equal distributions and wrong reproductions score", "", SIMULATED, "",
            *markdown_table(heads, rows)]


def markdown_matrices(p: pd.DataFrame, note: str = "") -> str:
    """Every P_ij matrix: rows target factors, columns cue factors (ZSO: none), percent."""
    parts = ["# P_ij: accuracy on the group `ood` (ZSO: on its only group), rows target, columns cue factors", "",
             *([f"**{note}**", ""] if note else []), LEGEND.split(" Spreads")[0]]
    for study, baseline, heads, rows in _matrices(p):
        parts += ["", f"## {study.upper()}, {baseline}", "", *markdown_table(heads, rows)]
    return "\n".join(parts) + "\n"


def _matrices(p: pd.DataFrame) -> Iterator[tuple[str, str, list[str], list[list[str]]]]:
    """Study, baseline, heads and rows of every matrix."""
    shown = p[(p["group"] == "ood") | (p["cue"] == "")]
    for (study, baseline), own in shown.groupby(["study", "baseline"], sort=False):
        cues = [""] if (own["cue"] == "").all() else list(FACTORS)
        cells = {(r.target, r.cue): percent(r.mean, r.stderr, r.n, r.expected) for r in own.itertuples(index=False)}
        rows = [[target, *(cells.get((target, cue), "") for cue in cues)] for target in FACTORS
                if target in set(own["target"])]
        yield study, baseline, ["target", *(cue or "no cue" for cue in cues)], rows


def latex_tables(tables: dict[str, pd.DataFrame], note: str = "") -> str:
    """The paper's tables as LaTeX (needs booktabs): one table environment per study and metric."""
    parts = ["% needs \\usepackage{booktabs}", *([f"% {note}"] if note else []),
             f"% {_latex(verdict_sentence(tables['comparison']))}",
             *(f"% {_latex(text)}" for text in [agreement_sentence(tables["agreement"])] if text),
             *([f"% {reference_note(tables['reference'])}"] if len(tables["reference"]) else []),
             f"% {UNTUNED} settings {NOT_TUNED}; = agrees, ≠ differs, ? cannot tell"]
    for block in blocks(tables):
        title = f"{block.study.upper()}. {METRIC_TITLES[block.metric]} (percent)."
        rows = [[r"\emph{paper}" if name == "paper" else _latex(name), *map(_latex, cells)]
                for name, cells in block.rows]
        parts += ["", *_latex_table(f"{title} {note}".strip(), ["baseline", *block.factors], rows, block.notes)]
    return "\n".join(parts) + "\n"


def latex_matrices(p: pd.DataFrame, note: str = "") -> str:
    """Every P_ij matrix as a LaTeX table (needs booktabs), as `markdown_matrices`."""
    parts = ["% needs \\usepackage{booktabs}", *([f"% {note}"] if note else [])]
    for study, baseline, heads, rows in _matrices(p):
        where = "without a cue" if len(heads) == 2 else "on the group ood; rows: target factors, columns: cue factors"
        title = f"{study.upper()}, {baseline}. Accuracy {where} (percent). {note}"
        parts += ["", *_latex_table(title.strip(), heads, [[*map(_latex, row)] for row in rows])]
    return "\n".join(parts) + "\n"


def _latex_table(title: str, heads: list[str], rows: list[list[str]], notes: Sequence[str] = ()) -> list[str]:
    """Lines of a table environment. rows: cells that are LaTeX already; notes become comments."""
    return [r"\begin{table}", r"\centering", rf"\caption{{{_latex(title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows), r"\bottomrule", r"\end{tabular}",
            *(f"% {line}" for line in notes), r"\end{table}"]


def _latex(text: str) -> str:
    for plain, escaped in (("\\", r"\textbackslash{}"), ("_", r"\_"), ("%", r"\%"), ("&", r"\&"), ("±", r"$\pm$"),
                           ("≠", r"$\neq$"), (UNTUNED, r"$\dagger$"), ("=", "$=$")):
        text = text.replace(plain, escaped)
    return text
