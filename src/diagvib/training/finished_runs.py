"""Whether a run exists already: made with the same settings, images and code, and unchanged
since."""

import json
from pathlib import Path

from diagvib.foundation.files import file_sha256
from diagvib.settings.grid import RUN_FILES, WEIGHTS_FILE

# Written last, so that a run with this file is complete.
LAST = "run.json"


def marks(run: Path, digest: str) -> dict:
    """For run.json: the digest of what the run was made from, and the sha256 of its other files."""
    return {
        "digest": digest,
        "files": {name: file_sha256(run / name) for name in RUN_FILES if name != LAST},
    }


def is_finished(run: Path, digest: str, with_weights: bool) -> bool:
    """Whether the folder `run` contains what training with this digest would make, weights included
    if with_weights."""
    try:
        said = json.loads((run / LAST).read_text())
        return {key: said[key] for key in ("digest", "files")} == marks(run, digest) and (
            not with_weights or (run / WEIGHTS_FILE).is_file()
        )
    except (OSError, ValueError, KeyError, TypeError):
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
