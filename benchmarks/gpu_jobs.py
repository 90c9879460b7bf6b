"""Train listed runs on one GPU, many at once, where there is no Snakemake.

    python benchmarks/gpu_jobs.py benchmarks/protocol_runs.txt SOURCES ROOT --processes 15 --seconds 500

Each line names a run, or a job with all its runs: BASELINE/STUDY/BINDING[/RUN], then overrides of
the paper's configuration, KEY=VALUE; `root=NAME` puts runs with another protocol into a root of
their own, ROOT/NAME. SOURCES: the folder with the source files, or a root's data/prepared. Finished runs are kept and others
continue from their last epoch, also on another machine, so the same command goes on.
"""

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import result_file  # noqa: F401, the checkout's package
import typer

from diagvib import stages
from diagvib.foundation.devices import core_count
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.messages import say
from diagvib.foundation.parallel import side_by_side
from diagvib.foundation.slots import runs_at_once
from diagvib.scenes import load_scene
from diagvib.scenes.prepared import is_prepared
from diagvib.settings.jobs import stage_settings
from diagvib.settings.keys import ResolvedConfiguration
from diagvib.settings.layout import Layout, Run, folder_name
from diagvib.settings.resolve import load_config

CONFIG = Path(__file__).parent.parent / "config/config.yaml"
MAIN_ROOT = "protocol"
OUT_OF_TIME = 75  # exit status


@dataclass(frozen=True)
class Line:
    """A line of a list. root: the name of its folder; overrides: of the configuration."""

    baseline: str
    study: str
    binding: str
    run: str
    root: str
    overrides: tuple[str, ...]

    @property
    def job(self) -> tuple[str, str, str]:
        return self.baseline, self.study, self.binding

    def config(self, changes: Sequence[str]) -> ResolvedConfiguration:
        return _config((f"baselines=[{self.baseline}]", *self.overrides, *changes))

    def runs(self, changes: Sequence[str]) -> list[Run]:
        """The runs that it names."""
        settings = stage_settings(self.config(changes), "train", self.study, self.baseline)
        runs = settings.runs(*self.job)
        named = [run for run in runs if not self.run or run.name == "/".join((*self.job, self.run))]
        if not named:
            names = ", ".join(run.name for run in runs)
            raise DiagvibError(f"{'/'.join(self.job)}: there is no run {self.run}, only {names}")
        return named


@cache
def _config(overrides: tuple[str, ...]) -> ResolvedConfiguration:
    return load_config(CONFIG, [*overrides, "images=render"])


def read_lines(path: Path) -> list[Line]:
    """The lines of a list, without comments."""
    texts = [text.partition("#")[0].split() for text in path.read_text().splitlines()]
    lines = []
    for name, *overrides in filter(None, texts):
        baseline, study, binding, *run = name.split("/")
        roots = [text.removeprefix("root=") for text in overrides if text.startswith("root=")]
        others = tuple(text for text in overrides if not text.startswith("root="))
        lines.append(Line(baseline, study, binding, "/".join(run), (*roots, MAIN_ROOT)[0], others))
    return lines


def main(
    runs: Annotated[Path, typer.Argument(help="A list of runs, one a line.")],
    sources: Annotated[Path, typer.Argument(help="Folder with source files, or prepared ones.")],
    root: Annotated[Path, typer.Argument(help="Where data and results go.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, of all.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="At once; default: as many as the memory holds.")
    ] = None,
    seconds: Annotated[int, typer.Option(help="Then it stops.")] = 600,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cuda",
) -> None:
    """Draw what is missing, then train, in the order of the list."""
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(seconds)
    lines, changes = read_lines(runs), tuple(set_ or ())
    prepare(lines, changes, sources, root)
    datasets = {
        f"draw {line.root} {line.study} {line.binding}": line
        for line in lines
        if not Layout(root / line.root).recipes(line.study, line.binding).exists()
    }
    side_by_side(partial(draw, changes, root), datasets, core_count())
    trainings = {
        f"{line.root}: {run.name}": (line, run) for line in lines for run in line.runs(changes)
    }
    config = lines[0].config(changes)
    image_bytes = 3 * sum(config.counts.values()) * config.image_size**2
    count = processes or runs_at_once(len(trainings), image_bytes, config.training.threads)
    side_by_side(partial(train, changes, root, device), trainings, count)
    print("all runs of the list are finished")


def _stop(*_) -> None:
    say("the time is over; the same command continues")
    sys.exit(OUT_OF_TIME)


def prepare(lines: list[Line], changes: tuple[str, ...], sources: Path, root: Path) -> None:
    """The sources, once for all roots."""
    folders = {Layout(root / line.root).root / "data" for line in lines}
    for scene in {line.config(changes).study(line.study).scene for line in lines}:
        prepared = sources / folder_name(scene)
        if not is_prepared(prepared):
            layout = Layout(root / "sources")
            prepared, raw = layout.prepared(scene), layout.raw(scene)
            if not is_prepared(prepared):
                mode = lines[0].config(changes).sources
                load_scene(scene).fetched(raw, mode, sources)
                load_scene(scene).make(raw, prepared, mode)
        for folder in folders:
            link = folder / "prepared" / prepared.name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.unlink(missing_ok=True)  # it named a folder that is gone
                link.symlink_to(prepared.resolve())


def draw(changes: tuple[str, ...], root: Path, line: Line) -> None:
    job = stage_settings(line.config(changes), "draw", line.study)
    stages.draw(Layout(root / line.root), job, line.study, line.binding)


def train(changes: tuple[str, ...], root: Path, device: str, training: tuple[Line, Run]) -> None:
    line, run = training
    job = stage_settings(line.config(changes), "train", line.study, line.baseline)
    names = run.baseline, run.study, run.binding
    stages.train_alone(Layout(root / line.root), job, device, None, (False, False), names, run)


if __name__ == "__main__":
    try:
        typer.run(main)
    except DiagvibError as error:
        sys.exit(f"error: {error}")
