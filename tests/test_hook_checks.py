"""A method's hooks are checked: nothing that they return makes a wrong result silently."""

import math
import random
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
import torch

from conftest import refused
from diagvib.commands.hook_checks import check_results, unchecked
from diagvib.methods.method import (
    Batch,
    Method,
    Optimiser,
    StepOutput,
    Visualisation,
    initialised,
)
from diagvib.models.network import Network
from diagvib.results.metric_sets.metric_set import MetricSet
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.optimisers import make_optimiser
from diagvib.training.prediction import predict
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE, small_batches
from synthetic_methods import small_cnn
from test_trainer import PROTOCOL, RUN, Interrupted, Interruption, fit, fitted


@pytest.fixture(scope="module")
def data():
    return small_batches(100)


def outputs(**changed):
    def step(phase, batch):
        logits = torch.zeros(len(batch.labels), 6)
        return StepOutput(
            **{"loss": logits.sum(1), "logits": logits, "labels": batch.labels, **changed}
        )

    return step


@pytest.mark.parametrize(
    ("hook", "inputs", "message"),
    [
        ("sampling", torch.ones(50), "a weight for each of the 100 training images"),
        ("sampling", [torch.ones(100), torch.tensor([-1, 3])], "indices from 0 to 99"),
        ("validation_step", outputs(loss=torch.zeros(())), r"loss of shape \[\]; \[30\] is needed"),
        ("validation_step", outputs(logits=torch.zeros(30, 7)), r"logits of shape \[30, 7\]"),
    ],
)
def test_what_torch_would_take_for_something_else_is_refused(data, hook, inputs, message):
    method = small_cnn()
    setattr(method, hook, inputs if callable(inputs) else lambda *arguments: inputs)
    with refused(f"^{RUN.name}: method: .*{message}"):
        Trainer(method, *data, RUN, PROTOCOL).fit()


BATCH = Batch(
    torch.zeros(4, SIZE, SIZE, 3, dtype=torch.uint8),
    torch.zeros(4, 3, SIZE, SIZE),
    *(torch.zeros(shape, dtype=torch.int64) for shape in (4, (4, 1), 4, 4)),
)


@pytest.mark.parametrize(
    ("hook", "value"),
    [
        ("optimisers", Optimiser([], {"name": "adam"})),
        ("optimisers", {"model": Optimiser([], {"name": "adam"})}),
        ("optimisers", {"model": Optimiser([torch.nn.Parameter()], {"name": "sgd", "lr": -1})}),
        ("sampling", np.ones(100)),
        ("sampling", [0, 1]),
        ("sampling", []),
        ("sampling", (torch.arange(3),)),
        ("sampling", torch.arange(0)),
        ("sampling", torch.tensor([-1, 3])),
        ("sampling", torch.tensor([3, 100])),
        ("sampling", torch.arange(3, dtype=torch.uint8)),
        ("sampling", torch.ones(100) == 1),
        ("sampling", torch.ones(100, 1)),
        ("sampling", torch.zeros(100)),
        ("sampling", -torch.ones(100)),
        ("sampling", torch.full((100,), math.nan)),
        ("sampling", [torch.ones(100)]),
        ("sampling", [torch.arange(3), torch.arange(0)]),
        ("augment", None),
        ("augment", replace(BATCH, labels=BATCH.labels[:3])),
        ("augment", replace(BATCH, labels=torch.eye(6, dtype=torch.int64)[:4])),
        ("augment", replace(BATCH, labels=2 * torch.eye(6)[:4])),
        ("augment", replace(BATCH, labels=torch.eye(4))),
        ("losses", torch.zeros(())),
        ("combine", 0.5),
        ("penalty", 0.5),
        ("penalty", torch.zeros(4)),
        ("training_step", torch.zeros(4)),
        ("validation_step", None),
        ("predict", np.zeros((4, 6))),
        ("predict", torch.zeros(4, 5)),
        ("visualisations", None),
        ("visualisations", [Visualisation("x", BATCH.inputs)]),
        ("visualisations", [Visualisation("x", BATCH.pixels[:3])]),
        ("visualisations", [Visualisation("x", BATCH.pixels, torch.zeros(4, 5))]),
        ("visualisations", [Visualisation("x", BATCH.pixels, dimension=0)]),
        ("visualisations", [Visualisation("x", BATCH.pixels, kl=torch.ones(()))]),
    ],
)
def test_a_trial_refuses_what_the_trainer_cannot_use(data, hook, value):
    method, training_data = small_cnn(), data[0].training_data()
    arguments = {
        "sampling": ("classify", training_data),
        "losses": (torch.zeros(4, 6), BATCH.labels),
        "augment": (BATCH,),
    }.get(hook, (BATCH,) * len(signature(getattr(method, hook)).parameters))
    setattr(method, hook, lambda *arguments: value)
    check_results(method)
    with refused(f"^method: {hook} of erm gives .*; .* needed"):
        getattr(method, hook)(*arguments)
    with unchecked(method):
        assert getattr(method, hook)(*arguments) is value


