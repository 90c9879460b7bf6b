"""Datasets, and batches of one, read by a thread while a GPU trains on the previous ones."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from diagvib.images.datasets import Datasets
from diagvib.images.files import Images
from diagvib.studies.study import SPLITS

T = TypeVar("T")
R = TypeVar("R")


def in_advance(work: Callable[[T], R], things: Iterable[T], most: int = 2) -> Iterator[tuple[T, R]]:
    """Each thing with work(thing), in order; in the meantime a thread works on the next ones,
    `most` of them."""
    with ThreadPoolExecutor(1, "in-advance") as thread:
        coming: deque[tuple[T, Future]] = deque()
        try:
            for thing in things:
                coming.append((thing, thread.submit(work, thing)))
                if len(coming) > most:
                    first, done = coming.popleft()
                    yield first, done.result()
            for first, done in coming:
                yield first, done.result()
        finally:
            thread.shutdown(cancel_futures=True)


class ReadAhead:
    """`datasets`, with splits loaded in the order in which a job asks for them, at most three in
    advance.

    Three splits are one dataset, the next sample's; this is how much host memory it may take.
    Splits requested out of turn are loaded at once. Close it, or use it in a `with` block.
    """

    def __init__(self, datasets: Datasets, samples: Sequence[int]):
        self._datasets = datasets
        self._to_come = deque((sample, split) for sample in samples for split in SPLITS)
        self._loading: dict[tuple[int, str], Future] = {}
        self._thread = ThreadPoolExecutor(1, "read-ahead")

    def path(self, sample: int, split: str) -> Path:
        return self._datasets.path(sample, split)

    def metadata(self, sample: int, split: str) -> dict:
        return self._datasets.metadata(sample, split)

    def load(self, sample: int, split: str) -> Images:
        while self._to_come and len(self._loading) < len(SPLITS):
            self._start()
        future = self._loading.pop((sample, split), None)
        if future is None:
            return self._datasets.load(sample, split)
        images = future.result()
        if self._to_come:
            self._start()
        return images

    def _start(self) -> None:
        following = self._to_come.popleft()
        self._loading[following] = self._thread.submit(self._datasets.load, *following)

    def __enter__(self) -> "ReadAhead":
        return self

    def __exit__(self, *_) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._loading.clear()
