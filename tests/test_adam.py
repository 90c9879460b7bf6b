"""Our Adam is torch's, to the bit, and a small training with it stays without torch's compiler."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from conftest import REPOSITORY
from diagvib.training.adam import Adam


def trained(make, fused: bool) -> tuple[list[torch.Tensor], dict]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    first, second = (make(net.parameters(), lr=1e-2, betas=(0.8, 0.99), fused=fused) for _ in range(2))
    inputs = torch.randn(5, 4, 8)
    for step, batch in enumerate(inputs):
        if step == 3:  # as a run that is continued
            second.load_state_dict(first.state_dict())
            first = second
        first.zero_grad(set_to_none=True)
        net(batch).square().mean().backward()
        first.step()
    return [parameter.detach() for parameter in net.parameters()], first.state_dict()


@pytest.mark.parametrize("fused", [True, False])
def test_it_steps_saves_and_restores_as_torch_does(fused):
    (ours, our_state), (theirs, their_state) = trained(Adam, fused), trained(torch.optim.Adam, fused)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert our_state["param_groups"] == their_state["param_groups"]
    assert all(torch.equal(our_state["state"][i][key], value)
               for i, state in their_state["state"].items() for key, value in state.items())


TRAINING = """
import sys
import torch
from diagvib.methods.registry import load_settings, make_baseline
from diagvib.training.batches import Batches
from diagvib.settings.grid import Run
from diagvib.training.trainer import Protocol, fit
from synthetic_images import separable

cpu = torch.device("cpu")
model = make_baseline({**load_settings("small_cnn"), "batch_size": 16}, 3, 64, 1)
run = Run("small_cnn", "zso", "hue", "hue", None, 0)
fit(model, Batches(*separable(32), cpu), Batches(*separable(16, 1), cpu), run, Protocol(1, None, 3), cpu)
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def test_no_compiler_is_loaded_for_a_small_training():
    done = subprocess.run([sys.executable, "-c", TRAINING], cwd=REPOSITORY / "tests", capture_output=True, text=True,
                          env={"PYTHONPATH": str(REPOSITORY / "src")}, check=True)
    assert done.stdout.strip() == "[]"
