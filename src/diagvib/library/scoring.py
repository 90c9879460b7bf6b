"""`diagvib.score`: a fitted classifier, measured with its own outputs."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.validation import validated
from diagvib.images.files import Images
from diagvib.library.loading import Drawing, check_drawing, load
from diagvib.library.study_dataset import StudyDataset
from diagvib.results.evaluation import with_combinations
from diagvib.scenes import load_scene
from diagvib.scenes.photos.scene import Photos


@torch.inference_mode(False)
def score(
    model: torch.nn.Module | Callable[[Tensor], Any],
    study: str,
    binding: str,
    sample: int = 0,
    *,
    classes: Mapping[str | int, str | int] | None = None,
    transform: Callable[[Tensor], Tensor] | None = None,
    **options: Unpack[Drawing],
) -> dict[str, float]:
    """The metrics of a study for a fitted classifier, with its own outputs; nothing is trained.

    model: a network of any library in PyTorch, also of transformers, used in evaluation mode and on
    its device; or a function of images to logits [B, outputs]. classes: an output, by its name or
    number -> a class of the target; several outputs may mean one class, and those that mean none
    are left out. By default, outputs with the names of the classes (transformers' `id2label`, or
    an attribute `classes` of the model), or as many outputs as there are classes in all, or in this
    dataset sample, in the order of `load(...).classes`. transform: images uint8[B, 3, size, size] to
    what the model takes; by default their values from 0 to 1. options: those of `load` about which
    images are drawn; the test images decide.

    Returns what `StudyDataset.evaluate` gives for the test split, with calibration errors;
    `{target}-{cue}_accuracy` of each combination of classes; and `follows_{cue}`, the share of
    predictions that are the class a cue points to, of the images on which it points to another
    class than theirs. DiagvibError as for `load`, for outputs that do not fit the classes, and for
    logits that are not finite or depend on the images that come together.
    """
    from diagvib.models.fitted import Logits, check_numbers, class_logits, mapping_texts
    from diagvib.models.own import check_no_softmax
    from diagvib.training.probe import features_by

    check_drawing(options, "diagvib.score")
    model = validated(Callable, model, "diagvib.score: model")
    transform = validated(Callable | None, transform, "diagvib.score: transform")
    network = Logits(model) if isinstance(model, torch.nn.Module) else model
    prepare = transform or (lambda images: images.float() / 255)

    def logits_of(images: Tensor) -> Tensor:
        inputs = prepare(images)
        weights = next(network.parameters(), inputs) if network is not model else inputs
        floats = inputs.is_floating_point() and weights.is_floating_point()
        return network(inputs.to(weights.device, weights.dtype if floats else None))

    test = load(study, binding, "test", sample, **options)
    images = Images(test.pixels, test.table, test._image_metadata)
    with _evaluation_mode(network) if network is not model else nullcontext():
        logits = features_by(logits_of, images, "score").pixels
    count = logits.shape[1]
    check_no_softmax(logits, "score")
    if logits.min() >= 0 and logits.max() <= 1:
        warnings.warn(
            "score: every output is between 0 and 1, like those of a sigmoid; if they are "
            "probabilities, the calibration errors are wrong: leave the sigmoid out, or give log-odds",
            stacklevel=2,
        )
    try:
        mapping = mapping_texts({} if classes is None else classes)
        names = network.names if isinstance(network, Logits) else ()
        outputs = _outputs(mapping, names, count, test)
        if isinstance(scene := load_scene(test._image_metadata["scene"]), Photos):
            check_numbers(mapping, names, scene.class_values(test.binding.split("-")[0]))
    except DiagvibError as error:
        raise DiagvibError(f"score: classes: {error}") from None
    confidence, predicted = class_logits(logits, outputs).softmax(1).max(1)
    metrics = test.evaluate(predicted, confidence)
    labels = np.array(test.classes)[predicted.numpy()]
    right = pd.Series((predicted == test.targets).numpy(), dtype=float)
    shares = right.groupby(_combinations(test), sort=False).mean().add_suffix("_accuracy").to_dict()
    definition = test._known_studies.studies[test.study]
    if definition.metrics == "accuracy":  # which has them
        shares = {}
    trained: Any = {}
    if definition.as_published:
        trained = _combinations(load(study, binding, "train", sample, **options)).value_counts()
    return with_combinations(shares, metrics) | _follows(test, labels, dict(trained))


@contextmanager
def _evaluation_mode(network: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards each module is in its own mode again."""
    modes = {part: part.training for part in network.modules()}
    try:
        network.eval()
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def _outputs(
    mapping: Mapping[str, str], names: Sequence[str], count: int, test: StudyDataset
) -> list[list[int]]:
    """`outputs_of_classes`. Without a mapping, as many outputs as this dataset sample has classes are
    taken to mean these."""
    from diagvib.models.fitted import outputs_of_classes

    factors = test.binding.split("-")
    sample_classes = test._known_studies.classes(test.study, factors, test.sample)[0]
    if mapping or not count == len(sample_classes) < len(test.classes):
        return outputs_of_classes(mapping, names, count, test.classes)
    outputs = outputs_of_classes(mapping, names, count, sample_classes)
    outputs_of = dict(zip(sample_classes, outputs, strict=True))
    return [outputs_of.get(name, []) for name in test.classes]


def _combinations(dataset: StudyDataset) -> pd.Series:
    """The classes of each image, as {target}-{cue}."""
    columns = [dataset.table[factor].to_pylist() for factor in dataset.binding.split("-")]
    return pd.Series(["-".join(names) for names in zip(*columns, strict=True)])


def _follows(
    test: StudyDataset, labels: np.ndarray, trained: Mapping[str, int]
) -> dict[str, float]:
    """Of each cue, the share of predictions that are the class it points to, where that is wrong."""
    target, *cues = test.binding.split("-")
    cue_labels = test._known_studies.cue_label(test.study, [target, *cues], test.sample, trained)
    truth, shares = test.table[target].to_pylist(), {}
    for cue, names_of in zip(cues, cue_labels, strict=False):
        misleading = [
            names_of.get(name, frozenset()) - {label}
            for name, label in zip(test.table[cue].to_pylist(), truth, strict=True)
        ]
        followed = [
            label in names for label, names in zip(labels, misleading, strict=True) if names
        ]
        if followed:
            shares[f"follows_{cue}"] = float(np.mean(followed))
    return shares
