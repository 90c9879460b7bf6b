"""Progress of a training on a terminal; in a log, nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from diagvib.trainer import Watcher


class _Bar(Watcher):
    def __init__(self, bar: Progress, name: str):
        self._bar, self._name = bar, name
        self._task = bar.add_task(name, total=None, state="", speed="")

    def on_start(self, epochs: int, images_per_epoch: int) -> None:
        self._bar.reset(self._task, total=epochs * images_per_epoch)

    def on_step(self, images: int) -> None:
        self._bar.advance(self._task, images)
        speed = self._bar.tasks[0].speed
        self._bar.update(self._task, speed=f"{speed:,.0f} images/s" if speed else "")

    def on_epoch(self, row: dict) -> None:
        self._bar.update(self._task, state=f"epoch {row['epoch']}, val loss {row['val_loss']:.4f}")


@contextmanager
def training_watcher(name: str) -> Iterator[Watcher]:
    """A bar with epoch, images/s, remaining time and validation loss on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield Watcher()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"),
               TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, name)
