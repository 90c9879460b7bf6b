"""What a method's hooks give wrongly is named in one line, before it makes a result."""

import random
import sys

import numpy as np
import pytest
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import Method, Optimiser, Phase, StepOutput, initialised
from diagvib.training.batches import Batches
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.prediction import predict
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE, separable
from synthetic_methods import small_cnn
from test_trainer import CPU, PROTOCOL, RUN, Interrupted, Interruption, fit, fitted


@pytest.fixture(scope="module")
def data():
    train = Batches(*separable(100, seed=0), CPU)
    return train, Batches(*separable(30, seed=1), CPU, train.scaling)


def outputs(**changed):
    def step(phase, batch):
        logits = torch.zeros(len(batch.labels), 6)
        return StepOutput(
            **{"loss": logits.sum(1), "logits": logits, "labels": batch.labels, **changed}
        )

    return step


ADAM = {"name": "adam", "lr": 1e-3}


def leave(*arguments):
    sys.exit(0)


def twice(method):
    parameter = next(method.parameters())
    return {"model": Optimiser([parameter, parameter], method.settings["optimiser"])}


@pytest.mark.parametrize(
    "hook, given, message",
    [
        ("phases", [], r"phases gives \[\]; one or more are needed"),
        ("phases", [Phase("a", 1), Phase("a", 1)], "of different names"),
        ("phases", [Phase("a", 0)], "max_epochs=0.*with max_epochs of 1 or more"),
        ("phases", [Phase("a", 1.5)], "max_epochs=1.5.*with max_epochs of 1 or more"),
        ("phases", [Phase("a", 1, "best")], "selection='best'.*a selection of val_loss, val_acc"),
        ("phases", None, "phases: TypeError: 'NoneType' object is not iterable"),
        ("sampling", torch.ones(50), "torch.float32; None, a float weight for each of the 100 "),
        (
            "sampling",
            torch.full((100,), float("nan")),
            "sampling gives tensor.*nan.*; None, a float",
        ),
        ("sampling", torch.full((100,), -1.0), r"sampling gives tensor\(\[-1"),
        ("sampling", torch.zeros(100), r"sampling gives tensor\(\[0"),
        ("sampling", torch.ones(100, dtype=torch.bool), "torch.bool; None, a float weight"),
        ("sampling", torch.tensor([-1] * 20), "torch.int64; .*int64 indices from 0 to 99"),
        ("sampling", torch.tensor([100] * 20), "torch.int64; .*int64 indices from 0 to 99"),
        ("sampling", torch.zeros(4, 5, dtype=torch.int64), "torch.int64; .*int64 indices"),
        ("sampling", torch.tensor([], dtype=torch.int64), r"sampling gives tensor\(\[\]"),
        ("sampling", [torch.tensor([0]), torch.tensor([], dtype=torch.int64)], r"tensor\(\[\]"),
        ("sampling", [torch.ones(100)], "torch.float32; None"),
        ("sampling", [], "sampling: ZeroDivisionError"),
        ("sampling", [1, 2], "sampling: AttributeError: 'int' object"),
        ("optimisers", {"model": Optimiser([], ADAM)}, "optimisers: ValueError: .*empty parameter"),
        ("optimisers", twice, "model with a parameter twice"),
        ("optimisers", None, "optimisers: AttributeError: 'NoneType'"),
        ("penalty", torch.ones(16), "training_step: RuntimeError: grad can be implicitly created"),
        ("combine", 1.0, "training_step: AttributeError: 'float' object"),
        ("combine", leave, r"training_step: SystemExit: 0 \(.*test_hook_checks.py:\d+, in leave"),
        (
            "optimisers",
            lambda method: {"net": method.optimiser(method.model)},
            "update: unknown optimiser 'model'; .*net",
        ),
        ("memory", {"step": 3}, "memory: AttributeError: 'int' object"),
        (
            "validation_step",
            outputs(labels=torch.zeros(30, 1).long()),
            r"labels torch.int64 of shape \[30, 1\]",
        ),
        (
            "validation_step",
            outputs(labels=torch.zeros(30)),
            r"labels torch.float32 of shape \[30\]",
        ),
        ("validation_step", outputs(loss=1.0), "validation_step: AttributeError: 'float' object"),
        ("load_state_dict", leave, "load_state_dict: SystemExit: 0"),
    ],
)
def test_wrong_hooks_are_named(data, hook, given, message):
    method = small_cnn()
    given = given(method) if callable(given) and hook == "optimisers" else given
    setattr(
        method, hook, given if callable(given) or hook == "memory" else lambda *arguments: given
    )
    with pytest.raises(DiagvibError, match=message) as raised:
        Trainer(method, *data, RUN, PROTOCOL).fit()
    assert str(raised.value).startswith(f"{RUN.name}: method: erm: ") and "\n" not in str(
        raised.value
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda batch: (torch.zeros(len(batch.inputs), 6),), "'tuple' object has no attribute"),
        (lambda batch: batch.labels, "'Unlabelled' object has no attribute 'labels'"),
        (lambda batch: batch.cues, "no attribute 'cues'"),
        (lambda batch: batch.environment, "no attribute 'environment'"),
    ],
)
def test_a_prediction_that_is_no_tensor_or_reads_the_answer_is_named(data, capfd, given, message):
    method = small_cnn()
    method.predict = given
    with pytest.raises(DiagvibError, match=f"method: erm: predict: AttributeError: .*{message}"):
        predict(method, data[1], PROTOCOL)
    assert "Traceback" in capfd.readouterr().err


