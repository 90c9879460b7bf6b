"""The settings on which the features of a frozen network depend; baselines with the same share them."""

import json
import re
from collections.abc import Mapping
from typing import Literal

from diagvib.foundation.files import text_sha256
from diagvib.foundation.validation import Sparse
from diagvib.settings.model_settings import ModelSettings


class EncoderSettings(Sparse):
    """The frozen network whose features a job of the stage `encode` makes."""

    nullable = ("normalise",)
    model: ModelSettings
    normalise: Literal["dataset", "imagenet"] | None
    depends: list[str] | None = None
    """The baseline's."""


def is_frozen(settings: Mapping) -> bool:
    """Whether a baseline trains a head on the features of a frozen network."""
    return bool(settings["model"] and settings["model"].get("frozen"))


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
