"""What each run must have been made with, as far as the configuration and what is on disk say."""

import json
from functools import cache

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata
from diagvib.images import FEATURES_FILE
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import Layout, Run, expected_runs, train_jobs
from diagvib.settings.jobs import Train, stage_settings
from diagvib.studies.study import SPLITS
from diagvib.training.code_digest import code_digest
from diagvib.training.finished_runs import digest_of_images, what_makes


def asked_for(layout: Layout, job: Train, *names: str) -> dict[Run, dict]:
    """What makes each run of a train job, given what is on disk now. names: baseline, study and
    binding."""
    made = job.plain()
    settings = made["baseline"]
    code = _code(json.dumps(settings), job.scene, job.images)
    return {
        run: what_makes(run, settings, made["training"], code, _image_digests(layout, job, run))
        for run in job.runs(*names)
    }


def runs_asked_for(layout: Layout, config: Configuration) -> list[dict]:
    """`grid.expected_runs`, each with what it must be made with, `asked`. config: at least the
    settings of the stage `tabulate`."""
    job = cache(lambda baseline, study: stage_settings(config, "train", study, baseline))
    asked = [
        one
        for baseline, study, binding in train_jobs(config)
        for one in asked_for(layout, job(baseline, study), baseline, study, binding).values()
    ]
    runs = zip(expected_runs(config), asked, strict=True)
    return [{**run, "asked": one} for run, one in runs]


@cache
def _code(settings: str, scene: str, images: str) -> str:
    return code_digest(json.loads(settings), "diagvib.training.run", scene, images)


def _image_digests(layout: Layout, job: Train, run: Run) -> dict[str, str] | None:
    try:
        if job.network:
            noted = read_json(layout.features(job.network, run.study, run.binding) / FEATURES_FILE)
            return {split: noted[f"{run.dataset}/{split}"]["sha256"] for split in SPLITS}
        if job.images == "parquet":
            noted = read_json(layout.digests(run.study, run.binding))
            return {split: noted[f"{run.dataset}/{split}.parquet"] for split in SPLITS}
        noted = read_metadata(layout.recipes(run.study, run.binding))
        made = {
            "sources_digest": noted["sources_digest"],
            "image_shape": [job.image_size, job.image_size, 3],
        }
        return {
            split: digest_of_images(
                {**made, "recipe_digest": noted["digests"][f"{run.dataset}/{split}"]}
            )
            for split in SPLITS
        }
    except (DiagvibError, KeyError):
        return None
