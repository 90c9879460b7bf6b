"""Tables, figures and report of a full grid: nine studies, nine baselines, 30 bindings, 5 samples,
11,070 synthetic runs.

The runs come from the generative model in `synthetic_grid.py`, with realistic file formats
and sizes (10,000 test images per group, 30 epochs, pictures); image files of one binding and the
embedded sources are added, so that every figure is drawn. Then `diagvib tabulate` and `diagvib
plot` run one after the other, each in a separate process, on two cores.

    python benchmarks/full_grid.py                # writes benchmarks/results/report-cpu-DATE.json
    python benchmarks/full_grid.py --keep DIR     # leaves the grid and its results in DIR; a grid there is used again
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import psutil
import typer

REPOSITORY = Path(__file__).parent.parent
sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY / "tests")]

from grid_files import write_grid  # noqa: E402
from result_file import save_result  # noqa: E402
from synthetic_grid import BASELINES  # noqa: E402

from diagvib import stages  # noqa: E402
from diagvib.provenance.expected import expected_provenance  # noqa: E402
from diagvib.settings.jobs import Fetch, stage_settings  # noqa: E402
from diagvib.settings.layout import Layout  # noqa: E402
from diagvib.settings.resolve import load_config  # noqa: E402

CORES = 2
# The cue that misleads most in the model; its study sheets are drawn.
BINDING = "texture-position"


def make_grid(layout: Layout, config: dict) -> float:
    """Write everything that tabulate and plot read; returns the seconds that it took."""
    start = time.perf_counter()
    for scene in config.scenes:
        stages.prepare(layout, Fetch(sources="embedded"), scene)
    small = config.model_copy(update={"samples": 1, "counts": dict.fromkeys(config.counts, 90)})
    for study in config.studies:
        for binding in config.study_bindings(study, [BINDING]):
            stages.draw(layout, stage_settings(small, "draw", study), study, binding.name)
            stages.render(layout, stage_settings(small, "render", study), study, binding.name, 1)
    write_grid(layout.all_runs, expected_provenance(layout, config))
    return time.perf_counter() - start


def measure(stage: str, overrides: list[str]) -> dict:
    """Run one command, including the processes that it starts: seconds, and the peak memory of all
    of them together."""
    sets = [part for override in overrides for part in ("--set", override)]
    start = time.perf_counter()
    process = psutil.Popen(
        [sys.executable, "-m", "diagvib", stage, *sets, "--threads", str(CORES)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, held(process))
        time.sleep(0.2)
    seconds = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"diagvib {stage} failed")
    return {
        "what": stage,
        "device": "cpu",
        "threads": CORES,
        "seconds": seconds,
        "peak_memory_mib": peak / 2**20,
    }


def held(process: psutil.Process) -> int:
    """Bytes of a process and its children; shared memory counts once."""
    found = 0
    with suppress(psutil.NoSuchProcess):
        for one in (process, *process.children(recursive=True)):
            found += one.memory_full_info().pss
    return found


def main(
    keep: Annotated[
        Path | None, typer.Option(help="Folder for the grid; default: a temporary one.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = REPOSITORY
    / "benchmarks/results",
) -> None:
    with TemporaryDirectory() as temporary:
        root = (keep or Path(temporary)).resolve()
        overrides = [f"root={root}", f"baselines=[{','.join(BASELINES)}]"]
        config, layout = load_config(None, overrides), Layout(root)
        made = 0.0 if layout.all_runs.exists() else make_grid(layout, config)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
        load = os.getloadavg()[0]
        rows = [measure(stage, overrides) for stage in ("tabulate", "plot")]
        files = [path for path in layout.figures.rglob("*") if path.is_file()]
        size = {
            "runs": len(config.train_jobs) * config.samples,
            "figure_files": len(files),
            "figures_mb": sum(path.stat().st_size for path in files) / 1e6,
            "page_mb": layout.report.stat().st_size / 1e6,
            "seconds_to_make_the_grid": made,
        }
    for row in rows:
        print(f"{row['what']}: {row['seconds']:.1f} s, {row['peak_memory_mib']:,.0f} MiB")
    print(
        f"together {sum(row['seconds'] for row in rows):.1f} s; a page of {size['page_mb']:.1f} MB, {len(files)} "
        f"files of figures, {size['figures_mb']:.0f} MB"
    )
    save_result("report", "cpu", rows, out, **size, load_before=load)


if __name__ == "__main__":
    typer.run(main)
