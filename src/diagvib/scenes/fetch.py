"""Stage fetch: bring the source files to data/raw/, from the network or a local folder, and check
their hashes. Lists of them, such as config/sources.yaml, have each file's addresses, hash and
licence."""

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import file_sha256, whole_file
from diagvib.foundation.messages import say
from diagvib.foundation.validation import Filled, Line, Strict, TextLike, Unique, read_valid

# All URLs of a file are tried in turn, and then all of them again this many times: many failures
# are temporary.
RETRIES = 2
PAUSE_SECONDS = 2.0
TIMEOUT_SECONDS = 30


class Source(Strict):
    """One source file."""

    path: Annotated[
        str,
        TextLike(
            r"(?=.{1,200}$)[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*",
            "a path is relative to the scene's folder in data/raw/ and to a mirror, and never leads outside "
            "them",
        ),
    ]
    urls: Unique[
        Annotated[str, TextLike(r"https?://\S+", "an address begins with https:// or http://")]
    ]
    """tried in turn"""
    sha256: Annotated[str, TextLike(r"[0-9a-f]{64}", "a sha256 has 64 hexadecimal digits")]
    licence: Filled[Line]
    """an SPDX identifier"""
    citation: Filled[Line]

    @property
    def name(self) -> str:
        return self.path


class SourceFiles(Strict):
    """The source files of a scene."""

    files: Unique[Source]


def read_sources(path: Path) -> list[Source]:
    """The source files named in a list. DiagvibError, naming file, entry and key, for any error in
    it."""
    return read_valid(SourceFiles, path).files


def fetch(sources: Sequence[Source], raw: Path, mirror: Path | None = None) -> None:
    """Bring source files to `raw`; afterwards each exists with the right sha256.

    mirror: a local folder to take them from (as `mirror/path` or `mirror/filename`) instead of the
    network. Existing correct files are kept. DiagvibError if a file is not available, or is not the
    expected one.
    """
    for source in sources:
        target = raw / source.path
        if target.is_file():
            digest = file_sha256(target)
            if digest == source.sha256:
                continue
            say(f"{target}: has sha256 {digest}, expected {source.sha256}; replacing it")
        with whole_file(target) as temporary:
            if mirror is not None:
                _copy(source, mirror, temporary)
            elif tried := _download(source, temporary):
                raise DiagvibError(
                    f"{target}: no download succeeded, expected sha256 {source.sha256}. Tried {tried}. "
                    "Run again when the network allows, or fetch the files by other means into a "
                    "folder and set `mirror:` to it"
                )


def _copy(source: Source, mirror: Path, temporary: Path) -> None:
    if not mirror.is_dir():
        raise DiagvibError(
            f"{mirror}: no such folder; set `mirror:` to the folder that holds the source files, or to "
            "null to download them"
        )
    paths = [mirror / source.path, mirror / Path(source.path).name]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise DiagvibError(
            f"{paths[0]}: no such file in the mirror (nor {paths[1]}), expected sha256 "
            f"{source.sha256}; put it there, or set `mirror: null` to download it"
        )
    shutil.copyfile(path, temporary)
    digest = file_sha256(temporary)
    if digest != source.sha256:
        raise DiagvibError(
            f"{path}: has sha256 {digest}, expected {source.sha256}; replace it in the mirror, or set "
            "`mirror: null` to download it"
        )


def _download(source: Source, temporary: Path) -> str:
    """Download a file; returns why that failed for each address, or nothing if it succeeded."""
    import pooch
    import requests

    # 64 KiB: the default of 1 KiB takes more time than the transfer
    download = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(), chunk_size=2**16, timeout=TIMEOUT_SECONDS
    )
    reasons: dict[str, str] = {}
    for round_number in range(1 + RETRIES):
        if round_number:
            time.sleep(PAUSE_SECONDS)
        for url in source.urls:
            say(f"{source.path}: downloading {url}")
            try:
                download(url, str(temporary), None)
            except requests.RequestException as error:
                reasons[url] = one_line(error, 160)
            else:
                digest = file_sha256(temporary)
                if digest == source.sha256:
                    return ""
                reasons[url] = f"wrong content, sha256 {digest}"
            say(f"{source.path}: {reasons[url]}")
    return "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
