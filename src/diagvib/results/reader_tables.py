"""For readers: numbers and missing runs as texts, and a table, written in every format by the
functions of this module."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import compress, groupby
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.foundation.errors import some_names
from diagvib.foundation.messages import say
from diagvib.foundation.progress import print_rows
from diagvib.results.uncertainty import image_interval, sample_interval
from diagvib.settings.layout import run_folder_name
from diagvib.settings.method_settings import is_trained

Frames = dict[str, pd.DataFrame]  # the tidy tables, by name


class _Word(str):
    """A word that is told apart by identity (`is`) from a name that reads the same."""


# A row whose first cell is this repeats the paper's numbers for the row above. A class or a baseline may
# be called `paper`, too.
PAPER = _Word("paper")
# What Markdown reads as a tag, an entity, a link, an image, code, emphasis, crossed out or an escaped mark.
_MARKUP = re.compile(
    r"<(?=[A-Za-z/!?])|&(?=#?\w+;)|[\[`*~]|\\(?=[!-/:-@\[-`{-~])|(?<![^\W_])_|_(?![^\W_])"
)
_NUMBER = re.compile(r"[-+≤≥<>]? ?\d|-$|no loss$|n too small|$")
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "_": r"\_",
        "%": r"\%",
        "&": r"\&",
        "#": r"\#",
        "±": r"$\pm$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "≠": r"$\neq$",
        "→": r"$\to$",
        "†": r"$\dagger$",
        "‡": r"$\ddagger$",
        "§": r"\S{}",
        "=": "$=$",
        "<": "$<$",
        ">": "$>$",
        "$": r"\$",
        "{": r"\{",
        "}": r"\}",
        "|": r"\textbar{}",  # in LaTeX's usual font, a dash
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


@dataclass(frozen=True)
class Table:
    """heads and rows: texts. notes: lines below the table. section: the title of the part of the
    page that holds it; introduction: paragraphs at the beginning of that part. folded: shown on request on
    the page. best: cells in bold, by the number of the row and the head. last_apart: whether a line is
    drawn above the last row, in LaTeX. label: LaTeX's."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    section: str = ""
    introduction: list[str] = field(default_factory=list)
    folded: bool = False
    best: frozenset[tuple[int, str]] = frozenset()
    last_apart: bool = False
    label: str = ""


def _bold(table: Table, rows: Sequence[Sequence[str]], around: str) -> list[list[str]]:
    """The rows, already escaped, with what is best in bold. around: a text with {}."""
    return [
        [
            around.replace("{}", cell) if (number, head) in table.best else cell
            for head, cell in zip(table.heads, row, strict=True)
        ]
        for number, row in enumerate(rows)
    ]


def metrics_of(tables: Frames, name: str) -> pd.DataFrame:
    """The rows of the table `metrics` that belong to one set of metrics."""
    return tables["metrics"][tables["metrics"]["metric_set"] == name]


def untrained(tables: Frames) -> list[str]:
    """The baselines of which nothing is trained here."""
    metrics = tables.get("metrics", pd.DataFrame(columns=["baseline", "method"]))
    methods = metrics.drop_duplicates("baseline").set_index("baseline")["method"]
    return [name for name, method in methods.items() if not is_trained(method)]


def narrowed(table: Table) -> Table:
    """The table without columns, but for the first, whose cells are the same words in all of several
    rows; a note says which."""
    ours = [row for row in table.rows if row[0] is not PAPER]
    columns = [*zip(table.heads, *ours, strict=True)]
    constant = [
        len(set(words)) == 1 < len(words) and not _NUMBER.match(words[0]) for _, *words in columns
    ]
    constant[0] = False
    varying = np.logical_not(constant)
    constants_text = ", ".join(f"{head} {word}" for head, word, *_ in compress(columns, constant))
    return replace(
        table,
        heads=[*compress(table.heads, varying)],
        rows=[[*compress(row, varying)] for row in table.rows],
        notes=[
            *table.notes,
            *([f"The same in all rows: {constants_text}."] if constants_text else []),
        ],
    )


def in_order(names: pd.Series, order: Sequence[str]) -> list[str]:
    """The distinct names, in the order of the known ones; others come last."""
    positions = {name: number for number, name in enumerate(order)}
    return sorted(names.unique(), key=lambda name: positions.get(name, len(positions)))


def by_section(tables: Sequence[Table]) -> Iterator[tuple[str, list[str], list[Table]]]:
    """Title, paragraphs and tables of each section."""
    for title, section_tables in groupby(tables, lambda table: table.section):
        section_table, *further_tables = section_tables
        yield title, section_table.introduction, [section_table, *further_tables]