def test_a_layer_with_the_name_of_a_hook_is_refused():
    method = small_cnn()
    method.losses = torch.nn.CrossEntropyLoss(reduction="none")
    with refused("erm sets self.losses, the name of a hook"):
        check_results(method)


def test_a_step_that_trains_nothing_is_refused_unless_there_is_no_optimiser(data):
    method = small_cnn()
    method.training_step = lambda phase, batch, update: method.validation_step(phase, batch)
    with refused("training_step of erm never called update in the phase"):
        fit(method, data)
    method.optimisers = lambda phase: {}
    fit(method, data)


def test_an_optimiser_may_be_given_a_parameter_twice_or_a_generator():
    weight = torch.nn.Parameter(torch.ones(2))
    for inputs in (iter([weight]), [weight, weight]):
        optimiser = make_optimiser(Optimiser(inputs, {"name": "adam", "lr": 1e-3}))
        assert optimiser.param_groups[0]["params"] == [weight]


def test_a_prediction_cannot_read_the_answer(data):
    method, calls = small_cnn(), []
    method.predict = lambda batch: (
        calls.append(set(vars(batch))) or torch.zeros(len(batch.inputs), 6)
    )
    predict(method, data[1], PROTOCOL)
    assert calls == [{"pixels", "inputs"}]


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        ("train_step", "training_step"),
        ("loss", "losses"),
        ("optimizers", "optimisers"),
        ("compute_loss", "losses"),
        ("configure_optimizers", "optimisers"),
        ("regularisation_penalty", "penalty"),
        ("predict_step", "predict"),
    ],
)
def test_a_function_that_is_nearly_called_like_a_hook_is_refused(name, hook):
    with refused(f"Mine: {name} is not a hook .* did you mean {hook}"):
        type("Mine", (Method,), {name: lambda self, *arguments: None})
    type("Mine", (Method,), {f"_{name}": lambda self: None, name: 3, "weigh": lambda self: None})


def test_a_function_that_the_class_calls_may_have_a_name_like_a_hook():
    class Mine(Method):
        def class_losses(self, logits):
            return logits

        def combine(self, losses, batch):
            return self.class_losses(losses).sum()


@pytest.mark.parametrize(
    ("base", "name", "value", "says"),
    [
        (Method, "losses", lambda self, logits: logits, r"losses\(self, logits\) cannot be called"),
        (
            Method,
            "combine",
            lambda self, losses, batch, additions: losses,
            r"as combine\(self, losses, b",
        ),
        (
            Method,
            "phases",
            ["classify"],
            r"phases is a hook; define a function, def phases\(self, d",
        ),
        (Method, "doubts", lambda self: [], "doubts is a property; write @property above it"),
        (Method, "use_features", True, "did you mean uses_features"),
        (Network, "feature", lambda self, inputs: inputs, "did you mean features"),
        (MetricSet, "of_runs", lambda self, results: results, "did you mean of_run"),
        (MetricSet, "names", lambda self, study: [], r"names\(self, study\) cannot be called as"),
    ],
)
def test_what_overrides_a_hook_or_an_attribute_in_vain_is_refused(base, name, value, says):
    with refused(f":Mine: .*{says}"):
        type("Mine", (base,), {name: value})


