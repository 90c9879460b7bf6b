"""The sections of the formatted tables for the other sets of metrics, in the layouts of their
papers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pandas as pd

from diagvib.results.average_methods import AVERAGE_NOTE, AVERAGE_TITLE, average_table
from diagvib.results.gap_methods import GAPS_NOTE, GAPS_TITLE, HEADS, gap_blocks
from diagvib.results.known_studies import KnownStudies
from diagvib.results.paper import with_paper
from diagvib.results.selection_ranks import OVER, RANKS_NOTE, RANKS_TITLE, rank_lines, rank_text


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
    ranks = [
        _ranks(title, own, known)
        for over, title in OVER.items()
        if len(own := tables["selection_ranks"].query("over == @over"))
    ]
    if ranks:
        yield RANKS_TITLE, RANKS_NOTE, ranks


def _ranks(title: str, ranks: pd.DataFrame, known: KnownStudies) -> Block:
    heads, lines = rank_lines(ranks, known)
    rows = [
        [*names, *(f"{text} ({rank})" if rank else text for text, rank in map(rank_text, cells))]
        for names, cells in lines
    ]
    return Block(title, heads, rows)
