"""Commands for sharing results: tables, leaderboard entries, datasets, and the record of a root."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from diagvib import stages
from diagvib.cli.application import SHARE, Config, Override, Root, register
from diagvib.cli.stage_commands import run_stage
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.messages import say
from diagvib.foundation.validation import validated
from diagvib.settings import keys
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.stages import argument, option


@register(SHARE, "table outputs/demo --out table.tex")
def table(
    root: Annotated[Path, argument("The root of a finished configuration, such as outputs/demo.")],
    out: Annotated[
        Path | None, option("Output file; its extension sets the format: .tex, .md or .csv.")
    ] = None,
    study: Annotated[
        list[str] | None, option("A column; repeatable. Default: all studies.")
    ] = None,
    metric: Annotated[
        str | None, option("A column of the study's metrics; default: the main one.")
    ] = None,
    spread: Annotated[
        Literal["stderr", "interval", "none"], option("Standard error, 95 % interval, or none.")
    ] = "stderr",
    average: Annotated[bool, option("With a column for the mean over studies.")] = True,
    label: Annotated[str, option("LaTeX's label.")] = "tab:results",
    caption: Annotated[str, option("The caption; default: the metrics.")] = "",
) -> None:
    """Make one table for a paper: methods by studies, the best in bold. Prints it, and writes LaTeX
    (which needs booktabs), Markdown or CSV."""
    from diagvib.commands.table import Choices, methods_table, write_table
    from diagvib.results.reader_tables import print_table

    choices = Choices(study or [], metric, spread, average, label, caption)
    print_table(write_table(root, choices, out) if out else methods_table(root, choices))


@register(SHARE, "submit outputs/demo --by NAME")
def submit(
    root: Annotated[Path, argument("The root of a finished configuration, such as outputs/demo.")],
    by: Annotated[str, option("Who submits.")],
    link: Annotated[str, option("Where the method or the network is described.")] = "",
    out: Annotated[Path, option("The folder to write to.")] = Path("leaderboard"),
    form: Annotated[
        Literal["leaderboard", "every-eval-ever", "model-index"],
        option("Entries, records of Every Eval Ever, or model cards' results.", "--format"),
    ] = "leaderboard",
) -> None:
    """Write entries of the leaderboard, one for each baseline and study of a complete run."""
    from diagvib.commands.shared_results import FORMATS
    from diagvib.commands.submit import submit

    for path in submit(root, by, link, out, FORMATS[form]):
        print(path)


@register(SHARE, "export outputs/export --config config/demo.yaml")
def export(
    folder: Annotated[Path, argument("Where the files and the data card go.", "FOLDER")],
    png: Annotated[
        bool, option("Also write PNG files, with metadata.csv for imagefolder and WILDS.", "--png")
    ] = False,
    config: Config = None,
    override: Override = None,
) -> None:
    """Write datasets in the layout of the Hugging Face Hub. Adds a data card and Croissant metadata.
    Reads image files, which `snakemake images --cores all --configfile FILE` makes first."""
    from diagvib.commands.export import export

    export(load_config(config, override), folder, png)


@register(SHARE, "record --config config/laptop.yaml")
def record(config: Config = None, root: Root = None) -> None:
    """Record finished results, as `snakemake` does. Writes the root's dvc.lock."""
    from diagvib.workflow.ledger import record

    print(record(*_ledger(config, root)))


@register(SHARE, "publish --config config/demo.yaml")
def publish(config: Config = None, root: Root = None) -> None:
    """Copy a finished root to published/, so that it comes with the repository. Leaves out images,
    recipes and sources, which `pull` makes again."""
    from diagvib.commands.published import publish
    from diagvib.workflow.root_stages import config_of

    root_folder, resolved = _ledger(config, root)
    print(publish(resolved or load_config(config_of(root_folder))))


@register(SHARE, "pull published/demo")
def pull(
    roots: Annotated[
        list[str] | None,
        argument("Published roots; default: all in published/.", "ROOT", show_default=False),
    ] = None,
    mirror: stages.Mirror = None,
) -> None:
    """Get published results. What is not stored is made again from sources, which may be
    downloaded."""
    from diagvib.commands.published import jobs_left, missing_jobs, published_roots, pull

    roots = roots or published_roots()
    if not roots:
        raise DiagvibError("published/: no published results here; call this in the repository")
    without_images = []
    for root in roots:
        resolved = pull(os.path.relpath(root))
        try:
            for stage, names in missing_jobs(resolved):
                source = {"mirror": mirror} if stage == "fetch" else {}
                run_stage(stage, Layout(resolved.root), resolved, None, names | source)
        except DiagvibError as error:  # perhaps there is no network
            say(f"{root}: {error}")
            without_images.append(root)
            continue
        print(jobs_left(resolved))
    if without_images:
        roots_left = " ".join(without_images)
        raise DiagvibError(
            f"{roots_left}: the results are there, but not the images; once their sources can be downloaded, "
            f"or are in a folder, `diagvib pull {roots_left}` (--mirror FOLDER) draws them"
        )


@register(SHARE, "verify --root published/demo")
def verify(config: Config = None, root: Root = None) -> None:
    """Find files that differ from the record. Hashes every recorded file again. Exit code 1 if any
    was changed."""
    from diagvib.workflow.ledger import print_verified, verify

    root_folder, _ = _ledger(config, root)
    if not print_verified(verify(root_folder), root_folder):
        raise typer.Exit(1)


def _ledger(config: Path | None, root: str | None) -> tuple[str, keys.Configuration | None]:
    """The root of a ledger, and the configuration that names it, unless the root is given."""
    if root and config:
        raise DiagvibError(f"--config and --root: give one of them; {config} names its root itself")
    if root:
        return validated(keys.Root, root, "--root"), None
    resolved = load_config(config)
    return resolved.root, resolved


@register(SHARE, "prune --dry-run --config config/laptop.yaml")
def prune(
    config: Annotated[
        list[Path] | None,
        option("Configuration whose files are kept; repeatable. Default: the paper's.", "--config"),
    ] = None,
    yes: Annotated[bool, option("Delete without asking.", "--yes")] = False,
    dry_run: Annotated[bool, option("List only; delete nothing.", "--dry-run")] = False,
) -> None:
    """Delete what none of the given configurations needs. Lists recipes, images, features, checkpoints
    and runs under their roots first, and asks."""
    from diagvib.commands.prune import prune

    prune([load_config(path) for path in config or [None]], yes, dry_run)
