# The whole of DiagViB-6, in the order in which data flows. `snakemake --cores all` runs the paper's protocol;
# `--configfile config/demo.yaml` (or your own) another one; `--config key=value` overrides a key.
import atexit
import gc
import signal
import threading

from diagvib.operations.failures import what_failed
from diagvib.operations.locks import give_up_dead_locks
from diagvib.operations.scheduler import wake_only_for_the_limit
from snakemake.utils import min_version

# A workflow of this size makes millions of objects that stay; looking through them for garbage is a sixth of its time.
gc.set_threshold(100_000, 20, 50)

min_version("9.27")
wake_only_for_the_limit()
if workflow.is_main_process:
    give_up_dead_locks()

if not workflow.configfiles:
    configfile: "config/config.yaml"

include: "rules/common.smk"
include: "rules/fetch.smk"
include: "rules/prepare.smk"
include: "rules/draw.smk"
include: "rules/render.smk"
include: "rules/train.smk"
include: "rules/tune.smk"
include: "rules/tabulate.smk"
include: "rules/plot.smk"

localrules: all, fetch, prepare, fetched, prepared, recipes, images, runs, tuned, tables


rule all:
    default_target: True
    input: RAW, PREPARED, RECIPES, IMAGES, RUNS, WEIGHTS, TABLES, METRICS, REPORT, FIGURES
    message: f"everything is there; see {REPORT}"


rule fetched:
    input: RAW
    message: "all sources are there"


rule prepared:
    input: PREPARED
    message: "all digits and textures are there"


rule recipes:
    input: RECIPES
    message: "all recipes are there"


rule images:
    input: IMAGES
    message: "all images are there"


rule runs:
    input: RUNS, WEIGHTS
    message: "all runs are there"


rule tuned:
    input: TUNED
    message: f"batch size and learning rate are tuned; see {LAYOUT.tuning}"


rule tables:
    input: TABLES, METRICS
    message: "all tables are there"


# Hooks run only where there are jobs; `dvc repro` records what it finds after "Nothing to be done", too.
if "DVC_STAGE" in os.environ and workflow.is_main_process and (changed := changed_behind(ROOT)):
    sys.exit(f"error: {changed}")


def finish_running_jobs(*_):
    """Snakemake's own answer to SIGTERM, from a thread: in the main thread it can wait for ever for itself, as that
    may hold the scheduler's lock when the signal comes."""
    threading.Thread(target=workflow.scheduler.exit_gracefully).start()


onstart:
    if changed := changed_behind(ROOT):
        sys.exit(f"error: {changed}")
    signal.signal(signal.SIGTERM, finish_running_jobs)


onsuccess:
    record_run(ROOT, rules.all.input, workflow.touch)


onerror:
    # At exit, since Snakemake goes on to say where its own log is and that something failed.
    atexit.register(print, what_failed(workflow.scheduler.failed), file=sys.stderr)
