"""Jobs whose files are not those that the configuration asks for, whatever their times: they run
again.

Snakemake compares a job with its own records alone, looks only at the files that a rule lists, and
takes a file without a record for up to date if it is newer than its inputs. Here a job also runs
again if one of its files has no record (its root was moved or copied, or `.snakemake` deleted), if a
file that its digest file stands for is gone or damaged, or if its files say that they were made with something
else (by hand, by another clone, from code that was edited while a job ran). `snakemake --touch`
vouches for files without a record; with `--rerun-triggers mtime` all are trusted.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, file_sha256, read_json, read_metadata
from diagvib.images import FEATURES_FILE, made_from
from diagvib.operations.asked import asked_for
from diagvib.scenes import load_scene
from diagvib.scenes.scene import STATE
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import WEIGHTS_FILE, Layout
from diagvib.settings.jobs import read_settings
from diagvib.training.finished_runs import LAST, differing


def make_unrecorded_again(config: Configuration) -> None:
    """To be called while the Snakefile is read, with the configuration, resolved. Without this, of
    eight ways to change results behind Snakemake's back (tests/test_trust.py), it notices none."""
    from snakemake.persistence import ParamsChange
    from snakemake.persistence.file import FilePersistence as Persistence

    changed = Persistence.params_changed

    def params_changed(self, job, file=None):
        there = [path for path in job.output if file is None and os.path.exists(path)]
        for why, files in (
            ("no record of what made it", {path for path in there if not self.metadata(path)}),
            (
                "files that are gone or damaged",
                {f for path in there for f in _damaged(config, path)},
            ),
            ("made with other settings, code or images", there and _made_otherwise(config, job)),
        ):
            if files:
                return ParamsChange(only_new={why}, files=files)
        return changed(self, job, file)

    # Snakemake compares settings only where there is a record.
    Persistence.has_metadata, Persistence.params_changed = lambda self, job: True, params_changed


def _damaged(config: Configuration, path: str) -> list[str]:
    """The files that an output stands for and that are gone; of runs, also those that have changed
    since. (Images, which are large, are compared when they are read.)"""
    folder, name = os.path.split(path)
    files: dict[str, str | None] = {}
    with suppress(DiagvibError):  # damaged, which is said where it is used
        if name == DIGESTS_FILE:
            noted = read_json(path)
            runs = [file.removesuffix(LAST) for file in noted if file.endswith(f"/{LAST}")]
            kept = noted if runs else dict.fromkeys(noted)
            files = {file: kept[file] for file in noted if isinstance(noted[file], str)}
            files |= dict.fromkeys(run + LAST for run in runs)  # is compared by its content
            if config.keep_weights:
                files |= dict.fromkeys(run + WEIGHTS_FILE for run in runs)
        elif name == FEATURES_FILE:
            files = {f"{split}.npy": None for split in read_json(path) if "/" in split}
    since = os.stat(path).st_mtime
    return [file for file, digest in files.items() if _differs(f"{folder}/{file}", digest, since)]


def _differs(path: str, digest: str | None, since: float) -> bool:
    try:
        unchanged = digest is None or os.stat(path).st_mtime <= since
        return not (os.path.exists(path) if unchanged else file_sha256(path) == digest)
    except OSError:
        return True


def _made_otherwise(config: Configuration, job) -> set[str]:
    """The files of a job that say themselves that they were made with something else."""
    found = set()
    with suppress(DiagvibError):  # nothing to compare with
        for path, asked in _asked_for(config, job):
            with suppress(DiagvibError):  # damaged
                read = read_metadata if path.suffix == ".parquet" else read_json
                found |= {str(path)} if differing(read(path), asked) else set()
    return found


def _asked_for(config: Configuration, job) -> Iterator[tuple[Path, dict]]:
    """The files of a job that say what they were made with, and what they should say."""
    layout, names = Layout(Path(config.root)), job.wildcards
    if job.rule.name == "fetch":
        scene, mirror = job.params.scene, config.mirror
        # Empty in a clone that has pulled the rest, where the user's photos are not.
        if state := load_scene(scene).state(mirror and Path(mirror)):
            yield layout.raw(scene) / STATE, {"state": state}
    if job.rule.name not in ("draw", "render", "train"):
        return
    settings = read_settings(job.params.settings, job.rule.name)
    recipes = layout.recipes(names.study, names.binding)
    if job.rule.name == "draw":
        keys = ("counts", "dataset_samples")
        made = settings.plain()
        yield recipes, {"definition": made["study"], **{key: made[key] for key in keys}}
    elif job.rule.name == "render":
        asked = made_from(read_metadata(recipes), settings.image_size)
        yield layout.digests(names.study, names.binding), asked
    else:
        of_job = names.baseline, names.study, names.binding
        for run, asked in asked_for(layout, settings, *of_job).items():
            yield layout.runs(*of_job) / str(run.sample) / LAST, asked
