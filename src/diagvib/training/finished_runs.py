"""Whether a run is there already: made with the same settings, images and code, and untouched since."""

import json
from pathlib import Path

from diagvib.foundation.files import file_sha256
from diagvib.settings.grid import RUN_FILES, WEIGHTS_FILE

# Written last, so that a run which has it is whole.
LAST = "run.json"


def marks(run: Path, digest: str) -> dict:
    """For run.json: the digest of everything that decides the run, and the sha256 of its other files."""
    return {"digest": digest, "files": {name: file_sha256(run / name) for name in RUN_FILES if name != LAST}}


def is_finished(run: Path, digest: str, with_weights: bool) -> bool:
    """Whether the folder `run` holds what training with this digest would make, with_weights among it."""
    try:
        said = json.loads((run / LAST).read_text())
        return {key: said[key] for key in ("digest", "files")} == marks(run, digest) and (
            not with_weights or (run / WEIGHTS_FILE).is_file())
    except (OSError, ValueError, KeyError, TypeError):
        return False
