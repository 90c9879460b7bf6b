"""The stages' commands: read, call, write. One function per stage, with its name, its
arguments and options on the command line, and its help.

`job` is the job's settings, from `settings.jobs`; `layout` says where files are. Options that are
not given have the configuration's values, or with a job's settings alone the defaults here. Heavy
modules are imported where they are needed, so that drawing does not wait for torch. The jobs of a
rule depend on the code that its function here uses (`provenance.code`), but not on this
module itself, so whatever affects a result belongs elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diagvib.foundation.devices import core_count, device_name, likely_gpu, machine, resolve_device
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, alone, forget, read_json, write_digests, writing
from diagvib.foundation.messages import say
from diagvib.foundation.parallel import in_turn, side_by_side
from diagvib.foundation.progress import counting
from diagvib.foundation.slots import WORKFLOW, runs_at_once
from diagvib.images import FEATURES_FILE
from diagvib.scenes import load_scene
from diagvib.settings import jobs
from diagvib.settings.frozen_networks import network_name
from diagvib.settings.layout import RUN_FILES, Layout, Run
from diagvib.settings.model_settings import published_folder
from diagvib.studies.binding import bind
from diagvib.studies.study import SPLITS

if TYPE_CHECKING:
    import torch

    from diagvib.images.datasets import Datasets, RenderedRecipes
    from diagvib.training.job import Job
    from diagvib.training.trials import Task


def argument(help: str, metavar: str | None = None, **options: Any) -> Any:
    """What the command line shows of an argument."""
    return typer.Argument(metavar=metavar, help=help, **options)


def option(help: str, *names: str, **options: Any) -> Any:
    """What it shows of an option."""
    return typer.Option(*names, help=help, **options)


StudyName = Annotated[
    str,
    argument("A study from config/studies, or from the configuration's `studies_from`.", "STUDY"),
]
BindingName = Annotated[str, argument("The factors for the study's roles: TARGET-CUE.", "BINDING")]
BaselineName = Annotated[str, argument("One of the configuration's baselines.", "BASELINE")]
NetworkName = Annotated[
    str,
    argument(
        "A baseline with a frozen network, or that network's folder in data/features.", "NETWORK"
    ),
]
ModelName = Annotated[str, argument("A classifier of torchvision, such as resnet50.", "MODEL")]
WeightsName = Annotated[
    str, argument("torchvision's name of weights, such as IMAGENET1K_V1.", "WEIGHTS")
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"] | None,
    option("auto, cpu or cuda; default: the configuration's."),
]
Mirror = Annotated[Path | None, option("Local folder with source files and published weights.")]
Threads = Annotated[int | None, option("CPU threads; default: all cores.", min=1, max=1024)]
KeepWeights = Annotated[bool | None, option("Also write weights.pt; default: the configuration's.")]
Processes = Annotated[
    int | None,
    option(
        "Runs trained at once; default: one on a CPU, on a GPU as many as its memory holds.", min=1
    ),
]
TensorBoard = Annotated[
    bool | None, option("Also write curves to logs/tensorboard; default: the configuration's.")
]


def cores(threads: int | None = None) -> int:
    return threads or core_count()


def _weights(layout: Layout, mirror: Path | None, model: dict | None) -> Path | None:
    """The folder that has a model's published weights: among the sources, or in a mirror."""
    return published_folder(
        model, [layout.weights("", "").parent, mirror and Path(mirror, "weights")]
    )


def fetch(layout: Layout, job: jobs.Fetch, scene: str, mirror: Mirror = None) -> None:
    """Fetch a scene's source files and check their hashes. They are downloaded, or taken from a
    mirror."""
    load_scene(scene).fetched(layout.raw(scene), job.sources, mirror and Path(mirror))


def prepare(layout: Layout, job: jobs.Fetch, scene: str) -> None:
    """Prepare a scene's source files for rendering."""
    # Left by a killed job, of another machine even now; or they would count as prepared.
    for path in layout.prepared(scene).rglob(".*.tmp"):
        path.unlink()
    load_scene(scene).make(layout.raw(scene), layout.prepared(scene), job.sources)


def weights(
    layout: Layout, job: jobs.Weights, model: ModelName, name: WeightsName, mirror: Mirror = None
) -> None:
    """Fetch the published weights of a network and check their hash. They are taken from a mirror or
    torch's cache, or downloaded."""
    from diagvib.models.fetch_weights import fetch_weights

    digests = layout.weights(model, name)
    with alone(digests):
        fetch_weights(model, name, digests, mirror and Path(mirror))


