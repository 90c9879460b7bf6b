"""Expected provenance: what the files of a configuration must have been made with, from the
configuration and the files on disk."""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata, text_sha256, write_text
from diagvib.images import FEATURES_FILE, made_from
from diagvib.provenance.code import TRAINING_MODULE, code_digest, job_code, of_encoder, stage_code
from diagvib.provenance.finished import RUN_RECORD, digest_of_images, run_provenance
from diagvib.scenes import load_scene
from diagvib.scenes.prepared import DESCRIPTION
from diagvib.scenes.scene import STATE
from diagvib.settings.jobs import Encode, JobSettings, Train, stage_settings
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout, Run
from diagvib.settings.model_settings import prepared_input
from diagvib.settings.resolve import with_baseline
from diagvib.studies.study import SPLITS


class ExpectedJobs:
    """The jobs of a configuration: their settings, the digests of their code, and the provenance
    that their files must have. Cached, since thousands of jobs ask and the answers depend on the
    study and the baseline alone."""

    def __init__(self, config: Configuration):
        self.config, self.layout = config, Layout(config.root)
        self.settings = cache(self._settings)
        self.settings_file = cache(self._settings_file)
        self.code = cache(self._code)

    def _settings(
        self, stage: str, study: str | None = None, baseline: str | None = None
    ) -> JobSettings:
        """The part of the configuration that a job depends on."""
        config = with_baseline(self.config, stage, baseline)
        return stage_settings(config, stage, study, baseline)

    def _code(
        self,
        stage: str,
        scene: str | None = None,
        study: str | None = None,
        baseline: str | None = None,
    ) -> str:
        """The digest of the code that a job depends on."""
        if baseline:
            return job_code(stage, self.settings(stage, study, baseline)).digest
        return stage_code(self.config, stage, scene, study).digest

    def _settings_file(self, *names: str | None) -> str:
        """Where a job's command reads its settings: named after their content, so that jobs of
        several configurations may share it. names: stage, study and baseline."""
        return settings_file(self.config.root, self.settings(*names).text())

    def write_settings(self, stage: str, study: str | None, baseline: str | None) -> None:
        """Write a job's settings file unless it is there; call it before the job starts."""
        path = Path(self.settings_file(stage, study, baseline))
        if not path.exists():
            write_text(path, self.settings(stage, study, baseline).text())

    def provenance(self, job) -> Iterator[tuple[Path, dict]]:
        """The files of a job, Snakemake's, that record their provenance, and what they should say
        of it."""
        config, layout, names, rule = self.config, self.layout, job.wildcards, job.rule.name
        output = Path(job.output[0])
        settings = self.settings(rule, *study_and_baseline(names))
        if rule == "fetch":
            scene, mirror = job.params.scene, config.mirror
            # Empty in a clone that has pulled the rest, where the user's photos are not.
            if state := load_scene(scene).state(mirror and Path(mirror)):
                yield layout.raw(scene) / STATE, {"state": state}
        elif rule == "prepare":
            path = output.with_name(DESCRIPTION)
            recorded, sources = read_json(path)["sources"], settings.sources
            # Those of photos also say how many files were left out.
            is_unchanged = recorded.partition(" ")[0] == sources
            yield path, {"sources": recorded if is_unchanged else sources}
        elif rule == "draw":
            entries = settings.plain()
            yield output, {"definition": entries.pop("study"), **entries}
        elif rule == "render":
            recipes = read_metadata(layout.recipes(names.study, names.binding))
            yield output, made_from(recipes, settings.image_size)
        elif rule == "encode":
            yield from _of_features(layout, settings, names.study, names.binding, output)
        elif rule == "train":
            of_job = names.baseline, names.study, names.binding
            for run, provenance in expected_runs(layout, settings, *of_job).items():
                yield layout.runs(*of_job) / run.folder / RUN_RECORD, provenance


def study_and_baseline(names) -> tuple[str | None, str | None]:
    """Of the wildcards of a job; a network has the settings of a baseline."""
    return names.get("study"), names.get("baseline") or names.get("network")


def settings_file(root: str, text: str) -> str:
    """The file in a root that holds a job's settings, given as JSON."""
    return f"{root}/logs/settings/{text_sha256(text)[:32]}.json"


