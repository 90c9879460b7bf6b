"""torch's default device and type of numbers, which a notebook may have changed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def initial_defaults() -> Iterator[None]:
    """Those with which torch starts; afterwards the others again."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)
