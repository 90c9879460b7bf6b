"""A table for readers, written in every format by the functions of this module."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import groupby

from diagvib.foundation.progress import print_wide

# A row whose first cell is this repeats the paper's numbers for the row above.
PAPER = "paper"
_NUMBER = re.compile(r"[-+≤≥]? ?\d|-$|n too small|$")
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
        "=": "$=$",
    }
)


@dataclass(frozen=True)
class Table:
    """heads and rows: texts. notes: lines below the table. section: the title of the part of the
    page that holds it; about: paragraphs at the beginning of that part. folded: shown on request on
    the page."""

    name: str
    title: str
    heads: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    section: str = ""
    about: list[str] = field(default_factory=list)
    folded: bool = False


def narrowed(table: Table) -> Table:
    """The table without columns, but for the first, whose cells are the same words in all of several
    rows; a note says which."""
    ours = [row for row in table.rows if row[0] != PAPER]
    _, *others = zip(table.heads, *ours, strict=True)
    same = {
        at: column
        for at, column in enumerate(others, 1)
        if len(ours) > 1 and len(set(column[1:])) == 1 and not _NUMBER.match(column[1])
    }
    kept = [at for at in range(len(table.heads)) if at not in same]
    alike = ", ".join(f"{head} {word}" for head, word, *_ in same.values())
    return replace(
        table,
        heads=[table.heads[at] for at in kept],
        rows=[[row[at] for at in kept] for row in table.rows],
        notes=[*table.notes, *([f"The same in all rows: {alike}."] if alike else [])],
    )


def by_section(tables: Sequence[Table]) -> list[tuple[str, list[str], list[Table]]]:
    """Title, paragraphs and tables of each section."""
    parts = [(title, list(own)) for title, own in groupby(tables, lambda table: table.section)]
    return [(title, own[0].about, own) for title, own in parts]


def print_table(table: Table) -> None:
    """Print a table and its notes on the terminal."""
    import rich.table

    lines = rich.table.Table(title=table.title, title_justify="left")
    for head, *cells in zip(table.heads, *table.rows, strict=True):
        number = all(_NUMBER.match(cell) for cell in cells)
        lines.add_column(head, justify="right" if number else "left", no_wrap=True)
    for row in table.rows:
        lines.add_row(*row)
    print_wide(lines)
    print(*table.notes)


def markdown(table: Table) -> list[str]:
    """Lines: the title, the rows, the notes."""
    rows = [[f"*{PAPER}*", *row[1:]] if row[0] == PAPER else row for row in table.rows]
    notes = ["", *(f"- {line}" for line in table.notes)] if table.notes else []
    return [f"### {table.title}", "", *markdown_table(table.heads, rows), *notes]


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table without a title."""
    return [
        f"| {' | '.join(heads)} |",
        "|" + "---|" * len(heads),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def latex(table: Table, remark: str = "") -> list[str]:
    """Lines of a table environment (needs booktabs). remark: the end of the caption."""
    parts = [table.title, table.section, remark]
    caption = ". ".join(part.removesuffix(".") for part in parts if part)

    def line(row: Sequence[str]) -> str:
        cells = [cell.translate(_LATEX) for cell in row]
        cells[0] = rf"\emph{{{PAPER}}}" if row[0] == PAPER else cells[0]
        return " & ".join(cells) + r" \\"

    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption.translate(_LATEX)}.}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.heads) - 1)}}}",
        r"\toprule",
        line(table.heads),
        r"\midrule",
        *map(line, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(f"% {note}" for note in table.notes),
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
        f"<tr{f' class={PAPER}' if row[0] == PAPER else ''}>"
        f"{''.join(cell(text, column) for column, text in enumerate(row))}</tr>"
        for row in table.rows
    )
    notes = "".join(f"<li>{escape(line)}</li>" for line in table.notes)
    return (
        f"<table><caption>{escape(table.title)}</caption><thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table>" + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )
