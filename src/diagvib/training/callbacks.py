"""Callbacks of a training: a bar on a terminal, and curves for TensorBoard if requested."""

import os
import time
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

from rich.progress import TextColumn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.progress import TERMINAL, progress_bar

# Seconds between a run's lines on the terminal of the workflow.
SECONDS = 15


class Callback:
    """Is notified of a training's progress; this one does nothing."""

    def on_run(self, history: list[dict]) -> None:
        """A run starts, or resumes after these epochs."""

    def on_start(self, epochs: int, images_per_epoch: int) -> None:
        """A phase starts, with at most `epochs` left."""

    def on_step(self, images: int) -> None:
        """This many images were trained on."""

    def on_epoch(self, row: dict) -> None:
        """An epoch is complete and in the checkpoint."""


class TrainingBar(Callback):
    """A `progress_bar`: epoch, validation loss, images/s, remaining time. In a job, whose stderr is
    a log, a line on the workflow's TERMINAL now and then. With `curves`, a folder, also every number
    of the history as a scalar over epochs, in a single event file there."""

    def __init__(self, name: str, curves: Path | None):
        self._name, self._told, self._writer = name, time.monotonic(), None
        if curves:
            # Rewritten from the history: after an interruption the old file may contain epochs that
            # are repeated.
            for stale in curves.glob("events.out.tfevents.*"):
                stale.unlink()
            self._writer = summary_writer()(str(curves))
        self._bar = progress_bar(
            TextColumn("{task.fields[state]}"), TextColumn("{task.fields[speed]}")
        )
        self._task = self._bar.add_task(name, total=None, state="", speed="")
        self._bar.start()

    def on_run(self, history):
        for row in history:
            self._draw(row)

    def on_start(self, epochs, images_per_epoch):
        self._bar.reset(self._task, total=epochs * images_per_epoch)

    def on_step(self, images):
        speed = self._bar.tasks[0].speed
        rate = f"{speed:,.0f} images/s" if speed else ""
        self._bar.update(self._task, advance=images, speed=rate)

    def on_epoch(self, row):
        self._draw(row)
        state = f"epoch {row['epoch']}, val loss {row['val_loss']:.4f}"
        self._bar.update(self._task, state=state)
        seconds_left, terminal = self._bar.tasks[0].time_remaining, os.environ.get(TERMINAL)
        if terminal and seconds_left and time.monotonic() > self._told + SECONDS:
            self._told = time.monotonic()
            with suppress(OSError), open(terminal, "a") as file:  # it may be another machine's
                file.write(
                    f"{self._name}: {state}, at most {seconds_left / 60:.1f} min left in this phase\n"
                )

    def _draw(self, row: dict) -> None:
        if self._writer:
            for name, value in row.items():
                if name != "epoch" and isinstance(value, int | float):
                    self._writer.add_scalar(name, value, row["epoch"])
            self._writer.flush()

    def close(self) -> None:
        if self._writer:
            self._writer.close()
        self._bar.stop()


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


def training_callback(name: str, curves: Path | None = None) -> AbstractContextManager[Callback]:
    """A bar; and with `curves`, a folder, a TensorBoard file of this run there."""
    return closing(TrainingBar(name, curves))
