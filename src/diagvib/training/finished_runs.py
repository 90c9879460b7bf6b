"""Whether a run is the one that a configuration asks for: made with its settings, code and images,
and unchanged since."""

import json
from pathlib import Path

from diagvib.foundation.files import file_sha256
from diagvib.settings.grid import RUN_FILES, WEIGHTS_FILE, Run

# Written last, so that a run with this file is complete.
LAST = "run.json"


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


def digest_of_images(metadata: dict) -> str:
    """Identify a split's images by their metadata (`images.datasets`): the sha256 of their file, or
    of the recipes, with the digest of the sources and the size."""
    rendered = (metadata.get(key) for key in ("recipe_digest", "sources_digest", "image_shape"))
    return metadata.get("sha256") or " ".join(map(str, rendered))


def differing(said: dict, asked: dict) -> list[str]:
    """In which parts what a file says made it differs from what is asked for."""
    return [part for part, value in asked.items() if value is not None and said.get(part) != value]


def file_digests(run: Path) -> dict[str, str]:
    """For run.json: the sha256 of the run's other files."""
    return {name: file_sha256(run / name) for name in RUN_FILES if name != LAST}


def changed_files(said: dict, run: Path, since: float = 0.0) -> list[str]:
    """The files of a run, of those written after `since`, whose sha256 is not the one that its
    run.json says."""
    noted = said.get("files") or {}
    newer = [name for name in RUN_FILES if name != LAST and (run / name).stat().st_mtime > since]
    return [name for name in newer if noted.get(name) != file_sha256(run / name)]


def is_finished(run: Path, asked: dict, with_weights: bool) -> bool:
    """Whether the folder `run` holds the run that is asked for, weights included if with_weights."""
    try:
        said = json.loads((run / LAST).read_text())
        return (
            not differing(said, asked)
            and not changed_files(said, run)
            and (not with_weights or (run / WEIGHTS_FILE).is_file())
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def other_versions(run: Path, versions: dict[str, str]) -> str:
    """For a message about a finished run: the packages that had another version than in `versions`;
    empty if none had."""
    noted = json.loads((run / LAST).read_text())["versions"]
    changed = [
        f"{name} {noted.get(name, 'none')} (now {versions.get(name, 'none')})"
        for name in sorted({*noted, *versions})
        if noted.get(name) != versions.get(name)
    ]
    return f", but with {', '.join(changed)}" if changed else ""
