"""What each stage's command does: read, call, write. One function per stage, with its name, given
only its settings.

`job` is the job's settings, from `settings.jobs`; `layout` says where files are. Heavy modules are
imported where they are needed, so that drawing does not wait for torch. The jobs of a rule depend
on the code that its function here uses (`operations.stage_code`), but not on this module itself, so
whatever affects a result belongs elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_digests
from diagvib.foundation.progress import Counter
from diagvib.scenes import load_scene
from diagvib.settings.grid import RUN_FILES, Layout
from diagvib.settings.tuning import tuning_bindings
from diagvib.studies.binding import bind
from diagvib.studies.study import SPLITS

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from diagvib.images.datasets import Datasets, RenderedRecipes
    from diagvib.settings import jobs


def fetch(layout: Layout, job: jobs.Fetch, scene: str, mirror: Path | None) -> None:
    """Fetch a scene's source files to data/raw and check their hashes; then write the digests."""
    load_scene(scene).fetched(layout.raw(scene), job.sources, mirror)


def prepare(layout: Layout, job: jobs.Prepare, scene: str) -> None:
    """Prepare the data that a scene renders from, from its source files; then write the digests."""
    load_scene(scene).make(layout.raw(scene), layout.prepared(scene), job.sources)


def draw(layout: Layout, job: jobs.Draw, study: str, binding: str) -> None:
    """Draw the recipes of a (study, binding): all dataset samples and splits in one file."""
    from diagvib.studies.recipes import draw_recipes, write_recipes

    definition, made = job.definition(study), job.plain()
    scene = load_scene(definition.scene)
    bound, catalogue = (
        bind(definition, binding, scene.factors),
        scene.catalogue(layout.prepared(definition.scene)),
    )
    recipes = draw_recipes(definition, bound, job.dataset_samples, job.counts, scene, catalogue)
    write_recipes(
        layout.recipes(study, binding),
        recipes,
        {
            "study": study,
            "binding": binding,
            "roles": dict(zip(definition.bound, bound.factors, strict=True)),
            "scene": definition.scene,
            "samples": len(job.dataset_samples),
            "seed": "sha256 of study/binding/sample/split",
            "counts": made["counts"],
            "definition": made["study"],
            "dataset_samples": made["dataset_samples"],
            "sources": catalogue.sources,
            "comparable": catalogue.comparable,
            "sources_digest": catalogue.digest,
        },
    )


def render(
    layout: Layout, job: jobs.Render, study: str, binding: str, device: str, threads: int
) -> None:
    """Render the image files of a (study, binding), one per dataset sample and split; then write
    the digests."""
    import torch

    from diagvib.foundation.devices import resolve_device
    from diagvib.images.datasets import ImageFiles
    from diagvib.images.files import write_images

    torch.set_num_threads(threads)
    datasets = _recipes(layout, job, study, binding, resolve_device(device))
    files, names = ImageFiles(layout.images(study, binding)), []
    with Counter(f"render {study} {binding}", len(datasets), "images") as counter:
        for sample in range(job.samples):
            for split in SPLITS:
                write_images(
                    files.path(sample, split),
                    datasets.recipes(sample, split),
                    datasets.renderer,
                    datasets.metadata(sample, split),
                    counter.advance,
                )
                names.append(files.name(sample, split))
    write_digests(layout.images(study, binding), names, **datasets.made_from)


def _recipes(
    layout: Layout,
    job: jobs.Render | jobs.Encode | jobs.Train | jobs.Tune,
    study: str,
    binding: str,
    device: torch.device,
) -> RenderedRecipes:
    from diagvib.images.datasets import RenderedRecipes

    return RenderedRecipes(
        layout.recipes(study, binding),
        load_scene(job.scene),
        layout.prepared(job.scene),
        job.image_size,
        device,
    )


def encode(
    layout: Layout,
    job: jobs.Encode,
    study: str,
    binding: str,
    device: str,
    threads: int,
    mirror: Path | None = None,
) -> None:
    """Compute the features of a frozen network for all images of a (study, binding). mirror: as
    for `train`."""
    from diagvib.foundation.devices import resolve_device
    from diagvib.training.encode import Encoding, encode

    chosen = resolve_device(device)
    encode(
        Encoding(
            job.encoder.model_dump(mode="json"), chosen, threads, mirror and mirror / "weights"
        ),
        _images(layout, job, study, binding, chosen),
        job.samples,
        layout.features(job.network, study, binding),
    )


def _images(
    layout: Layout,
    job: jobs.Encode | jobs.Train | jobs.Tune,
    study: str,
    binding: str,
    device: torch.device,
) -> Datasets:
    """The images of a (study, binding): files, or recipes rendered on `device`."""
    from diagvib.images.datasets import ImageFiles

    if job.images == "parquet":
        return ImageFiles(layout.images(study, binding))
    return _recipes(layout, job, study, binding, device)


