"""`self`, selective last-layer finetuning: on the held-out images on which an early network
disagrees most with the final one (LaBonte et al., 2023; early-stop disagreement)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from diagvib.methods.groups import balancing_weights
from diagvib.methods.method import Phase
from diagvib.methods.retraining import Retraining, fit


class SelfDisagreement(Retraining):
    """Plain training for the share `early` of the epochs (phase `early`), then for the others
    (`classify`). Of the held-out images, the `finetuned` with the largest divergence of the final
    prediction from the early one are used for `steps` steps of SGD, which start from the head of
    plain training; batches are drawn with replacement, every class equally often. The run's rule of
    selection keeps one step.

    Published for Waterbirds: early 0.1, 0.2 or 0.5, finetuned 20, 100 or 500, lr 1e-4, 1e-3 or
    1e-2; the defaults are those of the authors' demo.
    """

    options = {
        "early": {"exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.5},
        "finetuned": {"minimum": 1, "maximum": 10_000_000, "default": 500},
        "steps": {"minimum": 1, "maximum": 1_000_000, "default": 250},
        "head_lr": {"exclusiveMinimum": 0, "maximum": 1000, "default": 0.01},
    }

    def phases(self, data):
        *_, retrain = super().phases(data)
        early = max(1, round(self.options.early * data.max_epochs))
        late = max(1, data.max_epochs - early)
        return [Phase("early", early, "last"), Phase("classify", late), retrain]

    def start_phase(self, phase, data):
        if phase == "classify":
            features, _ = self.held_out()
            # As precise as the final prediction is in `retrain`.
            with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
                self.memory["early"] = self.model.head(features)
        super().start_phase(phase, data)

    @property
    def doubts(self):
        finetuned = self.options.finetuned
        if len(self.memory["early"]) > finetuned:
            return []
        return [
            f"at most {finetuned} images are held out, so none is chosen among them; lower finetuned"
        ]

    def retrain(self, features, labels, selection):
        head, options = self.model.head, self.options
        disagreements = disagreement(self.memory["early"], head(features).detach())
        selected = disagreements.topk(min(options.finetuned, len(disagreements))).indices
        labels, size = labels[selected], self.settings["batch_size"]
        weights = balancing_weights(labels, self.n_classes).cpu()
        index = torch.multinomial(weights, options.steps * size, True)
        epochs = ((batch,) for batch in index.split(size))
        selection.keep_best(head, fit(head, features[selected], labels, epochs, options.head_lr))


def disagreement(early: Tensor, final: Tensor) -> Tensor:
    """KL(early || final) of each image, float[N], from logits [N, classes]."""
    logs = final.log_softmax(1), early.log_softmax(1)
    return F.kl_div(*logs, reduction="none", log_target=True).sum(1)
