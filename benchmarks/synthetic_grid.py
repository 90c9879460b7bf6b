"""A stated generative model of a full grid's accuracies.

The model: a run's accuracy on every target class is
    p = level(study, target, cue) + sample_effect(sample) + run_effect(baseline, study, pair,
    sample),
clipped to [0.02, 0.98]; level is the closed form, both effects are normal with mean 0. Of the
images of each class, the share p is predicted correctly.
"""

import numpy as np

from diagvib.foundation.seeding import named_generator
from diagvib.scenes.digits.factors import FACTORS

BASELINES = (
    "resnet18",
    "resnet50",
    "resnet50_in",
    "wide_resnet50_2",
    "densenet161",
    "alexnet",
    "asr",
    "vae",
    "factor_vae",
)
SAMPLE_SPREAD, RUN_SPREAD = 0.03, 0.02
_LIFT = {
    "zso": 0.45,
    "zgo": 0.0,
    "cgo-1": 0.08,
    "cgo-2": 0.16,
    "cgo-3": 0.24,
    "chgo": 0.05,
    "fgo-5": 0.1,
    "fgo-10": 0.2,
    "fgo-20": 0.3,
}


def level(study: str, target: str, cue: str | None) -> float:
    """The closed form: the expected accuracy of a run."""
    dominance = (FACTORS.index(cue) - FACTORS.index(target)) / 20 if cue else 0
    return 0.35 + dominance + _LIFT[study]


def effects(run: dict) -> float:
    shared = named_generator("model", run["sample"]).normal(0, SAMPLE_SPREAD)
    own = named_generator(
        "model", *(run[k] for k in ("baseline", "study", "binding", "sample"))
    ).normal(0, RUN_SPREAD)
    return shared + own


def right_per_class(run: dict, per_class: int) -> int:
    p = np.clip(level(run["study"], run["target"], run["cue"]) + effects(run), 0.02, 0.98)
    return round(float(p) * per_class)
