"""Classifiers that were fitted elsewhere, as they are, and which of their outputs mean which
class."""

import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path

import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.foundation.files import read_json
from diagvib.foundation.plug_ins import imported, reason
from diagvib.models.independence import check_independent
from diagvib.models.network import Whole, check_logits
from diagvib.models.own import check_no_softmax, output_names
from diagvib.models.registry import family, make_network

# All of torchvision's published classifiers have as many; a file of weights says itself how many.
_IMAGENET_CLASSES = 1000
# The logit of a class that no output means.
NEVER = -1e4
# PIL's numbers of ways to resize, of those that there are for tensors.
_RESIZED = {0: "nearest", 2: "bilinear", 3: "bicubic"}
_EXAMPLES = 3


class Logits(nn.Module):
    """Images to logits, also of a network that returns an object with `logits`, or a tuple that
    begins with them. names: of the outputs, if the network has them. count: of the outputs, once it is known."""

    count: int

    def __init__(self, net: nn.Module, names: Sequence[str] = ()):
        super().__init__()
        self.net, self.names = net, tuple(names or output_names(net))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.net(inputs)
        outputs = getattr(outputs, "logits", outputs)
        if not isinstance(outputs, tuple):
            return outputs
        widths = {part.shape[1] for part in outputs if isinstance(part, Tensor) and part.ndim == 2}
        if len(widths) > 1:  # features, perhaps
            raise DiagvibError(
                f"the network returns tensors [B, N] with N {' and '.join(map(str, sorted(widths)))}; "
                "return the logits alone"
            )
        return outputs[0]


def fitted_network(settings: dict, image_size: int) -> Logits:
    """A classifier with all its own outputs, in evaluation mode. settings: a baseline's `model`.

    The network of a name, with its published weights or those of a file; without weights, what a
    function of your own returns, which takes no arguments but the options. DiagvibError if it
    cannot be made, or does not turn images of this size into logits, each image by itself.
    """
    name, weights, names = settings["name"], settings["weights"], ()
    if family(name) == "own" and not weights:
        network = _returned(name, settings["options"])
    else:
        network = make_network({**settings, "head": "published"}, _IMAGENET_CLASSES, image_size)
        if family(name) == "torchvision" and isinstance(weights, str):
            from diagvib.models.weights import published

            names = published(name, weights).meta["categories"]
    network = Logits(network, names).eval()
    location = f"model: {name}"
    network.count = _outputs(network, image_size)
    check_logits(network, location, network.count, image_size)
    if network.names and len(network.names) != network.count:
        raise DiagvibError(
            f"{location}: it names {len(network.names):,} outputs, but has {network.count:,}; name each"
        )
    images = torch.rand(4, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))
    check_independent(network, images, f"{location} in evaluation mode")
    with torch.no_grad():
        check_no_softmax(network(images), location)
    return network


def _returned(name: str, options: Mapping) -> nn.Module:
    function, location = imported(name, "model"), f"model: {name}"
    if isinstance(function, nn.Module):
        return function
    try:
        signature(function).bind(**options)
    except (TypeError, ValueError) as error:
        parameters = signature(function).parameters.values() if callable(function) else ()
        required = [p.name for p in parameters if p.default is Parameter.empty]
        raise DiagvibError(
            f"{location} must return a fitted network when it is called without arguments ({error})"
            + "; or give its --weights" * bool(required)
        ) from None
    network = function(**options)
    if not isinstance(network, nn.Module):
        raise DiagvibError(f"{location} returned {type(network).__name__}, not a torch.nn.Module")
    return network


@torch.no_grad()
def _outputs(network: nn.Module, image_size: int) -> int:
    """How many outputs it has; 0 if that cannot be seen, of which `check_logits` says why."""
    try:
        return network(torch.zeros(2, 3, image_size, image_size)).shape[1]
    except Exception:
        return 0


