"""Lists of source files, such as config/sources.yaml: each file's addresses, hash and licence."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from diagvib.foundation.files import read_yaml
from diagvib.foundation.validation import Strict, no_item_twice, text_like, unique, validated


class Source(Strict):
    """One source file."""

    path: text_like(
        r"(?=.{1,200}$)[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*",
        "a path is relative to the scene's folder in data/raw/ and to a mirror, and never leads outside "
        "them",
    )
    urls: unique(text_like(r"https?://\S+", "an address begins with https:// or http://"))
    """tried in turn"""
    sha256: text_like(r"[0-9a-f]{64}", "a sha256 has 64 hexadecimal digits")
    licence: Annotated[str, Field(min_length=1, description="an SPDX identifier")]
    citation: Annotated[str, Field(min_length=1)]

    @property
    def name(self) -> str:
        return self.path


class SourceFiles(Strict):
    """The source files of a scene."""

    files: Annotated[list[Source], Field(min_length=1), AfterValidator(no_item_twice)]


def read_sources(path: Path) -> list[Source]:
    """The source files named in a list. DiagvibError, naming file, entry and key, for any error in
    it."""
    return validated(SourceFiles, read_yaml(path), str(path)).files
