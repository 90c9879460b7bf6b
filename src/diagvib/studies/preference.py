"""The target classes that a cue points to in training: of every figure, table and sentence about
following a cue (Li et al., 2023, Fig. 6)."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from diagvib.studies.dataset_sample import DatasetSample
from diagvib.studies.study import TARGET, Study


def cue_label(
    study: Study,
    cue: str,
    added_cue: Sequence[int] | None = None,
    images: np.ndarray | None = None,
) -> tuple[frozenset[int], ...]:
    """For each class of a cue, the target classes that it occurs with most often in training, in
    all environments together.

    If it occurs equally often with two or more, as in a many-to-many shortcut, all of them are
    included; none if it occurs equally often with every class, or in no training image.
    added_cue: see `Study.cells`. images: from `image_counts`, for a study as published, whose rows'
    weights say nothing of how many photos there are.
    """
    return tuple(
        frozenset(most_frequent if len(most_frequent) < study.roles[TARGET] else ())
        for most_frequent in _most_often(study, cue, added_cue, images)
    )


def single_cue_label(
    study: Study,
    cue: str,
    added_cue: Sequence[int] | None = None,
    images: np.ndarray | None = None,
) -> tuple[int | None, ...]:
    """`cue_label` where one class is needed: of several that are equally frequent by the study's
    weights, the one with the cue class's own index, if cue and target have as many classes; else
    None."""
    by_number = images is None and study.roles[cue] == study.roles[TARGET]
    return tuple(
        most_frequent[0]
        if len(most_frequent) == 1
        else index
        if by_number and index in most_frequent
        else None
        for index, most_frequent in enumerate(_most_often(study, cue, added_cue, images))
    )


def _most_often(
    study: Study, cue: str, added_cue: Sequence[int] | None, images: np.ndarray | None
) -> list[list[int]]:
    shares = np.zeros((study.roles[cue], study.roles[TARGET]))
    if images is None:
        cells = study.cells("train", added_cue)
        positions = cells[f"{cue}_class"], cells[f"{TARGET}_class"]
        np.add.at(shares, positions, cells["weight"])
    else:
        axis = study.bound.index(cue)
        other_axes = tuple(a for a in range(images.ndim) if a not in (0, axis))
        shares += images.sum(axis=other_axes).T
    return [np.flatnonzero(row == row.max()).tolist() for row in shares.round(12)]


def image_counts(
    study: Study, classes: Sequence[Sequence[str]], trained: Mapping[str, int]
) -> np.ndarray | None:
    """The training images of each combination of the bound roles' classes, int64[target, cues]; None
    unless the study is as published, or if no image is counted.

    classes: the names of each bound role's classes; trained: class names joined by `-`, the
    target's first -> training images.
    """
    if not study.as_published or not trained:
        return None
    counts = [trained.get("-".join(names), 0) for names in product(*classes)]
    return np.reshape(counts, [len(names) for names in classes])


def cue_label_names(
    study: Study,
    roles: Mapping[str, str],
    sample: DatasetSample,
    factors: Mapping[str, Sequence[str]],
    trained: Mapping[str, int],
) -> dict[str, dict[str, str]]:
    """`single_cue_label` by names, for a dataset sample: cue factor -> its class -> class of the
    target.

    roles: role -> factor, as bound. factors: those of the scene with all their classes; trained:
    see `image_counts`. Classes that point to none are left out.
    """
    names = {
        role: sample.chosen(factor, study.roles[role], factors[factor])
        for role, factor in roles.items()
    }
    images = image_counts(study, [names[role] for role in study.bound], trained)
    return {
        roles[cue]: {
            names[cue][index]: names[TARGET][target]
            for index, target in enumerate(single_cue_label(study, cue, sample.added_cue, images))
            if target is not None
        }
        for cue in study.cues
    }
