#!/bin/sh
# Measures on a machine with a GPU: benchmarks/on_a_gpu.sh SOURCES RESULTS
# SOURCES: a checkout. RESULTS: a folder, made if it is missing, for result files and the steps' output.
# Needs torch >= 2.11 and what the sources import to draw and train, but neither Snakemake nor DVC. A step that fails or
# takes too long does not stop the others; the exit status is the number of these.
set -u
sources=$(cd "$1" && pwd) || exit 1
mkdir -p "$2" && results=$(cd "$2" && pwd) || exit 1
export PYTHONPATH="$sources/src:$sources/tests:$sources/benchmarks" PYTHONUNBUFFERED=1
cd "$sources" || exit 1
failed=0

step() {  # NAME SECONDS COMMAND...
    name=$1 seconds=$2
    shift 2
    if timeout "$seconds" "$@" >"$results/$name.txt" 2>&1; then
        echo "$name: done"
    else
        echo "$name: failed with $?, see $results/$name.txt"
        failed=$((failed + 1))
    fi
}

step render_bytes 120 python -m pytest -q -p no:cacheprovider tests/test_cuda.py -k "same_bytes"
step render 240 python benchmarks/render.py --device cuda --images 131072 --out "$results"
exit "$failed"
