"""Prune: list what no given configuration asks for, and delete it after a yes. Nothing else deletes
results."""

import os
import shutil
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import typer

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout, run_folder_name
from diagvib.workflow.records import RECORDS


def prune(configs: list[Configuration], yes: bool, dry_run: bool) -> None:
    """List what none of the resolved configurations asks for, with sizes; delete it after a yes."""
    unneeded, files, size = find_unneeded(configs), 0, 0
    for path in unneeded:
        inside = [file for file in (path, *path.rglob("*")) if file.is_file()]
        folder_size = sum(file.stat().st_size for file in inside)
        print(f"{folder_size / 1e6:12,.1f} MB  {len(inside):7,} files  {path}")
        files, size = files + len(inside), size + folder_size
    summary = f"{files:,} files ({size / 1e9:.1f} GB)"
    if not unneeded:
        roots = ", ".join(sorted({config.root for config in configs}))
        print(f"nothing to prune under {roots}: the configurations need everything there")
    elif dry_run:
        print(f"{summary} could be deleted; nothing was")
    elif yes or typer.confirm(f"Delete these {summary}?"):
        _delete(unneeded)
        print(
            f"deleted {summary}. `diagvib record`, with --root ROOT for another root than `.`, brings the ledger "
            "up to date; what was recorded before stays in DVC's cache until `dvc gc --workspace`"
        )
    else:
        print("nothing was deleted")


def find_unneeded(configs: list[Configuration]) -> list[Path]:
    """The highest folders and files in which nothing is asked for, under the configurations' roots
    in data/recipes, images, features, checkpoints and results/runs."""
    needed, tops = set[Path](), set[Path]()
    for config in configs:
        layout = Layout(Path(config.root).resolve())
        # However a root is written, it has only one resolved path; so has a folder linked in it.
        needed.update(form for path in _needed(config, layout) for form in (path, path.resolve()))
        generated = layout.all_recipes, layout.all_images, layout.all_features
        tops.update((*generated, layout.all_checkpoints, layout.all_runs))
    above = {parent for path in needed for parent in path.parents}

    def unneeded(path: Path) -> list[Path]:
        forms = {path, path.resolve()}
        if forms & needed:
            return []
        if not forms & above:
            return [path]
        return [path_below for child in sorted(path.iterdir()) for path_below in unneeded(child)]

    unneeded_paths = [path for top in sorted(tops) if any(top.glob("*")) for path in unneeded(top)]
    return [Path(os.path.relpath(path)) for path in unneeded_paths]


def _needed(config: Configuration, layout: Layout) -> Iterable[Path]:
    """Files and folders that a configuration asks for, whole."""
    tuned = [(config.tuning.study, binding) for binding in config.tuning.bindings]
    for study, binding in [*config.datasets, *tuned]:
        yield layout.recipes(study, binding)
        if config.images == "parquet":
            yield layout.digests(study, binding)
            for sample in range(config.dataset_count):
                yield layout.images(study, binding) / str(sample)
    networks = {entry.name: entry.network for entry in config.baselines}
    for network, names in product(config.networks, tuned):
        yield layout.features(network, *names)
    for names in config.train_jobs:
        if network := networks[names[0]]:
            yield layout.features(network, *names[1:])
        yield from (layout.checkpoints(*names), layout.runs(*names) / DIGESTS_FILE)
        numbers = product(range(config.samples), range(config.seeds))
        yield from (layout.runs(*names) / run_folder_name(*pair) for pair in numbers)


def _delete(unneeded: list[Path]) -> None:
    """DiagvibError while a workflow is running here."""
    if any((RECORDS / "locks").glob("*")):
        raise DiagvibError(
            f"{RECORDS / 'locks'}: a workflow is running here, and may be making what would be deleted; "
            "wait for it to end (after a crash: `snakemake --unlock`)"
        )
    for path in unneeded:
        if path.is_dir() and not path.is_symlink():  # a link's target stays
            shutil.rmtree(path)
        else:
            path.unlink()
