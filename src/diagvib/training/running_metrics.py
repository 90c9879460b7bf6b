"""Loss and accuracies of an epoch: sums on the device during the epoch, and accuracies of groups
after it."""

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import Batch, StepOutput
from diagvib.training.selection_rules import INFERRED


class RunningMetrics:
    """Sums of losses and of correct predictions, kept on the device: reading them once per epoch is
    the only wait."""

    def __init__(self, device: torch.device, n_classes: int):
        self._n_classes = n_classes
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._classifies = True

    def add(self, output: StepOutput, batch: Batch) -> None:
        """DiagvibError unless loss, logits and labels are those of the batch's images: others might
        be broadcast. Reads nothing from the device."""
        images = (len(batch.labels),)
        check_shape(output.loss, images, "loss")
        self._loss += output.loss.detach().sum(dtype=torch.float64)
        if output.logits is None:
            self._classifies = False
        else:
            labels = batch.labels if output.labels is None else output.labels
            check_shape(output.logits, (*images, self._n_classes), "logits")
            check_shape(
                labels, output.logits.shape if labels.is_floating_point() else images, "labels"
            )
            labels = labels.argmax(1) if labels.is_floating_point() else labels
            self._correct += (output.logits.detach().argmax(1) == labels).sum()

    def means(self, images: int) -> tuple[float, float | None]:
        """Mean loss and share of correct images; None if the phase does not classify."""
        return (
            self._loss.item() / images,
            self._correct.item() / images if self._classifies else None,
        )


def check_shape(values: Tensor, shape: tuple[int, ...], name: str) -> None:
    """DiagvibError for what a method gives in another shape."""
    if values.shape != shape:
        raise DiagvibError(f"method: {name} of shape {list(values.shape)}; {list(shape)} is needed")


def group_accuracies(
    correct: Tensor, labels: Tensor, cues: Tensor, environment: Tensor, environments: int
) -> dict[str, float]:
    """The worst accuracy of any class that occurs; of any group, target x all cues and, with several
    cues, target x each; and the mean of the environments' accuracies.

    correct: bool[N]; labels, environment: int64[N]; cues: int64[N, k]. environments: the number
    trained on; only images in one of these, 0 to environments - 1, count for the mean.
    """

    def worst(attributes: Tensor) -> float:
        return _accuracies(correct, torch.cat([labels[:, None], attributes], 1)).min().item()

    accuracies = {"val_worst_class": worst(cues[:, :0])}
    if cues.shape[1]:
        accuracies["val_worst_group"] = worst(cues)
    if cues.shape[1] > 1:
        for number, cue in enumerate(cues.split(1, 1), 1):
            accuracies[f"val_worst_group_cue_{number}"] = worst(cue)
    if environments > 1:
        in_training = (environment >= 0) & (environment < environments)
        if in_training.any():
            means = _accuracies(correct[in_training], environment[in_training, None])
            accuracies["val_environment_accuracy"] = means.mean().item()
    return accuracies


def worst_inferred_group(correct: Tensor, group: Tensor) -> dict[str, float]:
    """The worst accuracy of any group that a method has inferred. correct: bool[N]; group:
    int64[N]."""
    return {INFERRED: _accuracies(correct, group[:, None]).min().item()}


def cue_preferences(prediction: Tensor, cue_label: Tensor | None) -> dict[str, float]:
    """The share of all predictions, int64[N], that are the class a cue points to, by the cue's
    number from 1.

    cue_label: int64[N, k], -1 where a cue points to none; None: not known. (Li et al., 2023, Fig.
    6.)
    """
    shares = (
        [] if cue_label is None else (prediction[:, None] == cue_label).double().mean(0).tolist()
    )
    return {f"val_follows_cue_{number}": share for number, share in enumerate(shares, start=1)}


def _accuracies(correct: Tensor, keys: Tensor) -> Tensor:
    """Share of correct images float64[groups] of each distinct row of keys int64[N, columns]."""
    _, index, counts = keys.unique(dim=0, return_inverse=True, return_counts=True)
    return torch.bincount(index, weights=correct.double()) / counts
