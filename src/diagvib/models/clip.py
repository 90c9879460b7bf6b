"""CLIP networks of the package open_clip: an image tower, and a classifier made of words."""

from __future__ import annotations

import importlib
from copy import deepcopy
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.plug_ins import reason
from diagvib.models.network import Network, check_logits
from diagvib.models.weights import check_hash, read_state

# Options of `model` that say which words the text tower reads; others are open_clip's.
_WORDS, _TEMPLATES = "words", "templates"
# The names of classes of ImageNet are known only by their numbers.
_IMAGENET_CLASSES = 1000
# The logit of a class without a name.
_NEVER = -1e4
# In a file of a network that was fine-tuned with a last layer (Wortsman et al., 2022).
_FINE_TUNED = "classification_head."


def clip_model(settings: dict, n_classes: int, image_size: int) -> Network:
    """`clip/NAME`: the image tower of open_clip's model of that name, whose features have length
    exp(logit_scale), and a linear layer for `n_classes`.

    With `head: published`, that layer has the features of texts: for each class, the mean over
    templates of prompts with its words, so that its logits are CLIP's; or, in a file of a network
    that was fine-tuned with a last layer, it is that layer. settings: may have `classes`, the names, empty
    for classes that are not to be predicted;
    options: words (class -> its words; default: its name) and templates (with {}; default: OpenAI's
    80 for ImageNet). DiagvibError as for timm.
    """
    name, weights = settings["name"].removeprefix("clip/"), settings["weights"]
    options = {
        key: value for key, value in settings["options"].items() if key not in (_WORDS, _TEMPLATES)
    }
    model, head = _with_weights(name, weights, options)
    body = ImageTower(model)
    features = _length(body, image_size, settings["name"])
    if settings.get("head") != "published":
        head = nn.Linear(features, n_classes)
    elif head is None:
        head = nn.Linear(features, n_classes)
        head.weight.data, head.bias.data = word_classifier(model, name, settings, n_classes)
    else:
        head.weight.data /= body.scale
    network = Network(body, head)
    check_logits(network.eval(), f"model '{settings['name']}'", head.out_features, image_size)
    return network


