"""`diagvib.probe`: a linear layer trained on features of your own network."""

from collections.abc import Callable
from typing import Annotated, Unpack

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from diagvib.foundation.validation import validated
from diagvib.images.files import Images
from diagvib.library.finished_root import study_files
from diagvib.library.loading import Drawing, Integer, check_drawing, listed, load
from diagvib.library.rendering import few_images
from diagvib.scenes import load_scene
from diagvib.settings.baselines import complete
from diagvib.settings.layout import Run
from diagvib.settings.ranges import Seed
from diagvib.studies.study import SPLITS, load_study

_Seed = Annotated[Seed, Field(strict=True), Integer]
# The head that `probe` trains, and the images that it draws unless `counts` says otherwise.
_HEAD = {
    "model": {"name": "small_cnn", "frozen": True},  # its features are given
    "optimiser": {"name": "adam", "lr": 1e-3},
    "batch_size": 64,
}
_PROBED = {"train": 1800, "val": 360, "id": 360, "ood": 360}


@torch.inference_mode(False)
@torch.enable_grad()
def probe(
    features: Callable[[Tensor], Tensor | np.ndarray],
    study: str,
    binding: str,
    sample: int = 0,
    *,
    method: str | dict = "erm",
    seed: int = 0,
    **options: Unpack[Drawing],
) -> dict[str, float]:
    """The metrics of a study for a linear layer trained on features of your own network.

    features: images uint8[B, 3, size, size] to features [B, D], a tensor or an array; it scales the
    pixels itself. method: how the layer is trained: a name of `diagvib.methods()`, or a name with
    options as in config/baselines. seed: of its weights and of the order of images. options: those
    of `load` about which images are drawn: root, sources, mirror, counts (by default 1,800 for
    train, 360 each for val, id and ood, or as many as for val for other test groups together; for
    stand-ins of photos, those of `load`), image_size, device, studies_from.

    Returns what `StudyDataset.evaluate` gives for the test split. The layer is trained by Adam with
    learning rate 1e-3 and batches of 64, or of all images if there are fewer, for at most 100
    epochs, until the validation loss has not fallen for five. DiagvibError as for `load`, for
    features that are not finite or have another shape, or that depend on the images that come
    together, as in training mode, and for a method that needs pixels.
    """
    from diagvib.training.probe import features_by, head_predictions
    from diagvib.training.protocol import Protocol

    check_drawing(options, "diagvib.probe")
    features = validated(Callable, features, "diagvib.probe: features")
    seed = validated(_Seed, seed, "diagvib.probe: seed")
    entry = {**_HEAD, "method": method, "origin": "diagvib.probe; not tuned"}
    settings = complete(entry, "probe", "diagvib.probe")
    files = listed(options.get("studies_from")) or study_files(options.get("root"))
    definition = load_study(study, files)
    is_few = few_images(load_scene(definition.scene), options.get("sources"))
    counts = options.get("counts") or {}
    if options.get("root") is None and not is_few and isinstance(counts, dict):
        has_groups = "test" not in counts and {*definition.groups} <= {*_PROBED, *counts}
        default_keys = _PROBED if has_groups else ("train", "val")
        options["counts"] = {**{key: _PROBED[key] for key in default_keys}, **counts}
    data = {split: load(study, binding, split, sample, **options) for split in SPLITS}
    settings["batch_size"] = min(settings["batch_size"], len(data["train"]))
    splits = {
        split: features_by(features, Images(images.pixels, images.table, images._image_metadata))
        for split, images in data.items()
    }
    run = Run("probe", data["test"].study, data["test"].binding, sample)
    protocol = Protocol(100, 5, seed, "fp32")
    return data["test"].evaluate(head_predictions(splits, settings, run, protocol))
