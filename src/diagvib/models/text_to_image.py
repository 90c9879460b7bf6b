"""Models of other packages that draw images from prompts (diffusers) and say what images show
(transformers), or functions of the user's own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

import torch
from PIL import Image

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.imports import code_of
from diagvib.foundation.plug_ins import imported, reason
from diagvib.scenes.photos.generation import Captioner, Drawing, Models, TextToImage


def load_models(drawer: TextToImage, captioner: Captioner, device: torch.device) -> Models:
    """Both models, with deterministic algorithms of cuDNN, on a device."""
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return Models(_drawer(drawer, device), _captioner(captioner, device))


def versions(*models: TextToImage | Captioner) -> dict[str, str]:
    """The versions of the packages that the models need, and of the user's own functions."""
    result = {}
    for model, package in zip(models, ("diffusers", "transformers"), strict=True):
        module, _, function = model.model.partition(":")
        if function:
            result[model.model] = code_of([module]).digest[:8]
        else:
            result[package] = _package(package, model.model).__version__
    return {**result, "torch": torch.__version__}


def _drawer(settings: TextToImage, device: torch.device) -> Callable:
    if ":" in settings.model:
        function = imported(settings.model, "text_to_image.model")

        def draw_with_function(prompts: Sequence[str], seeds: Sequence[int]) -> list[Drawing]:
            images = function(list(prompts), list(seeds), **settings.options)
            return [
                Drawing(image) for image in _checked(images, Image.Image, len(prompts), settings)
            ]

        return draw_with_function
    diffusers = _package("diffusers", settings.model)
    precision = torch.float16 if settings.half_precision else torch.float32
    pipeline = _loaded(diffusers.DiffusionPipeline, settings, torch_dtype=precision).to(device)
    pipeline.set_progress_bar_config(disable=True)
    negative = {"negative_prompt": settings.negative} if settings.negative else {}

    def draw(prompts: Sequence[str], seeds: Sequence[int]) -> list[Drawing]:
        # The CPU's generators draw the same noise for every device.
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        result = pipeline(
            list(prompts),
            **{key: [text] * len(prompts) for key, text in negative.items()},
            num_inference_steps=settings.steps,
            guidance_scale=settings.guidance,
            height=settings.size,
            width=settings.size,
            generator=generators,
            **settings.options,
        )
        flags = getattr(result, "nsfw_content_detected", None) or [False] * len(prompts)
        return [Drawing(*pair) for pair in zip(result.images, map(bool, flags), strict=True)]

    return draw


def _captioner(settings: Captioner, device: torch.device) -> Callable:
    if ":" in settings.model:
        function = imported(settings.model, "captioner.model")
        return lambda images: _checked(
            function(list(images), **settings.options), str, len(images), settings
        )
    transformers = _package("transformers", settings.model)
    model = _loaded(transformers.AutoModelForImageTextToText, settings).to(device).eval()
    prepare = _loaded(transformers.AutoImageProcessor, settings)
    tokenizer = _loaded(transformers.AutoTokenizer, settings)
    limits = {"max_length": settings.tokens, "num_beams": settings.beams, "do_sample": False}

    @torch.inference_mode()
    def caption(images: Sequence[Image.Image]) -> list[str]:
        pixels = prepare(images=list(images), return_tensors="pt")["pixel_values"].to(device)
        tokens = model.generate(pixel_values=pixels, **limits, **settings.options)
        return tokenizer.batch_decode(tokens, skip_special_tokens=True)

    return caption


def _package(name: str, model: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DiagvibError(
            f"{model} needs the package {name} ({reason(error)}); `pip install "
            "'diagvib[generate]'`, or name a function of yours as package.module:function"
        ) from None


def _loaded(kind: type, settings: TextToImage | Captioner, **options: object) -> object:
    try:
        return kind.from_pretrained(settings.model, revision=settings.revision, **options)
    except Exception as error:  # of many kinds, for a missing file, network or part of a model
        raise DiagvibError(
            f"model: {settings.model} cannot be loaded ({reason(error)}); name a folder with it, or "
            "load it once with a network connection"
        ) from None


def _checked(values: object, kind: type, count: int, settings: TextToImage | Captioner) -> list:
    """What a user's function returned. DiagvibError unless it is a value of this kind for each."""
    values = list(values)
    if len(values) != count or not all(isinstance(value, kind) for value in values):
        raise DiagvibError(
            f"model: {settings.model} must return a list of {count} values of {kind.__name__}"
        )
    return values