class ImageTower(nn.Module):
    """Images to features whose length is CLIP's inverse temperature."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.visual = model.visual
        self.scale = model.logit_scale.exp().item()

    def forward(self, inputs: Tensor) -> Tensor:
        return F.normalize(self.visual(inputs), dim=-1) * self.scale


@torch.inference_mode()
def word_classifier(
    model: nn.Module, name: str, settings: dict, n_classes: int
) -> tuple[Tensor, Tensor]:
    """The zero-shot classifier's weights, float32[classes, features], and biases: a class without a
    name is never predicted."""
    clip, options = open_clip(), settings["options"]
    classes = list(settings.get("classes") or ())
    if n_classes == _IMAGENET_CLASSES:
        classes = list(clip.IMAGENET_CLASSNAMES)
    if len(classes) != n_classes:
        raise DiagvibError(
            f"model: {settings['name']}: head: published needs the names of {n_classes:,} classes, which "
            "are not known here; choose head: linear"
        )
    words = options.get(_WORDS) or {}
    # Without a name are those that this dataset sample lacks, which may have words, too.
    unknown = [name for name in words if name not in classes] if all(classes) else []
    if unknown:
        raise unknown_name("class", unknown[0], classes, "model.options.words")
    texts = [words.get(class_name, class_name.replace("_", " ")) for class_name in classes]
    device = resolve_device("auto")
    # The image tower stays where it is.
    towers = model if device.type == "cpu" else deepcopy(model).to(device)
    weights = clip.build_zero_shot_classifier(
        towers.eval(),
        clip.get_tokenizer(name),
        texts,
        options.get(_TEMPLATES) or clip.OPENAI_IMAGENET_TEMPLATES,
        device=device,
    )
    absent = torch.tensor([not class_name for class_name in classes])
    return weights.T.float().cpu().clone(), torch.where(absent, _NEVER, 0.0)


def clip_input(model: str, tag: str | None) -> tuple[str | None, dict]:
    """A tag of the published weights of `clip/NAME`, by default open_clip's first; and the baseline's
    `input` with which they were trained."""
    name, clip = model.removeprefix("clip/"), open_clip()
    tags = clip.list_pretrained_tags_by_model(_known(name))
    if tag and tag not in tags:
        raise unknown_name(f"weights of {model}", tag, tags)
    tag = tag or next(iter(tags), None)
    size = clip.get_model_config(name)["vision_cfg"]["image_size"]
    side = size if isinstance(size, int) else size[0]
    trained = clip.pretrained.get_pretrained_cfg(name, tag or "")
    scaling = {
        "mean": [*trained.get("mean", clip.OPENAI_DATASET_MEAN)],
        "std": [*trained.get("std", clip.OPENAI_DATASET_STD)],
        "interpolation": trained.get("interpolation", "bicubic"),
        "size": side,
    }
    if trained.get("resize_mode", "shortest") == "shortest":
        scaling["resize"] = side
    return tag, scaling


def split_tag(model: str, weights: str | None) -> tuple[str, str | None]:
    """`clip/NAME-TAG` as `clip/NAME` and the tag of its weights; others as they are."""
    if model.startswith("clip/") and not weights:
        for name, tag in open_clip().list_pretrained():
            if model == f"clip/{name}-{tag}":
                return f"clip/{name}", tag
    return model, weights


def open_clip() -> ModuleType:
    try:
        return importlib.import_module("open_clip")
    except ImportError as error:
        raise DiagvibError(
            f"model: clip/NAME needs the package open_clip ({reason(error)}); `pip install "
            "'diagvib[clip]'`"
        ) from None


def _known(name: str) -> str:
    if name not in open_clip().list_models():
        raise unknown_name("CLIP model", name, open_clip().list_models(), "model")
    return name


def _with_weights(
    name: str, weights: str | dict | None, options: dict
) -> tuple[nn.Module, nn.Linear | None]:
    """The model, and the last layer of a file that has one."""
    clip, tensors = open_clip(), {}
    _known(name)
    pretrained = weights
    if isinstance(weights, dict):
        pretrained = weights["file"]
        check_hash(Path(pretrained), weights["sha256"].lower(), True)
        tensors = _fine_tuned(Path(pretrained))
        pretrained = None if tensors else pretrained
    tag = weights if isinstance(weights, str) else ""
    if tag and tag not in (tags := clip.list_pretrained_tags_by_model(name)):
        raise unknown_name(f"weights of clip/{name}", tag, tags, "model.weights")
    gelu = clip.pretrained.get_pretrained_cfg(name, tag).get("quick_gelu", False)
    try:
        model = clip.create_model(name, pretrained=pretrained, force_quick_gelu=gelu, **options)
    except Exception as error:  # of many kinds, for a wrong option, no network or another model
        raise DiagvibError(
            f"model: clip/{name} cannot be made with weights {pretrained} ({reason(error)}); get the "
            "file with a network connection, and name it as model.weights.file"
        ) from None
    return model, _filled(model, tensors, weights) if tensors else None


def _fine_tuned(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that has a last layer; {} for others, which open_clip reads."""
    try:
        tensors = read_state(path)
    except DiagvibError:
        return {}
    tensors = {key.removeprefix("module."): value.float() for key, value in tensors.items()}
    return tensors if f"{_FINE_TUNED}weight" in tensors else {}


def _filled(model: nn.Module, tensors: dict[str, Tensor], weights: dict) -> nn.Linear:
    """Fill the image tower with a fine-tuned network's tensors; its last layer."""
    layer = {
        key.removeprefix(_FINE_TUNED): tensors.pop(key)
        for key in [*tensors]
        if key.startswith(_FINE_TUNED)
    }
    head = nn.Linear(*reversed(layer["weight"].shape), bias="bias" in layer)
    visual = "model.visual."
    tower = {
        key.removeprefix(visual): value for key, value in tensors.items() if key.startswith(visual)
    }
    try:
        head.load_state_dict(layer)
        model.visual.load_state_dict(tower)
    except RuntimeError as error:
        raise DiagvibError(
            f"{weights['file']}: holds the weights of another model ({reason(error)})"
        ) from None
    return head


@torch.no_grad()
def _length(body: nn.Module, image_size: int, name: str) -> int:
    try:
        return body.eval()(torch.zeros(1, 3, image_size, image_size)).shape[1]
    except Exception as error:  # of the network's
        raise DiagvibError(
            f"model '{name}' cannot be used on images of {image_size} x {image_size} pixels: "
            f"{reason(error)}; input: {{size: {clip_input(name, None)[1]['size']}}} is the one it takes"
        ) from None
