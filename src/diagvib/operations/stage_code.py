"""The code and definitions that a stage's jobs depend on; their digest is a parameter of its rule
rather than its inputs, since Snakemake would keep thirty names and hashes for each job."""

from functools import cache
from pathlib import Path

from diagvib.foundation.code import Code, code_of, imported_in
from diagvib.scenes import load_scene
from diagvib.settings.configuration import Configuration
from diagvib.settings.jobs import stage_settings
from diagvib.studies.needs import metric_set_modules
from diagvib.studies.study import study_files
from diagvib.training.code_digest import baseline_entries, of_encoder, renders


def stage_code(
    config: Configuration,
    stage: str,
    scene: str | None = None,
    study: str | None = None,
    baseline: str | None = None,
) -> Code:
    """The code that one job of a stage depends on: the imports of the function of that name in
    `diagvib.stages`, and the scenes, model and method that the job's names and the configuration select.

    config: resolved; scene, study, baseline: of the job.
    """
    if baseline:
        job = stage_settings(config, stage, study, baseline)
        settings = of_encoder(job.settings) if stage == "encode" else job.settings
        entries = baseline_entries(settings)
        # Of image files, the digests are inputs.
        chosen = [job.scene] if renders(job.images, settings) else []
    else:
        entries = []
        chosen = [scene] if scene else [config.study(study).scene] if study else config.scenes
    entries += [entry for name in chosen for entry in load_scene(name).entries]
    # A job for one study has the study's definition in its settings.
    if stage in ("tabulate", "plot"):
        entries += metric_set_modules().values()
        entries += map(Path, study_files(config.studies_from))
    return _code(stage, tuple(entries))


@cache
def _code(stage: str, entries: tuple[str | Path, ...]) -> Code:
    return code_of([*imported_in("diagvib.stages", stage), *entries])
