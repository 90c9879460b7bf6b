"""Our optimisers match torch's, to the bit, and a small training with them does not load torch's
compiler."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from conftest import REPOSITORY
from diagvib.methods.method import Optimiser
from diagvib.training.optimisers import OPTIMISERS, make_optimiser

THEIRS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def trained(make) -> tuple[list[torch.Tensor], dict]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    left, right = (make(list(net.parameters())) for _ in range(2))
    for step, batch in enumerate(torch.randn(5, 4, 8)):
        if step == 3:  # like a run that is continued
            right.load_state_dict(left.state_dict())
            left = right
        left.zero_grad(set_to_none=True)
        net(batch).square().mean().backward()
        left.step()
    state = left.state_dict()
    state["param_groups"][0]["betas"] = None  # a list in ours, which comes from a configuration
    return [parameter.tolist() for parameter in net.parameters()], str(state)


@pytest.mark.parametrize("name", list(OPTIMISERS))
def test_it_steps_saves_and_restores_as_torch_does(name):
    options = {"momentum": 0.9} if name == "sgd" else {"betas": [0.8, 0.99]}
    settings = {"lr": 1e-2, "weight_decay": 0.1, **options}
    ours = trained(lambda value: make_optimiser(Optimiser(value, {"name": name, **settings})))
    assert ours == trained(lambda value: THEIRS[name](value, **settings, fused=True))


TRAINING = """
import sys
import torch
from diagvib.settings.layout import Run
from diagvib.training.batches import Batches
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from synthetic_images import separable
from synthetic_methods import small_cnn

cpu = torch.device("cpu")
run = Run("small_cnn", "zso", "hue", 0)
Trainer(small_cnn(), Batches(*separable(32), cpu), Batches(*separable(16, 1), cpu), run, Protocol(1, None, 3)).fit()
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def test_no_compiler_is_loaded_for_a_small_training():
    process = subprocess.run(
        [sys.executable, "-c", TRAINING],
        cwd=REPOSITORY / "tests",
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(REPOSITORY / "src")},
        check=True,
    )
    assert process.stdout.strip() == "[]"
