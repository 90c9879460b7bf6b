"""Checkpoints: the state of an unfinished run, so that a killed job continues where it was."""

import hashlib
import json
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch

from diagvib.files import whole_file


@dataclass(frozen=True)
class Checkpoint:
    """One file that holds the last completed epoch of one run, and the digest of everything that decides the run."""

    path: Path
    digest: str

    def read(self) -> dict | None:
        """The state on the CPU; None if there is none, or one that cannot be continued (then the reason is printed)."""
        if not self.path.exists():
            return None
        try:
            with zipfile.ZipFile(self.path) as archive:  # torch.load does not look at the checksums
                if archive.testzip():
                    raise ValueError("a checksum does not fit")
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
            if saved["digest"] == self.digest:
                return saved["state"]
            reason = "made with other settings, images or code"
        except Exception as error:  # torch.load raises whatever the damaged bytes happen to provoke
            reason = f"damaged: {' '.join(str(error).split())[:100]}"
        print(f"{self.path}: ignored this checkpoint, the run starts anew ({reason})", file=sys.stderr, flush=True)
        return None

    def write(self, state: dict) -> None:
        with whole_file(self.path) as temporary:
            torch.save({"digest": self.digest, "state": state}, temporary)

    def remove(self) -> None:
        """Remove the file, and its folder if nothing else is in it."""
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()


def digest(content: dict) -> str:
    """sha256, as hex, of a JSON-able description."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
