"""Jobs whose files are not those that the configuration asks for, whatever their times: they run
again.

Snakemake compares a job with its own records alone, looks only at the files that a rule lists, and
takes a file without a record for up to date if it is newer than its inputs. Here a job also runs
again if one of its files has no record (its root was moved or copied, or `.snakemake` deleted), if a
file that its digest file stands for is gone, if a run's files have changed, or if its files say that
they were made with something else (by hand, by another clone; runs and features also by code that
was edited while a job ran). `snakemake --touch` vouches for files without a record; with
`--rerun-triggers mtime` all are trusted.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata
from diagvib.images import made_from, split_files
from diagvib.operations.asked import asked_for, images_asked
from diagvib.scenes import load_scene
from diagvib.scenes.prepared import DESCRIPTION
from diagvib.scenes.scene import STATE
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import WEIGHTS_FILE, Layout
from diagvib.settings.jobs import read_settings
from diagvib.training.code_digest import code_digest, of_encoder
from diagvib.training.finished_runs import LAST, changed_files, differing


def make_unrecorded_again(config: Configuration) -> None:
    """To be called while the Snakefile is read, with the configuration, resolved. Without this, of
    eight ways to change results behind Snakemake's back (tests/test_trust.py), it notices none."""
    from snakemake.persistence import ParamsChange
    from snakemake.persistence.file import FilePersistence as Persistence

    changed = Persistence.params_changed

    def params_changed(self, job, file=None):
        there = [path for path in job.output if file is None and os.path.exists(path)]
        reasons = {
            "no record of what made it": (path for path in there if not self.metadata(path)),
            "files that are gone": there and _gone(config, job),
            "changed, or made with other settings, code or images": there
            and _made_otherwise(config, job),
        }
        for why, found in reasons.items():
            with suppress(DiagvibError):  # cannot be read, which is said where it is used
                if files := set(found):
                    return ParamsChange(only_new={why}, files=files)
        return changed(self, job, file)

    # Snakemake compares settings only where there is a record.
    Persistence.has_metadata, Persistence.params_changed = lambda self, job: True, params_changed


def _gone(config: Configuration, job) -> Iterator[str]:
    """The files that a job's output stands for and that are gone."""
    output, rule = Path(job.output[0]), job.rule.name
    if rule not in ("fetch", "prepare", "render", "encode", "train"):
        return
    noted = read_json(output)
    names = [name for name, digest in noted.items() if isinstance(digest, str)]
    if rule == "encode":
        splits = {Path(f"{name}.npy"): its for name, its in noted.items() if "/" in name}
        names = [
            file for path, its in splits.items() for file in split_files(path, its.get("views", ()))
        ]
    if rule == "train" and config.keep_weights:
        names += {f"{os.path.dirname(name)}/{WEIGHTS_FILE}" for name in names}
    yield from (str(path) for name in names if not (path := output.parent / name).exists())


def _made_otherwise(config: Configuration, job) -> Iterator[str]:
    """The files of a job that say themselves that they were made with something else; and runs
    whose files have changed since. (Images, which are large, are compared when they are read.)"""
    for path, asked in _asked_for(config, job):
        with suppress(DiagvibError, OSError):  # damaged
            said = (read_metadata if path.suffix == ".parquet" else read_json)(path)
            of_run = path.name == LAST and changed_files(said, path.parent, path.stat().st_mtime)
            if of_run or differing(said, asked):
                yield str(path)


def _asked_for(config: Configuration, job) -> Iterator[tuple[Path, dict]]:
    """The files of a job that say what they were made with, and what they should say."""
    layout, names, rule = Layout(config.root), job.wildcards, job.rule.name
    if rule == "fetch":
        scene, mirror = job.params.scene, config.mirror
        # Empty in a clone that has pulled the rest, where the user's photos are not.
        if state := load_scene(scene).state(mirror and Path(mirror)):
            yield layout.raw(scene) / STATE, {"state": state}
    elif rule == "prepare":
        path = Path(job.output[0]).with_name(DESCRIPTION)
        said, asked = read_json(path)["sources"], read_settings(job.params.settings, rule).sources
        # Those of photos also say how many files were left out.
        yield path, {"sources": said if said.partition(" ")[0] == asked else asked}
    elif rule == "draw":
        made = read_settings(job.params.settings, rule).plain()
        yield Path(job.output[0]), {"definition": made.pop("study"), **made}
    elif rule == "render":
        recipes = read_metadata(layout.recipes(names.study, names.binding))
        size = read_settings(job.params.settings, rule).image_size
        yield Path(job.output[0]), made_from(recipes, size)
    elif rule == "encode":
        own = read_settings(job.params.settings, rule)
        encoder, of = own.settings, {}
        for sample in range(own.samples):
            asked = images_asked(layout, own, names.study, names.binding, sample)
            if asked is None:
                return
            of |= {f"{sample}/{split}": digest for split, digest in asked.items()}
        path = Path(job.output[0])
        code = code_digest(of_encoder(encoder), "diagvib.training.encode", own.scene, own.images)
        yield path, {"of": of, "made_from": read_json(path)["made_from"] | {"code": code}}
    elif rule == "train":
        of_job = names.baseline, names.study, names.binding
        runs = asked_for(layout, read_settings(job.params.settings, rule), *of_job)
        for run, asked in runs.items():
            yield layout.runs(*of_job) / str(run.sample) / LAST, asked
