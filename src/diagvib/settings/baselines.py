"""Each baseline's settings, from `config/baselines/*.yaml`: a model, a method, an optimiser, and
how it is trained.

Does not import torch, so that planning stays quick.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    field_validator,
    model_validator,
)

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import definition_path, file_sha256, text_sha256
from diagvib.foundation.validation import (
    Filled,
    InvalidField,
    Name,
    Sparse,
    Strict,
    Text,
    TextLike,
    Unique,
    dot_hint,
    misplaced,
    read_valid,
    validated,
)
from diagvib.foundation.versions import once_per_version
from diagvib.methods.registry import METHODS, PREDICTIONS, declaration
from diagvib.models.registry import PACKAGES, check_model, family
from diagvib.scenes.scene import MARK, TWINS

Positive = Annotated[float, Field(gt=0, le=1000)]
BatchSize = Annotated[int, Field(ge=2, le=65536)]
NotNegative = Annotated[float, Field(ge=0, le=1000)]
Decay = Annotated[float, Field(ge=0, lt=1)]

# How an epoch is chosen: by a column of the history (the lowest loss, or the highest of any other),
# or the last.
SELECTION = (
    "val_loss|val_accuracy|val_worst_class|val_worst_group(_cue_[1-9])?|val_worst_inferred_group|"
    "val_environment_accuracy|last"
)
AUGMENTS = ("flip", "jitter", "grey")  # changes that training images may get
_OWN_CLASS = r"\w+(\.\w+)*:\w+"


VIEWS = ("mixup", "cutmix", "cutout", "augmix.1", "augmix.2", MARK, "cue.1", "cue.2", *TWINS)
RECORDED = "recorded"
SHA256 = "^[0-9a-fA-F]{8,64}$"
Channels = Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=3, max_length=3)]


class WeightsFile(Sparse):
    """A file with a network's state dict: on disk, or the only one in an installed package."""

    nullable = ("file", "package", "sha256")
    file: str | None = None
    """A local file."""
    key: str | None = None
    """The key of the file under which its state dict is, such as model."""
    package: str | None = None
    """An installed Python package, by the name under which it is imported."""
    sha256: str | None = Field(None, pattern=f"{SHA256}|^{RECORDED}$")
    """The file's sha256, or its first digits; `recorded`: whatever it is, which the run records."""

    @model_validator(mode="before")
    @classmethod
    def _digested(cls, value):
        if not isinstance(value, dict):
            return value
        if value.get("sha256") == RECORDED:
            path = Path(str(value.get("file")))  # if it is missing, its reader says so
            return value | {"sha256": file_sha256(path)} if path.is_file() else value
        digest = PACKAGES.get(str(value.get("package")))
        return {"sha256": digest, **value} if digest else value

    @model_validator(mode="after")
    def _one(self) -> "WeightsFile":
        if bool(self.file) == bool(self.package):
            raise InvalidField("file", "name either a file or an installed package")
        if not self.sha256:
            raise InvalidField("sha256", "weights are trusted only by their hash; give the file's")
        return self


class Input(Sparse):
    """The input of a frozen network. Without mean and std, the baseline's `normalise` decides."""

    nullable = ("size", "mean", "std")
    size: int | None = Field(None, ge=16, le=2048)
    """Pixels per side to which images are resized."""
    mean: Channels | None = None
    """Per channel, of values from 0 to 1."""
    std: Channels | None = None
    """Per channel, of values from 0 to 1."""
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    resize: int | None = Field(None, ge=16, le=2048)
    """The shorter side to which photos are scaled for this network; the square of `size` in their
    middle is used."""

    @model_validator(mode="after")
    def _both(self) -> "Input":
        if self.resize and not (self.size and self.mean):
            raise InvalidField("resize", "this needs size, mean and std, too")
        if (self.mean is None) != (self.std is None):
            raise InvalidField("mean" if self.mean is None else "std", "give both mean and std")
        if self.resize and self.resize < self.size:
            raise InvalidField("resize", f"smaller than size, {self.size}, which is cut out of it")
        return self


class Mlp(Strict):
    """A head with one hidden layer."""

    mlp: int = Field(ge=1, le=65536)
    """Units of the hidden layer."""


# A model or method without options may be given by its name alone.
_FROM_NAME = BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)


