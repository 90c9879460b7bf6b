"""Images per second of the encode stage, drawing and writing included, against a plain forward pass
of the same network by PyTorch; and its peak memory.

    pip install diagvib[pretrained]
    python benchmarks/encode.py
    python benchmarks/encode.py --size 224 --images 500
    python benchmarks/encode.py --memory 5000 --memory 50000
    python benchmarks/encode.py --device cuda --model resnet18 --images 30000

One core and its seconds, or a GPU and the clock's. The ways alternate, and the table has the median
of their rounds.
"""

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer
from result_file import RESULTS, Out, print_rows, save_result

from diagvib.images.datasets import RenderedRecipes
from diagvib.scenes import load_scene
from diagvib.settings.baselines import complete
from diagvib.settings.frozen_networks import encoder_settings
from diagvib.training.encode import Encoding, encode, load_network

STUDY, BINDING = "zgo", "shape-hue"


@dataclass
class Asked:
    model: str = "timm/tf_efficientnet_lite0"
    size: int = 128
    device: str = "cpu"


def main(
    model: str = Asked.model,
    size: int = Asked.size,
    images: int = 1500,
    rounds: int = 5,
    memory: Annotated[
        list[int] | None, typer.Option(help="Measure the memory for so many images; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = Asked.device,
    out: Out = RESULTS,
) -> None:
    asked = Asked(model, size, device)
    torch.set_num_threads(1)
    with TemporaryDirectory() as name:
        if memory:
            rows = [measured_memory(asked, count, Path(name)) for count in memory]
        else:
            rows = measured_speed(asked, images, rounds, Path(name))
    print_rows(rows, **dict.fromkeys(rows[0], ""))
    save_result("encode-memory" if memory else f"encode-{size}", device, rows, out)


def measured_speed(asked: Asked, count: int, rounds: int, root: Path) -> list[dict]:
    """One row for each way, with its ratio to the first."""
    images = drawn(asked, count, root)
    network = load_network(encoding(asked, None), images)
    on_gpu = asked.device == "cuda"
    batch = 256 if on_gpu else 32
    pixels = torch.randn(batch, 3, asked.size, asked.size, device=asked.device)

    def plain() -> None:
        with torch.inference_mode():
            for _ in range(len(images) // batch):
                network.features(pixels)

    ways = {"plain forward pass": plain}
    for runtime in (None,) if on_gpu else (None, "onnxruntime"):
        ways[f"encode by {runtime or 'torch'}"] = lambda runtime=runtime: encoded(
            asked, runtime, images
        )
    seconds, clock = {way: [] for way in ways}, time.perf_counter if on_gpu else time.process_time
    for _ in range(rounds):
        for way, run in ways.items():
            start = clock()
            run()
            if on_gpu:
                torch.cuda.synchronize()
            seconds[way].append(clock() - start)
    rates = {way: len(images) / statistics.median(each) for way, each in seconds.items()}
    return [
        {
            "what": way,
            "model": asked.model,
            "size": asked.size,
            "images": len(images),
            "images_per_second" if on_gpu else "images_per_cpu_second": rate,
            "ratio": rate / rates["plain forward pass"],
        }
        for way, rate in rates.items()
    ]


def measured_memory(asked: Asked, count: int, root: Path) -> dict:
    """The peak memory of a process that encodes so many images, and of one that only loads."""
    peaks = {}
    for what in (True, False):
        code = (
            "import resource, encode; from pathlib import Path\n"
            f"asked = encode.Asked(model={asked.model!r}, size={asked.size})\n"
            f"images = encode.drawn(asked, {count}, Path({str(root / f'{count}-{what}')!r}))\n"
            f"{what} and encode.encoded(asked, 'onnxruntime', images)\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
        )
        run = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            check=True,
        )
        peaks[what] = float(run.stdout.split()[-1])
    return {"images": count, "peak_mib": peaks[True], "without_encoding_mib": peaks[False]}


def encoded(asked: Asked, runtime: str | None, images: RenderedRecipes) -> None:
    """Features of all images, written to a folder that is removed."""
    with TemporaryDirectory() as folder:
        encode(encoding(asked, runtime), images, 1, Path(folder))


def encoding(asked: Asked, runtime: str | None) -> Encoding:
    model = {"name": asked.model, "frozen": True, "input": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    if runtime:
        model["runtime"] = runtime
    # Only the model counts here.
    baseline = {"model": model, "method": "erm", "optimiser": {"name": "adam", "lr": 1e-3}}
    settings = complete(baseline | {"batch_size": 64, "origin": "benchmark"})
    return Encoding(encoder_settings(settings), torch.device(asked.device))


def drawn(asked: Asked, count: int, root: Path) -> RenderedRecipes:
    """So many images in all splits, drawn from the digits and textures in the package."""
    tests = count // 12 // 9 * 9
    counts = f"{{train: {count - 3 * tests}, val: {tests}, id: {tests}, ood: {tests}}}"
    chosen = ["--set", "sources=embedded", "--set", "samples=1", "--set", f"counts={counts}"]
    for command in (["fetch", "digits"], ["prepare", "digits"], ["draw", STUDY, BINDING]):
        line = [sys.executable, "-m", "diagvib", *command, "--root", str(root), *chosen]
        subprocess.run(line, check=True, stdout=sys.stderr)
    recipes = root / f"data/recipes/{STUDY}/{BINDING}.parquet"
    return RenderedRecipes(
        recipes,
        load_scene("digits"),
        root / "data/prepared/digits",
        asked.size,
        torch.device(asked.device),
    )


if __name__ == "__main__":
    typer.run(main)
