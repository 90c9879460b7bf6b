"""What else would speed up training on a CPU: variants of the real trainer's step, each against the
code as it is.

The code and a variant alternate (code, variant, code, ...); a round's ratio is that of the
variant's images per CPU second to the mean of the code's before and after it. `identical` says
whether the first epoch gives the same weights, bit for bit. Images are random; one core unless the
variant says otherwise.

    python benchmarks/cpu_training.py                    # writes benchmarks/results/cpu-training-cpu-DATE.json
    python benchmarks/cpu_training.py --case small_cnn:128:32:256 --only fewer --only batch
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import resource
import time
from collections import Counter
from functools import partial
from statistics import median
from typing import Annotated

import typer
from precision import CPU, paired
from torch.utils._python_dispatch import TorchDispatchMode
from variants.training_step import VARIANTS, Arm, evaluate

from diagvib.bench.results import RESULTS, save_result
from diagvib.foundation.devices import has_bf16

# Network, pixels per side, batch size, images per epoch; the variants to compare by default.
CASES = [
    (
        "small_cnn:128:32:256",
        [name for name in VARIANTS if name not in ("torch.compile", "memory kept")],
    ),
    (
        "small_cnn:64:32:512",
        [
            "the code itself",
            "inputs z-scored once, kept in bf16",
            "inputs gathered and z-scored in one pass, to bf16",
            "Adam foreach",
            "without running metrics",
            "not deterministic",
            "contiguous, not channels-last",
            "batch norm in fp32",
            "bf16 weights, fp32 masters, no autocast",
            "first convolution on blocks",
            "3 replicates through vmap",
            "batch 128",
            "evaluation batch 64",
        ],
    ),
    (
        "resnet18:128:64:64",
        [
            "the code itself",
            "inputs z-scored once, kept in bf16",
            "contiguous, not channels-last",
            "batch norm in fp32",
            "bf16 weights, fp32 masters, no autocast",
            "evaluation batch 64",
            "memory kept",
        ],
    ),
    ("small_cnn:128:32:256", ["torch.compile"]),
]


class OpClock(TorchDispatchMode):
    """CPU seconds by operation."""

    def __init__(self):
        super().__init__()
        self.seconds: Counter = Counter()

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        started = time.process_time()
        found = function(*arguments, **(keywords or {}))
        self.seconds[str(function.overloadpacket).removeprefix("aten.")] += (
            time.process_time() - started
        )
        return found


def profile(arm: Arm) -> dict:
    """The operations with the largest shares of an epoch's CPU seconds; page faults, and the share
    of the system."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    arm.rate()
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    with OpClock() as clock:
        arm.rate()
    total = clock.seconds.total()
    return {
        "page_faults": after.ru_minflt - before.ru_minflt,
        "system": round(system / (user + system), 3),
        **{name: round(seconds / total, 3) for name, seconds in clock.seconds.most_common(12)},
    }


def compared(case: str, name: str, code: Arm, rounds: int) -> dict:
    """A row: a variant against the code as it is."""
    try:
        variant = Arm(case, VARIANTS[name])
        code.rate()  # warm again
        rates = [code.rate()]
        for _ in range(rounds):
            rates += [variant.rate(), code.rate()]
    except Exception as error:
        return {
            "case": case,
            "variant": name,
            "error": f"{type(error).__name__}: {str(error).strip()[:200]}",
        }
    ratios = paired(rates)
    comparable = not name.startswith(
        ("batch 6", "batch 1", "batch 2", "evaluation", "3 replicates")
    )
    return {
        "case": case,
        "variant": name,
        "as it is": round(median(rates[::2]), 1),
        "images/s": round(median(rates[1::2]), 1),
        "ratio": round(median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "identical": variant.equals(code) if comparable else None,
        "first_epoch_seconds": round(variant.first_seconds, 2),
    }


def main(
    case: Annotated[
        list[str] | None, typer.Option(help="MODEL:PIXELS:BATCH:IMAGES; repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Variants with this in their name; repeatable.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = RESULTS,
) -> None:
    """Compare variants of a training step with the code as it is, and write the ratios."""
    if not has_bf16(CPU):
        raise SystemExit("this CPU has no bfloat16 instructions, which most variants are about")
    rows: list[dict] = []
    profiles: dict[str, dict] = {}
    for name, variants in [(name, list(VARIANTS)) for name in case or []] or CASES:
        code, evaluating = Arm(name), Arm(name, partial(evaluate, size=32))
        profiles.setdefault(name, profile(code))
        for variant in variants:
            if any(part in variant for part in only or [""]):
                rows.append(
                    compared(name, variant, evaluating if "evaluation" in variant else code, rounds)
                )
                print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
        save_result("cpu-training", "cpu", rows, out, profiles=profiles, seconds="of the processor")


if __name__ == "__main__":
    typer.run(main)
