"""The settings of a baseline's network, and of the weights that it begins with."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from diagvib.foundation.files import file_sha256
from diagvib.foundation.validation import InvalidField, Sparse, Strict, TextLike, Unique
from diagvib.models.registry import PACKAGES, family
from diagvib.scenes.scene import MARK, TWINS

Decay = Annotated[float, Field(ge=0, lt=1)]


OWN_CLASS = r"\w+(\.\w+)*:\w+"


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
        if self.interpolation != "bilinear" and not self.size:
            raise InvalidField("interpolation", "without size, images are not resized; add it")
        if self.resize and self.resize < self.size:
            raise InvalidField("resize", f"smaller than size, {self.size}, which is cut out of it")
        return self


class Mlp(Strict):
    """A head with one hidden layer."""

    mlp: int = Field(ge=1, le=65536)
    """Units of the hidden layer."""


class ModelSettings(Sparse):
    """A network."""

    nullable = ("weights", "weights_file", "weights_sha256")
    name: Annotated[
        str,
        TextLike(
            rf"((timm|clip)/)?[\w.-]+|transformers/.+|{OWN_CLASS}",
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
    compute: Literal["bf16"] | None = None
    """Compute features in bfloat16, which is faster on GPUs and on CPUs with AVX512-BF16 or AMX, and
    slower on others. Default: float32."""
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
        if kind == "clip":
            _check_words(self.options)
        shared = kind in ("torchvision", "timm", "clip")
        if self.head == "published" and not self.weights and shared:
            raise InvalidField("head", "without weights, its last layer is random; name them")
        if self.head == "published" and self.layer:
            raise InvalidField(
                "layer",
                "the network's own last layer reads other features; leave out one of the two",
            )
        if self.weights_sha256 and not self.weights_file:
            raise InvalidField(
                "weights_sha256", "this needs the key weights_file, the file with this hash"
            )
        if self.compute and self.runtime:
            raise InvalidField(
                "compute", "onnxruntime computes in float32; leave out one of the two"
            )
        for key in ("input", "layer", "dtype", "runtime", "compute", "head", "views"):
            if getattr(self, key) not in (None, "published") and not self.frozen:
                raise InvalidField(key, "this is for features; it needs frozen: true")
        return self


def _check_words(options: Mapping[str, JsonValue]) -> None:
    """InvalidField unless CLIP's `words` maps classes to texts and each of `templates` has {} once."""
    words, templates = options.get("words", {}), options.get("templates", ["{}"])
    if not isinstance(words, dict) or not all(isinstance(text, str) for text in words.values()):
        raise InvalidField("options.words", "a text for each class is needed, such as {'0': zero}")
    texts = isinstance(templates, list) and templates
    if not texts or not all(isinstance(text, str) and text.count("{}") == 1 for text in texts):
        raise InvalidField(
            "options.templates", "texts with {} once are needed, such as [a photo of a {}]"
        )


def published_weights(model: dict | None) -> tuple[str, str] | None:
    """The model and the name of weights that torchvision publishes, if a baseline's `model` has
    such weights and names no file of them."""
    if not model or not isinstance(model["weights"], str) or model["weights_file"]:
        return None
    return (model["name"], model["weights"]) if family(model["name"]) == "torchvision" else None


def published_folder(model: dict | None, folders: Iterable[Path | None]) -> Path | None:
    """The first folder that has the file of a model's weights, if torchvision publishes them.
    DiagvibError for an unknown name of weights."""
    if not published_weights(model):
        return None
    from diagvib.models.weights import located  # with torch

    try:
        return next((folder for folder in folders if located(model, folder) != model), None)
    except ValueError:  # of torchvision, for a model that it lacks, of which its maker says so
        return None


def prepared_input(model: Mapping | None) -> dict | None:
    """The `input` of a frozen network for which photos are prepared, given a baseline's `model`; None
    for others."""
    input_settings = (model or {}).get("input") or {}
    return input_settings if input_settings.get("resize") else None
