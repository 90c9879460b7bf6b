"""Stage weights: bring the published weights of a network to data/raw/weights/, and check their
hash. An interrupted download continues where it was."""

import os
import shutil
import time
from pathlib import Path

import requests
import torch
from torchvision.models import list_models

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import file_sha256, named_hash, whole_file, write_json, writing
from diagvib.foundation.messages import say
from diagvib.foundation.progress import counting
from diagvib.models.weights import published
from diagvib.scenes.fetch import PAUSE_SECONDS, RETRIES, TIMEOUT_SECONDS

_CHUNK = 2**16  # bytes
_NOTHING_LEFT = 416  # the status of a request for bytes beyond the end of a file


def fetch_weights(model: str, name: str, digests: Path, mirror: Path | None = None) -> None:
    """Bring torchvision's weights `name` of `model` next to `digests`, which then holds their
    sha256.

    They are taken from the folder `weights` of a mirror, from torch's cache, or downloaded. An
    existing correct file is kept. DiagvibError for a wrong file in the mirror, an unknown name, or
    if there are none.
    """
    try:
        url = published(model, name).url
    except ValueError:  # torchvision's
        raise unknown_name("network of torchvision", model, list_models()) from None
    target = digests.with_name(Path(url).name)
    if not _is_correct(target, url):
        if source := _copy_of(url, mirror):
            say(f"{target.name}: copied from {source}")
            with whole_file(target) as temporary:
                shutil.copyfile(source, temporary)
        elif reason := _download(url, target):
            raise DiagvibError(
                f"the weights {name} of {model} could not be downloaded from {url} ({reason}); run again when "
                f"the network allows, which continues the download, or get that file elsewhere and put it at {target}, or "
                "into `weights/` of the mirror"
            )
    write_json(digests, {target.name: file_sha256(target)})


def _is_correct(path: Path, url: str) -> bool:
    return path.is_file() and file_sha256(path).startswith(named_hash(url))


def _copy_of(url: str, mirror: Path | None) -> Path | None:
    """Weights that are on this machine."""
    name, cache = Path(url).name, Path(torch.hub.get_dir()) / "checkpoints"
    if mirror and (path := mirror / "weights" / name).is_file():
        if not _is_correct(path, url):
            raise DiagvibError(
                f"{path}: has sha256 {file_sha256(path)}, expected {named_hash(url)}...; replace it in the mirror"
            )
        return path
    return cache / name if _is_correct(cache / name, url) else None


def _download(url: str, target: Path) -> str:
    """Download a file; returns why that failed, or nothing if it succeeded."""
    partial, reason = target.with_name(f".{target.name}.part"), ""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1 + RETRIES):
            if attempt:
                time.sleep(PAUSE_SECONDS)
            try:
                _continue(url, partial)
            except requests.RequestException as error:
                reason = one_line(error, 160)
            else:
                if _is_correct(partial, url):
                    os.replace(partial, target)
                    return ""
                digest = file_sha256(partial)
                reason = f"wrong content, sha256 {digest}, expected {named_hash(url)}..."
                partial.unlink()
            say(f"{target.name}: {reason}")
    return reason


def _continue(url: str, partial: Path) -> None:
    """Add to a file what it lacks of a download. RequestException if the connection ends before."""
    start = partial.stat().st_size if partial.exists() else 0
    headers = {"Range": f"bytes={start}-"} if start else {}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as response:
        if start and response.status_code == _NOTHING_LEFT:
            return
        response.raise_for_status()
        continued = response.status_code == requests.codes.partial_content
        start = start if continued else 0
        total = start + int(response.headers.get("Content-Length", 0))
        say(f"{url}: downloading" + f" from byte {start:,} on" * continued)
        with (
            partial.open("ab" if continued else "wb") as file,
            counting(partial.stem.lstrip("."), total - start, "bytes") as advance,
        ):
            for chunk in response.iter_content(_CHUNK):
                advance(file.write(chunk))
        if partial.stat().st_size < total:
            raise requests.ConnectionError("the connection ended before the file")
