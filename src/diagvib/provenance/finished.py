"""Recorded provenance: whether a finished run is the expected one, made with its settings, code and
images, and unchanged since."""

import json
from pathlib import Path

from diagvib.foundation.files import file_sha256
from diagvib.provenance.code import same_code
from diagvib.settings.layout import RUN_FILES, WEIGHTS_FILE, Run

# Written last, so that a run with this file is complete.
RUN_RECORD = "run.json"


def run_provenance(
    run: Run, settings: dict, training: dict, code: str, images: dict[str, str] | None
) -> dict:
    """The run's identity, as stored in run.json. The device is no part of it, nor is the number of
    threads, which changes the last bits alone.

    settings: the baseline's; training: the configuration's; images: by split, `digest_of_images`;
    None if they are not there to be compared.
    """
    return {
        "run": run.name,
        "settings": settings,
        "training": {
            **{key: value for key, value in training.items() if key != "threads"},
            "seed": run.training_seed(training["seed"]),
        },
        "code": code,
        "images": images,
    }


def digest_of_images(metadata: dict) -> str:
    """Identify a split's images by their metadata (`images.datasets`): the sha256 of their file, or
    of the recipes, with the digest of the sources and the size."""
    rendered = (metadata.get(key) for key in ("recipe_digest", "sources_digest", "image_shape"))
    return metadata.get("sha256") or " ".join(map(str, rendered))


def differing(recorded: dict, expected: dict) -> list[str]:
    """Entries in which recorded and expected provenance differ. Code that is known to compute the
    same does not."""
    return [
        key
        for key, value in expected.items()
        if value is not None and _canonical(key, recorded.get(key)) != _canonical(key, value)
    ]


def _canonical(key: str, value: object) -> object:
    if key == "made_from" and isinstance(value, dict):
        return {**value, "code": same_code(value.get("code"))}
    return same_code(value) if key == "code" else value


def file_digests(run: Path) -> dict[str, str]:
    """For run.json: the sha256 of the run's other files."""
    return {name: file_sha256(run / name) for name in RUN_FILES if name != RUN_RECORD}


def changed_files(recorded: dict, run: Path, since: float = 0.0) -> list[str]:
    """The files of a run, of those written after `since`, whose sha256 is not the one that its
    run.json records."""
    digests = recorded.get("files") or {}
    newer = [
        name for name in RUN_FILES if name != RUN_RECORD and (run / name).stat().st_mtime > since
    ]
    return [name for name in newer if digests.get(name) != file_sha256(run / name)]


def is_finished(run: Path, expected: dict, with_weights: bool) -> bool:
    """Whether the folder `run` holds the run with the expected provenance, weights included if
    with_weights."""
    try:
        recorded = json.loads((run / RUN_RECORD).read_text())
        return (
            not differing(recorded, expected)
            and not changed_files(recorded, run)
            and (not with_weights or (run / WEIGHTS_FILE).is_file())
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def other_versions(run: Path, versions: dict[str, str]) -> str:
    """For a message about a finished run: the packages that had another version than in `versions`;
    empty if none had."""
    recorded = json.loads((run / RUN_RECORD).read_text())["versions"]
    changed = [
        f"{name} {recorded.get(name, 'none')} (now {versions.get(name, 'none')})"
        for name in sorted({*recorded, *versions})
        if recorded.get(name) != versions.get(name)
    ]
    return f", but with {', '.join(changed)}" if changed else ""