def print_table(table: Table) -> None:
    """Print a table and its notes on the terminal."""
    columns = enumerate(zip(table.heads, *table.rows, strict=True))
    words = [number for number, (_, *cells) in columns if not all(map(_NUMBER.match, cells))]
    print_rows(table.title, table.heads, table.rows, words)
    print(*table.notes)


def markdown(table: Table) -> list[str]:
    """Lines: the title, the rows, the notes."""
    heads, *rows = ([*map(markdown_text, row)] for row in [table.heads, *table.rows])
    for row, cells in zip(table.rows, rows, strict=True):
        cells[0] = f"*{PAPER}*" if row[0] is PAPER else cells[0]
    rows = _bold(table, rows, "**{}**")
    notes = ["", *(f"- {markdown_with_code(line)}" for line in table.notes)] if table.notes else []
    return [f"### {markdown_text(table.title)}", "", *markdown_table(heads, rows), *notes]


def markdown_text(text: str) -> str:
    """One line of Markdown that shows a text as it is: no HTML, links, code or emphasis."""
    return _escaped(_line(text))


def markdown_with_code(text: str) -> str:
    """The same, in which what stands between backticks is code."""
    parts = r"(`[^`]+`)|([^`]+|`)"
    return re.sub(parts, lambda part: part[1] or _escaped(part[2]), _line(text))


def _line(text: str) -> str:
    return " ".join(map(str.strip, text.splitlines()))


def _escaped(line: str) -> str:
    entities = _MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", line)
    return entities.replace("|", r"\|")


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table without a title."""

    def line(row: Sequence[str]) -> str:
        cells = (re.sub(r"(?<!\\)\|", r"\|", cell) for cell in row)
        return f"| {' | '.join(cells)} |"

    return [line(heads), "|" + "---|" * len(heads), *map(line, rows)]


def latex(table: Table, remark: str) -> list[str]:
    """Lines of a table environment (needs booktabs). remark: the end of the caption."""
    parts = [table.title, table.section, remark]
    caption = ". ".join(part.removesuffix(".") for part in parts if part)

    def escaped(row: Sequence[str]) -> list[str]:
        cells = [_line(cell).translate(_LATEX) for cell in row]
        cells[0] = rf"\emph{{{PAPER}}}" if row[0] is PAPER else cells[0]
        return cells

    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\"

    lines = [*map(line, _bold(table, [*map(escaped, table.rows)], r"\textbf{{}}"))]
    if table.last_apart:
        lines.insert(-1, r"\midrule")
    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_line(caption).translate(_LATEX)}.}}",
        *([rf"\label{{{table.label}}}"] if table.label else []),
        rf"\begin{{tabular}}{{l{'r' * (len(table.heads) - 1)}}}",
        r"\toprule",
        line(escaped(table.heads)),
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
        *(f"% {_line(note)}" for note in table.notes),
        r"\end{table}",
    ]


def html(table: Table) -> str:
    """A table element with its title as caption, and its notes as a list. Cells with numbers have
    the class `number`, and rows with the paper's numbers the class `paper`."""

    def cell(text: str, column: int) -> str:
        if column == 0:
            return f'<th scope="row">{escape(text)}</th>'
        kind = ' class="number"' if _NUMBER.match(text) else ""
        return f"<td{kind}>{escape(text)}</td>"

    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in table.heads)
    rows = "\n".join(
        f"<tr{f' class={PAPER}' if row[0] is PAPER else ''}>"
        f"{''.join(cell(text, column) for column, text in enumerate(row))}</tr>"
        for row in table.rows
    )
    notes = "".join(f"<li>{with_code(line)}</li>" for line in table.notes)
    return (
        f"<table><caption>{escape(table.title)}</caption><thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table>" + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )


