"""Whether a run exists already: made with the same settings, images and code, and unchanged
since."""

import json
from pathlib import Path

from diagvib.foundation.files import file_sha256
from diagvib.settings.grid import RUN_FILES, WEIGHTS_FILE

# Written last, so that a run with this file is complete.
LAST = "run.json"


def marks(run: Path, digest: str) -> dict:
    """For run.json: the digest of everything that affects the run, and the sha256 of its other
    files."""
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