def test_a_method_without_hooks_is_refused(tmp_path, monkeypatch):
    (tmp_path / "hookless.py").write_text(
        "from diagvib.methods.erm import Erm\nfrom diagvib.methods.group_dro import GroupDro\n"
        "class Plain(Erm):\n    def weigh(self): pass\nclass Other(GroupDro): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with refused("method: hookless:Plain overrides none of build, "):
        small_cnn(method={"name": "hookless:Plain"})
    small_cnn(method={"name": "hookless:Other", "supervision": "cues"})


CALLS = []
STATES = {
    "calls": (lambda: 0, lambda method: setattr(method, "calls", method.calls + 1)),
    "log": (list, lambda method: method.log.append(1)),
    "nested": (lambda: {"a": [set()]}, lambda method: method.nested["a"][0].add(len(CALLS))),
    "array": (lambda: np.zeros(3), lambda method: method.array.__iadd__(1)),
    "generator": (np.random.default_rng, lambda method: method.generator.random()),
    "torch_generator": (torch.Generator, lambda m: torch.rand((), generator=m.torch_generator)),
    "python": (random.Random, lambda method: method.python.random()),
    "mean": (lambda: torch.zeros(()), lambda method: method.mean.add_(1)),
    "other": (lambda: torch.zeros(()), lambda method: setattr(method, "other", method.other + 1)),
    "stream": (lambda: iter(range(999)), lambda method: next(method.stream)),
    "late": (None, lambda method: setattr(method, "late", 1)),
    "model.body.calls": (None, lambda method: setattr(method.model.body, "calls", 1)),
    "Keeping.count": (None, lambda method: setattr(type(method), "count", 1)),
    "test_hook_checks.CALLS": (None, lambda method: CALLS.append(1)),
}


class Body(torch.nn.Sequential):
    """A part of a network of a user's own."""


@pytest.mark.parametrize("place", STATES)
def test_state_that_a_checkpoint_lacks_is_refused(data, place):
    make, change = STATES[place]

    class Keeping(Method):
        def setup(self, data):
            super().setup(data)
            if make:
                setattr(self, place, make())

        def combine(self, losses, batch):
            change(self)
            return losses.mean()

    CALLS.clear()
    method = Keeping(small_cnn().settings, 6, SIZE)
    method.model.body = Body(method.model.body)
    with refused(rf"erm changes {place} while it trains, .*self\.memory"):
        fit(method, data)


def test_memory_holds_tensors_and_what_setup_makes_may_be_made_again(data):
    class Remembering(Method):
        def setup(self, data):
            super().setup(data)
            self.mask, self.parts = torch.ones(3), [self.model.body, *self.model.parameters()]
            self.memory["calls"] = self.first

        def combine(self, losses, batch):
            self.mask = torch.ones(3)
            self.memory["calls"] = self.memory["calls"] + 1
            return losses.mean()

    Remembering.first = torch.zeros(())
    fit(Remembering(small_cnn().settings, 6, SIZE), data)
    Remembering.first = 0
    with refused(r"self\.memory of erm has calls, of type int"):
        fit(Remembering(small_cnn().settings, 6, SIZE), data)


def test_a_loss_that_diverges_names_the_options_of_the_method(data):
    method = small_cnn(method={"name": "sd", "weight": 1e4})
    method.losses = lambda logits, labels: logits.sum(1) * float("nan")
    with refused(r"lower the lr .*, or change .* \(weight 10000\)"):
        fit(method, data)


class Drawing(Method):
    """Draws from Python's, NumPy's and torch's global generators, everywhere."""

    def build(self):
        super().build()
        self.shift = self.draw()

    def draw(self):
        return random.random() + np.random.rand() + torch.rand(()).item()

    def setup(self, data):
        super().setup(data)
        self.scale = self.draw()

    def combine(self, losses, batch):
        return losses.mean() * self.draw() * self.scale

    def predict(self, batch):
        return super().predict(batch) + self.draw() * torch.arange(6) + self.shift


def test_draws_from_global_generators_continue_after_a_kill(tmp_path, data):
    def drawing():
        for generator in (random, np.random):
            generator.seed()
        torch.seed()
        return initialised(lambda: Drawing(small_cnn().settings, 6, SIZE), 3)

    def everything(method, **keywords):
        fitted_method = fitted(method, data, **keywords)
        return fitted_method, [item.tolist() for item in predict(method, data[1], PROTOCOL)]

    checkpoint = Checkpoint(tmp_path / "run.pt", "d")
    with pytest.raises(Interrupted):
        fit(drawing(), data, checkpoint, Interruption(epoch=2))
    assert everything(drawing(), checkpoint=checkpoint) == everything(drawing())
