"""Prune: list what no given configuration asks for, and delete it after a yes. Nothing else deletes
results."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE
from diagvib.operations.records import RECORDS
from diagvib.settings.baselines import network_name
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import Layout, dataset_count, datasets, train_jobs


@dataclass(frozen=True)
class Unneeded:
    """A folder or file that no configuration asks for: number of files, bytes."""

    path: Path
    files: int
    size: int


def prune(configs: list[Configuration], yes: bool, dry_run: bool) -> None:
    """List what none of the resolved configurations asks for, with sizes; delete it after a yes."""
    unneeded = find_unneeded(configs)
    for item in unneeded:
        print(f"{item.size / 1e6:12,.1f} MB  {item.files:7,} files  {item.path}")
    size = sum(item.size for item in unneeded)
    what = f"{sum(item.files for item in unneeded):,} files ({size / 1e9:.1f} GB)"
    if not unneeded:
        roots = ", ".join(sorted({config.root for config in configs}))
        print(f"nothing to prune under {roots}: the configurations need everything there")
    elif dry_run:
        print(f"{what} could be deleted; nothing was")
    elif yes or _agreed(f"Delete these {what}? [y/N] "):
        delete(unneeded)
        print(
            f"deleted {what}. `diagvib record` brings the ledger up to date; what was recorded before stays in DVC's "
            "cache until `dvc gc --workspace`"
        )
    else:
        print("nothing was deleted")


def _agreed(question: str) -> bool:
    """The answer typed in; no answer, as in a script, is a no."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def find_unneeded(configs: list[Configuration]) -> list[Unneeded]:
    """What is under the configurations' roots in data/recipes, images, features, checkpoints and
    results/runs, and not asked for."""
    needed = {path for config in configs for path in _needed(config)}
    above = {parent.resolve() for parent in {parent for path in needed for parent in path.parents}}
    needed = {path.resolve() for path in needed}
    # However a root is written, and whatever links lead to it, a folder has only one resolved path.
    tops = {
        top.resolve(): top
        for config in reversed(configs)
        for top in _pruned_folders(Path(config.root))
    }
    return [
        _measured(path)
        for top in sorted(tops.values())
        if top.exists()
        for path in _beyond(top, needed, above)
    ]


def delete(unneeded: Iterable[Unneeded]) -> None:
    """Delete them, and the folders that this leaves empty. DiagvibError while a workflow is running
    here, or for what cannot be deleted."""
    if any((RECORDS / "locks").glob("*")):
        raise DiagvibError(
            f"{RECORDS / 'locks'}: a workflow is running here, and may be making what would be deleted; "
            "wait for it to end (after a crash: `snakemake --unlock`)"
        )
    for item in unneeded:
        try:
            if (
                item.path.is_dir() and not item.path.is_symlink()
            ):  # of a link, what it leads to stays
                shutil.rmtree(item.path)
            else:
                item.path.unlink(missing_ok=True)
        except OSError as error:
            raise DiagvibError(
                f"{item.path}: cannot be deleted ({error.strerror}); the rest is still there"
            ) from None
        _remove_empty(item.path.parent)


def _pruned_folders(root: Path) -> list[Path]:
    layout = Layout(root)
    return [
        layout.all_recipes,
        layout.images(),
        layout.features(),
        layout.checkpoints(),
        layout.runs(),
    ]


def _needed(config: Configuration) -> Iterable[Path]:
    """Files and folders that a configuration asks for, whole."""
    layout = Layout(Path(config.root))
    for study, binding in datasets(config):
        yield layout.recipes(study, binding)
        if config.images == "parquet":
            yield layout.digests(study, binding)
            yield from (
                layout.images(study, binding) / str(sample)
                for sample in range(dataset_count(config))
            )
    frozen = {entry.name: network_name(entry.settings) for entry in config.baselines}
    for job in train_jobs(config):
        if frozen[job[0]]:
            yield layout.features(frozen[job[0]], *job[1:])
        yield layout.checkpoints(*job)
        yield layout.runs(*job) / DIGESTS_FILE
        yield from (layout.runs(*job) / str(sample) for sample in range(config.samples))


def _beyond(path: Path, needed: set[Path], above: set[Path]) -> list[Path]:
    """The highest folders and files at or below `path` in which nothing is needed. needed, above:
    resolved."""
    if path.resolve() in needed:
        return []
    if path.resolve() not in above:
        return [path]
    return [found for child in sorted(path.iterdir()) for found in _beyond(child, needed, above)]


def _measured(path: Path) -> Unneeded:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return Unneeded(path, len(files), sum(file.stat().st_size for file in files))


def _remove_empty(folder: Path) -> None:
    """Remove empty folders upwards, but none of the stages' own, such as data/images."""
    while not {folder.name, folder.parent.name} & {"data", "results"} and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