class ModelSettings(Sparse):
    """A network."""

    nullable = ("weights", "weights_file", "weights_sha256")
    name: Annotated[
        str,
        TextLike(
            rf"((timm|clip)/)?[\w.-]+|transformers/.+|{_OWN_CLASS}",
            "small_cnn, a torchvision classifier, timm/NAME, clip/NAME, transformers/FOLDER, or your "
            "own as package.module:function is needed",
        ),
    ]
    options: dict[str, JsonValue] = Field({})
    """Arguments for the model."""
    weights: str | WeightsFile | None = None
    """The name of published weights (torchvision's, or timm's tag), or where a file of them is;
    random if not given."""
    weights_file: str | None = None
    """A local file with torchvision's weights instead of a download."""
    weights_sha256: str | None = Field(None, pattern=SHA256)
    """The sha256 of weights_file, or its first digits; by default torchvision's hash."""
    frozen: bool = False
    """Only the head is trained, on features that are computed once."""
    frozen_statistics: bool = False
    """Batch norm keeps the statistics that came with the weights."""
    dropout: Decay | None = None
    """The share of the features that are 0 during training. Default: none."""
    input: Input | None = None
    """The input of a frozen network."""
    layer: str | None = None
    """The module of a frozen network whose output is the features, averaged over the image; by
    default they are the input of its last linear layer."""
    dtype: Literal["float32", "float16"] | None = None
    """How features are stored. Default: float32."""
    runtime: Literal["onnxruntime"] | None = None
    """Compute features on a CPU with ONNX Runtime, which is faster (it needs the packages
    onnxruntime and onnxscript). Default: PyTorch."""
    head: Literal["linear", "published"] | Mlp | None = None
    """The head on the features: a new layer or MLP, or the network's own last layer. Default:
    linear."""
    views: Unique[Literal[VIEWS]] | None = None
    """Changed training images whose features methods get, too."""

    @model_validator(mode="after")
    def _fitting(self) -> "ModelSettings":
        kind, is_name = family(self.name), isinstance(self.weights, str)
        for key in ("frozen_statistics", "weights_file", "weights_sha256"):
            if getattr(self, key) and not (kind == "torchvision" and is_name):
                raise InvalidField(
                    key,
                    "this needs a torchvision classifier and the key weights, the name of published "
                    "ones, such as IMAGENET1K_V1",
                )
        if self.dropout and self.frozen:
            raise InvalidField("dropout", "this is for networks that are trained, not frozen ones")
        if is_name and kind not in ("torchvision", "timm", "clip"):
            raise InvalidField(
                "weights",
                f"{self.name} has no published weights; name a file of yours: "
                "{file: PATH, sha256: HASH}",
            )
        shared = kind in ("torchvision", "timm", "clip")
        if self.head == "published" and not self.weights and shared:
            raise InvalidField("head", "without weights, its last layer is random; name them")
        if self.weights_sha256 and not self.weights_file:
            raise InvalidField(
                "weights_sha256", "this needs the key weights_file, the file with this hash"
            )
        for key in ("input", "layer", "dtype", "runtime", "head", "views"):
            if getattr(self, key) not in (None, "published") and not self.frozen:
                raise InvalidField(key, "this is for features; it needs frozen: true")
        return self


def published_weights(model: dict | None) -> tuple[str, str] | None:
    """The model and the name of weights that torchvision publishes, if a baseline's `model` has
    such weights and names no file of them."""
    if not model or not isinstance(model["weights"], str) or model["weights_file"]:
        return None
    return (model["name"], model["weights"]) if family(model["name"]) == "torchvision" else None


