"""The settings, images and code that each run must have been made with, from the configuration and
the files on disk."""

import json
from functools import cache
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata
from diagvib.images import FEATURES_FILE
from diagvib.settings.baselines import prepared_input
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import Layout, Run
from diagvib.settings.jobs import Encode, Train, stage_settings
from diagvib.studies.study import SPLITS
from diagvib.training.code_digest import code_digest
from diagvib.training.finished_runs import digest_of_images, what_makes


def asked_for(layout: Layout, job: Train, *names: str) -> dict[Run, dict]:
    """Each run of a train job with what it must be made from, given the files on disk now. names:
    baseline, study and binding."""
    made = job.plain()
    settings = made["baseline"]
    code = _code(json.dumps(settings), job.scene, job.images)
    return {
        run: what_makes(run, settings, made["training"], code, _image_digests(layout, job, run))
        for run in job.runs(*names)
    }


def runs_asked_for(layout: Layout, config: Configuration) -> list[dict]:
    """The names of every run, `Run.keys`, and what it must be made with, `asked`. config: at least
    the settings of the stage `tabulate`."""
    job = cache(lambda baseline, study: stage_settings(config, "train", study, baseline))
    draw = cache(lambda study: stage_settings(config, "draw", study).plain())
    drawn = cache(lambda *names: _is_drawn(layout.recipes(*names), draw(names[0])))
    return [
        {**run.keys, "asked": asked if drawn(*names[1:]) else {**asked, "images": {}}}
        for names in config.train_jobs
        for run, asked in asked_for(layout, job(*names[:2]), *names).items()
    ]


def _is_drawn(recipes: Path, asked: dict) -> bool:
    """Whether recipes, if there are any, have the counts and the study of a draw job's settings."""
    try:
        noted = read_metadata(recipes)
    except DiagvibError:
        return True
    return (noted["counts"], noted["definition"]) == (asked["counts"], asked["study"])


@cache
def _code(settings: str, scene: str, images: str) -> str:
    return code_digest(json.loads(settings), "diagvib.training.run", scene, images)


def _image_digests(layout: Layout, job: Train, run: Run) -> dict[str, str] | None:
    """By split, of the images or features that a run reads; otherwise as `images_asked`."""
    images = images_asked(layout, job, run.study, run.binding, run.dataset)
    if not job.network:
        return images
    try:
        noted = read_json(layout.features(job.network, run.study, run.binding) / FEATURES_FILE)
        names = {split: f"{run.dataset}/{split}" for split in SPLITS}
        of = {split: noted["of"][name] for split, name in names.items()}
        return {} if images and of != images else {s: noted[n]["sha256"] for s, n in names.items()}
    except (DiagvibError, KeyError):
        return None


def images_asked(
    layout: Layout,
    job: Train | Encode,
    study: str,
    binding: str,
    dataset: int,
) -> dict[str, str] | None:
    """By split, `digest_of_images` of a dataset that a job reads; None if there is nothing to compare
    with, {} if images have another size."""
    prepared = prepared_input(job.settings["model"])
    size = prepared["size"] if prepared else job.image_size
    try:
        if job.images == "parquet" and not prepared:
            noted = read_json(layout.digests(study, binding))
            if noted["image_size"] != size:
                return {}
            return {split: noted[f"{dataset}/{split}.parquet"] for split in SPLITS}
        noted = read_metadata(layout.recipes(study, binding))
        made = {**noted, "image_shape": [size, size, 3]}
        recipes = {split: noted["digests"][f"{dataset}/{split}"] for split in SPLITS}
    except (DiagvibError, KeyError):
        return None
    return {
        split: digest_of_images({**made, "recipe_digest": digest})
        for split, digest in recipes.items()
    }
