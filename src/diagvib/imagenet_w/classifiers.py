"""The classifiers to measure: torchvision's and timm's with published weights, and the user's own
checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torchvision

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.plug_ins import reason
from diagvib.imagenet_w.photos import Preprocessing
from diagvib.models.network import Network, separated, separated_if_equal
from diagvib.models.registry import family, make_network
from diagvib.models.torchvision_models import check_name
from diagvib.models.weights import load_weights

_IMAGENET = 1000
CHECKPOINTS = (".pt", ".pth")


@dataclass(frozen=True)
class Classifier:
    """A network to measure. weights: their published name, or the name of a checkpoint file;
    digest: of the parameters and the preprocessing."""

    name: str
    weights: str
    network: Network
    preprocessing: Preprocessing
    n_classes: int
    digest: str


def load_classifier(
    name: str,
    weights: str | None,
    n_classes: int,
    device: torch.device,
    size: int = 224,
    weights_folder: Path | None = None,
) -> Classifier:
    """A model by name, ready for evaluation on `device`.

    name: torchvision's, timm/NAME, small_cnn or `package.module:function`. weights: a published
    name (default: torchvision's first, as for the paper's ResNet-50), or a .pt or .pth file, the
    state_dict of such a model for `n_classes`; images for it, and for a function, are cropped to
    `size`. n_classes: of the photos' folder. weights_folder: where torchvision's files are looked
    up instead of downloading them. DiagvibError for an unavailable model, or one with another
    number of classes.
    """
    kind = family(name)
    if weights and weights.endswith(CHECKPOINTS):
        network, preprocessing = (
            _checkpoint(name, Path(weights), n_classes, size),
            own_preprocessing(size),
        )
        weights = Path(weights).name
    elif kind == "torchvision":
        network, preprocessing, weights = _of_torchvision(name, weights, weights_folder)
    elif kind == "timm":
        network, preprocessing, weights = _of_timm(name, weights)
    elif kind == "own" and weights is None:
        network = make_network({"name": name, "options": {}}, n_classes, size)
        preprocessing, weights = own_preprocessing(size), ""
    else:
        raise DiagvibError(
            f"model: {name} has no published weights; name a checkpoint of yours, a file ending in "
            f"{' or '.join(CHECKPOINTS)}"
        )
    network = network.to(device).eval()
    found = _check_classes(network, name, n_classes, preprocessing.crop, device)
    return Classifier(name, weights, network, preprocessing, found, _digest(network, preprocessing))


def own_preprocessing(size: int) -> Preprocessing:
    """Like ImageNet's: the shorter side 256 for a crop of 224, and in proportion for other
    sizes."""
    return Preprocessing(round(size * 256 / 224), size)


def _of_torchvision(
    name: str, weights: str | None, folder: Path | None
) -> tuple[Network, Preprocessing, str]:
    known = [entry.name for entry in torchvision.models.get_model_weights(check_name(name))]
    weights = weights or known[0]
    if weights not in known:
        raise unknown_name(f"weights of {name}", weights, known, "--weights")
    published = torchvision.models.get_model_weights(name)[weights]
    net = torchvision.models.get_model(name, weights=None)
    file = folder and folder / Path(published.url).name
    load_weights(net, name, weights, str(file) if file and file.exists() else None, None)
    given = published.transforms()
    resize, crop = (
        size[0] if isinstance(size, Sequence) else size
        for size in (given.resize_size, given.crop_size)
    )
    return (
        separated(net, _IMAGENET),
        Preprocessing(resize, crop, given.interpolation.value, tuple(given.mean), tuple(given.std)),
        weights,
    )


def _of_timm(name: str, weights: str | None) -> tuple[Network, Preprocessing, str]:
    try:
        import timm
    except ImportError:
        raise DiagvibError(
            f"model: {name} needs the package timm, which is not installed; `pip install timm`, or use "
            "a torchvision model instead"
        ) from None
    wanted = ".".join(filter(None, [name.removeprefix("timm/"), weights]))
    if not timm.is_model(wanted.partition(".")[0]):
        raise unknown_name("timm model", wanted, timm.list_models(), "model")
    try:
        net = timm.create_model(wanted, pretrained=True)
    except Exception as error:  # no such weights, no network, or anything else that timm raises
        raise DiagvibError(
            f"model: the weights of {name} are not available ({reason(error)}); load them once with a "
            "network connection, or save them as a state_dict and name that file as weights"
        ) from None
    given = timm.data.resolve_model_data_config(net)
    crop = given["input_size"][1]
    preprocessing = Preprocessing(
        int(crop / given["crop_pct"]),
        crop,
        given["interpolation"],
        tuple(given["mean"]),
        tuple(given["std"]),
    )
    weights = weights or net.pretrained_cfg.get("tag") or "default"
    return separated_if_equal(net, _IMAGENET, crop), preprocessing, weights


def _checkpoint(name: str, file: Path, n_classes: int, size: int) -> Network:
    """A model with the weights from a file: a state_dict of it as torchvision or timm make it, or
    as a `Network`."""
    settings = {
        "name": name,
        "options": {},
        "weights": None,
        "frozen": False,
        "frozen_statistics": False,
    }
    if not file.is_file():
        raise DiagvibError(f"{file}: no such file; give --weights a published name or a checkpoint")
    network = make_network(settings, n_classes, size)
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
        if (
            not saved.keys() <= network.state_dict().keys()
        ):  # of a complete model, not cut before its last layer
            saved = _cut(saved, network)
        network.load_state_dict(saved)
    except Exception as error:  # torch.load may raise anything for damaged files
        raise DiagvibError(
            f"{file}: holds no weights of {name} for the {n_classes} class folders "
            f"({reason(error)}); save the model's state_dict with torch.save"
        ) from None
    return network


def _cut(saved: dict, network: Network) -> dict:
    """A complete model's state_dict under the names that it has in a `Network`, whose last layer is
    the head."""
    own = network.state_dict()
    last = {key: value for key, value in saved.items() if f"body.{key}" not in own}
    heads = {f"head.{key.rpartition('.')[2]}": value for key, value in last.items()}
    return {**{f"body.{key}": value for key, value in saved.items() if key not in last}, **heads}


@torch.inference_mode()
def _check_classes(
    network: Network, name: str, n_classes: int, size: int, device: torch.device
) -> int:
    """The network's number of classes. DiagvibError if it differs from the number of folders."""
    found = network(torch.zeros(1, 3, size, size, device=device)).shape[1]
    if found != n_classes:
        raise DiagvibError(
            f"model: {name} has {found:,} classes, but the validation folder has {n_classes:,} class "
            "folders; there must be one for each class, since their sorted order gives the indices"
        )
    return found


def _digest(network: Network, preprocessing: Preprocessing) -> str:
    digest = hashlib.sha256(repr(preprocessing).encode())
    for key, value in network.state_dict().items():
        digest.update(f"{key}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(
            value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()
