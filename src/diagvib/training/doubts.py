"""Reasons to distrust a run's numbers."""

from collections import Counter
from collections.abc import Set

import numpy as np

from diagvib.foundation.errors import some_names
from diagvib.images.files import Images
from diagvib.methods.method import Method
from diagvib.settings.layout import Run
from diagvib.studies.scarcity import absent_combinations
from diagvib.training.batches import Batches
from diagvib.training.load import Loaded
from diagvib.training.selection_rules import INFERRED

# With fewer images of a group, the standard error of its accuracy may exceed 9 points.
FEW_IMAGES = 30

Cell = tuple[str, ...]  # a combination of classes


def run_doubts(
    method: Method, rule: str, data: Loaded, tested: Set[Cell], predicted: np.ndarray
) -> list[str]:
    """Reasons to distrust a run's numbers. rule: of selection; tested: combinations of classes in
    the test; predicted: the class of each test image."""
    doubts = [
        *method.doubts,
        *_same_class(predicted),
        *_untested(cell_counts(data.train), cell_counts(data.val).keys(), tested),
        *noisy_selection(rule, cell_counts(data.val)),
    ]
    if rule == INFERRED:
        _, sizes = method.memory["validation_group"].unique(return_counts=True)
        doubts += _noisy(INFERRED, int(sizes.min()), "an inferred group")
    return doubts


def cell_counts(images: Batches) -> dict[Cell, int]:
    """The number of images of each combination of classes, such as {("0", "red"): 12}."""
    annotations = images.annotations
    names = [annotations.classes, *annotations.cue_classes.values()]
    columns = [images.labels, *images.cues.T]
    counts = Counter(zip(*(column.tolist() for column in columns), strict=True))
    return {
        tuple(classes[index] for classes, index in zip(names, cell, strict=True)): count
        for cell, count in sorted(counts.items())
    }


def tested_cells(test: Images, run: Run) -> Set[Cell]:
    """The combinations of classes of the test images."""
    return set(zip(*(test.table[name].to_pylist() for name in run.factors), strict=True))


def _same_class(predicted: np.ndarray) -> list[str]:
    names = set(predicted)
    return [f"predicts {predicted[0]} for every test image"] if len(names) == 1 else []


def _untested(trained: dict[Cell, int], validated: Set[Cell], tested: Set[Cell]) -> list[str]:
    """Combinations of classes that are trained on, but neither validated nor tested."""
    doubts = []
    for split, cells in (("validation", validated), ("test", tested)):
        if names := [*absent_combinations(trained, cells)]:
            doubts.append(f"no {split} image of {some_names(names)}")
    return doubts


def noisy_selection(rule: str, validated: dict[Cell, int]) -> list[str]:
    """Whether the rule judges by the worst of groups of which one has too few images."""
    if not rule.startswith("val_worst_group"):
        return []
    cue, groups = rule.partition("_cue_")[2], Counter()
    for cell, count in validated.items():
        groups[(cell[0], cell[int(cue)]) if cue else cell] += count
    cell, fewest = min(groups.items(), key=lambda item: item[1])
    return _noisy(rule, fewest, "-".join(cell))


def _noisy(rule: str, images: int, group: str) -> list[str]:
    """Whether a rule of selection judges by too few validation images of a group."""
    shortage = f"only {images} validation image{'s' * (images != 1)} of {group}"
    text = f"its epoch was chosen by {rule}, with {shortage}, so the choice is mostly noise"
    return [text] if images < FEW_IMAGES else []
