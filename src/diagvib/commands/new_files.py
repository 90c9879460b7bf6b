"""The files that `diagvib new` writes for something of a user's own."""

from collections.abc import Mapping
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_text
from diagvib.settings.resolve import load_config


def check_free(texts: Mapping[Path, str], remedy: str) -> None:
    """DiagvibError if a file is there that has another text: it would be lost. One with the same text
    is of a call that was stopped."""
    for path, text in texts.items():
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
            raise DiagvibError(f"{path}: already exists; remove it, or choose another {remedy}")


def write_configured(texts: Mapping[Path, str], configuration: Path) -> None:
    """Write files; none if the configuration among them would not do, for which DiagvibError."""
    new = [path for path in texts if not path.exists()]
    for path in new:
        write_text(path, texts[path])
    try:
        load_config(configuration)
    except DiagvibError:
        for path in new:
            path.unlink()
        raise