class MethodSettings(Strict):
    """How it learns: the method's name, and its own options as further keys; those that are not
    given get their defaults."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]
    name: Annotated[
        str,
        TextLike(
            rf"[\w.-]+|{_OWN_CLASS}",
            f"{', '.join(METHODS)}, or your own as package.module:Class is needed",
        ),
    ]

    @model_validator(mode="after")
    def _complete(self) -> "MethodSettings":
        try:
            declared = declaration(self.name)
        except DiagvibError as error:
            raise ValueError(str(error).removeprefix("method: ")) from None
        for key, value in self.model_extra.items():
            with misplaced(key):
                if key not in declared.schemas:
                    raise unknown_name("option", key, declared.schemas)
                for error in _validator()(declared.schemas[key]).iter_errors(value):
                    raise DiagvibError(f"{one_line(error.message)}{dot_hint(error.instance)}")
        options = {
            key: as_declared(value, declared.schemas[key])
            for key, value in self.model_extra.items()
        }
        return self.model_construct(name=self.name, **declared.defaults | options)


def as_declared(value: JsonValue, schema: Mapping) -> JsonValue:
    """The value of an option: as written in YAML, 10 would be an integer also where a number is
    meant."""
    kind = schema.get("type", [])
    kinds = [kind] if isinstance(kind, str) else kind
    is_integer = "number" in kinds and "integer" not in kinds and type(value) is int
    return float(value) if is_integer else value


class Adam(Strict):
    name: Literal["adam"]
    lr: Positive
    """Learning rate."""
    betas: list[Decay] = Field([0.9, 0.999], min_length=2, max_length=2)
    """Decay rates of the moments."""
    weight_decay: NotNegative = 0.0


class AdamW(Adam):
    name: Literal["adamw"]


class Sgd(Strict):
    name: Literal["sgd"]
    lr: Positive
    """Learning rate."""
    momentum: Decay = 0.0
    weight_decay: NotNegative = 0.0


class BaselineSettings(Sparse):
    """A model, a method, an optimiser, and how they are used."""

    nullable = ("model",)
    model: Annotated[ModelSettings, _FROM_NAME] | None = None
    """A name, or a name with further keys; none if the method builds its own network."""
    method: Annotated[MethodSettings, _FROM_NAME]
    """A name, or a name with the method's options."""
    optimiser: Adam | AdamW | Sgd = Field(discriminator="name")
    batch_size: BatchSize
    """Images per training step."""
    drop_last: bool | None = None
    """Leave out an epoch's last batch if it is incomplete. Default: true."""
    normalise: Literal["dataset", "imagenet"] = "dataset"
    """The images whose pixel mean and standard deviation normalise the inputs."""
    augment: Unique[Literal[AUGMENTS]] | None = None
    """Random changes to training images, in the order given. flip: half of them are mirrored;
    jitter: brightness, contrast, saturation and hue; grey: one in ten. Default: none."""
    depends: Unique[str] | None = None
    """Files, by their paths from the current folder, that the model or method uses besides the
    modules that it imports: if one changes, the runs are made again."""
    selection: (
        Annotated[
            str,
            TextLike(
                SELECTION,
                "val_loss, val_accuracy, val_worst_class, val_worst_group, val_worst_group_cue_1 to _9, "
                "val_worst_inferred_group, val_environment_accuracy, or last, is needed",
            ),
        ]
        | None
    ) = None
    """Which epoch is kept: the one with the lowest val_loss, or with the highest value of another
    column of the history; or the last. Default: val_loss."""
    max_epochs: int | None = Field(None, ge=1, le=100_000)
    """Overrides training.max_epochs."""
    schedule: Literal["cosine"] | None = None
    """cosine: in each phase, the learning rate falls to 0 along half a cosine, after every epoch.
    Default: it is constant."""
    settings: Literal["tuned"] | None = None
    """tuned: runs have the settings that this baseline's tuning chooses; the workflow tunes first.
    Default: those written here."""
    optimiser_of: Name | None = None
    """A baseline from whose tuning `optimiser` is taken, before this one is tuned or trained."""

    @field_validator("depends")
    @classmethod
    def _exist(cls, files: list[str] | None) -> list[str] | None:
        for file in files or ():
            if not Path(file).is_file():
                raise ValueError(f"{file}: no such file")
        return files

    @model_validator(mode="after")
    def _fits_together(self) -> "BaselineSettings":
        declared = declaration(self.method.name)
        own_network = declared.own_network
        if own_network and self.model:
            raise InvalidField(
                "model", f"method {self.method.name} builds its own network; leave out this key"
            )
        if not own_network and not self.model:
            raise InvalidField(
                "model", f"the key is missing, but method {self.method.name} needs it"
            )
        with misplaced("model"):
            check_model(self.model and self.model.model_dump())
        head = self.model and self.model.head
        if not declared.trains and not own_network and head != "published":
            raise InvalidField(
                "model.head", f"method {self.method.name} trains nothing; write head: published"
            )
        if declared.trains and head == "published" and not self.model.frozen:
            raise InvalidField(
                "model.head",
                f"published is for frozen networks, and method {self.method.name} trains; add frozen: "
                "true, or leave it out",
            )
        if self.selection == "val_worst_inferred_group" and not declared.groups_validation:
            raise InvalidField(
                "selection",
                f"method {self.method.name} infers no groups of validation images, as xrm and ula do; choose "
                "another rule",
            )
        if not (self.model and self.model.frozen):
            return self
        # A frozen network's head is trained on features alone, and a linear one leaves them as they
        # are.
        if declared.uses_features and not isinstance(self.model.head, Mlp):
            raise InvalidField(
                "model.head",
                f"method {self.method.name} changes features, and those that a linear layer reads are "
                "fixed; write head: {mlp: UNITS}, or choose another method",
            )
        reads = "changes pixels" if declared.pixels else "needs images" if declared.needs else None
        if reads or self.augment:
            raise InvalidField(
                "model.frozen",
                "its head is trained on stored features, but "
                + (f"method {self.method.name} {reads}" if reads else "augment changes pixels")
                + "; choose another method, or train the whole network",
            )
        return self


