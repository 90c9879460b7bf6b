# The expansion of study x pair x baseline into the files that each stage makes. Nothing else.
import json
import os
import re
import shlex
import sys
from pathlib import Path

from diagvib.methods.registry import baseline_files
from diagvib.settings.config import resolve, stage_settings, typed
from diagvib.foundation.devices import likely_gpu
from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.fetch import load_sources
from diagvib.foundation.files import read_yaml
from diagvib.settings.grid import IMAGE_FILES, RUN_FILES, WEIGHTS_FILE, Layout, datasets, train_jobs
from diagvib.operations.ledger import changed_behind, record_run
from diagvib.foundation.own_code import own_files
from diagvib.results.tables import TABLE_FILES

try:
    for file in workflow.configfiles:
        read_yaml(file)  # Snakemake reads a file in which a key stands twice
    CONFIG, SOURCES = resolve(typed(dict(config)), str(workflow.configfiles[-1])), load_sources()
except DiagvibError as error:
    sys.exit(f"error: {error}")  # this line alone; Snakemake adds others to any exception

# The `diagvib` beside this Python, whether or not its environment is active.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]

SAMPLES = range(CONFIG["samples"])
# Where a job runs and where from is no part of its result: used in commands, but no job runs again for a change.
ROOT, DEVICE = CONFIG["root"], CONFIG["device"]
MIRROR = f"--mirror {shlex.quote(CONFIG['mirror'])}" if CONFIG["mirror"] else ""
# TensorBoard files and CUDA graphs likewise: beside the result, and how fast it comes.
SWITCHES = " ".join([*["--tensorboard"] * CONFIG["tensorboard"], *["--no-cuda-graphs"] * (not CONFIG["cuda_graphs"])])
GPU_SHARE = 100 if likely_gpu(DEVICE) else 0
LAYOUT, LOGS = Layout(Path(ROOT)), Path(ROOT) / "logs"


def baseline_code(wildcards):
    """The modules that a baseline's model and method are made of: a change in one re-runs the baselines that use it."""
    settings = stage_settings(CONFIG, "train", baseline=wildcards.baseline)["baseline"]
    return [os.path.relpath(path) for path in baseline_files(settings)]


def stage(name):
    """A rule's `params`: the part of the configuration that one of its jobs depends on, as JSON."""
    return lambda wildcards: json.dumps(
        stage_settings(CONFIG, name, wildcards.get("study"), wildcards.get("baseline")), sort_keys=True)


RAW = [f"{LAYOUT.raw}/{source.path}" for source in SOURCES] if CONFIG["sources"] == "official" else []
PREPARED = [f"{LAYOUT.prepared}/{name}" for name in
            ["digits.parquet", *(f"textures/{texture}.png" for texture in classes("texture")), "sources.json"]]
RECIPE_FILE = str(LAYOUT.recipes("{study}", "{binding}"))
DIGESTS_FILE = str(LAYOUT.digests("{study}", "{binding}"))
DATASET_FILES = [*(f"{LAYOUT.images('{study}', '{binding}')}/{sample}/{file}"
                   for sample in SAMPLES for file in IMAGE_FILES), DIGESTS_FILE]
JOB_FILES = [f"{LAYOUT.runs('{baseline}', '{study}', '{binding}')}/{sample}/{file}"
             for sample in SAMPLES for file in RUN_FILES]
# Kept weights are asked for by targets alone, so that switching them on or off leaves tables and figures as they are.
KEEP_WEIGHTS = "--keep-weights" if CONFIG["keep_weights"] else "--no-keep-weights"
JOB_WEIGHTS = [f"{LAYOUT.runs('{baseline}', '{study}', '{binding}')}/{sample}/{WEIGHTS_FILE}"
               for sample in SAMPLES if CONFIG["keep_weights"]]

RECIPES = [RECIPE_FILE.format(study=study, binding=binding) for study, binding in datasets(CONFIG)]
IMAGES = [file.format(study=study, binding=binding) for study, binding in datasets(CONFIG) for file in DATASET_FILES
          if CONFIG["images"] == "parquet"]
RENDER_CODE = [f"src/diagvib/{module}.py" for module in ("images/datasets", "scenes/digits/renderer", "scenes/digits/cpu_kernel", "scenes/digits/triton_kernel", "images/files", "foundation/columns")]
# What a train job depends on: the digests of image files, or recipes that it renders itself. It checks the files against
# their digests as it reads them; were they inputs, Snakemake would read them again for each output of each job, alone.
DATASET = {"parquet": [DIGESTS_FILE], "render": [RECIPE_FILE, *PREPARED]}[CONFIG["images"]]
DATASET_CODE = {"parquet": [], "render": [*RENDER_CODE, "src/diagvib/studies/recipes.py"]}[CONFIG["images"]]
RUNS = [file.format(baseline=baseline, study=study, binding=binding)
        for baseline, study, binding in train_jobs(CONFIG) for file in JOB_FILES]
WEIGHTS = [file.format(baseline=baseline, study=study, binding=binding)
           for baseline, study, binding in train_jobs(CONFIG) for file in JOB_WEIGHTS]
# The pictures that figures show are those of the first dataset sample.
EXHIBITS = [file for file in RUNS if file.endswith("/0/exhibits.parquet")]
TABLES = [f"{LAYOUT.tables}/{name}" for name in TABLE_FILES]
# Tuning is asked for by its own target; nothing else depends on it.
TUNING_DATASETS = [file.format(study="zso", binding=factor) for factor in CONFIG["tuning"]["factors"] for file in DATASET]
TUNED = [f"{LAYOUT.tuning}/{baseline['name']}.{kind}" for baseline in CONFIG["baselines"] for kind in ("csv", "yaml")]
METRICS, REPORT, FIGURES = str(LAYOUT.metrics), str(LAYOUT.report), str(LAYOUT.figures)

# What tables, figures and the page are made by: they are made anew when it changes.
TABLE_CODE = [*(f"src/diagvib/{module}.py" for module in
                ("training/accuracy", "results/agreement", "results/read_runs", "results/comparability", "results/formats", "results/metrics", "results/paper", "results/reference", "results/scores", "results/selection", "results/tables", "results/uncertainty", "results/verdicts")),
              "config/paper_tables.csv", "config/reproductions.csv"]
PLOT_CODE = [*(f"src/diagvib/{module}.py" for module in
               ("report/examples", "report/visualisation_sheets", "report/figures", "report/matrix", "report/overviews", "report/page", "report/page_tables", "report/sheets", "report/style")),
             *(f"src/diagvib/report/page.{kind}" for kind in ("css", "html.j2", "js"))]


wildcard_constraints:
    study="[a-z0-9-]+",
    binding="[a-z]+(-[a-z]+)?",
    baseline="[A-Za-z0-9][A-Za-z0-9_.-]*",
