"""Variants of the real trainer's step, and a clock for its epochs: what `cpu_training.py`
compares."""

import ctypes
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numba
import numpy as np
import torch
from precision import CPU, make_trainer
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.training import batches as batches_module
from diagvib.training.callbacks import Callback
from diagvib.training.optimisers import OPTIMISERS
from diagvib.training.prediction import predict
from diagvib.training.protocol import deterministic

REPLICATES = 3


def cpu_seconds() -> float:
    """Of this process and of those it has started, such as a compiler."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Arm:
    """A trainer whose epochs are timed one by one. `change` alters it; it may return what surrounds
    every epoch."""

    def __init__(self, case: str, change: Callable[["Arm"], object] = lambda arm: None):
        self.trainer, self.replicates, self.around = make_trainer(case), 1, nullcontext
        self.trainer.callback, self.trainer.tracker, self.trainer.graphs = Callback(), None, None
        self.trainer.phases = self.trainer.method.phases(self.trainer.data)
        with deterministic(CPU, 1):
            self.trainer._start_phase()
            self.work, self.state = self.learn, self.trainer.method.state_dict
            change(self)
        started = cpu_seconds()
        self.rate()
        self.first_seconds = cpu_seconds() - started
        self.weights = {name: value.clone() for name, value in self.state().items()}

    def learn(self) -> int:
        """Train for an epoch; how many images that were."""
        self.trainer._learn(self.trainer._step_function(), None, 0)
        return self.trainer.timings[-1].images * self.replicates

    def rate(self) -> float:
        """Images per CPU second of an epoch."""
        with deterministic(CPU, 1), self.around():
            started = cpu_seconds()
            return self.work() / (cpu_seconds() - started)

    def equals(self, other: "Arm") -> bool:
        return all(
            torch.equal(value.float(), other.weights[name].float())
            for name, value in self.weights.items()
        )


# Batches and memory format.


def batch_size(arm: Arm, size: int) -> None:
    arm.trainer.batch_size = size


def contiguous(arm: Arm) -> None:
    arm.trainer.method.to(memory_format=torch.contiguous_format)
    inputs = arm.trainer.train.inputs
    arm.trainer.train.inputs = lambda pixels: inputs(pixels).contiguous()


def evaluate(arm: Arm, size: int) -> None:
    """Time prediction instead of training, with batches of this size."""

    @contextmanager
    def sized() -> Iterator[None]:
        before, batches_module._EVALUATION_BATCH_CPU = batches_module._EVALUATION_BATCH_CPU, size
        yield
        batches_module._EVALUATION_BATCH_CPU = before

    trainer = arm.trainer
    arm.around = sized
    arm.work = lambda: len(predict(trainer.method, trainer.train, trainer.protocol)[0])


# The input pipeline.


def scored_once(arm: Arm) -> None:
    """Inputs z-scored and rounded to bf16 before the first epoch, in twice the memory of the
    bytes."""
    data = arm.trainer.train
    data.pixels = data.inputs(data.pixels).bfloat16().permute(0, 2, 3, 1)
    data.inputs = lambda inputs: inputs.permute(0, 3, 1, 2)


@numba.njit
def _looked_up(pixels: np.ndarray, index: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    for at in range(len(index)):
        image = pixels[index[at]]
        for place in range(0, len(image), 3):
            for channel in range(3):
                out[at, place + channel] = table[channel, image[place + channel]]


def looked_up(arm: Arm) -> None:
    """Gathering, z-scoring and rounding to bf16 in one pass, through a table of what each byte
    becomes."""
    data = arm.trainer.train
    values = torch.arange(256)[:, None, None, None].expand(256, 1, 1, 3).float()
    table = (
        ((values - data._mean[:1, :1]) * data._factor[:1, :1])
        .bfloat16()
        .view(torch.int16)[:, 0, 0]
        .T.contiguous()
    )
    pixels = data.pixels.flatten(1).numpy()

    def batch(index: Tensor) -> object:
        out = torch.empty(len(index), *data.pixels.shape[1:], dtype=torch.bfloat16)
        _looked_up(pixels, index.numpy(), table.numpy(), out.flatten(1).view(torch.int16).numpy())
        return data._batch(out, index)

    data.batch, data.inputs = batch, lambda inputs: inputs.permute(0, 3, 1, 2)


def index_select(arm: Arm) -> None:
    data = arm.trainer.train
    data.batch = lambda index: data._batch(data.pixels.index_select(0, index), index)


def fewer_passes(arm: Arm) -> None:
    """The conversion to float32 left to the subtraction."""
    data = arm.trainer.train
    data.inputs = lambda pixels: (
        torch.sub(pixels, data._mean).mul_(data._factor).permute(0, 3, 1, 2)
    )


# The optimiser, the metrics and the memory.


def adam(arm: Arm, **how: bool) -> None:
    given = arm.trainer.method.optimisers("classify")["model"]
    settings = {
        key: tuple(value) if key == "betas" else value
        for key, value in given.settings.items()
        if key != "name"
    }
    arm.trainer.optimisers["model"] = OPTIMISERS["adam"](given.parameters, **settings, **how)


def no_metrics(arm: Arm) -> None:
    arm.trainer.metrics.add = lambda output, batch: None


def any_algorithm(arm: Arm) -> None:
    @contextmanager
    def around() -> Iterator[None]:
        torch.set_deterministic_debug_mode("default")
        yield

    arm.around = around


def keep_memory(arm: Arm) -> None:
    """glibc keeps large blocks for the next tensor, instead of returning them to the system, which
    clears them."""
    mallopt, trim, threshold, mmaps = ctypes.CDLL(None).mallopt, -1, -3, -4

    @contextmanager
    def around() -> Iterator[None]:
        mallopt(mmaps, 0)
        mallopt(trim, 2**31 - 1)
        yield
        # The most that glibc's own adjustment arrives at.
        for option, value in ((mmaps, 65536), (threshold, 2**25), (trim, 2**26)):
            mallopt(option, value)

    arm.around = around


def threads(arm: Arm, number: int) -> None:
    @contextmanager
    def around() -> Iterator[None]:
        torch.set_num_threads(number)
        yield

    arm.around = around


# The network's arithmetic.


def norm_in_fp32(arm: Arm) -> None:
    for module in arm.trainer.method.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_pre_hook(lambda module, given: (given[0].float(),))


def bf16_weights(arm: Arm) -> None:
    """No autocast: weights of convolutions and linear layers in bf16, with copies in fp32 that the
    optimiser updates."""
    trainer, model = arm.trainer, arm.trainer.method.model
    masters = [nn.Parameter(parameter.detach().clone()) for parameter in model.parameters()]
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.bfloat16()
    used, inputs = list(model.parameters()), trainer.train.inputs
    arm.state = lambda: {
        f"model.{name}": master
        for (name, _), master in zip(model.named_parameters(), masters, strict=True)
    }
    settings = trainer.method.settings["optimiser"]
    optimiser = OPTIMISERS["adam"](
        masters, lr=settings["lr"], betas=tuple(settings["betas"]), fused=True
    )

    def update(name: str, loss: Tensor, forget: Tensor | None = None) -> None:
        for master, gradient in zip(masters, torch.autograd.grad(loss, used), strict=True):
            master.grad = gradient.float()
        optimiser.step()
        torch._foreach_copy_(
            [parameter.detach() for parameter in used], [master.detach() for master in masters]
        )

    trainer._update, trainer.protocol = update, replace(trainer.protocol, precision="fp32")
    trainer.train.inputs = lambda pixels: inputs(pixels).bfloat16()


def scored_once_and_bf16_weights(arm: Arm) -> None:
    scored_once(arm)
    bf16_weights(arm)


class _OnBlocks(nn.Module):
    """A convolution of 7 x 7 with stride 4 as one of 2 x 2 with stride 1, over blocks of 4 x 4
    pixels as channels."""

    def __init__(self, convolution: nn.Conv2d):
        super().__init__()
        self.weight = convolution.weight

    def forward(self, inputs: Tensor) -> Tensor:
        padded = F.pad(inputs.bfloat16().permute(0, 2, 3, 1), (0, 0, 3, 1, 3, 1))
        blocks = padded.unflatten(2, (-1, 4)).unflatten(1, (-1, 4)).transpose(2, 3).flatten(3)
        weight = F.pad(self.weight, (0, 1, 0, 1)).unflatten(3, (2, 4)).unflatten(2, (2, 4))
        weight = weight.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
        return F.conv2d(
            blocks.permute(0, 3, 1, 2), weight.contiguous(memory_format=torch.channels_last)
        )


def on_blocks(arm: Arm) -> None:
    body = arm.trainer.method.model.body
    body[0] = _OnBlocks(body[0])


def compiled(arm: Arm) -> None:
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # in this process, whose seconds are counted
    model = arm.trainer.method.model
    model.features = torch.compile(model.features, dynamic=False)


def replicated(arm: Arm) -> None:
    """Several networks with their own images in every step, through torch.func.vmap."""
    trainer, arm.replicates = arm.trainer, REPLICATES
    networks = [deepcopy(trainer.method.model) for _ in range(REPLICATES)]
    parameters, buffers = torch.func.stack_module_state(networks)
    network, given = networks[0], trainer.method.settings["optimiser"]
    optimiser = OPTIMISERS["adam"](list(parameters.values()), lr=given["lr"], fused=True)

    def losses(parameters: dict, buffers: dict, inputs: Tensor, labels: Tensor) -> Tensor:
        return trainer.method.losses(
            torch.func.functional_call(network, (parameters, buffers), (inputs,)), labels
        )

    def step(index: Tensor) -> None:
        batch = trainer.train.batch(
            torch.cat([(index + offset) % len(trainer.train) for offset in range(REPLICATES)])
        )
        optimiser.zero_grad()
        with trainer._autocast():
            each = torch.func.vmap(losses)(
                parameters,
                buffers,
                batch.inputs.unflatten(0, (REPLICATES, -1)),
                batch.labels.unflatten(0, (REPLICATES, -1)),
            )
        each.mean(1).sum().backward()
        optimiser.step()

    trainer._step = step


VARIANTS = {
    "the code itself": lambda arm: None,
    "inputs z-scored once, kept in bf16": scored_once,
    "inputs gathered and z-scored in one pass, to bf16": looked_up,
    "index_select": index_select,
    "fewer passes of z-scoring": fewer_passes,
    "Adam foreach": partial(adam, foreach=True),
    "Adam in a loop": partial(adam, foreach=False),
    "without running metrics": no_metrics,
    "not deterministic": any_algorithm,
    "contiguous, not channels-last": contiguous,
    "batch norm in fp32": norm_in_fp32,
    "bf16 weights, fp32 masters, no autocast": bf16_weights,
    "z-scored once, and bf16 weights": scored_once_and_bf16_weights,
    "first convolution on blocks": on_blocks,
    "3 replicates through vmap": replicated,
    "2 threads": partial(threads, number=2),
    "batch 64": partial(batch_size, size=64),
    "batch 128": partial(batch_size, size=128),
    "batch 256": partial(batch_size, size=256),
    "evaluation batch 16": partial(evaluate, size=16),
    "evaluation batch 64": partial(evaluate, size=64),
    "evaluation batch 128": partial(evaluate, size=128),
    "torch.compile": compiled,
    "memory kept": keep_memory,  # last: after it, glibc no longer adjusts itself
}