def _of_features(
    layout: Layout, job: Encode, study: str, binding: str, path: Path
) -> Iterator[tuple[Path, dict]]:
    digests = {}
    for sample in range(job.samples):
        images = expected_images(layout, job, study, binding, sample)
        if images is None:
            return
        digests |= {f"{sample}/{split}": digest for split, digest in images.items()}
    encoder = of_encoder(job.settings)
    code = code_digest(encoder, "diagvib.training.encode", job.scene, job.images)
    recorded = read_json(path)["made_from"]
    yield path, {"of": digests, "made_from": recorded | {"code": code}}


def expected_runs(layout: Layout, job: Train, *names: str) -> dict[Run, dict]:
    """Each run of a train job with its expected provenance, given the files on disk now. names:
    baseline, study and binding."""
    with suppress(DiagvibError):  # not tuned yet, so that there is no such run
        job = job.with_tuned(names[0], layout)
    entries = job.plain()
    settings = entries["baseline"]
    code = _run_code(json.dumps(settings), job.scene, job.images)
    return {
        run: run_provenance(
            run, settings, entries["training"], code, _image_digests(layout, job, run)
        )
        for run in job.runs(*names)
    }


def expected_provenance(layout: Layout, config: Configuration) -> list[dict]:
    """The names of every run, `Run.keys`, and its expected `provenance`. config: at least the
    settings of the stage `tabulate`."""
    job = cache(lambda baseline, study: stage_settings(config, "train", study, baseline))
    draw = cache(lambda study: stage_settings(config, "draw", study).plain())
    drawn = cache(lambda *names: _is_drawn(layout.recipes(*names), draw(names[0])))
    return [
        {
            **run.keys,
            "provenance": provenance if drawn(*names[1:]) else {**provenance, "images": {}},
        }
        for names in config.train_jobs
        for run, provenance in expected_runs(layout, job(*names[:2]), *names).items()
    ]


def _is_drawn(recipes: Path, expected: dict) -> bool:
    """Whether recipes, if there are any, have the counts and the study of a draw job's settings."""
    try:
        recorded = read_metadata(recipes)
    except DiagvibError:
        return True
    return (recorded["counts"], recorded["definition"]) == (expected["counts"], expected["study"])


@cache
def _run_code(settings: str, scene: str, images: str) -> str:
    return code_digest(json.loads(settings), TRAINING_MODULE, scene, images)


def _image_digests(layout: Layout, job: Train, run: Run) -> dict[str, str] | None:
    """By split, of the images or features that a run reads; otherwise as `expected_images`."""
    images = expected_images(layout, job, run.study, run.binding, run.dataset)
    if not job.network:
        return images
    try:
        recorded = read_json(layout.features(job.network, run.study, run.binding) / FEATURES_FILE)
        names = {split: f"{run.dataset}/{split}" for split in SPLITS}
        encoded = {split: recorded["of"][name] for split, name in names.items()}
        if images and encoded != images:
            return {}
        return {split: recorded[name]["sha256"] for split, name in names.items()}
    except (DiagvibError, KeyError):
        return None


def expected_images(
    layout: Layout, job: Train | Encode, study: str, binding: str, dataset: int
) -> dict[str, str] | None:
    """By split, `digest_of_images` of a dataset that a job reads; None if there is nothing to compare
    with, {} if images have another size."""
    prepared = prepared_input(job.settings["model"])
    size = prepared["size"] if prepared else job.image_size
    try:
        if job.images == "parquet" and not prepared:
            recorded = read_json(layout.digests(study, binding))
            if recorded["image_size"] != size:
                return {}
            return {split: recorded[f"{dataset}/{split}.parquet"] for split in SPLITS}
        recorded = read_metadata(layout.recipes(study, binding))
        metadata = {**recorded, "image_shape": [size, size, 3]}
        recipes = {split: recorded["digests"][f"{dataset}/{split}"] for split in SPLITS}
    except (DiagvibError, KeyError):
        return None
    return {
        split: digest_of_images({**metadata, "recipe_digest": digest})
        for split, digest in recipes.items()
    }
