"""Whether there are enough images: for training, of every class of the target in every environment;
for testing, of every cell. No pandas needed."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import product

import numpy as np

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.scenes import load_scene
from diagvib.studies.rows import SPLITS
from diagvib.studies.study import Study


def split_counts(study: Study, counts: Mapping[str, int], split: str) -> dict[str | None, int]:
    """How many images of each group a split has; key None if the groups are drawn together, by
    their weights.

    They are drawn together in train and val, and in test if `counts` names `test` instead of groups.
    0 for a study as published, whose photos are counted only when they are listed.
    """
    if study.as_published:
        return {None: 0}
    if split != "test" or not set(study.groups) & counts.keys():
        return {None: counts[split]}
    return {group: counts[group] for group in study.groups}


def check_names(counts: Iterable[str], studies: Mapping[str, Study]) -> None:
    """DiagvibError for a count that is neither of a split nor of a test group of these studies."""
    groups = (group for study in studies.values() for group in study.groups)
    keys = dict.fromkeys(f"counts.{name}" for name in (*SPLITS, *groups))
    for name in counts:
        if f"counts.{name}" not in keys:
            raise unknown_name("key", f"counts.{name}", keys)


def counts_of(
    study: Study,
    study_counts: dict[str, int],
    default_counts: dict[str, int],
    studies: Mapping[str, Study],
) -> dict[str, int]:
    """The number of images of each split and test group: as given, or as usual. studies: all, whose
    groups may be given."""
    check_names(study_counts, studies)
    numbers = {**default_counts, **study_counts}
    missing_groups = (
        set(study.groups) - (study_counts if "test" in study_counts else numbers).keys()
    )
    counted_groups = set(study.groups) & study_counts.keys()
    if missing_groups and counted_groups:
        raise DiagvibError(
            f"counts: the group {min(counted_groups)} of study {study.name} has a number of images, but "
            f"{min(missing_groups)} has none; give one to each of its groups, or only to `test`"
        )
    parts = ("train", "val", *(["test"] if missing_groups else study.groups))
    return {key: numbers.get(key, numbers["val"]) for key in parts}


def whole_shares(count: int, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each cell's exact share of the images, rounded down, and what is left of it."""
    exact = count * weights / weights.sum()
    floors = np.floor(exact + 1e-9).astype(int)
    return floors, np.round(exact - floors, 9)


def check_counts(study: Study, counts: Mapping[str, int]) -> None:
    """DiagvibError, with the least number that works, if a class of an environment may get no
    training image, or a cell no test image."""
    _check_training(study, counts["train"])
    weights = _weights(study, "test")
    # Where no source is used twice, what is left of a cell may go to another split (`recipes.Draw.deal`).
    rounded = hasattr(load_scene(study.scene), "share_out")
    for group, images in split_counts(study, counts, "test").items():
        group_weights = {
            cell: weight for cell, weight in weights.items() if group in (None, cell[1])
        }
        if empty := _empty(images, group_weights, rounded):
            enough = math.ceil(sum(group_weights.values()) / min(group_weights.values()))
            # Not the first number that will do: one more image may leave another cell empty.
            failing = (
                n for n in range(enough, images - 1, -1) if _empty(n, group_weights, rounded)
            )
            minimum = next(failing) + 1
            raise DiagvibError(
                f"counts.{group or 'test'}: with {images} images of study {study.name}, cell "
                f"{list(empty[2])} of the group {empty[1]} may have none; raise the number to {minimum} or more"
            )


def empty_groups(
    study: Study, counts: Mapping[str, int], split: str, supervision: str, images: int = 1
) -> list[tuple[int, ...]]:
    """The combinations of classes, of the target and the cues of a method's supervision, that occur
    in a split, but not together, or in fewer than this many images."""
    first_column, last = (1, None) if supervision == "cues" else [int(supervision[4:])] * 2
    weights: dict[tuple[int, ...], float] = defaultdict(float)
    for (*_, cell), weight in _weights(study, split).items():
        weights[cell[0], *(cell[first_column:] if last is None else cell[last : last + 1])] += (
            weight
        )
    needed = 0 if study.as_published else images * sum(weights.values()) / counts[split]
    occurring = (sorted(set(classes)) for classes in zip(*weights, strict=True))
    return [group for group in product(*occurring) if weights.get(group, 0) <= needed * (1 - 1e-9)]


def _empty(images: int, weights: Mapping[tuple, float], rounded: bool) -> tuple | None:
    """A cell that may get no image, in any environment, if shares are rounded down or, unless
    `rounded`, the largest remainders are rounded up and ties are random."""
    floors, rests = whole_shares(images, np.array(list(weights.values())))
    smaller = np.searchsorted(np.sort(rests), rests)
    sure = (floors > 0) | (not rounded and len(rests) - smaller <= images - floors.sum())
    filled = {cell[1:] for cell, any_image in zip(weights, sure, strict=True) if any_image}
    return next((cell for cell in weights if cell[1:] not in filled), None)


def _weights(study: Study, split: str) -> dict[tuple[str, str, tuple[int, ...]], float]:
    """The weight of each (environment, group, bound classes) of a split."""
    cells: dict[tuple, float] = defaultdict(float)
    bound = [list(study.roles).index(role) for role in study.bound]
    for row in study.rows_of(split):
        listed = study.row_cells(row, (1, 2, 0))  # `added` is some class, whichever it is
        for cell in listed:
            bound_classes = tuple(cell[position] for position in bound)
            cells[row.environment, row.group, bound_classes] += row.weight / len(listed)
    return cells


def _check_training(study: Study, images: int) -> None:
    """Cells' shares may be rounded down."""
    cells = _weights(study, "train")
    largest: dict[tuple[str, int], float] = defaultdict(float)
    for (environment, _, cell), weight in cells.items():
        largest[environment, cell[0]] = max(largest[environment, cell[0]], weight)
    environment, target = min(largest, key=largest.get)
    environment_name = f"the environment {environment}" if len(study.environments) > 1 else "it"
    minimum = math.ceil(sum(cells.values()) / largest[environment, target])
    if images < minimum:
        raise DiagvibError(
            f"counts.train: with {images} images of study {study.name}, {environment_name} "
            f"may have none of target class {target}; raise the number to {minimum} or more"
        )


def absent_combinations(
    trained: Iterable[tuple[str, ...]], present: Set[tuple[str, ...]]
) -> Iterator[str]:
    """Of combinations of classes in training, those that are absent elsewhere, except where a
    cue's class is absent altogether, as in studies that test on others."""
    names = [set(column) for column in zip(*present, strict=True)]
    for cell in trained if names else ():
        cues = all(
            name in classes_there for name, classes_there in zip(cell[1:], names[1:], strict=True)
        )
        if cell not in present and (cues or cell[0] not in names[0]):
            yield "-".join(cell)
