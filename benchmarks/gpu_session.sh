#!/usr/bin/env bash
# What a machine with a GPU should measure, from the repository's root, in parts that each end within ten minutes:
#   benchmarks/gpu_session.sh checks    the renderer's golden contract on CUDA, and the tests that need a GPU
#   benchmarks/gpu_session.sh fullrun   resnet18: rates and two whole runs, at two batch sizes
#   benchmarks/gpu_session.sh train     the rates of all baselines
#   benchmarks/gpu_session.sh grid      resnet18 on ZSO, then ZGO, as far as the time goes; called again, it continues
# Needs what the package needs, Snakemake excepted; `grid` also prepared sources in $ROOT/data/prepared, or $MIRROR.
# PYTHON, OUT (results), ROOT (the grid's data and results), MIRROR (source files), SAMPLES, SECONDS_EACH may be set.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} OUT=${OUT:-benchmarks/results} ROOT=${ROOT:-outputs/gpu} SECONDS_EACH=${SECONDS_EACH:-570}
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
CONFIG=(--set "root=$ROOT" --set images=render --set "baselines=[resnet18]" --set "studies=[zso, zgo]"
        --set "samples=${SAMPLES:-5}" --set device=cuda)
FACTORS=(shape hue lightness scale texture position)
mkdir -p "$OUT"

# Within what is left of the part's time; nothing is begun in the last seconds.
limited() { [ "$SECONDS" -lt "$((SECONDS_EACH - 10))" ] && timeout -s INT -k 20 "$((SECONDS_EACH - SECONDS))" "$@"; }

checks() {
    limited "$PYTHON" benchmarks/render.py --device cuda --out "$OUT"
    limited "$PYTHON" -m pytest -q tests/test_cuda.py
}

fullrun() {
    limited "$PYTHON" benchmarks/train.py resnet18 --device cuda --batch-size 64 --batch-size 256 --full-run \
        --out "$OUT/full-run"
}

train() {
    limited "$PYTHON" benchmarks/train.py resnet18 small_cnn alexnet resnet50 wide_resnet50_2 densenet161 \
        resnet50_in vae factor_vae asr --device cuda --images 8192 --out "$OUT"
}

job() { # study, pair; nothing if its last run is there
    [ -e "$ROOT/results/runs/resnet18/$1/$2/$((${SAMPLES:-5} - 1))/run.json" ] ||
        { { [ -e "$ROOT/data/recipes/$1/$2.parquet" ] || limited "$PYTHON" -m diagvib draw "$1" "$2" "${CONFIG[@]}"; } &&
            limited "$PYTHON" -m diagvib train resnet18 "$1" "$2" "${CONFIG[@]}"; }
}

all_jobs() {
    for target in "${FACTORS[@]}"; do job zso "$target" || return; done
    for target in "${FACTORS[@]}"; do
        for cue in "${FACTORS[@]}"; do [ "$target" = "$cue" ] || job zgo "$target-$cue" || return; done
    done
}

grid() {
    if [ ! -d "$ROOT/data/prepared" ]; then
        "$PYTHON" -m diagvib fetch "${CONFIG[@]}" ${MIRROR:+--mirror "$MIRROR"}
        "$PYTHON" -m diagvib prepare "${CONFIG[@]}"
    fi
    # That the time runs out is no failure: what is finished is tabulated.
    all_jobs || echo "stopped after $SECONDS s; the same command continues"
    "$PYTHON" -m diagvib tabulate "${CONFIG[@]}"
    tar -czf "$OUT/resnet18-grid.tar.gz" -C "$ROOT/results" --exclude=predictions.parquet --exclude=visualisations.parquet .
}

"${1:?name a part: checks, fullrun, train or grid}"
