"""Whether there are enough training images for every class of the target in every environment. No
pandas needed."""

import math
from collections import defaultdict

from diagvib.foundation.errors import DiagvibError
from diagvib.studies.rows import row_cells
from diagvib.studies.study import Study


def check_training_count(study: Study, images: int) -> None:
    """DiagvibError if some environment may get no image of a class, since with several environments
    the cells' shares are rounded down."""
    if len(study.environments) < 2:
        return
    cells: dict[tuple, float] = defaultdict(float)
    bound = [list(study.roles).index(role) for role in study.bound]
    for row in (row for row in study.rows if "train" in row.splits):
        listed = row_cells(
            row, study.rows, study.roles, (1, 2, 0)
        )  # `added` is some class, whichever it is
        for cell in listed:
            cells[row.environment, row.group, tuple(cell[at] for at in bound)] += row.weight / len(
                listed
            )
    largest: dict[tuple[str, int], float] = defaultdict(float)
    for (environment, _, cell), weight in cells.items():
        largest[environment, cell[0]] = max(largest[environment, cell[0]], weight)
    environment, target = min(largest, key=largest.get)
    least = math.ceil(sum(cells.values()) / largest[environment, target])
    if images < least:
        raise DiagvibError(
            f"counts.train: with {images} images of study {study.name}, the environment {environment} "
            f"may have none of target class {target}; raise the number to {least} or more"
        )
