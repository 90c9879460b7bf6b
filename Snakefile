# The whole of DiagViB-6, in the order in which data flows. `snakemake --cores all` runs the paper's protocol;
# `--configfile config/demo.yaml` (or your own) another one; `--config key=value` overrides a key.
from snakemake.utils import min_version

min_version("9.27")

if not workflow.configfiles:
    configfile: "config/config.yaml"

include: "rules/common.smk"
include: "rules/fetch.smk"
include: "rules/prepare.smk"
include: "rules/draw.smk"
include: "rules/render.smk"
include: "rules/train.smk"
include: "rules/tabulate.smk"
include: "rules/plot.smk"

localrules: all, fetched, prepared, recipes, images, runs, tables


rule all:
    default_target: True
    input: RAW, PREPARED, RECIPES, IMAGES, RUNS, TABLES, REPORT
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
    input: RUNS
    message: "all runs are there"


rule tables:
    input: TABLES
    message: "all tables are there"