def transformers_model(settings: dict, n_classes: int, image_size: int) -> Whole:
    """`transformers/FOLDER`: an image classifier that `save_pretrained` wrote to this folder, with
    its own outputs. DiagvibError if there is none, or if weights that are used are not there:
    transformers would draw them."""
    name = settings["name"]
    try:
        from transformers import AutoModelForImageClassification

        folder = name.removeprefix("transformers/")
        net, loading = AutoModelForImageClassification.from_pretrained(
            folder, local_files_only=True, output_loading_info=True, **settings["options"]
        )
    except Exception as error:  # of many kinds, also if the package is missing
        raise DiagvibError(
            f"model: {name}: holds no image classifier of transformers ({reason(error)}); name a folder "
            "that save_pretrained wrote"
        ) from None
    prefix = "" if settings.get("head") == "published" else f"{net.base_model_prefix}."
    random_weights = {*loading["missing_keys"], *(key for key, *_ in loading["mismatched_keys"])}
    if lacking := sorted(key for key in random_weights if key.startswith(prefix)):
        raise DiagvibError(
            f"model: {name}: its file has no weights {some_names(lacking, _EXAMPLES)} of this shape, which "
            "would be random; save the whole fitted classifier by save_pretrained"
        )
    network = Whole(Logits(net), net.config.num_labels)
    network.classes = network.body.names
    check_logits(network.eval(), f"model: {name}", net.config.num_labels, image_size)
    return network


def transformers_input(folder: Path) -> dict:
    """size, mean, std and interpolation with which the images of a saved classifier are prepared;
    where photos are cropped, the size is that after cropping. DiagvibError if its folder does not
    say so, or says what cannot be done here."""
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        raise DiagvibError(
            f"{file}: no such file, so how its images are resized and normalised is not known; save its "
            "image processor to the same folder, by save_pretrained, or, for pixel values from 0 to 1 as "
            'they are, write {"do_resize": false, "do_normalize": false}'
        )
    saved = read_json(file, "save it again")
    if saved.get("do_flip_channel_order"):
        raise DiagvibError(
            f"{file}: do_flip_channel_order: the network reads blue first, but images are red, green, "
            "blue; name a function that returns the network with a first module that turns them round"
        )
    resize = saved.get("do_resize", True)
    keys = ["size"] * resize + ["crop_size"] * saved.get("do_center_crop", False)
    # Perceiver's crop_size is larger, and only says which part of a photo is resized to `size`.
    sides = [_side(saved[key], f"{file}: {key}") for key in keys if saved.get(key)]
    resample = saved.get("resample", 2)
    if resize and resample not in _RESIZED:
        raise DiagvibError(
            f"{file}: resample: {resample}: images can only be resized with "
            f"{', '.join(f'{number} ({name})' for number, name in _RESIZED.items())}; save the images in "
            "the network's size, or name a function that resizes them itself"
        )
    return {
        "size": min(sides, default=None),
        **_saved_scaling(saved, file),
        "interpolation": _RESIZED.get(resample, "bilinear"),
    }


def _side(size: object, location: str) -> int:
    """Pixels per side of a square that is written as a number, or by its sides."""
    sides = {*size.values()} if isinstance(size, dict) else {size}
    if len(sides) > 1 or not all(isinstance(side, int) for side in sides):
        raise DiagvibError(f"{location}: {size} is no square, as images are here; name its side")
    return sides.pop()


def _saved_scaling(saved: Mapping, file: Path) -> dict[str, list[float]]:
    """mean and std of values from 0 to 1, of a saved image processor."""
    mean, std = [0.0] * 3, [1.0] * 3
    if saved.get("do_normalize", True):
        if not (saved.get("image_mean") and saved.get("image_std")):
            raise DiagvibError(
                f"{file}: it has no image_mean and image_std, so what is normalised is not known; add "
                "them, or do_normalize: false"
            )
        mean, std = saved["image_mean"], saved["image_std"]
    if saved.get("include_top"):  # EfficientNet's, which divides again
        std = [value * again for value, again in zip(std, saved["image_std"], strict=True)]
    # Of pixels from 0 to 255, what is normalised, as a multiple of values from 0 to 1.
    factor = saved.get("rescale_factor", 1 / 255) if saved.get("do_rescale", True) else 1.0
    factor, offset = round(255 * factor, 6), float(bool(saved.get("rescale_offset")))
    return {
        "mean": [(value + offset) / factor for value in mean],
        "std": [value / factor for value in std],
    }


