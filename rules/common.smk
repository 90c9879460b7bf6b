# Expands a configuration into the files that each stage makes and the settings that its jobs get. Nothing else.
import inspect
import shlex
from functools import cache

from diagvib.foundation.files import DIGESTS_FILE
from diagvib.images import FEATURES_FILE
from diagvib.results import TABLE_FILES
from diagvib.scenes import load_scene
from diagvib.settings.baselines import tuning_needed
from diagvib.settings.layout import folder_name
from diagvib.settings.model_settings import prepared_input, published_weights
from diagvib.provenance.code import renders
from diagvib.provenance.expected import study_and_baseline

# Where a job runs and where its sources come from does not affect its result: commands use them, but a change reruns no job.
# The same holds for TensorBoard files, which are not part of the result.
ROOT, DEVICE, LAYOUT = CONFIG.root, CONFIG.device, JOBS.layout
LOGS = str(LAYOUT.root / "logs")  # of the root ".", without the "./" of which Snakemake warns for each job
MIRROR = f"--mirror {shlex.quote(CONFIG.mirror)}" if CONFIG.mirror else ""
SWITCHES = " ".join(
    ["--keep-weights" if CONFIG.keep_weights else "--no-keep-weights", *["--tensorboard"] * CONFIG.tensorboard]
)
DEVICES = "" if CONFIG.devices == "all" else f"--devices {shlex.quote(','.join(CONFIG.devices))}"
PROCESSES = f"--processes {CONFIG.processes}" if CONFIG.processes else ""
RUN_COUNT = f", {CONFIG.runs_per_job} runs" if CONFIG.seeds > 1 else ""
TUNING_STUDY = CONFIG.tuning.study
SCENES = {folder_name(name): name for name in [*CONFIG.scenes, CONFIG.study(TUNING_STUDY).scene]}

# A digest file stands for the files next to it: Snakemake looks at one file per job. Missing files that it stands for are
# noticed (provenance/rerun_reasons.py), and jobs check what they read against it.
RAW_DIGESTS, PREPARED_DIGESTS, IMAGE_DIGESTS, RUN_DIGESTS = (
    f"{folder}/{DIGESTS_FILE}"
    for folder in (
        LAYOUT.raw("{scene}"),
        LAYOUT.prepared("{scene}"),
        LAYOUT.images("{study}", "{binding}"),
        LAYOUT.runs("{baseline}", "{study}", "{binding}"),
    )
)
WEIGHTS_DIGESTS = str(LAYOUT.weights("{model}", "{weights}"))
RECIPE_FILE = str(LAYOUT.recipes("{study}", "{binding}"))
FEATURES = f"{LAYOUT.features('{network}', '{study}', '{binding}')}/{FEATURES_FILE}"


def parameter(of_wildcards):
    """A function for `params`. Its signature is kept with it, since Snakemake asks for it several times per job."""
    of_wildcards.__signature__ = inspect.signature(of_wildcards)
    return of_wildcards


def stage(name):
    """A rule's `settings`: the file with the part of the configuration that one of its jobs depends on, written before
    the first job starts (workflow/hooks.py); by a job on another machine, which cannot rely on that, as it is read."""

    def file(wildcards):
        names = study_and_baseline(wildcards)
        if not workflow.is_main_process:
            JOBS.write_settings(name, *names)
        return JOBS.settings_file(name, *names)

    return parameter(file)


def code(name):
    """A rule's `code`: a digest of the files that decide what one of its jobs makes."""
    return parameter(lambda wildcards: JOBS.code(name, SCENES.get(wildcards.get("scene")), *study_and_baseline(wildcards)))


def fetched(scene):
    """The files fetched for a scene, given its folder; none with embedded sources."""
    return [RAW_DIGESTS.format(scene=scene)] if load_scene(SCENES[scene]).raw_files(CONFIG.sources) else []


@cache
def prepared(study):
    """The sources from which a study's images are rendered."""
    return PREPARED_DIGESTS.format(scene=folder_name(CONFIG.study(study).scene))


def drawn_on_gpu(study):
    """Whether a study's render jobs use a GPU: then one job at a time draws, and compresses on many cores."""
    return bool(GPU_SHARES.draws) and load_scene(CONFIG.study(study).scene).draws_on_gpu


