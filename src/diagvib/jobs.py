"""What each stage's command does: read, call, write. One function a stage, fed with that stage's settings alone.

`settings` is `config.stage_settings` of the stage; `layout` says where files stand. Heavy modules are imported where
they are needed, so that drawing does not wait for torch.
"""

from pathlib import Path

from diagvib.errors import DiagvibError
from diagvib.factors import parse_pair
from diagvib.grid import Layout, expected_runs
from diagvib.progress import Counter
from diagvib.recipes import DigitPool, draw_recipes, write_recipes
from diagvib.studies import SPLITS, DatasetSample, parse_study


def fetch_job(layout: Layout, settings: dict, mirror: Path | None) -> None:
    """Every source file to data/raw, checked by hash. Embedded sources need none."""
    if settings["sources"] == "embedded":
        return
    from diagvib.fetch import fetch
    fetch(layout.raw, mirror)


def prepare_job(layout: Layout, settings: dict) -> None:
    from diagvib.prepare import prepare
    prepare(layout.raw, layout.prepared, settings["sources"])


def draw_job(layout: Layout, settings: dict, study: str, pair: str) -> None:
    """The recipes of a (study, pair): all dataset samples and splits in one file."""
    from diagvib.prepare import load_catalogue
    definition, factors = parse_study(study, settings["study"]), parse_pair(pair)
    if definition.paired != (factors.cue is not None):
        wanted = "a pair such as shape-hue" if definition.paired else "a target factor alone, such as shape"
        raise DiagvibError(f"study {study}: its datasets are named by {wanted}, not by '{pair}'")
    prepared = load_catalogue(layout.prepared)
    samples = [DatasetSample(**sample) for sample in settings["dataset_samples"]]
    recipes = draw_recipes(definition, factors, samples, settings["counts"],
                           DigitPool(prepared.label, prepared.split))
    write_recipes(layout.recipes(study, pair), recipes, {
        "study": study, "pair": pair, "samples": len(samples), "seed": "sha256 of study/pair/sample/split",
        "counts": settings["counts"], "definition": settings["study"], "dataset_samples": settings["dataset_samples"],
        "sources": prepared.sources, "comparable": prepared.comparable, "sources_digest": prepared.digest})


def render_job(layout: Layout, settings: dict, study: str, pair: str, device: str, threads: int) -> None:
    """The image files of a (study, pair), one for each dataset sample and split."""
    import torch

    from diagvib.datasets import RenderedRecipes
    from diagvib.devices import resolve_device
    from diagvib.images import write_images
    torch.set_num_threads(threads)
    datasets = RenderedRecipes(layout.recipes(study, pair), layout.prepared, settings["image_size"],
                               resolve_device(device))
    with Counter(f"render {study} {pair}", len(datasets), "images") as counter:
        for sample in range(settings["samples"]):
            for split in SPLITS:
                write_images(layout.images(study, pair) / str(sample) / f"{split}.parquet",
                             datasets.recipes(sample, split), datasets.renderer, datasets.metadata(sample, split),
                             counter.advance)


def train_job(layout: Layout, settings: dict, baseline: str, study: str, pair: str, device: str) -> None:
    """The runs of a (baseline, study, pair), one for each dataset sample."""
    from diagvib.datasets import ImageFiles, RenderedRecipes
    from diagvib.devices import resolve_device
    from diagvib.runs import train_runs
    chosen = resolve_device(device)
    datasets = (ImageFiles(layout.images(study, pair)) if settings["images"] == "parquet" else
                RenderedRecipes(layout.recipes(study, pair), layout.prepared, settings["image_size"], chosen))
    train_runs(baseline=baseline, settings=settings["baseline"], study=study, pair=pair,
               samples=range(settings["samples"]), datasets=datasets, out=layout.runs(baseline, study, pair),
               checkpoints=layout.checkpoints(baseline, study, pair), training=settings["training"], device=chosen)


def tabulate_job(layout: Layout, settings: dict) -> None:
    """The tables of everything that has been run; what has not is a named hole in them."""
    from diagvib.tables import tabulate
    tabulate(layout.all_runs, layout.tables, expected_runs(settings), settings)


def plot_job(layout: Layout, settings: dict) -> None:
    """Every figure, and the report."""
    from diagvib.figures import draw_figures
    from diagvib.report import write_report
    draw_figures(layout.tables, layout.figures, layout.all_images, settings, layout.prepared)
    write_report(layout.tables, layout.figures, layout.report, settings)
