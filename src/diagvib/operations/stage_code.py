"""The code and definitions that a stage's jobs depend on, and their digest: a parameter of its
rule."""

from functools import cache
from pathlib import Path

from diagvib.foundation.code import Code, code_of, imported_in
from diagvib.scenes import load_scene
from diagvib.settings.baselines import load_settings, network_name
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import scenes, study_of
from diagvib.settings.jobs import stage_settings
from diagvib.studies.needs import metric_set_modules
from diagvib.studies.study import study_files
from diagvib.training import code_digest


def stage_code(
    config: Configuration,
    stage: str,
    scene: str | None = None,
    study: str | None = None,
    baseline: str | None = None,
) -> Code:
    """What one job of a stage depends on: what the function of that name in `diagvib.stages`
    imports, and the scenes, model and method that the job's names and the configuration select.

    config: resolved; scene, study, baseline: of the job.
    """
    if stage in ("train", "tune") and not renders(config, baseline):
        chosen = []  # training jobs read image files, whose digests are inputs
    elif stage == "tune":
        chosen = [study_of(config, config.tuning.study).scene]
    else:
        chosen = [scene] if scene else [study_of(config, study).scene] if study else scenes(config)
    if stage == "encode" and config.images == "parquet":
        chosen = []
    entries = [entry for name in chosen for entry in load_scene(name).entries]
    if baseline:
        job = stage_settings(config, stage, study, baseline)
        encoding = stage == "encode"
        settings = code_digest.of_encoder(job.plain()["encoder"]) if encoding else job.settings
        entries += code_digest.baseline_entries(settings)
    # A job for one study has the study's definition in its settings.
    if stage in ("tabulate", "plot"):
        entries += metric_set_modules().values()
        entries += map(Path, study_files(config.studies_from))
    return _code(stage, tuple(entries))


@cache
def _settings(baseline: str, further: tuple[str, ...]) -> dict:
    return load_settings(baseline, further)


def network_of(config: Configuration, baseline: str) -> str | None:
    """The folder of the features that training jobs of a baseline read; None without a frozen
    network."""
    return network_name(_settings(baseline, tuple(config.baselines_from)))


def renders(config: Configuration, baseline: str) -> bool:
    """Whether training jobs of a baseline render images."""
    settings = _settings(baseline, tuple(config.baselines_from))
    return code_digest.renders(config.images, settings)


def stage_digest(config: Configuration, stage: str, *names: str | None) -> str:
    """The digest of `stage_code`, which takes the same names; it changes when a program changes,
    appears or disappears.

    A rule's parameter rather than its inputs: Snakemake would keep thirty names and hashes for each
    of a run's files.
    """
    return stage_code(config, stage, *names).digest


@cache
def _code(stage: str, entries: tuple[str | Path, ...]) -> Code:
    return code_of([*imported_in("diagvib.stages", stage), *entries])
