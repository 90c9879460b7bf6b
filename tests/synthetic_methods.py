"""Settings and small methods for tests of training."""

import torch
from torch import nn

from diagvib.methods.method import Method, Phase, StepOutput, initialised
from diagvib.methods.registry import make_baseline
from diagvib.settings.baselines import complete, load_settings
from synthetic_images import SIZE


def settings_of(model="small_cnn", method="erm", lr=1e-3, **changed) -> dict:
    """A baseline's complete settings; batches of 16. model None: the method builds its own."""
    entry = {
        "method": method,
        "optimiser": {"name": "adam", "lr": lr},
        "batch_size": 16,
        "origin": "test",
        **changed,
    }
    return complete({**entry, "model": model} if model else entry)


def changed(name: str, lr: float | None = None, **keys) -> dict:
    """The settings of a baseline in config/baselines, with some keys or the learning rate
    changed."""
    settings = {**load_settings(name), **keys}
    return {**settings, "optimiser": {**settings["optimiser"], "lr": lr}} if lr else settings


def linear(method, n_classes: int, features: int = 2) -> Method:
    """A method on so many features, with a linear layer as its network."""
    model = {"name": "linear", "options": {"features": features}}
    return make_baseline(settings_of(model, method), n_classes, 0, 0)


class TwoPhases(Method):
    """An encoder with noise trained alone, then a head with dropout on the frozen encoder; two
    optimisers at first."""

    def build(self):
        self.encoder = nn.Sequential(
            nn.AvgPool2d(16), nn.Flatten(), nn.Linear(3 * (SIZE // 16) ** 2, 8)
        )
        self.decoder = nn.Linear(8, 3)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 3))

    def phases(self, data):
        return [Phase("encode", max_epochs=2), Phase("classify")]

    def optimisers(self, phase):
        parts = ["encoder", "decoder"] if phase == "encode" else ["head"]
        return {part: self.optimiser(getattr(self, part)) for part in parts}

    def training_step(self, phase, batch, update):
        if phase == "classify":
            output = self.validation_step(phase, batch)
            update("head", output.loss.mean())
            return output
        code = self.encoder(batch.inputs)
        update("decoder", self._error(code.detach() + torch.randn_like(code), batch).mean())
        loss = self._error(code, batch)
        update("encoder", loss.mean())
        return StepOutput(loss)

    def _error(self, code, batch):
        return (self.decoder(code) - batch.inputs.mean((2, 3))).square().sum(1)

    def validation_step(self, phase, batch):
        if phase == "encode":
            return StepOutput(self._error(self.encoder(batch.inputs), batch))
        return super().validation_step(phase, batch)

    def predict(self, batch):
        return self.head(self.encoder(batch.inputs))


def small_cnn(**keys) -> Method:
    return make_baseline(changed("small_cnn", **{"batch_size": 16, **keys}), 6, SIZE, seed=3)


def two_phases(kind=TwoPhases) -> Method:
    return initialised(lambda: kind(settings_of(lr=1e-2), 3, SIZE), 3)
