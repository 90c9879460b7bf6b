"""The commands of `diagvib bench`."""

from pathlib import Path
from typing import Annotated

import typer

from diagvib.foundation.errors import unknown_name
from diagvib.settings.config import load_config

bench = typer.Typer(
    no_args_is_help=True,
    help="Measure the speed of this machine. Results go to benchmarks/results.",
)
Out = Annotated[Path, typer.Option(help="Folder for the JSON result.")]


@bench.command("render")
def bench_render(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    images: Annotated[
        int | None, typer.Option(min=1, max=10_000_000, help="Images per measurement.")
    ] = None,
    out: Out = Path("benchmarks/results"),
) -> None:
    """Time rendering, writing and reading images, compared with a plain implementation."""
    from diagvib.bench.rendering import bench_render

    bench_render(device, images, out)


@bench.command("train")
def bench_train(
    baselines: Annotated[
        list[str] | None, typer.Argument(help="Default: those of the default configuration.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    batch_size: Annotated[
        list[int] | None,
        typer.Option(min=2, help="Batch size instead of the baseline's; repeatable."),
    ] = None,
    images: Annotated[
        int | None, typer.Option(min=64, max=10_000_000, help="Images per measurement.")
    ] = None,
    precision: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    full_run: Annotated[
        bool, typer.Option("--full-run", help="Also train two runs of the paper's size; slow.")
    ] = False,
    out: Out = Path("benchmarks/results"),
) -> None:
    """Time training and prediction of baselines."""
    from diagvib.bench.training import bench_train

    if precision not in ("bf16", "fp32"):
        raise unknown_name("precision", precision, ("bf16", "fp32"), "--precision")
    names = baselines or [baseline["name"] for baseline in load_config()["baselines"]]
    bench_train(names, device, batch_size or (), images, precision, full_run, out)