def with_code(text: str) -> str:
    """A text in HTML, in which what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def percent(
    mean: float,
    spread: float,
    n: int,
    expected: int,
    change: bool = False,
    images: float = math.nan,
) -> str:
    """`41.2 ± 2.0`, with n where it matters: `(n = 1)`, `(n = 4 of 5)`. `-` if nothing ran.

    A spread that would be printed as 0.0 is left out, since samples that are all alike do not show
    that others are; of an accuracy near 0 or 100 %, the bound is given: `100.0 (≥ 87.5)`. change:
    the mean is not an accuracy, but a difference of accuracies or another measure. images: if
    known, the number in a sample; then a single one has the interval over its images, `11.1 (1.4 to
    34.7; n = 1)`.
    """
    if n == 0:
        return "-"
    text, notes = f"{100 * mean:z.1f}", [f"n = {n:.0f} of {expected:.0f}"] if n < expected else []
    if spread >= 0.0005:
        text += f" ± {100 * spread:.1f}"
    else:
        low, high = (math.nan, math.nan) if change else sample_interval(np.full(int(n), mean))
        low, high = (min(low, 0), high) if mean < 0.5 else (low, max(high, 1))
        if n == 1 and images > 0:
            low, high = image_interval(mean, images)
        bound = [] if math.isnan(low) else [interval(low, high)]
        notes = bound + (notes or ([f"n = {n:.0f}"] if n == 1 or not bound else []))
    return f"{text} ({'; '.join(notes)})" if notes else text


def of_samples(row: Mapping, change: bool = False) -> str:
    """`percent` of a row with a mean over dataset samples (`metric_set.NUMBERS`)."""
    numbers = (row[key] for key in ("mean", "stderr", "n", "expected"))
    return percent(*numbers, change, row.get("images", math.nan))


def whole_percent(value: float) -> str:
    """`41 %`, of a fraction."""
    return f"{round(100 * value, 6):.0f}\N{NO-BREAK SPACE}%"


def points(change: float) -> str:
    """A change of accuracy in percentage points: `+3.1`; `-` if unknown."""
    return "-" if math.isnan(change) else f"{100 * change:+z.1f}"


def interval(low: float, high: float, change: bool = False) -> str:
    """A 95 % interval in percent: `41.2 to 43.0`, at the edge `≤ 1.9` or `≥ 98.1`; `n too small`
    if there is none. change: of a difference of accuracies: `-3.1 to +0.4`."""
    if math.isnan(low):
        return "n too small"
    if change:
        return f"{points(low)} to {points(high)}"
    low, high = round(low, 3), round(high, 3)
    if low > 0 and high < 1:
        return f"{100 * low:.1f} to {100 * high:.1f}"
    return f"≤ {100 * high:.1f}" if high < 1 else f"≥ {100 * low:.1f}" if low > 0 else "n too small"


def describe_missing(runs: pd.DataFrame) -> list[str]:
    """One line per kind of missing run, naming its runs; empty if every expected run is complete.

    runs: the frame of `read_runs.read_runs`.
    """
    return _described(runs, runs["status"] != "ok")


def doubtful(runs: pd.DataFrame) -> pd.Series:
    """Of each run, whether it is complete, but with a reason to distrust its numbers."""
    return (runs["status"] == "ok") & (runs["reason"].fillna("") != "")


def describe_doubtful(runs: pd.DataFrame) -> list[str]:
    """The same of doubtful runs."""
    return _described(runs.assign(status="doubtful"), doubtful(runs))


def doubt_reasons(runs: pd.DataFrame) -> list[str]:
    """Each reason for doubt, after the baselines whose complete runs have it."""
    names_by_reason = runs[doubtful(runs)].groupby("reason", sort=False)["baseline"].unique()
    return [f"{some_names(names, 3)}: {reason}" for reason, names in names_by_reason.items()]


def _described(runs: pd.DataFrame, selected: pd.Series) -> list[str]:
    lines = []
    configured = runs.groupby(["baseline", "study"], sort=False).size()
    for (baseline, study, status, reason), group in runs[selected].groupby(
        ["baseline", "study", "status", "reason"], sort=False, dropna=False
    ):
        if len(group) == configured[baseline, study]:
            runs_text = f"all {len(group)} runs" if len(group) > 1 else "the only run"
        else:
            numbers = [*map(run_folder_name, group["sample"], group["seed"])]
            samples = pd.Series(numbers, group.index).groupby(group["binding"], sort=False)
            runs_text = "; ".join(
                f"{binding} sample{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
                for binding, numbers in samples
            )
        lines.append(f"{baseline}, {study}: {runs_text}: {status} ({reason})")
    return lines


def say_missing(runs: pd.DataFrame, listed: Path) -> None:
    """Say in one line how many runs are missing or damaged, if any are. listed: the file that names
    each."""
    missing = runs[runs["status"] != "ok"]
    counts = ", ".join(
        f"{baseline} {n:,}" for baseline, n in missing["baseline"].value_counts(sort=False).items()
    )
    if counts:
        say(
            f"{len(missing):,} of {len(runs):,} runs are missing or damaged ({counts}); {listed} lists them"
        )
