"""The files of code and definitions that a stage's jobs depend on, and their digest: a parameter of
its rule."""

import hashlib
from functools import cache
from pathlib import Path

from diagvib.foundation.code import code_of, from_here
from diagvib.foundation.program_digest import program_digest
from diagvib.methods.registry import declaration
from diagvib.scenes import SCENES
from diagvib.settings.baselines import load_settings
from diagvib.settings.config import stage_settings
from diagvib.settings.grid import scenes, study_of
from diagvib.studies.study import study_files
from diagvib.training.code_digest import baseline_modules


def stage_code(
    config: dict,
    stage: str,
    scene: str | None = None,
    study: str | None = None,
    baseline: str | None = None,
) -> list[str]:
    """The files that one job of a stage depends on, sorted, relative to the current folder: the
    code that the function of that name in `diagvib.stages` uses, and the scenes, model and method
    that the job's names and the configuration select.

    config: resolved; scene, study, baseline: of the job.
    """
    if stage in ("train", "tune") and not renders(config, baseline):
        chosen = []  # training jobs read image files, whose digests are inputs
    elif stage == "tune":
        chosen = [study_of(config, config["tuning"]["study"]).scene]
    else:
        chosen = [scene] if scene else [study_of(config, study).scene] if study else scenes(config)
    named = (
        baseline_modules(stage_settings(config, stage, study, baseline)["baseline"])
        if baseline
        else []
    )
    # A job for one study has the study's definition in its settings.
    definitions = study_files(config["studies_from"]) if stage in ("tabulate", "plot") else []
    return [*_files(stage, tuple(chosen), tuple(named)), *from_here(definitions)]


def renders(config: dict, baseline: str) -> bool:
    """Whether training jobs of a baseline render images: all do from recipes, others if the method
    needs it."""
    return config["images"] == "render" or _needs_to(baseline, tuple(config["baselines_from"]))


@cache
def _needs_to(baseline: str, further: tuple[str, ...]) -> bool:
    return bool(declaration(load_settings(baseline, further)["method"]["name"]).needs)


def stage_digest(config: dict, stage: str, *names: str | None) -> str:
    """One digest of `stage_code`, which takes the same names; it changes when a program changes,
    appears or disappears.

    A rule's parameter rather than its inputs: Snakemake would keep thirty names and hashes for each
    of a run's files.
    """
    return _digest(tuple(stage_code(config, stage, *names)))


@cache
def _digest(files: tuple[str, ...]) -> str:
    text = "".join(f"{_file_digest(Path(file))}  {file}\n" for file in files)
    return hashlib.sha256(text.encode()).hexdigest()


_file_digest = cache(program_digest)


@cache
def _files(stage: str, scenes: tuple[str, ...], modules: tuple[str, ...]) -> list[str]:
    return code_of(
        modules, [SCENES.get(scene, scene) for scene in scenes], [f"diagvib.stages:{stage}"]
    ).files()
