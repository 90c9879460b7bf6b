"""`jtt`, Just Train Twice: images that a short training gets wrong are trained on more often (Liu
et al., 2021)."""

from copy import deepcopy

import torch

from diagvib.methods.method import Method, Phase


class Jtt(Method):
    """Phase `identify`: plain training for a few epochs; the error set is the training images that
    the model then misclassifies. Phase `classify`: each image of the error set occurs `copies` more
    times per epoch.

    restart: the second training starts from the initial weights, as in the paper; false: it
    continues, as Spawrious describes it, with a new optimiser. An epoch of the second phase grows
    with the error set; if that is empty, or has all images, none is repeated, and the run is
    doubtful.
    """

    options = {
        "identify_epochs": {"minimum": 1, "maximum": 100_000, "default": 1},
        "copies": {"minimum": 1, "maximum": 1000, "default": 100},
        "restart": {"default": True},
    }

    def setup(self, data):
        super().setup(data)
        # Called on the new weights, so they need not be in a checkpoint.
        self.initial = deepcopy(self.model.state_dict())
        self.memory["errors"] = torch.zeros(len(data), dtype=torch.bool, device=data.labels.device)

    def phases(self, data):
        (classify,) = super().phases(data)
        return [Phase("identify", self.options.identify_epochs, selection="last"), classify]

    @torch.no_grad()
    def start_phase(self, phase, data):
        if phase == "classify":
            self.eval()
            errors = [self.predict(batch).argmax(1) != batch.labels for batch in data.in_order()]
            self.memory["errors"] = torch.cat(errors)
            if self.options.restart:
                self.model.load_state_dict(self.initial)

    @property
    def doubts(self):
        errors = self.memory["errors"]
        quantity = "every" if errors.all() else "" if errors.any() else "no"
        advice = {"every": "raise", "no": "lower"}.get(quantity)
        text = f"its first network errs on {quantity} training image, so none is repeated; {advice} identify_epochs or lr"
        return [text] if quantity else []

    def sampling(self, phase, data):
        if phase == "identify" or self.doubts:
            return None
        times = 1 + self.options.copies * self.memory["errors"].long()
        return torch.arange(len(data), device=times.device).repeat_interleave(times)