def outputs_of_classes(
    mapping: Mapping[str | int, str | int], names: Sequence[str], count: int, classes: Sequence[str]
) -> list[list[int]]:
    """For each of a factor's classes, the numbers of the outputs that mean it.

    mapping: an output, by its name or number -> a class; without one, outputs with the names of
    the classes, or as many outputs without names as there are classes, in their order. DiagvibError
    otherwise, saying how to map them, and for names that may mean several outputs.
    """
    mapping = mapping_texts(mapping)
    if names and len(names) != count:
        raise DiagvibError(
            f"the classifier has {count:,} outputs, but {len(names):,} names for them; name all or none"
        )
    if not mapping and sorted(names) == sorted(classes):
        return [[names.index(name)] for name in classes]
    if not mapping and not names and count == len(classes):
        return [[number] for number in range(count)]
    outputs = f"{count:,} outputs" + f" ({some_names(names, _EXAMPLES)})" * bool(names)
    example = f"{names[0] if names else 0}={classes[0]}"
    if not mapping:
        raise DiagvibError(
            f"the classifier has {outputs}, and there are {len(classes)} classes: "
            f"{some_names(classes, _EXAMPLES)}; say which output means which class, such as {example}"
        )
    numbers = _output_numbers(mapping, names, count)
    check_names("output", mapping, numbers, f"the classifier has {outputs}")
    check_names("class", mapping.values(), classes, f"there are {some_names(classes, 20)}")
    return [
        sorted(numbers[output] for output, name in mapping.items() if name == class_name)
        for class_name in classes
    ]


def mapping_texts(mapping: object) -> dict[str, str]:
    """A mapping of outputs to classes, both as texts. DiagvibError for anything else, and for an
    output that is there twice, as the number 0 and the text "0"."""
    if not isinstance(mapping, Mapping):
        raise DiagvibError(f"a mapping {{output: class}} is needed, not {type(mapping).__name__}")
    texts = {str(output): str(name) for output, name in mapping.items()}
    if len(texts) < len(mapping):
        outputs = [*map(str, mapping)]
        doubled = next(output for output in outputs if outputs.count(output) > 1)
        raise DiagvibError(f"output {doubled} is there twice, as a number and as a text")
    return texts


def _output_numbers(mapping: Mapping[str, str], names: Sequence[str], count: int) -> dict[str, int]:
    """Names or numbers of outputs -> their numbers, of which a mapping has all names, all numbers, or
    some of both. DiagvibError for a name of several outputs, and where two of these are possible."""
    if doubled := next((name for name in mapping if names.count(name) > 1), None):
        numbers = [str(number) for number, name in enumerate(names) if name == doubled]
        raise DiagvibError(
            f"{len(numbers)} outputs are called {doubled}; give their numbers, {' and '.join(numbers)}"
        )
    by_name = {name: number for number, name in enumerate(names)}
    by_number = {str(number): number for number in range(count)}
    readings = [reading for reading in (by_name, by_number) if mapping.keys() <= reading.keys()]
    readings = readings or [by_number | by_name, by_name | by_number]
    for output in mapping:
        if len({reading.get(output) for reading in readings}) > 1:
            raise DiagvibError(
                f"{output} is the name of one output and the number of another; name the outputs otherwise"
            )
    return readings[0]


def check_numbers(
    mapping: Mapping[str, str], names: Sequence[str], values: Mapping[str, str]
) -> None:
    """DiagvibError if outputs without names are to be classes in their order, but a table numbers the
    classes in another. values: of the table -> class, in the order of the classes."""
    numbers = [int(value) for value in values if re.fullmatch(r"-?\d+", value)]
    if not mapping and not names and len(numbers) == len(values) and numbers != sorted(numbers):
        listed = ", ".join(f"{value} for {name}" for value, name in values.items())
        raise DiagvibError(
            f"the outputs have no names, and the table has {listed}, which is another order than that "
            f"of the classes; say which output means which class, such as 0={next(iter(values.values()))}"
        )


def check_names(kind: str, names: Iterable[str], valid: Iterable[str], remedy: str) -> None:
    """DiagvibError with the number and the first three of the names that are not valid."""
    valid = {*valid}
    unknown = [*dict.fromkeys(name for name in names if name not in valid)]
    if unknown:
        plural = "es" if kind.endswith("s") else "s"
        raise DiagvibError(
            f"{len(unknown):,} unknown {kind}{plural if len(unknown) > 1 else ''}: "
            f"{some_names(unknown, _EXAMPLES)}; {remedy}"
        )


def class_logits(logits: Tensor, outputs: Sequence[Sequence[int]]) -> Tensor:
    """Logits [B, classes], given those of all outputs: the probability of a class is that of its
    outputs together, among the outputs that mean a class."""
    never = logits.new_full((len(logits),), NEVER)
    columns = [logits[:, numbers].logsumexp(1) if numbers else never for numbers in outputs]
    return torch.stack(columns, 1)
