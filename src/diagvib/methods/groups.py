"""Groups of training images, as methods that are told cues or environments divide them."""

from itertools import product

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import TrainingData


def group_index(data: TrainingData, told: str, name: str) -> tuple[Tensor, int]:
    """Which group each training image is in, int64[N], and how many groups there are.

    told `cues` or `cue-2`: a group for every class of the target and of all cues, or of that one; `environments`: one
    for each. Classes that no image has, as a dataset sample draws few of a factor's, make no group. DiagvibError naming
    the groups of the others that no image is in; name: the method's, for it.
    """
    if told == "environments":
        columns, words = data.environment[:, None], [("environment", data.environments)]
    else:
        chosen = _told_cues(data, told)
        columns = torch.cat([data.labels[:, None], data.cues[:, chosen]], 1)
        words = [("target", data.classes), *list(data.cue_classes.items())[chosen]]
    found, index = columns.unique(dim=0, return_inverse=True)
    occurring = [found[:, at].unique().tolist() for at in range(found.shape[1])]
    if told == "environments":
        occurring = [range(len(data.environments))]
    missing = set(product(*occurring)) - set(map(tuple, found.tolist()))
    if missing:
        named = [" and ".join(f"{word} {classes[at]}" for (word, classes), at in zip(words, group, strict=True))
                 for group in sorted(missing)]
        raise DiagvibError(f"method: {name} needs images of every group, but none of the training images has "
                           f"{'; '.join(named[:3])}{f'; and {len(named) - 3} more groups' if len(named) > 3 else ''}")
    return index, len(found)


def domain_index(data: TrainingData, told: str) -> tuple[Tensor, int]:
    """Which domain each training image is in, int64[N], and how many there are: one for every combination of classes
    of the cues that are told, `cues` or `cue-2`, that occurs. The target makes no difference."""
    found, index = data.cues[:, _told_cues(data, told)].unique(dim=0, return_inverse=True)
    return index, len(found)


def _told_cues(data: TrainingData, told: str) -> slice:
    last = data.cues.shape[1] if told == "cues" else int(told.removeprefix("cue-"))
    return slice(0 if told == "cues" else last - 1, last)


def equal_groups(index: Tensor, groups: int) -> Tensor:
    """Random images, as many of each group as the smallest has: int64[groups, images], each image once at most. Drawn
    by torch's generator of the CPU."""
    order = torch.randperm(len(index)).to(index.device)
    smallest = int(torch.bincount(index, minlength=groups).min())
    return torch.stack([order[index[order] == group][:smallest] for group in range(groups)])


def balancing_weights(index: Tensor, groups: int) -> Tensor:
    """Sampling weights float64[N] with which every group is drawn equally often: N / n_g."""
    return len(index) / torch.bincount(index, minlength=groups).double()[index]
