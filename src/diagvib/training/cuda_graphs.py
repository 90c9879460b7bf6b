"""A training step that is launched as a single CUDA graph: the host then need not wait for
anything.

The trainer works without this file: a recorded step does what the plain one does, on the same
memory. Only `CudaGraphs` needs a GPU here; whatever replaces it must offer `running` and `record`.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from diagvib.foundation.plug_ins import out_of_memory

# Steps before one is recorded: the first ones search for the fastest convolutions and create the
# optimisers' state.
WARM_UP = 3


class CudaGraphs:
    """Records work as CUDA graphs. It, and what runs before and between, runs on a separate
    stream."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, work goes to that stream: after everything before the block, and before
        everything after it."""
        usual = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(usual)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            usual.wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """A function that repeats everything that `work` does on the device, on the same memory.
        `work` has no effect here.

        Random numbers come from torch's generator at every repetition, as they would without a
        graph.
        """
        graph = torch.cuda.CUDAGraph()
        # Another thread may be reading images: its calls do not belong to the graph.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


def cuda_graphs(device: torch.device, wanted: bool = True) -> CudaGraphs | None:
    """A recorder for steps on this device; None if the device cannot, or it is not wanted."""
    return CudaGraphs(device) if wanted and device.type == "cuda" else None


class RecordedStep:
    """Calls `work` with int64[B] indices of a batch; after WARM_UP calls by repeating a recorded
    one, if the batch is as large as that.

    Every call is a training step, so the result does not depend on recording. work: reads nothing
    that moves in memory between calls, and waits for nothing. Work that cannot be recorded runs
    normally, and one line says why. optimisers: those that `work` steps.
    """

    def __init__(
        self, work: Callable[[Tensor], None], optimisers: Iterable[Optimizer], graphs: CudaGraphs
    ):
        self._work, self._optimisers = work, list(optimisers)
        self._graphs: CudaGraphs | None = graphs
        self._index: Tensor | None = None
        self._replay: Callable[[], None] | None = None
        self._calls = 0

    def __call__(self, index: Tensor) -> None:
        if self._graphs and self._calls == WARM_UP:
            self._record(index)
        self._calls += 1
        if self._replay and len(index) == len(self._index):
            self._index.copy_(index)
            self._replay()
        else:
            self._work(index)

    def _record(self, index: Tensor) -> None:
        self._index = index.clone()
        try:
            with _capturable(self._optimisers):
                self._replay = self._graphs.record(lambda: self._work(self._index))
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            self._graphs = None
            say_no_graph(" ".join(str(error).split())[:160])


@contextmanager
def _capturable(optimisers: list[Optimizer]) -> Iterator[None]:
    # torch asks for Adam's mark while recording and warns otherwise; a fused optimiser computes the
    # same.
    groups = [
        group
        for optimiser in optimisers
        for group in optimiser.param_groups
        if "capturable" in group
    ]
    try:
        for group in groups:
            group["capturable"] = True
        yield
    finally:
        for group in groups:
            group["capturable"] = False


def say_no_graph(reason: str) -> None:
    """One line on stderr: training goes on without CUDA graphs, slower, with the same result."""
    print(f"training without CUDA graphs, step by step: {reason}", file=sys.stderr, flush=True)
