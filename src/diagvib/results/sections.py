"""The sections of the formatted tables for the other sets of metrics, in the layouts of their
papers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pandas as pd

from diagvib.results.average_methods import AVERAGE_NOTE, AVERAGE_TITLE, average_table
from diagvib.results.gap_methods import GAPS_NOTE, GAPS_TITLE, HEADS, gap_blocks
from diagvib.results.known_studies import KnownStudies
from diagvib.results.paper import with_paper
from diagvib.results.selection_average import OVER, RULES_NOTE, RULES_TITLE, rule_lines, rule_text


@dataclass(frozen=True)
class Block:
    """One table: its title, heads and rows of texts; notes follow below it."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


def sections(
    tables: Mapping[str, pd.DataFrame], known: KnownStudies
) -> Iterator[tuple[str, str, list[Block]]]:
    """Title, note and tables of each section that has tables."""
    gaps = [Block(title, HEADS, rows) for title, rows in gap_blocks(tables["gap_methods"], known)]
    if gaps:
        yield GAPS_TITLE, GAPS_NOTE, gaps
    if len(tables["average_methods"]):
        heads, lines, notes = average_table(tables["average_methods"], known)
        rows = [row for line in lines for row in with_paper(*line)]
        yield AVERAGE_TITLE, AVERAGE_NOTE, [Block("All studies", heads, rows, notes)]
    rules = [
        _rules(title, own, known)
        for over, title in OVER.items()
        if len(own := tables["selection_average"].query("over == @over"))
    ]
    if rules:
        yield RULES_TITLE, RULES_NOTE, rules


def _rules(title: str, found: pd.DataFrame, known: KnownStudies) -> Block:
    heads, lines = rule_lines(found, known)
    rows = [
        [*names, *(f"{text} ({trial})" if trial else text for text, trial in map(rule_text, cells))]
        for names, cells in lines
    ]
    return Block(title, heads, rows)