def _datasets(
    layout: Layout, job: jobs.Train | jobs.Tune, study: str, binding: str, device: torch.device
) -> Datasets:
    """What a training reads of a (study, binding): images, or a frozen network's features."""
    from diagvib.images.features import FeatureFiles

    if job.network is None:
        return _images(layout, job, study, binding, device)
    return FeatureFiles(layout.features(job.network, study, binding))


def train(
    layout: Layout,
    job: jobs.Train,
    baseline: str,
    study: str,
    binding: str,
    device: str,
    keep_weights: bool = False,
    tensorboard: bool = False,
    mirror: Path | None = None,
) -> None:
    """Make the runs of a (baseline, study, binding), one per dataset sample or seed; then
    write the digests. mirror: a folder that may have published weights of models in its subfolder
    `weights`."""
    from diagvib.foundation.devices import resolve_device
    from diagvib.training.protocol import Protocol
    from diagvib.training.run import Folders, Job, train_runs

    chosen = resolve_device(device)
    settings = Job(
        job.settings,
        Protocol(**dict(job.training)),
        chosen,
        _datasets(layout, job, study, binding, chosen),
        keep_weights,
        layout.prepared(job.scene),
        mirror and mirror / "weights",
    )
    runs, folder = job.runs(baseline, study, binding), layout.runs(baseline, study, binding)
    folders = Folders(
        folder,
        layout.checkpoints(baseline, study, binding),
        layout.curves(baseline, study, binding) if tensorboard else None,
    )
    train_runs(settings, runs, folders)
    write_digests(folder, [f"{run.sample}/{file}" for run in runs for file in RUN_FILES])


def tune(
    layout: Layout, job: jobs.Tune, baseline: str, device: str, mirror: Path | None = None
) -> None:
    """Make the table of a baseline's tuning, and the entry with the best settings for
    config/baselines."""
    from diagvib.foundation.devices import resolve_device
    from diagvib.training.protocol import Protocol
    from diagvib.training.trials import Task
    from diagvib.training.tuning import tune

    chosen, tuning, datasets = resolve_device(device), job.tuning, {}
    for binding in tuning_bindings(tuning):
        _check_tuning_images(layout, job, binding)
        datasets[binding] = _datasets(layout, job, tuning.study, binding, chosen)
    task = Task(
        baseline,
        job.settings,
        tuning,
        datasets,
        layout.tuning,
        layout.tuned(baseline),
        Protocol(**dict(job.training)),
        chosen,
        layout.prepared(job.scene),
        mirror and mirror / "weights",
    )
    tune(task)


def _check_tuning_images(layout: Layout, job: jobs.Tune, binding: str) -> None:
    """DiagvibError, saying how to make them, if the images for tuning on a binding are missing."""
    from diagvib.images.datasets import ImageFiles

    if job.network:
        return  # missing features are named when they are read
    study = job.tuning.study
    files = ImageFiles(layout.images(study, binding))
    needed = (
        [files.path(sample, split) for sample in job.tuning.samples for split in SPLITS]
        if job.images == "parquet"
        else [layout.recipes(study, binding)]
    )
    missing = next((path for path in needed if not path.exists()), None)
    if missing:
        raise DiagvibError(
            f"{missing}: no such file; tuning needs the images of {study}; make them with "
            f"`snakemake tuned --cores all`, or with `diagvib draw {study} {binding}` and "
            f"`diagvib render {study} {binding}`"
        )


def tabulate(layout: Layout, job: jobs.Tabulate, threads: int) -> None:
    """Make the tables of all runs and their headline numbers; runs that do not exist, or are not
    those that the settings ask for, are marked as missing."""
    from diagvib.operations.asked import runs_asked_for
    from diagvib.reproduction.tabulate import tabulate
    from diagvib.results.known_studies import known_studies
    from diagvib.results.scores import write_scores
    from diagvib.results.tables import read_tables

    expected, settings = runs_asked_for(layout, job), job.plain()
    runs = tabulate(layout.all_runs, layout.tables, expected, settings, threads, layout.tuning)
    metrics = read_tables(layout.tables)["metrics"]
    write_scores(metrics, known_studies(settings), layout.metrics)
    _say_missing(runs, layout.tables / "tables.md")


def _say_missing(runs: pd.DataFrame, listed: Path) -> None:
    from diagvib.results.texts import missing_runs

    if said := missing_runs(runs, listed):
        print(said, file=sys.stderr, flush=True)


def plot(layout: Layout, job: jobs.Plot, threads: int) -> None:
    """Draw every figure, and write the report."""
    from diagvib.report.figure import Material
    from diagvib.report.figures import draw_figures
    from diagvib.report.page import write_report

    folders = layout.all_images, layout.all_runs, layout.prepared
    material = Material(layout.tables, job.plain(), *folders)
    drawn = draw_figures(material, layout.figures, threads)
    write_report(material, drawn, layout.figures, layout.report)
    _say_missing(material.frames["runs"], layout.report)
