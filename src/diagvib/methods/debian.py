"""`debian`, Debiasing Alternate Networks: a second network finds the classifier's bias (Li et al.,
2022)."""

import torch
from torch import Tensor, nn

from diagvib.methods.groups import membership
from diagvib.methods.method import Batch, Method, StepOutput


class Debian(Method):
    """A classifier and a second network, the discoverer, whose sigmoid of the label's logit, s,
    softly divides each class into two parts, s and 1 - s.

    With p the probability that the classifier gives to the label, p+ and p- are a class's means of
    p, weighted by s and by 1 - s. The discoverer minimises the mean over classes of -log(eps + |p+
    - p-|) - log(eps + 1 - |mean(s) - mean(1 - s)|): it finds parts of equal size on which the
    classifier differs. The classifier minimises the mean of (1 + s') times cross entropy, with s'
    the s or 1 - s of the part that it does worse on. They take one step each in turn; the
    discoverer's batch is drawn separately, with replacement.
    """

    options = {
        "eps": {"exclusiveMinimum": 0, "maximum": 1, "default": 1.0e-6},
    }

    def build(self):
        super().build()
        self.discoverer = self._new_network()

    def optimisers(self, phase):
        return {**super().optimisers(phase), "discoverer": self.optimiser(self.discoverer)}

    def training_step(self, phase, batch, update):
        logits = self.model(batch.inputs)
        loss = self.losses(logits, batch.labels)
        part = of_label(_asked(self.discoverer, batch).float().sigmoid(), batch.labels)
        weight = classifier_weights(
            logits.detach().float().softmax(1), part, batch.labels, self.options.eps
        )
        update("model", (weight * loss).mean())
        of_all, device = len(self.data), batch.labels.device
        batch = self.data.batch(torch.randint(of_all, batch.labels.shape, device=device))
        part = of_label(self.discoverer(batch.inputs).float().sigmoid(), batch.labels)
        probabilities = _asked(self.model, batch).float().softmax(1)
        update("discoverer", discoverer_loss(probabilities, part, batch.labels, self.options.eps))
        return StepOutput(loss, logits)


@torch.no_grad()
def _asked(network: nn.Module, batch: Batch) -> Tensor:
    """The logits of a network in evaluation mode, during training."""
    logits = network.eval()(batch.inputs)
    network.train()
    return logits


def of_label(values: Tensor, labels: Tensor) -> Tensor:
    """The value of each row's label: float[B], from float[B, classes] and int64[B]."""
    return values.gather(1, labels[:, None]).squeeze(1)


def part_means(
    probabilities: Tensor, part: Tensor, labels: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """p+ and p-, float[classes], from probabilities [B, classes] and s [B]; and membership
    float[classes, B], of all classes, so that no step waits for which of them are in the batch.
    """
    member = membership(labels, probabilities.shape[1])
    p = of_label(probabilities, labels)
    inside, outside = (
        (member * side * p).sum(1) / ((member * side).sum(1) + eps) for side in (part, 1 - part)
    )
    return inside, outside, member


def discoverer_loss(probabilities: Tensor, part: Tensor, labels: Tensor, eps: float) -> Tensor:
    """The discoverer's loss float[], over the classes in the batch; arguments as for
    `part_means`."""
    inside, outside, member = part_means(probabilities, part, labels, eps)
    images = member.sum(1)
    imbalance = ((member * (2 * part - 1)).sum(1) / images.clamp(min=1)).abs()
    of_classes = -(eps + (inside - outside).abs()).log() - (eps + 1 - imbalance).log()
    present = (images > 0).float()
    return (of_classes * present).sum() / present.sum()


def classifier_weights(probabilities: Tensor, part: Tensor, labels: Tensor, eps: float) -> Tensor:
    """1 + s' of each image, float[B]; arguments as for `part_means`."""
    inside, outside, _ = part_means(probabilities, part, labels, eps)
    return 1 + torch.where((outside < inside)[labels], 1 - part, part)
