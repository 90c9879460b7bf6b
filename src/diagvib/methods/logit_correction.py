"""`lc` and `ula`: a biased network says which class the shortcut points to; logits are corrected by
how often each label occurs with it (Liu et al., 2023; Tsirigotis et al., 2023)."""

from copy import deepcopy

import torch
from torch import Tensor

from diagvib.methods.lff import Lff, generalised
from diagvib.methods.method import Method, StepOutput, TrainingData
from diagvib.methods.retraining import batches, fit


class LogitCorrection(Lff):
    """`lc`. Two networks. The biased one learns by generalised cross entropy, as in `lff`, times
    `bias_weight`; z is the class that it finds most probable. The other, which predicts, learns by
    the cross entropy of its logits plus log(P(z, y) + 1e-4). P is a moving average over batches,
    `decay` times the old plus 1 - decay times the new, of the mean of the biased network's
    probability of z, at `temperature`, in images with label y; classes that no training image has
    are not corrected. Without the original's GroupMixUp.
    """

    options = {
        "q": {"exclusiveMinimum": 0, "maximum": 1, "default": 0.8},
        "decay": {"minimum": 0, "exclusiveMaximum": 1, "default": 0.5},
        "bias_weight": {"exclusiveMinimum": 0, "maximum": 1.0e9, "default": 2.0},
        "temperature": {"exclusiveMinimum": 0, "maximum": 1.0e9, "default": 0.1},
    }

    def setup(self, data):
        super().setup(data)
        # As in `ula`, not corrected. Not taken from P, since a batch may lack a class.
        self.absent = data.labels.bincount(minlength=self.n_classes) == 0
        prior = torch.zeros(self.n_classes, self.n_classes, device=data.labels.device)
        self.memory = {"prior": prior}

    def training_step(self, phase, batch, update):
        options, prior = self.options, self.memory["prior"]
        biased, logits = self.biased(batch.inputs), self.model(batch.inputs)
        loss = generalised(self.losses(biased, batch.labels), options.q).mean()
        update("biased", options.bias_weight * loss)
        believed = (biased.detach().float() / options.temperature).softmax(1)
        prior.lerp_(joint(believed, batch.labels), 1 - options.decay)
        correction = (prior + 1e-4).log().masked_fill(self.absent, 0)[believed.argmax(1)]
        losses = self.losses(logits + correction, batch.labels)
        update("model", losses.mean())
        return StepOutput(losses, logits)


class UnsupervisedLogitAdjustment(Method):
    """`ula`. First, a linear layer is trained by SGD on the features of the network as it is at the
    beginning, unaugmented and in evaluation mode, for `bias_epochs`; z is the class that it then
    finds most probable. The network learns by the cross entropy of its logits plus `strength` times
    log P(y | z), with P the mean over the training images of the layer's probability of z in those
    with label y. `selection: val_worst_inferred_group` chooses an epoch by validation images of each
    z and y. The original begins with self-supervised weights, such as a baseline may name."""

    options = {
        "bias_epochs": {"minimum": 1, "maximum": 100_000, "default": 50},
        "bias_lr": {"exclusiveMinimum": 0, "maximum": 1000, "default": 1.0e-3},
        "strength": {"minimum": 0, "maximum": 1.0e9, "default": 1.0},
    }
    uses_head = True
    groups_validation = True

    def build(self):
        super().build()
        self.biased = deepcopy(self.model)

    def start_phase(self, phase, data):
        head, size = self.biased.head, self.settings["batch_size"]
        features, validation = self._features(data), data.validation
        with torch.autocast(features.device.type, enabled=False):
            index_batches = batches(len(data), size, self.options.bias_epochs)
            for _ in fit(head, features, data.labels, index_batches, self.options.bias_lr):
                pass
            self.memory["prior"] = joint(head(features).detach().softmax(1), data.labels)
            cue = head(self._features(validation)).argmax(1)
        self.memory["validation_group"] = self.n_classes * cue + validation.labels

    @torch.no_grad()
    def _features(self, data: TrainingData) -> Tensor:
        """Of the network before training, float32[N, D]."""
        network = self.biased.eval()
        return torch.cat([network.features(batch.inputs) for batch in data.in_order()]).float()

    def training_step(self, phase, batch, update):
        with torch.no_grad():
            cue = self.biased.eval()(batch.inputs).argmax(1)
        prior = self.memory["prior"]
        conditional = (prior / prior.sum(1, keepdim=True)).clamp(min=1e-12).log()
        # Or the logits of classes that no image has would stay high, and win in the test.
        conditional = conditional.masked_fill(prior.sum(0) == 0, 0)[cue]
        logits = self.model(batch.inputs)
        losses = self.losses(logits + self.options.strength * conditional, batch.labels)
        update("model", losses.mean())
        return StepOutput(losses, logits)


def joint(probabilities: Tensor, labels: Tensor) -> Tensor:
    """P(z, y), float[classes, classes]: in row z and column y, the sum of the probabilities of z,
    float[B, classes], of the images with label y, divided by B."""
    member = labels[:, None] == torch.arange(probabilities.shape[1], device=labels.device)
    with torch.autocast(labels.device.type, enabled=False):
        return probabilities.T @ member.float() / len(labels)
