"""How far the statistics can be trusted, by simulation: see benchmarks/README.md.

python benchmarks/simulated_statistics.py intervals
python benchmarks/simulated_statistics.py gaps
git show 8d853e7:src/diagvib/uncertainty.py > before.py
python benchmarks/simulated_statistics.py intervals --before before.py     # that code compared with today's
"""

import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY / "tests")]
# Threads for matrices this small cost far more than they save.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from importlib.util import module_from_spec, spec_from_file_location  # noqa: E402
from itertools import product  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import Annotated  # noqa: E402

import typer  # noqa: E402

import simulated_designs as designs  # noqa: E402
from diagvib.bench.results import save_result  # noqa: E402
from diagvib.results import uncertainty  # noqa: E402

SAMPLES = (2, 3, 5, 6, 20)
ALIKE, UNLIKE = designs.normal_runs(designs.ALIKE), designs.normal_runs(designs.UNLIKE)
# Function, quantity drawn, distribution, truth.
INTERVALS = [
    ("sample_interval", "normal", designs.normal_samples, 0.5),
    ("sample_interval", "skewed", designs.skewed_samples(*designs.SKEWED), designs.SKEWED[0]),
    (
        "sample_interval",
        "very skewed",
        designs.skewed_samples(*designs.VERY_SKEWED),
        designs.VERY_SKEWED[0],
    ),
    ("crossed_interval", "normal, pairs alike", ALIKE, 0.5),
    ("crossed_interval", "normal", UNLIKE, 0.5),
    ("crossed_interval", "normal, 10 % missing", designs.with_gaps(UNLIKE, 0.1), 0.5),
    ("crossed_interval", "normal, 50 % missing", designs.with_gaps(UNLIKE, 0.5), 0.5),
    ("crossed_interval", "skewed", designs.skewed_runs(*designs.SKEWED), designs.SKEWED[0]),
    (
        "crossed_interval",
        "very skewed",
        designs.skewed_runs(*designs.VERY_SKEWED),
        designs.VERY_SKEWED[0],
    ),
]
COMPARISONS = [
    ("normal", UNLIKE, UNLIKE),
    (
        "skewed, both alike",
        designs.skewed_runs(*designs.SKEWED),
        designs.skewed_runs(*designs.SKEWED),
    ),
    (
        "skewed, one narrower",
        designs.skewed_runs(*designs.SKEWED),
        designs.skewed_runs(*designs.NARROW),
    ),
]

# Mean gap of a method and of ERM: both follow the cue equally; the method twice as much; ERM hardly
# at all.
GAP_MEANS = ((-0.3, -0.3), (-0.4, -0.2), (-0.1, -0.05))

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.callback()(lambda: None)  # so that a command must be named even while there is only one


@app.command()
def intervals(
    times: Annotated[int, typer.Option(min=1, help="Simulated datasets per figure.")] = 2000,
    before: Annotated[
        Path | None, typer.Option(help="Another uncertainty.py to measure as well.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = REPOSITORY
    / "benchmarks/results",
) -> None:
    """Coverage of the 95 % intervals, and false alarms of comparisons, for baselines that are truly
    equal."""
    codes = {"today": uncertainty, **({before.stem: _load(before)} if before else {})}
    rows = [row for name, code in codes.items() for row in _measure(name, code, times)]
    save_result(
        "statistics-intervals",
        "cpu",
        rows,
        out,
        times=times,
        bindings=designs.BINDINGS,
        sample_spread=designs.SAMPLE_SPREAD,
        run_spread=designs.RUN_SPREAD,
    )


@app.command()
def gaps(
    times: Annotated[int, typer.Option(min=1, help="Simulated datasets per figure.")] = 4000,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = REPOSITORY
    / "benchmarks/results",
) -> None:
    """How often intervals for a method's gap compared with ERM's contain the truth: of the
    difference or of the ratio.

    With 4000 simulations each, normal and skewed, for equal gaps, one twice as wide, and narrow
    ones (3, 5, 10 samples): t interval of the paired differences 0.95, 0.95 to 0.96, 0.95 to 0.96;
    percentile bootstrap of the same
    0.75 to 0.76, 0.81 to 0.84, 0.88 to 0.90; Fieller's interval of the ratio 0.95 to 1.00, 0.94 to 1.00, 0.95 to 0.98,
    but unbounded in 0.04 to 0.98, 0.00 to 0.97, 0.00 to 0.79 of them, more often the narrower ERM's gap. Hence verdicts
    rest on the t interval, and Fieller's is given if it is bounded.
    """
    rows = []
    for skewed, (mean, reference), n in product((False, True), GAP_MEANS, (3, 5, 10)):
        draw = designs.paired_gaps(mean, reference, skewed)
        for name, interval, truth in (
            ("t, difference", designs.paired_t, mean - reference),
            ("bootstrap, difference", designs.paired_bootstrap, mean - reference),
            ("Fieller, ratio", designs.ratio, mean / reference),
        ):
            widths = []

            def kept(pair, interval=interval, widths=widths):
                low, high = interval(pair)
                widths.append(high - low)
                return low, high

            covered = designs.coverage(kept, draw, truth, n, times)
            rows.append(
                {
                    "interval": name,
                    "design": "skewed" if skewed else "normal",
                    "gap": mean,
                    "reference": reference,
                    "samples": n,
                    "coverage": covered,
                    "unbounded": widths.count(float("inf")) / times,
                }
            )
            print(*rows[-1].values(), sep=" | ", flush=True)
    save_result("statistics-gaps", "cpu", rows, out, times=times)


def _load(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _measure(name: str, code: ModuleType, times: int) -> list[dict]:
    rows = [
        {
            "code": name,
            "what": what,
            "design": design,
            "samples": n,
            "coverage": designs.coverage(getattr(code, what), draw, truth, n, times),
        }
        for what, design, draw, truth in INTERVALS
        for n in SAMPLES
    ]
    rows += [
        {
            "code": name,
            "what": "paired_difference",
            "design": design,
            "samples": n,
            **designs.null_comparisons(code.paired_difference, first, second, n, times),
        }
        for design, first, second in COMPARISONS
        for n in SAMPLES
    ]
    for row in rows:
        print(
            *(f"{value:.3f}" if isinstance(value, float) else value for value in row.values()),
            sep=" | ",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    app()
