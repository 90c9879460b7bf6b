# From sources to the report, in the order of the data flow. `snakemake --cores all` runs the paper's protocol;
# `--configfile config/demo.yaml` (or a file of yours) runs another one; `--config key=value` overrides a key.
import os
import sys

# The code beside this file, also in a copy such as `dvc exp run --temp` makes, whose environment has the original's.
CODE = os.path.join(str(workflow.current_basedir), "src")
if os.path.isdir(os.path.join(CODE, "diagvib")):
    sys.path.insert(0, CODE)
    os.environ["PYTHONPATH"] = os.pathsep.join([CODE, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)

from diagvib.workflow.hooks import after_failure, after_success, before_the_first_job, prepare_snakemake
from snakemake.utils import min_version

min_version("9.27")

if not workflow.configfiles:

    configfile: "config/config.yaml"


JOBS, GPU_SHARES = prepare_snakemake(workflow, config)
CONFIG = JOBS.config


include: "rules/common.smk"
include: "rules/fetch.smk"
include: "rules/weights.smk"
include: "rules/prepare.smk"
include: "rules/draw.smk"
include: "rules/render.smk"
include: "rules/encode.smk"
include: "rules/train.smk"
include: "rules/tune.smk"
include: "rules/tabulate.smk"
include: "rules/plot.smk"


localrules:
    all,
    fetch,
    weights,
    prepare,
    fetched,
    prepared,
    recipes,
    images,
    features,
    runs,
    tuned,
    tables,


rule all:
    default_target: True
    input:
        RAW,
        PREPARED,
        RECIPES,
        IMAGES,
        RUNS,
        TABLES,
        METRICS,
        REPORT,
        FIGURES,
        EXPLORER,
    message:
        f"everything is done; see {REPORT}"


rule fetched:
    input:
        RAW,
        WEIGHTS,


rule prepared:
    input:
        PREPARED,


rule recipes:
    input:
        RECIPES,


rule images:
    input:
        IMAGES,


rule features:
    input:
        ENCODED,


rule runs:
    input:
        RUNS,


rule tuned:  # runs only if asked for by name
    input:
        TUNED,


rule tables:
    input:
        RUNS,
        TABLES,
        METRICS,


onstart:
    from diagvib.commands.time_left import show_time_left

    before_the_first_job(workflow, JOBS)
    show_time_left(workflow, CONFIG)


onsuccess:
    after_success(workflow, CONFIG)


onerror:
    after_failure(workflow)
