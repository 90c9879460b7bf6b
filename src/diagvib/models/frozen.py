"""`resnet50_in`: a network with ImageNet weights that are not trained, under a new last layer."""

import re
from pathlib import Path

import torch
import torchvision
from torch import nn

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import file_sha256
from diagvib.methods.method import Baseline, Optimiser
from diagvib.models.torchvision_models import check_name


class FrozenTorchvision(Baseline):
    """torchvision's model `model` with published weights, all frozen, and a new random last layer (paper, Sec. 4).

    Options: weights, torchvision's name for them (IMAGENET1K_V1); weights_file, the same as a local file instead of a
    download; weights_sha256, what that file must hash to, by default the start of the hash that torchvision publishes;
    strictly_frozen, batch norm too uses its ImageNet statistics.
    Choices: the published code stops the gradients of all pretrained parameters, batch norm's scale and shift among
    them, but leaves batch norm in training mode, so that it normalises by the batch and its running statistics drift
    to the dataset; so do we unless strictly_frozen. Inputs are z-scored with the dataset's statistics, not ImageNet's,
    and not resized, as there. DiagvibError for an unknown name, or weights that cannot be had, read or trusted.
    """

    def __init__(self, settings: dict, n_classes: int, image_size: int):
        super().__init__(settings)
        chosen = self.options(weights="IMAGENET1K_V1", weights_file=None, weights_sha256=None, strictly_frozen=False)
        self.strictly_frozen = chosen["strictly_frozen"]
        self.net = torchvision.models.get_model(check_name(settings["model"]), weights=None)
        load_weights(self.net, settings["model"], chosen["weights"], chosen["weights_file"], chosen["weights_sha256"])
        self.net.requires_grad_(False)
        replace_last_layer(self.net, settings["model"], n_classes)

    def optimisers(self, phase: str) -> dict[str, Optimiser]:
        trained = [parameter for parameter in self.net.parameters() if parameter.requires_grad]
        return {"net": Optimiser(trained, self.settings["lr"], tuple(self.settings["betas"]))}

    def train(self, mode: bool = True) -> "FrozenTorchvision":
        super().train(mode)
        if self.strictly_frozen:
            for module in self.net.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self


def replace_last_layer(net: nn.Module, model: str, n_classes: int) -> None:
    """Put a new linear layer, randomly initialised, in the place of the last one of `net`.

    DiagvibError if there is none.
    """
    linear = [(name, module) for name, module in net.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise DiagvibError(f"kind: torchvision_frozen: model {model} has no linear layer that a new one could replace; "
                           "choose another, such as resnet50")
    name, last = linear[-1]
    parent, _, attribute = name.rpartition(".")
    setattr(net.get_submodule(parent), attribute, nn.Linear(last.in_features, n_classes))


def load_weights(net: nn.Module, model: str, name: str, file: str | None, sha256: str | None) -> None:
    """Fill `net` with torchvision's weights `name` of `model`, from `file`, or else from torch's cache or a download.

    Either way the bytes are hashed. DiagvibError showing both hashes if they differ, or saying what to do otherwise.
    """
    known = [weights.name for weights in torchvision.models.get_model_weights(model)]
    if name not in known:
        raise unknown_name(f"weights of {model}", name, known, "options.weights")
    weights = torchvision.models.get_model_weights(model)[name]
    path = Path(file) if file else Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
    # torchvision's file names end in the first digits of the sha256: resnet50-0676ba61.pth.
    expected = (sha256 if file and sha256 else path_hash(weights.url)).lower()
    if not file and not path.exists():
        _download(weights, model, path)
    _check_hash(path, expected, bool(file))
    try:
        saved, own = torch.load(path, map_location="cpu", weights_only=True), net.state_dict()
        # The published densenets still have the names of an older torchvision: norm.1 for norm1.
        net.load_state_dict({key if key in own else re.sub(r"\.(norm|conv)\.(\d)\.", r".\1\2.", key): value
                             for key, value in saved.items()})
    except Exception as error:  # torch.load raises whatever the bytes happen to provoke
        reason = " ".join(str(error).split())[:160]
        raise DiagvibError(f"{path}: holds no weights of torchvision's {model} ({reason}); save its state_dict with "
                           "torch.save") from None


def path_hash(url: str) -> str:
    """The digits of the sha256 that the name of one of torchvision's files ends in."""
    return Path(url).stem.rpartition("-")[2]


def _download(weights, model: str, path: Path) -> None:
    try:
        weights.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:  # no network; or another hash, of which torch's message shows both
        raise DiagvibError(
            f"the ImageNet weights of {model} could not be downloaded from {weights.url} ({error}); on a machine with "
            f"network get that file, then either put it at {path}, or name it in config/baselines.yaml as "
            f"options: {{weights: {weights.name}, weights_file: PATH}}") from None


def _check_hash(path: Path, expected: str, local: bool) -> None:
    if not path.is_file():
        raise DiagvibError(f"{path}: no such file; options.weights_file of config/baselines.yaml names it")
    found = file_sha256(path)
    if not found.startswith(expected):
        remedy = ("replace the file, or, if it is the one you mean, set options.weights_sha256 in "
                  "config/baselines.yaml to its hash" if local else "delete it; the next run downloads it again")
        raise DiagvibError(f"{path}: wrong hash: expected sha256 {expected}{'...' if len(expected) < 64 else ''}, "
                           f"found {found}; {remedy}")
