"""Checkpoints: the state of an unfinished run, so that a killed job continues where it stopped."""

import json
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from diagvib.foundation.errors import one_line
from diagvib.foundation.files import text_sha256, whole_file
from diagvib.foundation.messages import say


@dataclass(frozen=True)
class Checkpoint:
    """One file with the last completed epoch of one run, and the digest of everything that affects
    the run."""

    path: Path
    digest: str

    def read(self) -> dict | None:
        """The state on the CPU; None if there is none, or one that cannot be continued (then the
        reason is printed)."""
        if not self.path.exists():
            return None
        try:
            with zipfile.ZipFile(self.path) as archive:  # torch.load does not check the checksums
                if archive.testzip():
                    raise ValueError("a checksum does not match")
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
            if saved["digest"] == self.digest:
                return saved["state"]
            reason = (
                "made with other settings, images, code or packages, on another kind of device, or "
                "with another number of threads"
            )
        except Exception as error:  # torch.load may raise anything for damaged files
            reason = f"damaged: {one_line(error, 160)}"
        say(f"{self.path}: checkpoint ignored ({reason}); the run starts over")
        return None

    def write(self, state: dict) -> None:
        save_tensors(self.path, {"digest": self.digest, "state": state})

    def remove(self) -> None:
        """Remove the file, and its folder if it is then empty."""
        self.path.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.parent.rmdir()


def save_tensors(path: Path, value: object) -> None:
    """`torch.save`, atomically. DiagvibError if the disk is full."""
    # If torch opens a path itself, its error says that the position is unexpected, and not why.
    with whole_file(path) as temporary, temporary.open("wb") as file:
        torch.save(value, file)


def digest(content: dict) -> str:
    """sha256, as hex, of a JSON-able description."""
    return text_sha256(json.dumps(content, sort_keys=True))
