# ImageNet-W, from folders of photos to its two tables: `snakemake --snakefile rules/imagenet_w.smk --cores all`, by
# default with config/imagenet_w.yaml. It is a separate workflow, because it has no studies, bindings or baselines, on which the
# main workflow's rules and configuration are built.
import json
import shlex
from pathlib import Path

from diagvib.foundation.devices import likely_gpu
from diagvib.foundation.files import DIGESTS_FILE
from diagvib.imagenet_w.settings import TABLE_FILES, Layout, models, resolve, stage_settings
from diagvib.imagenet_w.workflow import photo_state, stage_code
from diagvib.operations.snakemake import begin
from snakemake.utils import min_version

min_version("9.27")

if not workflow.configfiles:
    configfile: "config/imagenet_w.yaml"

CONFIG = begin(workflow, config, resolve)
ROOT, DEVICE, THREADS = CONFIG["root"], CONFIG["device"], CONFIG["threads"]
LAYOUT, LOGS, GPU_SHARE = Layout(Path(ROOT)), Path(ROOT) / "logs", 100 if likely_gpu(CONFIG["device"]) else 0
WEIGHTS = f"--weights-folder {shlex.quote(CONFIG['weights_folder'])}" if CONFIG["weights_folder"] else ""
METHODS = CONFIG["last_layer"]["methods"] if CONFIG["last_layer"] else []
# Stand-ins are made here; photos are the user's. Changes to them are noticed from the state of their folders: planning reads none.
STAND_INS = [f"{LAYOUT.photos}/{DIGESTS_FILE}", str(LAYOUT.small_net)] if CONFIG["stand_ins"] else []
STATE = "" if STAND_INS else photo_state(CONFIG["photos"])
FEATURES = f"{LAYOUT.features}/features.json"
MODELS = [str(LAYOUT.model(name)) for name in models(CONFIG)]
LAST_LAYERS = [str(LAYOUT.method(name)) for name in METHODS]
TABLES = [f"{LAYOUT.tables}/{name}" for name in TABLE_FILES]


def stage(name):
    """A rule's `settings`: the part of the configuration that one of its jobs depends on, as JSON."""
    return lambda wildcards: json.dumps(stage_settings(CONFIG, name, wildcards.get("name")), sort_keys=True)


wildcard_constraints:
    name="[A-Za-z0-9][A-Za-z0-9_.-]*",

localrules: tables

rule tables:
    default_target: True
    input: TABLES
    message: f"everything is done; see {LAYOUT.tables}"

rule stand_ins:
    output:
        STAND_INS or [f"{LAYOUT.photos}/{DIGESTS_FILE}"],
    log:
        f"{LOGS}/stand_ins/stand_ins.log",
    benchmark:
        f"{LOGS}/benchmarks/stand_ins/stand_ins.tsv"
    threads: THREADS
    params:
        settings=stage("stand_ins"),
        code=stage_code("stand_ins").digest,
    message:
        "draw stand-ins, and train a small net on them"
    shell:
        "diagvib imagenet-w-stage stand_ins --settings {params.settings:q} --root {ROOT:q} > {log:q} 2>&1"

rule evaluate:
    input:
        STAND_INS,
    output:
        LAYOUT.model("{name}"),
    log:
        f"{LOGS}/evaluate/{{name}}.log",
    benchmark:
        f"{LOGS}/benchmarks/evaluate/{{name}}.tsv"
    threads: THREADS
    resources:
        gpu_share=GPU_SHARE,
    params:
        settings=stage("evaluate"),
        code=stage_code("evaluate").digest,
        photos=STATE,
    message:
        "evaluate {wildcards.name}"
    shell:
        "diagvib imagenet-w-stage evaluate {wildcards.name} --settings {params.settings:q} --root {ROOT:q} "
        "--device {DEVICE} --threads {threads} {WEIGHTS} > {log:q} 2>&1"

rule features:
    input:
        STAND_INS,
    output:
        FEATURES,
    log:
        f"{LOGS}/features/features.log",
    benchmark:
        f"{LOGS}/benchmarks/features/features.tsv"
    threads: THREADS
    resources:
        gpu_share=GPU_SHARE,
    params:
        settings=stage("features"),
        code=stage_code("features").digest,
        photos=STATE,
    message:
        "compute the features of all photos"
    shell:
        "diagvib imagenet-w-stage features --settings {params.settings:q} --root {ROOT:q} --device {DEVICE} "
        "--threads {threads} {WEIGHTS} > {log:q} 2>&1"

rule last_layer:
    input:
        FEATURES,
    output:
        LAYOUT.method("{name}"),
    log:
        f"{LOGS}/last_layer/{{name}}.log",
    benchmark:
        f"{LOGS}/benchmarks/last_layer/{{name}}.tsv"
    threads: THREADS
    resources:
        gpu_share=GPU_SHARE,
    params:
        settings=stage("last_layer"),
        code=stage_code("last_layer").digest,
    message:
        "train the last layer with {wildcards.name}"
    shell:
        "diagvib imagenet-w-stage last_layer {wildcards.name} --settings {params.settings:q} --root {ROOT:q} "
        "--device {DEVICE} > {log:q} 2>&1"

rule compare:
    input:
        MODELS,
        LAST_LAYERS,
    output:
        TABLES,
    log:
        f"{LOGS}/compare/compare.log",
    benchmark:
        f"{LOGS}/benchmarks/compare/compare.tsv"
    threads: 1
    params:
        settings=stage("compare"),
        code=stage_code("compare").digest,
    message:
        "compare with the paper"
    shell:
        "diagvib imagenet-w-stage compare --settings {params.settings:q} --root {ROOT:q} > {log:q} 2>&1"
