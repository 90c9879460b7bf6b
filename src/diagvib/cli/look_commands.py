"""Commands for looking at results."""

from pathlib import Path
from string import ascii_uppercase
from typing import Annotated

from diagvib import __version__, stages
from diagvib.cli.application import LOOK, register
from diagvib.foundation.errors import DiagvibError
from diagvib.stages import argument, option


@register(LOOK, "view outputs/demo")
def view(
    root: Annotated[str, argument("The root of a configuration, such as outputs/demo.")],
    port: Annotated[int, option("Port; default: any free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, option("Also open it in the browser.")] = True,
) -> None:
    """Show test images and predictions in the browser. Serves the results folder to this machine
    alone; stop it with Ctrl-C."""
    from diagvib.commands.view import view

    view(root, port, browser)


@register(LOOK, "compare outputs/demo published/demo --out page.html")
def compare(
    runs_a: Annotated[Path, argument("A root, such as outputs/demo, or its results.", "ROOT")],
    other_roots: Annotated[
        list[Path], argument("Other roots, each compared with the first.", "OTHER...")
    ],
    out: Annotated[Path | None, option("Also write the tables: .csv, .md or .html.")] = None,
) -> None:
    """Compare the runs of results folders, cell by cell, and what they were made with."""
    from diagvib.commands.compare import compare_results, shown, write_comparison
    from diagvib.results.reader_tables import print_table

    letters = dict(zip(ascii_uppercase[1:], other_roots, strict=False))
    if len(letters) < len(other_roots):
        raise DiagvibError(f"{other_roots[25]}: at most 25 folders can be compared with the first")
    tables = {
        letter: compare_results(runs_a, root, stages.cores(), letter)
        for letter, root in letters.items()
    }
    for letter, table in tables.items():
        for shown_table in shown(table, letter):
            print_table(shown_table)
    if out:
        write_comparison(tables, out)


@register(LOOK, "version")
def version() -> None:
    """Print the version."""
    print(__version__)
