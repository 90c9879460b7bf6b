"""CUDA graphs without CUDA: torch's operations recorded with the very tensors they read and write,
and repeated there.

As in a CUDA graph, Python runs only while recording, recording changes nothing, a repetition uses
the recorded memory whatever the names refer to now, random numbers come from torch's generator, and
reading a value back is an error.
"""

from contextlib import nullcontext

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class RecordedOperations:
    """Replaces cuda_graphs.CudaGraphs. repetitions: how many steps were repeated from each
    recording."""

    def __init__(self):
        self.repetitions: list[int] = []

    def running(self):
        return nullcontext()

    def record(self, work):
        random_state, tape, number = torch.get_rng_state(), _Tape(), len(self.repetitions)
        try:
            with tape:
                work()
        finally:
            tape.undo()
            torch.set_rng_state(random_state)
        self.repetitions.append(0)

        def repeat():
            self.repetitions[number] += 1
            tape.repeat()

        return repeat


class _Tape(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self._operations, self._before = [], {}

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if function is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        # Clone everything an operation gets: not every schema says what is written to (batch norm's
        # running statistics).
        for tensor in tree_leaves((arguments, keywords)):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self._before:
                    self._before[storage.data_ptr()] = storage, storage.clone()
        result = function(*arguments, **keywords)
        if torch.Tag.inplace_view not in function.tags:  # a tensor's shape is fixed by recording
            self._operations.append((function, arguments, keywords, result))
        return result

    def undo(self):
        for storage, before in self._before.values():
            storage.copy_(before)

    @torch.no_grad()
    def repeat(self):
        for function, arguments, keywords, recorded in self._operations:
            for old, new in zip(
                tree_leaves(recorded), tree_leaves(function(*arguments, **keywords)), strict=True
            ):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new.view(old.shape))