class Baseline(BaselineSettings):
    """One entry of config/baselines."""

    origin: Text
    """Where the values come from."""
    title: Text | None = None
    """What it is called in `diagvib table`. Default: its name."""


class EncoderSettings(Sparse):
    """The frozen network whose features a job of the stage `encode` makes."""

    nullable = ("normalise",)
    model: ModelSettings
    normalise: Literal["dataset", "imagenet"] | None
    depends: list[str] | None = None
    """The baseline's."""


# Folders and files are named after baselines.
_Entries = Filled[dict[Name, object]]


@once_per_version
def _entries(path: Path) -> dict[str, object]:
    return read_valid(_Entries, path)


def _known(more_files: Sequence[str | Path]) -> dict[str, tuple[Path, object]]:
    """File and entry of every baseline in `config/baselines` and in further files."""
    baselines: dict[str, tuple[Path, object]] = {}
    for path in [*sorted(definition_path("baselines").glob("*.yaml")), *map(Path, more_files)]:
        for name, entry in _entries(path).items():
            if name in baselines:
                raise DiagvibError(
                    f"{path}: {name}: this name is already taken; choose another one"
                )
            baselines[name] = path, entry
    return baselines


def baseline_names(more_files: Sequence[str | Path] = ()) -> list[str]:
    """Every baseline defined in `config/baselines` and in further files."""
    return [*_known(more_files)]


def load_settings(name: str, more_files: Sequence[str | Path] = ()) -> dict:
    """The complete settings of one baseline. DiagvibError for an unknown one, suggesting a similar
    name, and for anything wrong in its entry."""
    baselines = _known(more_files)
    if name not in baselines:
        raise unknown_name("baseline", name, baselines, "config/baselines")
    path, entry = baselines[name]
    return complete(entry, name, str(path))


def complete(entry: dict, name: str = "baseline", location: str = "baselines") -> dict:
    """An entry with all defaults, as plain data: model (None if the method builds its own), method
    with all its options and its supervision, optimiser, batch_size, normalise, origin; max_epochs,
    augment, depends, drop_last, selection and schedule if given.

    DiagvibError naming file (`where`), entry and key for whatever is wrong.
    """
    return validated(dict[str, Baseline], {name: entry}, location)[name].model_dump()


def tuning_needed(settings: Mapping, baseline: str) -> list[str]:
    """The baselines that are tuned before this one is trained."""
    names = [settings.get("optimiser_of"), settings.get("settings") and baseline]
    return [name for name in names if name]


def with_tuned(settings: Mapping, baseline: str, folder: Path) -> dict:
    """A baseline's settings with those that tuning chose, where they refer to it. folder: of the
    results of tuning. DiagvibError if they are not there, or are those of another entry."""
    result = {**settings}
    tuned, source = result.pop("settings", None), result.pop("optimiser_of", None)
    if source:
        result["optimiser"] = _tuned(source, folder)["optimiser"]
    if not tuned:
        return result
    entry = _tuned(baseline, folder)
    entry.pop("origin")
    if entry.keys() != result.keys() or any(
        (entry[key] or {}).get("name") != (result[key] or {}).get("name")
        for key in ("model", "method", "optimiser")
    ):
        raise DiagvibError(
            f"{folder / baseline}.yaml: not a tuning of this entry, which has been changed since; "
            f"`diagvib tune {baseline}` with the same configuration makes it again"
        )
    return entry


