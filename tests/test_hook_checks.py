"""What a method's hooks give wrongly is named in one line, before it makes a result."""

import pytest
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import Optimiser, Phase, StepOutput
from diagvib.training.batches import Batches
from diagvib.training.prediction import predict
from diagvib.training.trainer import Trainer
from synthetic_images import separable
from synthetic_methods import small_cnn
from test_trainer import CPU, PROTOCOL, RUN


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


def twice(method):
    parameter = next(method.parameters())
    return {"model": Optimiser([parameter, parameter], method.settings["optimiser"])}


@pytest.mark.parametrize(
    "hook, given, message",
    [
        ("phases", [], r"phases gives \[\]; a list of one or more Phase"),
        ("phases", [Phase("a", 1), Phase("a", 1)], "two phases named a"),
        ("phases", [Phase("a", 0)], "phase a max_epochs 0; 1 or more"),
        (
            "phases",
            [Phase("a", 1, "best")],
            "phase a the selection best; the study offers val_loss",
        ),
        ("sampling", torch.ones(50), "50 weights; one per training image is needed, 100"),
        ("sampling", torch.full((100,), float("nan")), "negative, not finite or all 0"),
        ("sampling", torch.full((100,), -1.0), "negative, not finite or all 0"),
        ("sampling", torch.zeros(100), "negative, not finite or all 0"),
        ("sampling", torch.ones(100, dtype=torch.bool), "torch.bool; indices must be int64"),
        (
            "sampling",
            torch.tensor([-1] * 20),
            "indices from -1 to -1; the training images are 0 to 99",
        ),
        ("sampling", torch.tensor([100] * 20), "indices from 100 to 100"),
        ("sampling", torch.tensor([], dtype=torch.int64), "no images"),
        ("sampling", [], "neither None"),
        ("sampling", [torch.tensor([0]), torch.tensor([], dtype=torch.int64)], "no images"),
        (
            "optimisers",
            {"model": Optimiser([], {"name": "adam", "lr": 1e-3})},
            "model without parameters",
        ),
        ("optimisers", twice, "model with a parameter twice"),
        ("penalty", torch.ones(16), r"update of model is given a loss of shape \[16\]; one number"),
        ("combine", 1.0, "update of model is given a loss of float"),
        (
            "optimisers",
            lambda method: {"net": method.optimiser(method.model)},
            "optimiser model; this phase has net",
        ),
        ("memory", {"step": 3}, "memory step is int; a tensor is needed"),
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
        ("validation_step", outputs(loss=1.0), "loss that is float; a tensor is needed"),
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


def test_a_prediction_that_is_no_tensor_is_named(data):
    method = small_cnn()
    method.predict = lambda batch: (torch.zeros(len(batch.labels), 3),)
    with pytest.raises(DiagvibError, match="predict gives tuple; a tensor of logits"):
        predict(method, data[1], PROTOCOL)
