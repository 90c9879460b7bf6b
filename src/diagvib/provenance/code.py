"""The code that a job depends on, and its digest: files made by other code are made again.

The digest is a parameter of a rule rather than its inputs, since Snakemake would keep thirty names
and hashes for each job.
"""

import csv
import platform
import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import checkout_path
from diagvib.foundation.imports import Code, Entry, code_of, imported_in
from diagvib.foundation.version import __version__
from diagvib.methods.registry import METHODS, declaration
from diagvib.models.registry import MODELS, family
from diagvib.scenes import load_scene
from diagvib.scenes.scene import MARK
from diagvib.settings.frozen_networks import is_frozen
from diagvib.settings.jobs import Encode, Train, Tune, stage_settings
from diagvib.settings.keys import Configuration
from diagvib.settings.model_settings import prepared_input
from diagvib.settings.resolve import with_baseline
from diagvib.studies.metric_needs import metric_set_modules
from diagvib.studies.study import study_files

# Code that was shown to compute the same bytes as newer code, by benchmarks/equal_code.py. Each line
# has the two digests, the toy job that was run by both, and the sha256 of what it made.
EQUAL_CODE = Path(__file__).with_name("equal_code.csv")
COLUMNS = ("old", "new", "job", "commit", "old_bytes", "new_bytes")
# What this module imports is the code that a run is made with.
TRAINING_MODULE = "diagvib.training.run"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ALWAYS = ("torch", "torchvision", "numpy", "pyarrow")


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
        config = with_baseline(config, stage, baseline)
        return job_code(stage, stage_settings(config, stage, study, baseline))
    scenes = [scene] if scene else [config.study(study).scene] if study else config.scenes
    entries = [entry for name in scenes for entry in load_scene(name).entries]
    # A job for one study has the study's definition in its settings.
    if stage in ("tabulate", "plot"):
        entries += metric_set_modules().values()
        entries += map(Path, study_files(config.studies_from))
    return entries_code(stage, tuple(entries))


def job_code(stage: str, job: Encode | Train | Tune) -> Code:
    """The same of a job with a baseline or network, from its settings alone."""
    settings = of_encoder(job.settings) if stage == "encode" else job.settings
    return entries_code(stage, tuple(_job_entries(settings, job.scene, job.images)))


@cache
def entries_code(stage: str, entries: tuple[Entry, ...]) -> Code:
    return code_of([*imported_in("diagvib.stages", stage), *entries])


def read_equal_code(path: Path) -> list[dict[str, str]]:
    """The lines of a table of equal code. DiagvibError for one without its toy run."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows, 2):
        digests = [row.get(key) or "" for key in COLUMNS if key not in ("job", "commit")]
        proven = (
            row.get("job") and row["old_bytes"] == row["new_bytes"] and row["old"] != row["new"]
        )
        if not proven or not all(map(_SHA256.fullmatch, digests)):
            raise DiagvibError(
                f"{path}: line {number}: no toy run with the same bytes; benchmarks/equal_code.py "
                "makes such lines"
            )
    return rows


@cache
def equal_digests() -> dict[str, str]:
    """Digest -> the one that stands for all code that was shown to compute the same."""
    equals: dict[str, set[str]] = {}
    for row in read_equal_code(EQUAL_CODE):
        group = set().union(*(equals.get(row[key], {row[key]}) for key in ("old", "new")))
        equals |= dict.fromkeys(group, group)
    return {digest: min(group) for digest, group in equals.items()}


def same_code(digest: object) -> object:
    """One digest for all code that was shown to compute the same as that with this digest."""
    return equal_digests().get(digest, digest) if isinstance(digest, str) else digest


def code_digest(settings: dict, stage: str, scene: str, images: str) -> str:
    """sha256, as hex, of the code by which the module `stage` trains a baseline of these settings
    on images of a scene, and of the files that the baseline `depends` on."""
    return code_of([stage, *_job_entries(settings, scene, images)]).digest


def _job_entries(settings: dict, scene: str, images: str) -> list[Entry]:
    """Of a baseline trained on images of a scene. The scene's code counts if it makes columns of
    predictions, and if training renders images: of image files, the digests are inputs."""
    entries = baseline_entries(settings) + load_scene(scene).answered_by
    return entries + load_scene(scene).entries if renders(images, settings) else entries


def code_for(settings: dict, stage: str, metadata: dict) -> str:
    """`code_digest` for a dataset with this metadata (`images.datasets`)."""
    images = "parquet" if "sha256" in metadata else "render"
    return code_digest(settings, stage, metadata["scene"], images)


def renders(images: str, settings: dict) -> bool:
    """Whether training renders images, given the configuration's `images` and a baseline's
    settings: with `render` all do, otherwise if the method needs it; those of a frozen network read
    its features. To make these (`of_encoder`), photos are prepared for a network with
    `input.resize`, and marked for the view MARK."""
    model = settings["model"] or {}
    if is_frozen(settings):
        return False
    if prepared_input(model) or MARK in model.get("views", ()):
        return True
    return images == "render" or bool(declaration(settings["method"]["name"]).needs)


def baseline_entries(settings: dict) -> list[Entry]:
    """The modules of a baseline's model and method, including the user's own, and the files that it
    depends on. Of a frozen network, only the head is trained, or taken from it; of an encoder, also
    the methods that make its views."""
    method, model = settings["method"]["name"], (settings["model"] or {}).get("name")
    wheres, networks = [METHODS.get(method, method)], [model] if model else []
    if is_frozen(settings):
        # A published head is the last layer of the network itself.
        networks = ["linear", *(networks if settings["model"].get("head") == "published" else [])]
    elif model:
        views = (view.partition(".")[0] for view in settings["model"].get("views", ()))
        wheres += [METHODS[view] for view in views if view in METHODS]
    for name in networks:
        wheres += [MODELS[family(name)], *([name] if family(name) == "own" else [])]
    depends = map(Path, settings.get("depends", []))
    return [*(location.partition(":")[0] for location in wheres), *depends]


def of_encoder(encoder: dict) -> dict:
    """An encoder's settings as those of a baseline, for the functions here: its network counts as
    code, and no method beyond ERM."""
    return {**encoder, "model": {**encoder["model"], "frozen": False}, "method": {"name": "erm"}}


def package_versions(settings: dict) -> dict[str, str]:
    """The versions of Python, of this package, and of the installed packages that training always
    uses or that the code of a baseline imports."""
    packages = {*_ALWAYS, *code_of(baseline_entries(settings)).packages}
    if settings["model"] and "runtime" in settings["model"]:
        packages.add(settings["model"]["runtime"])
    return {
        "diagvib": __version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in sorted(packages)},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # its distribution has another name, which takes long to find
        return " ".join(map(version, packages_distributions().get(package, [])))


def git_state() -> dict | None:
    """The commit of the checkout that contains the package, and whether code or definitions have
    changed since (by `git status`, in src and config); None outside a checkout."""
    if not checkout_path(".git").exists():
        return None
    git = ["git", "-C", str(checkout_path("")), "--no-optional-locks"]
    try:
        commit, changed = (
            subprocess.run(
                [*git, *command], capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "src", "config"])
        )
    except (
        OSError,
        subprocess.CalledProcessError,
    ):  # no git, or a checkout that git does not trust
        return None
    return {"commit": commit, "changed": bool(changed)}
