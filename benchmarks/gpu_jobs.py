"""Draw and train a configuration's jobs on one GPU, several at a time, where there is no Snakemake.

Small networks, and large ones on small images, leave a GPU waiting for the processor, so several
processes share it. Needs prepared sources in the configuration's root, and `images: render`.
Finished runs are kept, so the same command continues.

    python benchmarks/gpu_jobs.py --config config/nine_models.yaml --processes 8 --seconds 500
    python benchmarks/gpu_jobs.py --set images=render --set samples=1 resnet18/zso/shape resnet18/zgo/shape-hue
"""

import time
from functools import partial
from multiprocessing import TimeoutError, get_context
from pathlib import Path
from typing import Annotated

import typer

from diagvib import stages
from diagvib.foundation.errors import DiagvibError
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config

Given = tuple[Path | None, list[str]]


def main(
    jobs: Annotated[
        list[str] | None, typer.Argument(help="BASELINE/STUDY/BINDING; default: all.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Default: the paper's.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE.")] = None,
    processes: Annotated[int, typer.Option(min=1)] = 4,
    seconds: Annotated[float, typer.Option(help="Then it stops.")] = 570,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cuda",
) -> None:
    """Draw what is missing, then train, in this order."""
    deadline = time.monotonic() + seconds
    given = config, list(set_ or ())
    asked = [tuple(job.split("/")) for job in jobs or ()] or load_config(*given).train_jobs
    with get_context("spawn").Pool(processes) as pool:
        pool.map(partial(_draw, given), dict.fromkeys(job[1:] for job in asked), chunksize=1)
        finished = pool.imap_unordered(partial(_train, given, device), asked)
        try:
            for _ in asked:
                print(finished.next(deadline - time.monotonic()), flush=True)
        except TimeoutError:
            print(f"stopped after {seconds:.0f} s; the same command continues")


def _draw(given: Given, names: tuple[str, str]) -> None:
    config = load_config(*given)
    layout = Layout(Path(config.root))
    if not layout.recipes(*names).exists():
        stages.draw(layout, stage_settings(config, "draw", names[0]), *names)


def _train(given: Given, device: str, names: tuple[str, str, str]) -> str:
    started, config = time.monotonic(), load_config(*given)
    baseline, study, _ = names
    try:
        stages.train(
            Layout(Path(config.root)),
            stage_settings(config, "train", study, baseline),
            *names,
            device,
        )
    except (DiagvibError, RuntimeError) as error:
        return f"{'/'.join(names)} failed: {error}"
    return f"{'/'.join(names)}: {time.monotonic() - started:.0f} s"


if __name__ == "__main__":
    typer.run(main)
