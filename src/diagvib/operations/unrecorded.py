"""Files that Snakemake's records do not vouch for: they are made again.

Snakemake compares a job with its own records alone, and takes a file without one for up to date if
it is newer than its inputs: after its root was moved, copied or written in another way, or
`.snakemake` was deleted, other settings' results would be taken for those asked for. The same
happens to what was made behind its back: by hand, by another clone, or from code that was edited
while a job ran. `snakemake --touch` vouches for files without a record; with `--rerun-triggers
mtime` all are trusted.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata
from diagvib.images import made_from
from diagvib.operations.asked import asked_for
from diagvib.scenes import source_state
from diagvib.settings.grid import Layout
from diagvib.training.finished_runs import LAST, differing


def make_unrecorded_again(config: dict) -> None:
    """To be called while the Snakefile is read, with the configuration, resolved. No effect on a
    Snakemake that keeps its records differently."""
    try:
        from snakemake.persistence import ParamsChange
        from snakemake.persistence.file import FilePersistence as Persistence

        record, changed = Persistence.metadata, Persistence.params_changed
    except (ImportError, AttributeError):
        return

    def params_changed(self, job, file=None):
        there = [path for path in job.output if file is None and os.path.exists(path)]
        for why, files in (
            ("no record of what made it", {path for path in there if record(self, path) is None}),
            ("made with other settings, code or images", there and _made_otherwise(config, job)),
        ):
            if files:
                return ParamsChange(only_new={why}, files=files)
        return changed(self, job, file)

    # Snakemake compares settings only where there is a record.
    Persistence.has_metadata, Persistence.params_changed = lambda self, job: True, params_changed


def _made_otherwise(config: dict, job) -> set[str]:
    """The files of a job that say themselves that they were made with something else."""
    found = set()
    with suppress(DiagvibError):  # nothing to compare with
        for path, asked in _asked_for(config, job):
            with suppress(DiagvibError):  # absent, or damaged, which is said where it is used
                read = read_metadata if path.suffix == ".parquet" else read_json
                found |= {str(path)} if differing(read(path), asked) else set()
    return found


def _asked_for(config: dict, job) -> Iterator[tuple[Path, dict]]:
    """The files of a job that say what they were made with, and what they should say."""
    layout, names = Layout(Path(config["root"])), job.wildcards
    # Without a mirror, as in a clone that has pulled the rest, the user's photos are not there.
    if job.rule.name == "fetch" and config["mirror"]:
        scene = job.params.scene
        yield layout.source_state(scene), {"state": source_state(scene, config["mirror"])}
    if job.rule.name not in ("draw", "render", "train"):
        return
    settings = json.loads(job.params.settings)
    recipes = layout.recipes(names.study, names.binding)
    if job.rule.name == "draw":
        keys = ("counts", "dataset_samples")
        yield recipes, {"definition": settings["study"], **{key: settings[key] for key in keys}}
    elif job.rule.name == "render":
        asked = made_from(read_metadata(recipes), settings["image_size"])
        yield layout.digests(names.study, names.binding), asked
    else:
        of_job = names.baseline, names.study, names.binding
        for run, asked in asked_for(layout, settings, *of_job).items():
            yield layout.runs(*of_job) / str(run.sample) / LAST, asked