def draw(layout: Layout, job: jobs.Draw, study: StudyName, binding: BindingName) -> None:
    """Draw the recipes of a study and binding. Covers all dataset samples."""
    from diagvib.studies.recipes import draw_recipes, write_recipes

    definition = job.definition(study)
    scene = load_scene(definition.scene)
    bound = bind(definition, binding, scene.factors)
    catalogue = scene.catalogue(layout.prepared(definition.scene))
    recipes = draw_recipes(definition, bound, job.dataset_samples, job.counts, scene, catalogue)
    write_recipes(
        layout.recipes(study, binding), recipes, job.metadata(definition, bound, catalogue)
    )


def render(
    layout: Layout,
    job: jobs.Render,
    study: StudyName,
    binding: BindingName,
    threads: Threads = None,
    device: Device = "auto",
) -> None:
    """Render the recipes of a study and binding to image files. Covers all dataset samples."""
    import torch

    from diagvib.images.datasets import ImageFiles
    from diagvib.images.files import write_images

    torch.set_num_threads(cores(threads))
    # A GPU draws the same bytes, so that nobody needs one.
    cpu_alone = device == "cpu" or not load_scene(job.scene).draws_on_gpu
    place = resolve_device("cpu" if cpu_alone else "auto")
    say(f"drawn on {machine() if place.type == 'cpu' else device_name(place)}")
    data = _Data(layout, job, study, binding, place)
    datasets, files, names = data.recipes(), ImageFiles(layout.images(study, binding)), []
    forget(files.folder / DIGESTS_FILE)
    with counting(f"render {study} {binding}", len(datasets), "images") as advance:
        for sample in range(job.samples):
            for split in SPLITS:
                write_images(
                    files.path(sample, split),
                    datasets.table(sample, split),
                    datasets.renderer,
                    datasets.metadata(sample, split),
                    advance,
                )
                names.append(files.name(sample, split))
    write_digests(layout.images(study, binding), names, **datasets.made_from)


@dataclass(frozen=True)
class _Data:
    """What a job reads of a (study, binding); device: where images are rendered."""

    layout: Layout
    job: jobs.Render | jobs.Encode | jobs.Train | jobs.Tune
    study: str
    binding: str
    device: torch.device

    def recipes(self, size: int | None = None, **options: object) -> RenderedRecipes:
        from diagvib.images.datasets import RenderedRecipes

        return RenderedRecipes(
            self.layout.recipes(self.study, self.binding),
            load_scene(self.job.scene),
            self.layout.prepared(self.job.scene),
            size or self.job.image_size,
            self.device,
            **options,
        )

    def images(self) -> Datasets:
        """Files, or recipes rendered now."""
        from diagvib.images.datasets import ImageFiles

        if self.job.images == "parquet":
            return ImageFiles(self.layout.images(self.study, self.binding))
        return self.recipes()


def _features_or_images(data: _Data) -> Datasets:
    from diagvib.images.features import FeatureFiles
    from diagvib.methods.registry import as_read

    if data.job.network is None:
        return as_read(data.job.settings, data.images())
    folder = data.layout.features(data.job.network, data.study, data.binding)
    # A workflow has compared them before it starts a job.
    if WORKFLOW not in os.environ and (folder / FEATURES_FILE).exists():
        _check_features(data, folder / FEATURES_FILE)
    return FeatureFiles(folder)


def _check_features(data: _Data, path: Path) -> None:
    """DiagvibError if features are not of a job's network, or not of the images as they are now."""
    from diagvib.provenance.expected import expected_images

    recorded, of_others = read_json(path), []
    encoded, of_job = recorded.get("of", {}), (data.layout, data.job, data.study, data.binding)
    if network_name(recorded["made_from"]) != data.job.network:
        of_others.append("another network")
    for sample in sorted({int(name.partition("/")[0]) for name in encoded}):
        images = expected_images(*of_job, sample)
        if images not in (None, {split: encoded[f"{sample}/{split}"] for split in SPLITS}):
            of_others.append(
                f"{'other' if images else 'smaller or larger'} images of sample {sample}"
            )
    if of_others:
        raise DiagvibError(
            f"{path}: its features are of {of_others[0]}; make them anew by `diagvib encode` and this "
            "configuration, or by `snakemake`, which also makes the images anew if it must"
        )


