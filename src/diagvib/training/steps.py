"""One training step, launched as a single CUDA graph where that can be: the host then has nothing to wait for.

Of everything here only `CudaGraphs` needs a GPU. Whatever stands in its place must offer `running` and `record`.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from diagvib.methods.method import Batch, Outcome

# Steps before one is recorded: the first ones search for the fastest convolutions and make the optimisers' state.
WARM_UP = 3


class CudaGraphs:
    """Records work as CUDA graphs. It, and what runs before and between, runs on one stream of its own."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, work goes to that stream: after everything before the block, and before everything behind it."""
        usual = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(usual)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            usual.wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """What repeats all that `work` does on the device, on the same memory. `work` itself takes no effect here.

        Random numbers come from torch's generator at every repetition, as they would without a graph.
        """
        graph = torch.cuda.CUDAGraph()
        # Another thread may be reading images: its calls are none of the graph's.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


class Tally:
    """Sums of losses and of correct predictions, kept on the device: reading them once an epoch is the only wait."""

    def __init__(self, device: torch.device):
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._classifies = True

    def clear(self) -> None:
        self._loss.zero_()
        self._correct.zero_()

    def add(self, outcome: Outcome, batch: Batch) -> None:
        self._loss += outcome.loss.detach().sum(dtype=torch.float64)
        if outcome.logits is None:
            self._classifies = False
        else:
            self._correct += (outcome.logits.detach().argmax(1) == batch.labels).sum()

    def means(self, images: int) -> tuple[float, float | None]:
        """Mean loss and share of correct images; None where the phase does not classify."""
        return self._loss.item() / images, self._correct.item() / images if self._classifies else None


class Step:
    """Calls `work` with int64[B] indices of a batch and a tally; after WARM_UP calls by repeating a recorded one.

    Every call is a step of the training, so the outcome does not depend on recording. work: reads nothing that moves
    in memory between calls, and waits for nothing. graphs None: never recorded. optimisers: those that `work` steps.
    """

    def __init__(self, work: Callable[[Tensor, Tally], None], optimisers: Iterable[Optimizer],
                 graphs: CudaGraphs | None, device: torch.device):
        self.tally = Tally(device)
        self._work, self._optimisers, self._graphs = work, list(optimisers), graphs
        self._index: Tensor | None = None
        self._replay: Callable[[], None] | None = None
        self._calls = 0

    @property
    def recorded(self) -> bool:
        return self._replay is not None

    def __call__(self, index: Tensor) -> None:
        if self._graphs and self._calls == WARM_UP:
            self._record(index)
        self._calls += 1
        if self._replay:
            self._index.copy_(index)
            self._replay()
        else:
            self._work(index, self.tally)

    def _record(self, index: Tensor) -> None:
        self._index = index.clone()
        try:
            with _capturable(self._optimisers):
                self._replay = self._graphs.record(lambda: self._work(self._index, self.tally))
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            self._graphs = None
            say_no_graph(" ".join(str(error).split())[:160])


@contextmanager
def _capturable(optimisers: list[Optimizer]) -> Iterator[None]:
    # torch asks for the mark while recording and warns of it otherwise; a fused optimiser computes the same.
    groups = [group for optimiser in optimisers for group in optimiser.param_groups]
    try:
        for group in groups:
            group["capturable"] = True
        yield
    finally:
        for group in groups:
            group["capturable"] = False


def say_no_graph(reason: str) -> None:
    """One line on stderr: training goes on without CUDA graphs, slower, with the same outcome."""
    print(f"training without CUDA graphs, step by step: {reason}", file=sys.stderr, flush=True)


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception of torch says that the device's memory did not suffice, in any of its ways."""
    return isinstance(error, torch.OutOfMemoryError) or any(
        text in str(error) for text in ("out of memory", "ALLOC_FAILED", "cudaErrorMemoryAllocation"))
