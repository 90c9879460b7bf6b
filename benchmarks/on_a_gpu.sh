#!/bin/sh
# What to do with a quarter of an hour of one GPU, without Snakemake and DVC:
#     benchmarks/on_a_gpu.sh SOURCES RESULTS
# SOURCES: a folder with the source files (as `mirror:` in a configuration), or a root's data/prepared, which saves a
# minute. RESULTS: a folder, made if it is missing; in memory (/dev/shm), since each run writes 180 MB in each epoch. First a
# test of a minute; then runs of the paper's protocol until minute 11, in the order of benchmarks/protocol_runs.txt; then the
# measurements that have no result here yet. Finished runs come back as RESULTS/finished.tgz.*, parts of at most 15 MB, and
# the checkpoints of others, if they are at most UNFINISHED_MIB (200), as RESULTS/unfinished.tgz.*: with these files, the
# next machine goes on. RESULTS/devices.csv says which device did what. Where a command may take only ten minutes, call it
# with MINUTES=9 and then, on the same machine, again: RESULTS/work has what is unfinished.
# At home, `python benchmarks/add_runs.py RESULTS` adds finished runs to docs/results/paper_protocol.
#
# Needs torch >= 2.11 and the packages that the sources import to draw and train; PACKAGES may name a folder with those that
# the machine lacks, such as pydantic and jsonschema with theirs. Other variables: MINUTES, PROTOCOL_MINUTES, PROCESSES; and,
# for a trial without a GPU, DEVICE, RUNS, and OVERRIDES of the configuration, such as "sources=embedded image_size=64
# training.max_epochs=1". A trial with another device or with overrides has a folder of its own as RESULTS:
# RESULTS/trial-NUMBER.
# A step that fails or takes too long does not stop the others; the exit status is the number of these.
set -u
if [ $# -ne 2 ]; then
    echo "usage: $0 SOURCES RESULTS" >&2
    exit 64
fi
sources=$(cd "$1" && pwd) || exit 1
mkdir -p "$2" && results=$(cd "$2" && pwd) || exit 1
cd "$(dirname "$0")/.." || exit 1
start=$(date +%s)
device=${DEVICE:-cuda} runs=${RUNS:-benchmarks/protocol_runs.txt}
whole=$((${MINUTES:-15} * 60)) protocol=$((${PROTOCOL_MINUTES:-11} * 60))
[ "$protocol" -lt "$((whole - 40))" ] || protocol=$((whole - 40))  # to stop the runs and to pack them
if [ "$device" != cuda ] || [ -n "${OVERRIDES:-}" ]; then
    trial=$(echo "$device ${OVERRIDES:-}" | cksum)
    results="$results/trial-${trial%% *}"
    mkdir -p "$results"
fi
export PYTHONPATH="$PWD/src:$PWD/tests:$PWD/benchmarks${PACKAGES:+:$PACKAGES}" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONHASHSEED=0 OMP_NUM_THREADS=1
work="$results/work"
overrides=
for override in ${OVERRIDES:-}; do
    overrides="$overrides --set $override"
done
failed=0

left() {  # seconds until second $1 of the whole
    echo $((start + $1 - $(date +%s)))
}

step() {  # NAME SECONDS COMMAND...: at most so many seconds, and none after the end
    name=$1 seconds=$2
    shift 2
    [ "$(left "$whole")" -lt "$seconds" ] && seconds=$(left "$whole")
    if [ "$seconds" -lt 10 ]; then
        echo "$name: no time is left"
        return 1
    fi
    begin=$(date +%s)
    timeout --kill-after 10 "$seconds" "$@" >"$results/$name.txt" 2>&1
    status=$?
    echo "$(date -u +%Y-%m-%dT%H:%M:%SZ),$gpu,$name,$status,$(($(date +%s) - begin))" >>"$results/devices.csv"
    echo "$name: status $status, $(($(date +%s) - begin)) s"
    [ "$status" -eq 0 ] || tail -n 3 "$results/$name.txt"
    return "$status"
}

measured() {  # NAME SECONDS COMMAND...: a step, unless such a device has done it, or it would hardly end
    grep -qsF ",$gpu,$1,0," "$results/devices.csv" && return
    if [ "$(left "$whole")" -lt "$(($2 * 2 / 3))" ]; then
        echo "$1: too little time is left"
    else
        step "$@" || failed=$((failed + 1))
    fi
}

unpacked() {  # NAME OPTION...: what another machine has left, into the work
    name=$1
    shift
    [ -z "$cut" ] || set --  # files there may be cut off
    [ ! -e "$results/$name.tgz.aa" ] || cat "$results/$name".tgz.* | tar -xzf - -C "$results" "$@" && return
    echo "$results/$name.tgz.*: not unpacked; are all of its parts there?" >&2
    exit 1
}

packed() {  # NAME FOLDER: of the work; an earlier archive stays until the new one is whole
    new="$results/$1.new"
    (cd "$results" && find work/*/"$2" -type f ! -name ".*" -print0 2>/dev/null) >"$new.list"
    if [ ! -s "$new.list" ]; then
        rm -f "$results/$1".tgz.*
    elif {
        tar -czf - -C "$results" --null -T "$new.list"
        echo $? >"$new.status"
    } | split -b 15m - "$new." && [ "$(cat "$new.status")" -le 1 ]; then
        rm -f "$results/$1".tgz.*
        for part in "$new".??; do
            mv "$part" "$results/$1.tgz.${part##*.}"
        done
    else
        echo "$1: not packed; what was packed before is still there"
        failed=$((failed + 1))
    fi
    rm -f "$new".*
}

train() {  # NAME LIST SECONDS OVERRIDES...
    name=$1 list=$2 seconds=$3
    shift 3
    # shellcheck disable=SC2086
    step "$name" "$((seconds + 30))" python3 benchmarks/gpu_jobs.py "$list" "$sources" "$work" \
        ${processes:+--processes "$processes"} --seconds "$seconds" --device "$device" "$@" $overrides
}

device_name() {  # SECONDS: at most; what computes
    timeout "$1" python3 -c "import torch
x = torch.ones(2, device='$device')
print(torch.cuda.get_device_name() if x.sum().item() and x.is_cuda else x.device)"
}

begin_mps() {  # NVIDIA's Multi-Process Service, if it works: with it, runs compute at the same moment
    [ "$device" = cuda ] && command -v nvidia-cuda-mps-control >/dev/null || return
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) && export CUDA_MPS_PIPE_DIRECTORY
    export CUDA_MPS_LOG_DIRECTORY="$CUDA_MPS_PIPE_DIRECTORY"
    mps=yes
    timeout 20 nvidia-cuda-mps-control -d >"$CUDA_MPS_LOG_DIRECTORY/out" 2>&1 && gpu=$(device_name 60) || end_mps
}

end_mps() {
    [ -n "$mps" ] || return
    echo quit | timeout 20 nvidia-cuda-mps-control
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    mps=
}

smoke() {
    rm -rf "$work/smoke"
    train smoke "$results/smoke.list" "${SMOKE_SECONDS:-90}" --set "counts={train: 640, val: 64, id: 64, ood: 64}" \
        --set training.max_epochs=1 --set samples=2 || [ $? -eq 75 ]  # only slow
}

mkdir -p "$work"
cut=
[ ! -e "$results/unpacking" ] || cut=yes
touch "$results/unpacking"
unpacked finished --skip-old-files
unpacked unfinished --keep-newer-files --warning=no-ignore-newer
rm "$results/unpacking"

processes=${PROCESSES:-} mps=
trap end_mps EXIT
begin_mps
[ -n "$mps" ] || gpu=$(device_name 300) || { echo "$device does not compute" >&2 && exit 1; }
[ -e "$results/devices.csv" ] || echo "ended,device,step,status,seconds" >"$results/devices.csv"

# Everything that the runs need, small: if this fails, nothing else would be worth its time.
if [ ! -e "$work/smoke_passed" ]; then
    echo "resnet18/zgo/shape-hue root=smoke" >"$results/smoke.list"
    smoke || { [ -n "$mps" ] && end_mps && smoke; } || exit 1
    rm -rf "$work/smoke" "$results/smoke.list"
    touch "$work/smoke_passed"
fi
# By the rates measured, more runs at once would not end in ten minutes without that service.
[ "$device" != cuda ] || [ -n "$mps" ] || processes=${processes:-10}

seconds=$(left "$protocol")
[ "$seconds" -lt 10 ] || train protocol "$runs" "$seconds" || [ $? -eq 75 ] || failed=$((failed + 1))
end_mps
packed finished results/runs
mib=$(du -cm "$work"/*/data/checkpoints 2>/dev/null | tail -n 1 | cut -f 1)
if [ "${mib:-0}" -le "${UNFINISHED_MIB:-200}" ]; then
    packed unfinished data/checkpoints
else
    echo "unfinished: $mib MiB stay in $work"
fi

workers=$(python3 -c "import xdist; print('-n 4')" 2>/dev/null)
# shellcheck disable=SC2086
measured cuda_tests 120 python3 -m pytest -q -p no:cacheprovider $workers tests/test_cuda.py
measured render 60 python3 benchmarks/render.py --device "$device" --images "${RENDER_IMAGES:-131072}" --out "$results"
measured train 90 python3 benchmarks/train.py resnet18 small_cnn --device "$device" --images "${TRAIN_IMAGES:-8192}" \
    --processes 1 --processes 5 --processes 15 --out "$results"
measured encode 60 python3 benchmarks/encode.py --device "$device" --model resnet18 --images "${ENCODE_IMAGES:-30000}" \
    --rounds 3 --out "$results"
exit "$failed"