def test_parameters_may_come_from_a_generator(data):
    def weights(generator):
        method = small_cnn()
        given = method.parameters() if generator else list(method.parameters())
        method.optimisers = lambda phase: {"model": Optimiser(given, ADAM)}
        Trainer(method, *data, RUN, PROTOCOL).fit()
        return torch.cat([parameter.flatten() for parameter in method.parameters()])

    assert torch.equal(weights(True), weights(False))


@pytest.mark.parametrize(
    ("name", "hook"),
    [("train_step", "training_step"), ("loss", "losses"), ("optimizers", "optimisers")],
)
def test_a_function_that_is_nearly_called_like_a_hook_is_refused(name, hook):
    with pytest.raises(DiagvibError, match=f"Mine: {name} is not a hook .* did you mean {hook}"):
        type("Mine", (Method,), {name: lambda self, *given: None})
    type("Mine", (Method,), {f"_{name}": lambda self: None, name: 3, "weigh": lambda self: None})


class Drawing(Method):
    """Draws from Python's, NumPy's and torch's global generators, everywhere."""

    def build(self):
        super().build()
        self.shift = self.draw()

    def draw(self):
        return random.random() + np.random.rand() + torch.rand(()).item()

    def phases(self, data):
        self.scale = self.draw()
        return super().phases(data)

    def combine(self, losses, batch):
        return losses.mean() * self.draw() * self.scale

    def predict(self, batch):
        return super().predict(batch) + self.draw() * torch.arange(6) + self.shift


@pytest.mark.parametrize("epoch", [1, 2, 4])
def test_draws_from_global_generators_continue_after_a_kill(tmp_path, data, epoch):
    def drawing():
        for generator in (random, np.random):
            generator.seed()
        torch.seed()
        return initialised(lambda: Drawing(small_cnn().settings, 6, SIZE), 3)

    def everything(method, **keywords):
        found = fitted(method, data, **keywords)
        torch.rand(epoch), np.random.rand(epoch), random.random()
        return found, [each.tolist() for each in predict(method, data[1], PROTOCOL)]

    checkpoint = Checkpoint(tmp_path / "run.pt", "d")
    with pytest.raises(Interrupted):
        fit(drawing(), data, checkpoint, Interruption(epoch=epoch))
    assert everything(drawing(), checkpoint=checkpoint) == everything(drawing())
