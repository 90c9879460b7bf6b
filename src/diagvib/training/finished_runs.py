"""Whether a run is the one that a configuration asks for: made with its settings, code and images,
and unchanged since."""

import json
from functools import cache
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256, read_json, read_metadata
from diagvib.scenes import load_scene
from diagvib.scenes.scene import replicates
from diagvib.settings.config import stage_settings
from diagvib.settings.grid import (
    RUN_FILES,
    WEIGHTS_FILE,
    Layout,
    Run,
    expected_runs,
    make_run,
    train_jobs,
)
from diagvib.studies.study import SPLITS
from diagvib.training.code_digest import code_digest

# Written last, so that a run with this file is complete.
LAST = "run.json"
TRAINING_CODE = "diagvib.training.run"


def what_makes(
    run: Run, settings: dict, training: dict, code: str, images: dict[str, str] | None
) -> dict:
    """Everything that makes a run the one it is, as its run.json has it. The device is no part of
    it, nor is the number of threads, which changes the last bits alone.

    settings: the baseline's; training: the configuration's; images: by split, `digest_of_images`;
    None if they are not there to be compared.
    """
    return {
        "run": run.name,
        "settings": settings,
        "training": {
            **{key: value for key, value in training.items() if key != "threads"},
            "seed": run.seed(training["seed"]),
        },
        "code": code,
        "images": images,
    }


def job_runs(settings: dict, baseline: str, study: str, binding: str) -> list[Run]:
    """The runs of a train job. settings: its `config.stage_settings`."""
    shared = replicates(load_scene(settings["scene"])) == "seeds"
    return [
        make_run(baseline, study, binding, sample, shared) for sample in range(settings["samples"])
    ]


def asked_for(layout: Layout, settings: dict, *names: str) -> dict[Run, dict]:
    """What makes each run of a train job, given what is on disk now; arguments as for
    `job_runs`."""
    code = _code(json.dumps(settings["baseline"]), settings["scene"])
    return {
        run: what_makes(
            run,
            settings["baseline"],
            settings["training"],
            code,
            _image_digests(layout, settings, run),
        )
        for run in job_runs(settings, *names)
    }


def runs_asked_for(layout: Layout, config: dict) -> list[dict]:
    """`grid.expected_runs`, each with what it must be made with, `asked`. config: at least the
    settings of the stage `tabulate`."""
    asked = [
        one
        for baseline, study, binding in train_jobs(config)
        for one in asked_for(
            layout, stage_settings(config, "train", study, baseline), baseline, study, binding
        ).values()
    ]
    runs = zip(expected_runs(config), asked, strict=True)
    return [{**run, "asked": one} for run, one in runs]


@cache
def _code(settings: str, scene: str) -> str:
    return code_digest(json.loads(settings), TRAINING_CODE, scene)


def digest_of_images(metadata: dict) -> str:
    """What identifies a split's images, given their metadata (`images.datasets`): the sha256 of
    their file, or of the recipes, with the digest of the sources and the size."""
    rendered = (metadata.get(key) for key in ("recipe_digest", "sources_digest", "image_shape"))
    return metadata.get("sha256") or " ".join(map(str, rendered))


def _image_digests(layout: Layout, settings: dict, run: Run) -> dict[str, str] | None:
    try:
        if settings["images"] == "parquet":
            noted = read_json(layout.digests(run.study, run.binding))
            return {split: noted[f"{run.dataset}/{split}.parquet"] for split in SPLITS}
        noted, size = read_metadata(layout.recipes(run.study, run.binding)), settings["image_size"]
        made = {"sources_digest": noted["sources_digest"], "image_shape": [size, size, 3]}
        return {
            split: digest_of_images(
                {**made, "recipe_digest": noted["digests"][f"{run.dataset}/{split}"]}
            )
            for split in SPLITS
        }
    except (DiagvibError, KeyError):
        return None


def differing(said: dict, asked: dict) -> list[str]:
    """In which parts what a file says made it differs from what is asked for."""
    return [part for part, value in asked.items() if value is not None and said.get(part) != value]


def file_digests(run: Path) -> dict[str, str]:
    """For run.json: the sha256 of the run's other files."""
    return {name: file_sha256(run / name) for name in RUN_FILES if name != LAST}


def is_finished(run: Path, asked: dict, with_weights: bool) -> bool:
    """Whether the folder `run` holds the run that is asked for, weights included if with_weights."""
    try:
        said = json.loads((run / LAST).read_text())
        return (
            not differing(said, asked)
            and said["files"] == file_digests(run)
            and (not with_weights or (run / WEIGHTS_FILE).is_file())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
