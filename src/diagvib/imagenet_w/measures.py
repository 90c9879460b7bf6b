"""The reported measures of a model: accuracy on ImageNet, and how shortcuts change it (Li et al.,
2023, Sec. 2.2)."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from diagvib.imagenet_w.photo_sets import CLEAN, RANDOM, RENDITIONS, SAME, STYLISED, WATERMARKED

# In the tables' order, with their column heads.
MEASURES = {
    "in1k_accuracy": "IN-1k",
    "in_w_gap": "IN-W gap",
    "carton_gap": "Carton gap",
    "p_carton": "P(carton)",
    "delta_p_carton": "dP(carton)",
    "delta_p_carton_given_carton": "dP(carton, cartons)",
    "sin_gap": "SIN gap",
    "in_r_gap": "IN-R gap",
    "in_9_gap": "IN-9 gap",
}


def measure(answers: Mapping[str, pd.DataFrame], carton: int) -> dict[str, float | None]:
    """MEASURES in percent and percentage points; None if there are no photos for one.

    answers: set -> `photo_sets.answers`, with CLEAN and WATERMARKED for the same photos. carton:
    its class index. Gaps are differences of accuracy: ImageNet-W minus ImageNet; Stylized-ImageNet
    minus ImageNet; ImageNet-R minus ImageNet's photos of the same classes, both with predictions
    among these classes only; mixed-rand minus mixed-same. P: mean probability on ImageNet; dP: its
    mean change by the watermark.
    """
    clean, marked = (answers[name].set_index("row") for name in (CLEAN, WATERMARKED))
    of_cartons = clean["label"] == carton
    change = marked["p_carton"] - clean["p_carton"]
    found = {
        "in1k_accuracy": _accuracy(clean),
        "in_w_gap": _accuracy(marked) - _accuracy(clean),
        "carton_gap": _accuracy(marked[of_cartons]) - _accuracy(clean[of_cartons]),
        "p_carton": clean["p_carton"].mean(),
        "delta_p_carton": change.mean(),
        "delta_p_carton_given_carton": change[of_cartons].mean(),
    }
    if STYLISED in answers:
        found["sin_gap"] = _accuracy(answers[STYLISED]) - _accuracy(clean)
    if RENDITIONS in answers:
        same_classes = clean[clean["label"].isin(answers[RENDITIONS]["label"].unique())]
        found["in_r_gap"] = _accuracy(answers[RENDITIONS], "predicted_among") - _accuracy(
            same_classes, "predicted_among"
        )
    if SAME in answers:
        found["in_9_gap"] = _accuracy(answers[RANDOM]) - _accuracy(answers[SAME])
    return {name: _percent(found.get(name, np.nan)) for name in MEASURES}


def _accuracy(answers: pd.DataFrame, column: str = "predicted") -> float:
    return float((answers[column] == answers["label"]).mean()) if len(answers) else np.nan


def _percent(value: float) -> float | None:
    # Rounded, so that files do not differ in the last bits of a sum.
    return None if np.isnan(value) else round(100 * float(value), 6)