def weights(model):
    """A network's published weights. `ancient`: their hash is known, so fetching them again changes nothing."""
    published = published_weights(model)
    return [ancient(str(LAYOUT.weights(*published)))] if published else []


def images(study, binding, rendered):
    """A dataset's images: the digests of image files, or recipes; and the prepared data if they are rendered."""
    file = IMAGE_DIGESTS if CONFIG.images == "parquet" else RECIPE_FILE
    return [file.format(study=study, binding=binding)] + [prepared(study)] * rendered


def encoded_images(study, binding, network):
    """The input of encode jobs: images; of photos that are prepared for a network, what these are made from; weights."""
    model = encoder(study, network)
    if prepared_input(model):
        return [RECIPE_FILE.format(study=study, binding=binding), prepared(study), *weights(model)]
    return images(study, binding, CONFIG.images == "render") + weights(model)


@cache
def encoder(study, network):
    """The model of a frozen network."""
    return JOBS.settings("encode", study, network).settings["model"]


def training_data(stage, study, binding, baseline):
    """The input of train and tune jobs: images and published weights, or the features of a frozen network; and the
    settings that tuning chose, if the baseline refers to any."""
    network, rendered, model, tuned = reading(stage, study, baseline)
    if not network:
        return images(study, binding, rendered) + weights(model) + tuned
    head = weights(model) if model.get("head") == "published" else []
    return [FEATURES.format(network=network, study=study, binding=binding), *head, *tuned]


@cache
def reading(stage, study, baseline):
    """The frozen network whose features the jobs of a baseline read, None without one; whether they render images; the
    model; and the files of tuned settings that it refers to."""
    job = JOBS.settings(stage, study, baseline)
    settings = job.settings
    tuned = [f"{LAYOUT.tuning}/{name}.yaml" for name in tuning_needed(settings, baseline)]
    return job.network, renders(CONFIG.images, settings), settings["model"], tuned


TRAIN_JOBS, DATASETS = CONFIG.train_jobs, CONFIG.datasets
RAW = [file for name in CONFIG.scenes for file in fetched(folder_name(name))]
WEIGHTS = sorted({file for entry in CONFIG.baselines for file in weights(entry.settings["model"])})
PREPARED = [PREPARED_DIGESTS.format(scene=folder_name(name)) for name in CONFIG.scenes]
RECIPES = [RECIPE_FILE.format(study=study, binding=binding) for study, binding in DATASETS]
IMAGES = [IMAGE_DIGESTS.format(study=study, binding=binding) for study, binding in DATASETS if CONFIG.images == "parquet"]
RUNS = [RUN_DIGESTS.format(baseline=baseline, study=study, binding=binding) for baseline, study, binding in TRAIN_JOBS]
NETWORKS = {entry.name: entry.network for entry in CONFIG.baselines}
ENCODED = [
    FEATURES.format(network=NETWORKS[baseline], study=study, binding=binding)
    for baseline, study, binding in TRAIN_JOBS
    if NETWORKS[baseline]
]
TUNED = [f"{LAYOUT.tuning}/{name}.{kind}" for name in CONFIG.tuned for kind in ("csv", "yaml")]
# Tuned before training; and whatever else was tuned, by `snakemake tuned`.
TUNED_FIRST = [f"{LAYOUT.tuning}/{name}.csv" for name in dict.fromkeys(CONFIG.tuned_first)]
OTHER_TUNED = {file: digest for file, digest in LAYOUT.tuned_tables().items() if file not in TUNED_FIRST}
TABLES = [f"{LAYOUT.tables}/{name}" for name in TABLE_FILES]
METRICS, REPORT, FIGURES, EXPLORER = map(str, (LAYOUT.metrics, LAYOUT.report, LAYOUT.figures, LAYOUT.explorer))


wildcard_constraints:
    scene="[^/]+",
    study="[A-Za-z0-9][A-Za-z0-9_.-]*",
    binding="[A-Za-z0-9][A-Za-z0-9_.-]*",
    baseline="[A-Za-z0-9][A-Za-z0-9_.-]*",
    network="[A-Za-z0-9][A-Za-z0-9_.-]*",
    model="[A-Za-z0-9_]+",
    weights="[A-Za-z0-9_]+",
