"""`afr`, automatic feature reweighting: the last layer is fitted again to held-out images, which
weigh more the less the network believes their label (Qiu et al., 2023)."""

from torch import Tensor
from torch.nn.utils import parameters_to_vector

from diagvib.methods.groups import balancing_weights
from diagvib.methods.retraining import Retraining, descend


class Afr(Retraining):
    """Starts from the head of plain training, and descends the gradient, cut to norm 1, of the sum
    of the held-out images' weighted cross entropies plus `pull` times the squared distance of the
    parameters from where they started: `head_epochs` steps on all images at once, of which the
    run's rule of selection keeps one.

    Published for Waterbirds: gamma one of 4, 4.5, ... 20, pull one of 0, 0.1, 0.2, 0.3; the
    defaults are those of the authors' example.
    """

    options = {
        "gamma": {"minimum": 0, "maximum": 1.0e9, "default": 10.0},
        "pull": {"minimum": 0, "maximum": 1.0e9, "default": 0.0},
        "class_balanced": {"default": True},
        "head_epochs": {"minimum": 1, "maximum": 100_000, "default": 500},
        "head_lr": {"exclusiveMinimum": 0, "maximum": 1000, "default": 0.01},
    }

    def retrain(self, features, labels, selection):
        head, options = self.model.head, self.options
        start = parameters_to_vector(head.parameters()).detach()
        believed = head(features).detach()
        weights = image_weights(believed, labels, options.gamma, options.class_balanced)

        def loss(_: int) -> Tensor:
            fit = (weights * self.losses(head(features), labels)).sum()
            moved = parameters_to_vector(head.parameters()) - start
            return fit + options.pull * moved.square().sum()

        epochs = ((epoch,) for epoch in range(options.head_epochs))
        selection.keep_best(head, descend(head, epochs, loss, clip=1.0, lr=options.head_lr))


def image_weights(logits: Tensor, labels: Tensor, gamma: float, class_balanced: bool) -> Tensor:
    """exp(-gamma p) of each image, float[N], with p the probability of its label; divided by the
    number of images of its class if class_balanced; scaled to sum to 1."""
    p = logits.softmax(1).gather(1, labels[:, None])[:, 0]
    weights = (-gamma * p).exp()
    if class_balanced:
        weights = weights * balancing_weights(labels, logits.shape[1]).to(weights)
    return weights / weights.sum()