def encode(
    layout: Layout,
    job: jobs.Encode,
    network: NetworkName,
    study: StudyName,
    binding: BindingName,
    device: Device = "auto",
    threads: Threads = None,
    mirror: Mirror = None,
) -> None:
    """Compute the features of a frozen network for a study and binding. Covers all dataset
    samples; all baselines with this network share them."""
    from diagvib.training.encode import Encoding, encode

    resolved_device, input_settings = resolve_device(device), job.encoder.model.input
    data = _Data(layout, job, study, binding, resolved_device)
    images = data.images()
    if input_settings and input_settings.resize:  # photos are prepared for this network
        images = data.recipes(
            input_settings.size,
            crop=(input_settings.resize, input_settings.size, input_settings.interpolation),
        )
    features = layout.features(job.network, study, binding)
    encoding = Encoding(
        job.encoder.model_dump(mode="json"),
        resolved_device,
        cores(threads),
        _weights(layout, mirror, job.settings["model"]),
    )
    with writing(features / FEATURES_FILE), alone(features / FEATURES_FILE):
        encode(encoding, images, job.samples, features)


def train(
    layout: Layout,
    job: jobs.Train,
    baseline: BaselineName,
    study: StudyName,
    binding: BindingName,
    device: Device = "auto",
    mirror: Mirror = None,
    keep_weights: KeepWeights = False,
    tensorboard: TensorBoard = False,
    processes: Processes = None,
) -> None:
    """Train and test a baseline on a study and binding. Covers all dataset samples and seeds."""
    names = baseline, study, binding
    runs, folder, job = job.runs(*names), layout.runs(*names), job.with_tuned(baseline, layout)
    of_job = layout, job, device, mirror, (keep_weights, tensorboard), names
    processes = processes or _processes(layout, job, runs, device)
    runs_by_name = {run.name: run for run in runs}
    if min(processes, len(runs)) == 1:
        in_turn(run_trainer(*of_job), runs_by_name)
    else:
        side_by_side(partial(train_alone, *of_job), runs_by_name, processes)
    write_digests(folder, [f"{run.folder}/{file}" for run in runs for file in RUN_FILES])


def run_trainer(
    layout: Layout,
    job: jobs.Train,
    device: str,
    mirror: Path | None,
    switches: tuple[bool, bool],
    names: tuple[str, str, str],
) -> Callable[[Run], None]:
    """A function that trains one run of a job; what all need is loaded once. switches: keep_weights,
    tensorboard; names: baseline, study and binding."""
    from diagvib.training.job import Folders
    from diagvib.training.run import train_runs

    training, (keep_weights, tensorboard) = _training(layout, job, device, mirror), switches
    curves = layout.curves(*names) if tensorboard else None
    folders = Folders(layout.runs(*names), layout.checkpoints(*names), curves)
    datasets = _features_or_images(_Data(layout, job, *names[1:], training.device))
    training = replace(training, datasets=datasets, keep_weights=keep_weights)

    def train_run(run: Run) -> None:
        with _batches_of_one_refused(names[0]):
            train_runs(training, [run], folders)

    return train_run


def train_alone(*of_job_and_run: Any) -> None:
    """Train one run, in a process of its own. of_job_and_run: as for `run_trainer`; and the run."""
    *of_job, run = of_job_and_run
    run_trainer(*of_job)(run)


