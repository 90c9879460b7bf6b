"""`diagvib new`: files for something of your own, such as a method, a scene or a folder of photos."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from diagvib.cli.application import TRY, Tasks, app
from diagvib.commands.new_code import KINDS, write_new
from diagvib.stages import argument, option

new = typer.Typer(
    cls=Tasks, no_args_is_help=True, help="Write the files for something of your own."
)
app.add_typer(new, name="new", rich_help_panel=TRY)


def _new(kind: str, contents: str) -> None:
    """Register a command that writes files of one kind."""

    def command(
        name: Annotated[
            str, argument(f"Lowercase letters, digits and '_', such as my_{kind}.", "NAME")
        ],
    ) -> None:
        paths = write_new(kind, name)
        print(f"written: {', '.join(map(str, paths))}; the choices are in comments")
        print(f"  python -m pytest {paths[-1]}")
        print(f"  diagvib run {paths[-2]}")

    text = f"Write {contents}, a configuration and a test. The choices are in comments."
    new.command(kind, help=text, epilog=f"Example: diagvib new {kind} my_{kind}")(command)


for _kind, _contents in KINDS.items():
    _new(_kind, _contents)


@new.command("photos", epilog="Example: diagvib new photos FOLDER --target bird --cue place")
def new_photos(
    folder: Annotated[Path, argument("The folder of the photos.")],
    table: Annotated[
        str | None,
        option(
            "A table in the folder, with a row for each photo: CSV, TSV, JSON lines or Parquet; by "
            "default the only one there. Without one, the folders' names are the labels."
        ),
    ] = None,
    file: Annotated[str | None, option("The column with the photos' paths in the folder.")] = None,
    levels: Annotated[
        str | None, option("Names of the levels of folders, from the top, such as place,animal.")
    ] = None,
    target: Annotated[
        str | None, option("The column or level to predict; NAME=COLUMN gives it another name.")
    ] = None,
    cue: Annotated[
        list[str] | None,
        option(
            "A column or level that may be a shortcut to the target, or NAME=COLUMN; repeatable."
        ),
    ] = None,
    split: Annotated[str | None, option("The column or level with train, val and test.")] = None,
    unit: Annotated[
        str | None,
        option(
            "The column that says which person, animal or place a photo shows; all photos of one "
            "are in one split."
        ),
    ] = None,
    name: Annotated[str | None, option("A name for all files; default: the folder's.")] = None,
    out: Annotated[Path, option("The folder for the files.")] = Path(),
    unpack: Annotated[
        Path | None,
        option(
            "A new folder to which photos inside Parquet files are written, and used from there."
        ),
    ] = None,
) -> None:
    """Turn a folder of labelled photos into a scene, studies and a configuration. Says what it
    chose, and how to run it."""
    from diagvib.commands.new_photos import look, write
    from diagvib.commands.photo_columns import Columns
    from diagvib.commands.photo_proposal import cells_text, write_sheet
    from diagvib.commands.unpack_photos import unpack as unpack_photos

    if unpack:
        unpack_photos(folder, unpack)
        folder, table, name = unpack, None, name or folder.resolve().name
    names = [level.strip() for level in levels.split(",")] if levels else []
    proposal = look(folder, table, Columns(file, target, cue or [], split, unit, names), name)
    print(cells_text(proposal))
    paths = write(proposal, out)
    sheet = out / f"{proposal.name}_cells.png"
    write_sheet(proposal, sheet)
    print(f"\nwritten: {', '.join(map(str, [*paths.values(), sheet]))}; each choice has a comment")
    print("Look at them, change what you like, then run in the repository's folder")
    configuration = quote(str(paths["configuration"]))
    print(f"  diagvib plan --config {configuration}")
    print(f"  snakemake --cores all --configfile {configuration}")
