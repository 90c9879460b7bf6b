"""Published weights of torchvision's models: trusted only by their hash."""

import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import file_sha256


class Settings(NamedTuple):
    """Where users name a file with weights and its hash, and how: for messages."""

    file: str = "model.weights_file of config/baselines"
    sha256: str = "model.weights_sha256 of config/baselines"
    example: str = (
        "into `weights/` of the mirror, or name it in config/baselines as model: {{name: {model}, weights: "
        "{weights}, weights_file: PATH}}"
    )


_OF_BASELINES = Settings()


def load_weights(
    net: nn.Module,
    model: str,
    name: str,
    file: str | None,
    sha256: str | None,
    said: Settings = _OF_BASELINES,
) -> None:
    """Fill `net` with torchvision's weights `name` of `model`, from `file`, or else from torch's
    cache or a download.

    In both cases the bytes are hashed. DiagvibError showing both hashes if they differ, or saying
    what to do otherwise.
    """
    import torchvision

    known = [weights.name for weights in torchvision.models.get_model_weights(model)]
    if name not in known:
        raise unknown_name(f"weights of {model}", name, known, "model.weights")
    weights = torchvision.models.get_model_weights(model)[name]
    path = (
        Path(file) if file else Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
    )
    # torchvision's file names end with the first digits of the sha256: resnet50-0676ba61.pth.
    expected = (sha256 if file and sha256 else path_hash(weights.url)).lower()
    if not file and not path.exists():
        _download(weights, model, path, said)
    _check_hash(path, expected, bool(file), said)
    try:
        saved, own = torch.load(path, map_location="cpu", weights_only=True), net.state_dict()
        # The published densenets still use an older torchvision's names: norm.1 for norm1.
        net.load_state_dict(
            {
                key if key in own else re.sub(r"\.(norm|conv)\.(\d)\.", r".\1\2.", key): value
                for key, value in saved.items()
            }
        )
    except Exception as error:  # torch.load may raise anything for damaged files
        reason = " ".join(str(error).split())[:160]
        raise DiagvibError(
            f"{path}: holds no weights of torchvision's {model} ({reason}); save its state_dict with "
            "torch.save"
        ) from None


def located(model: dict | None, folder: Path | None) -> dict | None:
    """A baseline's `model` with its published weights as `weights_file`, if a folder has
    torchvision's file of them and the baseline does not name a file."""
    if not folder or not model or not model["weights"] or model["weights_file"]:
        return model
    import torchvision  # here: it takes half as long to load as torch

    names = {
        weights.name: Path(weights.url).name
        for weights in torchvision.models.get_model_weights(model["name"])
    }
    path = Path(folder) / names.get(model["weights"], "no such weights")
    return {**model, "weights_file": str(path)} if path.is_file() else model


def path_hash(url: str) -> str:
    """The digits of the sha256 at the end of the name of torchvision's file."""
    return Path(url).stem.rpartition("-")[2]


def _download(weights, model: str, path: Path, said: Settings) -> None:
    try:
        weights.get_state_dict(progress=False, check_hash=True)
    except (
        OSError,
        RuntimeError,
    ) as error:  # no network; or a wrong hash, for which torch's message shows both
        raise DiagvibError(
            f"the weights {weights.name} of {model} could not be downloaded from {weights.url} ({error}); on a machine "
            f"with network access, get that file, then either put it at {path}, or "
            f"{said.example.format(model=model, weights=weights.name)}"
        ) from None


def _check_hash(path: Path, expected: str, local: bool, said: Settings) -> None:
    if not path.is_file():
        raise DiagvibError(f"{path}: no such file; {said.file} names it")
    found = file_sha256(path)
    if not found.startswith(expected):
        remedy = (
            f"replace the file, or, if it is the one you mean, set {said.sha256} to its hash"
            if local
            else "delete it; the next run downloads it again"
        )
        raise DiagvibError(
            f"{path}: wrong hash: expected sha256 {expected}{'...' if len(expected) < 64 else ''}, "
            f"found {found}; {remedy}"
        )
