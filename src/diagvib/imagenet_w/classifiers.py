"""The classifiers to measure: torchvision's and timm's with published weights, and the user's own
checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torchvision

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.imagenet_w.photos import Preprocessing
from diagvib.models.network import Network, separated, separated_if_equal
from diagvib.models.registry import PACKAGES, family, make_network
from diagvib.models.timm_models import timm_net
from diagvib.models.torchvision_models import check_name
from diagvib.models.weights import fill, load_weights, read_state, state_digest

IMAGENET = 1000
_CHECKPOINTS = (".pt", ".pth")


@dataclass(frozen=True)
class Classifier:
    """A network to measure. weights: their published name, or the name of a checkpoint file;
    digest: of the parameters and the preprocessing."""

    name: str
    weights: str
    network: Network
    preprocessing: Preprocessing
    digest: str

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device


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
    name (default: torchvision's first, as for the paper's ResNet-50); an installed package of
    `PACKAGES`; or a .pt or .pth file, the state_dict of such a model for `n_classes`; images for
    it, and for a function, are cropped to `size`. weights_folder: where torchvision's files are
    looked up instead of downloading them. DiagvibError for an unavailable model, or one with
    another number of classes.
    """
    kind, preprocessing = family(name), own_preprocessing(size)
    settings = {"name": name, "options": {}, "weights": None, "frozen_statistics": False}
    if weights and weights.endswith(_CHECKPOINTS):
        file = Path(weights)
        if not file.is_file():
            raise DiagvibError(f"{file}: no such file; name published weights, or a checkpoint")
        network, weights = make_network(settings, n_classes, size), file.name
        fill(network, read_state(file), file)
    elif kind == "torchvision":
        network, preprocessing, weights = _of_torchvision(name, weights, weights_folder)
    elif kind == "timm" and weights in PACKAGES:
        given = {"file": None, "package": weights, "sha256": PACKAGES[weights]}
        _, preprocessing, _ = _of_timm(name, None, pretrained=False)
        network = make_network({**settings, "weights": given}, IMAGENET, preprocessing.crop)
    elif kind == "timm":
        network, preprocessing, weights = _of_timm(name, weights, pretrained=True)
    elif kind == "own" and weights is None:
        network, weights = make_network(settings, n_classes, size), ""
    else:
        raise DiagvibError(
            f"model: {name} has no published weights; name a checkpoint of yours, a file ending in "
            f"{' or '.join(_CHECKPOINTS)}"
        )
    network = network.to(device).eval()
    with torch.inference_mode():
        found = network(torch.zeros(1, 3, *[preprocessing.crop] * 2, device=device)).shape[1]
    if found != n_classes:
        raise DiagvibError(
            f"model: {name} has {found:,} classes, but the validation folder has {n_classes:,} class "
            "folders; there must be one for each class, since their sorted order gives the indices"
        )
    digest = f"{state_digest(network)} {preprocessing}"
    return Classifier(name, weights, network, preprocessing, digest)


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
    scaling = tuple(given.mean), tuple(given.std)
    preprocessing = Preprocessing(resize, crop, given.interpolation.value, *scaling)
    return separated(net, IMAGENET), preprocessing, weights


def _of_timm(
    name: str, weights: str | None, pretrained: bool
) -> tuple[Network, Preprocessing, str]:
    net = timm_net(name.removeprefix("timm/"), weights, pretrained)
    import timm

    given = timm.data.resolve_model_data_config(net)
    crop, scaling = given["input_size"][1], (tuple(given["mean"]), tuple(given["std"]))
    resize = int(crop / given["crop_pct"])
    preprocessing = Preprocessing(resize, crop, given["interpolation"], *scaling)
    weights = weights or net.pretrained_cfg.get("tag") or "default"
    return separated_if_equal(net, IMAGENET, crop), preprocessing, weights