def _tuned(baseline: str, folder: Path) -> dict:
    path = folder / f"{baseline}.yaml"
    if not path.is_file():
        raise DiagvibError(
            f"{path}: not there, but settings are to be those of this tuning; `diagvib tune {baseline}` "
            "with the same configuration makes it, and so does the workflow"
        )
    return complete(read_valid(_Entries, path)[baseline], baseline, str(path))


def has_probabilities(settings: dict | None) -> bool:
    """Whether the predictions of a baseline have probabilities, given its settings."""
    method = (settings or {}).get("method") or {}
    return method.get("name") != PREDICTIONS or bool(method.get("probabilities"))


def is_trained(settings: dict | None) -> bool:
    """Whether anything of a baseline is trained, given its settings; of unknown ones, it is."""
    with suppress(DiagvibError, KeyError, TypeError):
        return declaration(settings["method"]["name"]).trains
    return True


def is_frozen(settings: Mapping) -> bool:
    """Whether a baseline trains a head on the features of a frozen network."""
    return bool(settings["model"] and settings["model"].get("frozen"))


def prepared_input(model: Mapping | None) -> dict | None:
    """The `input` of a frozen network for which photos are prepared, given a baseline's `model`; None
    for others."""
    input_settings = (model or {}).get("input") or {}
    return input_settings if input_settings.get("resize") else None


def encoder_settings(settings: Mapping) -> dict | None:
    """The part of a frozen baseline's settings on which its features depend: model, normalise, and
    `depends` if given; None for others."""
    if not is_frozen(settings):
        return None
    model = {key: value for key, value in settings["model"].items() if key != "head"}
    scaled = (model.get("input") or {}).get("mean")
    encoder = {"model": model, "normalise": None if scaled else settings["normalise"]}
    if "depends" in settings:
        encoder["depends"] = settings["depends"]
    return encoder


def network_name(settings: Mapping) -> str | None:
    """The folder of a frozen baseline's features; None for others."""
    encoder = encoder_settings(settings)
    if encoder is None:
        return None
    text = json.dumps(encoder, sort_keys=True)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", encoder["model"]["name"]).lstrip("_.-")
    return f"{name}-{text_sha256(text)[:8]}"


def shortened(settings: dict) -> dict:
    """The result of `complete` without defaults: an entry for people to read."""
    entry = Baseline.model_validate(settings).model_dump(exclude_defaults=True)
    entry["method"] = changed(settings["method"])
    return {
        key: value["name"] if key in ("model", "method") and list(value) == ["name"] else value
        for key, value in entry.items()
    }


def changed(method: Mapping) -> dict:
    """A method's settings without those that have its defaults."""
    defaults = declaration(method["name"]).defaults
    return {
        key: value for key, value in method.items() if key not in defaults or defaults[key] != value
    }


@cache
def _validator() -> type:
    """JSON Schema's, but 1.0 is no integer, as in its draft 4, and NaN no number."""
    from jsonschema import Draft4Validator, Draft202012Validator
    from jsonschema.validators import extend

    types = Draft4Validator.TYPE_CHECKER

    def finite(_, value: JsonValue) -> bool:
        return types.is_type(value, "number") and math.isfinite(value)

    return extend(Draft202012Validator, type_checker=types.redefine("number", finite))


def baselines_schema() -> dict:
    """The JSON schema of config/baselines, including the options of every method in the project."""
    schema = TypeAdapter(Filled[dict[str, Baseline]]).json_schema()
    own_method = schema["$defs"].pop("MethodSettings")
    own_method["properties"]["name"] = {"type": "string", "pattern": "^[^:]+:[^:]+$"}
    for name in METHODS:
        options = {"name": {"const": name}, **declaration(name).schemas}
        schema["$defs"][f"method_{name}"] = {
            **own_method,
            "description": f"The method {name}.",
            "additionalProperties": False,
            "properties": options,
        }
    schema["$defs"]["method_own"] = own_method
    properties = schema["$defs"]["Baseline"]["properties"]
    properties["model"]["anyOf"].append({"type": "string"})
    del properties["method"]["$ref"]
    properties["method"]["anyOf"] = [
        {"type": "string"},
        *({"$ref": f"#/$defs/method_{name}"} for name in [*METHODS, "own"]),
    ]
    return schema