@contextmanager
def _batches_of_one_refused(baseline: str) -> Iterator[None]:
    """DiagvibError for torch's error of a batch norm that gets one image in training."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise DiagvibError(
            f"{baseline}: batch norm needs two images, but a batch has one: the last of an epoch, or all "
            "of a small set; leave out `drop_last: false`, or choose another batch_size"
        ) from None


def _processes(
    layout: Layout, job: jobs.Train | jobs.Tune, runs: Sequence[Run], device: str
) -> int:
    """How many of these runs to train at once, unless it is configured."""
    if not likely_gpu(device):
        return 1
    image_bytes = 0
    if job.network is None:
        import torch

        data = _Data(layout, job, runs[0].study, runs[0].binding, torch.device("cpu"))
        tables = [data.images().table(runs[0].dataset, split) for split in SPLITS]
        image_bytes = sum(table.num_rows for table in tables) * 3 * job.image_size**2
    return runs_at_once(len(runs), image_bytes, job.training.threads)


def _training(layout: Layout, job: jobs.Train | jobs.Tune, device: str, mirror: Path | None) -> Job:
    """How a job trains a baseline, but for the images."""
    from diagvib.training.job import Job
    from diagvib.training.protocol import Protocol

    protocol, prepared = Protocol(**dict(job.training)), layout.prepared(job.scene)
    return Job(
        job.settings,
        protocol,
        resolve_device(device),
        prepared=prepared,
        weights=_weights(layout, mirror, job.settings["model"]),
    )


def tune(
    layout: Layout,
    job: jobs.Tune,
    baseline: str,
    device: Device = "auto",
    mirror: Mirror = None,
    processes: Processes = None,
) -> None:
    """Choose a baseline's settings by validation. Uses a grid or random search (`tuning` in the
    configuration), on images that `snakemake tuned --cores all` makes."""
    from diagvib.training.trials import parts
    from diagvib.training.tuning import candidates, tune

    job = job.with_tuned(baseline, layout)
    tuning, options = job.tuning, (layout, job, baseline, device, mirror)
    task = _tuning_task(*options)
    trainings = parts(*candidates(task)[:2])
    runs = [
        Run(baseline, tuning.study, binding, sample) for binding, sample, _ in trainings.values()
    ]
    processes = processes or _processes(layout, job, runs, device)
    if min(processes, len(runs)) > 1:  # after which all are there, but for those without memory
        side_by_side(partial(_train_part, *options), trainings, processes)
    forget(layout.tuning / f"{baseline}.yaml")
    with _batches_of_one_refused(baseline):
        tune(task)


def _tuning_task(
    layout: Layout, job: jobs.Tune, baseline: str, device: str, mirror: Path | None
) -> Task:
    from diagvib.training.trials import Task

    training, tuning = _training(layout, job, device, mirror), job.tuning
    datasets = {
        binding: _features_or_images(_Data(layout, job, tuning.study, binding, training.device))
        for binding in tuning.bindings
    }
    return Task(baseline, training, tuning, datasets, layout.tuning, layout.tuned(baseline))


def _train_part(
    layout: Layout,
    job: jobs.Tune,
    baseline: str,
    device: str,
    mirror: Path | None,
    part: tuple[str, int, int],
) -> None:
    """One training of a tuning: a binding, a dataset sample and the number of a trial."""
    from diagvib.training.trials import train_part
    from diagvib.training.tuning import candidates

    task, trials, _ = candidates(_tuning_task(layout, job, baseline, device, mirror))
    with _batches_of_one_refused(baseline):
        train_part(task, trials, part)


def tabulate(layout: Layout, job: jobs.Tabulate, threads: Threads = None) -> None:
    """Make the tables from all finished runs. Names the missing runs."""
    from diagvib.papers.all_tables import tabulate
    from diagvib.provenance.expected import expected_provenance
    from diagvib.provenance.tabulated import VERSIONS
    from diagvib.results.reader_tables import say_missing

    expected, settings = expected_provenance(layout, job), job.with_tuned(layout).plain()
    forget(layout.tables / VERSIONS)
    folders, scores = (layout.all_runs, layout.tables), layout.metrics
    runs = tabulate(*folders, expected, settings, cores(threads), layout.tuning, scores)
    say_missing(runs, layout.tables / "tables.md")


def plot(layout: Layout, job: jobs.Tabulate, threads: Threads = None) -> None:
    """Draw figures, the page and the explorer from tables, runs and images. Of small_cnn with
    `keep_weights`, also results/explorer/playground.html."""
    from diagvib.provenance.tabulated import check_made_with
    from diagvib.report.explorer import write_explorer
    from diagvib.report.figures import draw_figures
    from diagvib.report.page import write_report
    from diagvib.report.playground import playground_runs, write_playground
    from diagvib.report.report_data import ReportData
    from diagvib.results.reader_tables import say_missing

    check_made_with(layout.tables, job.with_tuned(layout).plain())
    folders = layout.all_images, layout.all_runs, layout.prepared
    report_data = ReportData(layout.tables, job.plain(), *folders)
    forget(layout.report)
    figures = draw_figures(report_data, layout.figures, cores(threads))
    write_explorer(report_data, layout.all_recipes, layout.explorer)
    write_playground(report_data, playground_runs(report_data), layout.explorer)
    write_report(report_data, figures, layout.figures, layout.report)
    say_missing(report_data.frames["runs"], layout.report)
