"""Callbacks of a training: a bar on a terminal, and curves for TensorBoard if requested."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from diagvib.foundation.errors import DiagvibError

# Seconds between updates of the bar: a GPU takes hundreds of steps per second, too many to draw
# each.
_PAUSE = 0.1


class Callback:
    """Is notified of a training's progress; this one does nothing."""

    def on_run(self, history: list[dict]) -> None:
        """A run starts, or resumes after these epochs."""

    def on_start(self, epochs: int, images_per_epoch: int) -> None:
        """A phase starts, with at most `epochs` left."""

    def on_step(self, images: int) -> None:
        """This many images were trained on."""

    def on_epoch(self, row: dict) -> None:
        """An epoch is complete and in the checkpoint, or on CUDA on its way there."""


class _Bar(Callback):
    def __init__(self, bar: Progress, name: str):
        self._bar, self._name = bar, name
        self._task = bar.add_task(name, total=None, state="", speed="")
        self._unseen, self._moved = 0, 0.0

    def on_start(self, epochs: int, images_per_epoch: int) -> None:
        self._unseen = 0
        self._bar.reset(self._task, total=epochs * images_per_epoch)

    def on_step(self, images: int) -> None:
        self._unseen += images
        if time.monotonic() - self._moved > _PAUSE:
            self._move()

    def on_epoch(self, row: dict) -> None:
        self._move()
        self._bar.update(self._task, state=f"epoch {row['epoch']}, val loss {row['val_loss']:.4f}")

    def _move(self) -> None:
        self._bar.advance(self._task, self._unseen)
        self._unseen, self._moved = 0, time.monotonic()
        speed = self._bar.tasks[0].speed
        self._bar.update(self._task, speed=f"{speed:,.0f} images/s" if speed else "")


class _Curves(Callback):
    """Every number of the history as a scalar over epochs, in a single event file in `folder`."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._writer = None

    def on_run(self, history: list[dict]) -> None:
        # Rewritten from the history: after an interruption the old file may contain epochs that are
        # repeated.
        for stale in self._folder.glob("events.out.tfevents.*"):
            stale.unlink()
        self._writer = summary_writer()(str(self._folder))
        for row in history:
            self.on_epoch(row)

    def on_epoch(self, row: dict) -> None:
        for name, value in row.items():
            if name != "epoch" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, row["epoch"])
        self._writer.flush()

    def close(self) -> None:
        if self._writer:
            self._writer.close()


class _Several(Callback):
    def __init__(self, callbacks: list[Callback]):
        self._callbacks = callbacks

    def on_run(self, history: list[dict]) -> None:
        for callback in self._callbacks:
            callback.on_run(history)

    def on_start(self, epochs: int, images_per_epoch: int) -> None:
        for callback in self._callbacks:
            callback.on_start(epochs, images_per_epoch)

    def on_step(self, images: int) -> None:
        for callback in self._callbacks:
            callback.on_step(images)

    def on_epoch(self, row: dict) -> None:
        for callback in self._callbacks:
            callback.on_epoch(row)


def summary_writer() -> type:
    """TensorBoard's writer. DiagvibError if the package is missing."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise DiagvibError(
            "tensorboard: the package tensorboard is not installed; `pip install 'diagvib[tensorboard]'`"
            ", or leave out --tensorboard (in a configuration: tensorboard: false)"
        ) from None
    return SummaryWriter


@contextmanager
def training_callback(name: str, curves: Path | None = None) -> Iterator[Callback]:
    """A bar with epoch, images/s, remaining time and validation loss on stderr, if that is a
    terminal.

    curves: folder for a TensorBoard file of this run. DiagvibError if it is requested and
    TensorBoard is not installed.
    """
    callbacks: list[Callback] = []
    with ExitStack() as stack:
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[state]}"),
                TextColumn("{task.fields[speed]}"),
                TimeRemainingColumn(),
            )
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            callbacks.append(_Bar(stack.enter_context(bar), name))
        if curves:
            callbacks.append(_Curves(curves))
            stack.callback(callbacks[-1].close)
        yield _Several(callbacks)
