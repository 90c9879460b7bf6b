"""The test groups of studies with two cues, and the gaps between their accuracies."""

from diagvib.studies.metric_needs import GAP_GROUPS
from diagvib.studies.study import Study

# Metric -> the test group whose accuracy is compared with the in-distribution accuracy.
GAPS = {"cue_1_gap": "no-cue-1", "cue_2_gap": "no-cue-2", "joint_gap": "neither"}
CUE_GAPS = {1: "cue_1_gap", 2: "cue_2_gap"}
# Gap -> the metric that it is measured from.
DIFFERENCES = dict.fromkeys(GAPS, "id_accuracy")


def knows_groups(supervision: str) -> bool:
    """Whether a method with this supervision knows the group of each training image."""
    return supervision in ("cues", "environments") or supervision.startswith("cue-")


def training_shares(study: Study) -> dict[str, float]:
    """The share of training images in which the cues agree with the target as in each test group:
    group -> share."""
    cells = study.cells("train")
    agree = zip(
        *(cells[f"{cue}_class"] == cells["target_class"] for cue in study.cues), strict=True
    )
    share = cells["weight"].groupby([GAP_GROUPS[agreement] for agreement in agree]).sum()
    return {group: float(share.get(group, 0.0)) for group in GAP_GROUPS.values()}
