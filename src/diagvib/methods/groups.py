"""Groups of training images, for methods that use cues or environments."""

from itertools import product

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import TrainingData


def group_index(data: TrainingData, supervision: str, name: str) -> tuple[Tensor, int]:
    """The group of each training image, int64[N], and the number of groups.

    supervision `cues` or `cue-2`: a group for every combination of the target's class and those of all
    cues, or of that cue; `environments`: one for each. Classes that no image has, as a dataset
    sample uses few of a factor's, make no group. DiagvibError naming the other groups that no image
    is in; name: the method's, for that message.
    """
    if supervision == "environments":
        columns, words = data.environment[:, None], [("environment", data.environments)]
    else:
        cue_columns = _supervised_cues(data, supervision)
        columns = torch.cat([data.labels[:, None], data.cues[:, cue_columns]], 1)
        words = [("target", data.classes), *list(data.cue_classes.items())[cue_columns]]
    groups, index = columns.unique(dim=0, return_inverse=True)
    occurring = [groups[:, column].unique().tolist() for column in range(groups.shape[1])]
    if supervision == "environments":
        occurring = [range(len(data.environments))]
    missing = set(product(*occurring)) - set(map(tuple, groups.tolist()))
    if missing:
        first_missing = zip(words, min(missing), strict=True)
        group_name = " and ".join(
            f"{word} {classes[position]}" for (word, classes), position in first_missing
        )
        further_groups = f", nor {len(missing) - 1} other groups" if len(missing) > 1 else ""
        raise DiagvibError(
            f"method: {name} needs images of every group, but no image has {group_name}{further_groups}; "
            "choose a study with counter-examples, more images, or another method"
        )
    return index, len(groups)


def domain_index(data: TrainingData, supervision: str) -> tuple[Tensor, int]:
    """The domain of each training image, int64[N], and the number of domains: one for every
    combination of classes of the cues of that supervision, `cues` or `cue-2`, that occurs."""
    domains, index = data.cues[:, _supervised_cues(data, supervision)].unique(
        dim=0, return_inverse=True
    )
    return index, len(domains)


def _supervised_cues(data: TrainingData, supervision: str) -> slice:
    last = data.cues.shape[1] if supervision == "cues" else int(supervision.removeprefix("cue-"))
    return slice(0 if supervision == "cues" else last - 1, last)


def equal_groups(index: Tensor, groups: int) -> Tensor:
    """Random images, as many of each group as the smallest has: int64[groups, images], each image
    at most once. Drawn with torch's CPU generator."""
    order = torch.randperm(len(index)).to(index.device)
    smallest = int(torch.bincount(index, minlength=groups).min())
    return torch.stack([order[index[order] == group][:smallest] for group in range(groups)])


def random_share(index: Tensor, groups: int, share: float) -> Tensor:
    """Which images are in a random share of every group, but at least one of each: bool[N]. Drawn
    with torch's CPU generator."""
    order = torch.randperm(len(index)).to(index.device)
    held_out = torch.zeros_like(index, dtype=torch.bool)
    for of_group in members(index[order], groups):
        held_out[order[of_group[: max(1, round(share * len(of_group)))]]] = True
    return held_out


def balancing_weights(index: Tensor, groups: int) -> Tensor:
    """Sampling weights float64[N] with which every group is drawn equally often: N / n_g."""
    return len(index) / torch.bincount(index, minlength=groups).double()[index]


def membership(index: Tensor, groups: int) -> Tensor:
    """1 for the images in each group, else 0, float[groups, N], from the group of each image,
    int64[N]. Unlike torch's one_hot, it reads nothing from the device."""
    return (index == torch.arange(groups, device=index.device)[:, None]).float()


def group_means(values: Tensor, index: Tensor, groups: int) -> Tensor:
    """The mean of the values, float[N], of each group's images, float[groups]; 0 without any. Sums
    are in a fixed order; a matrix product would be in bf16."""
    member = membership(index, groups)
    return (member * values).sum(1) / member.sum(1).clamp(min=1)


def members(index: Tensor, groups: int) -> list[Tensor]:
    """The images in each group, int64[images], from the group of each image, int64[N]."""
    return [(index == group).nonzero().flatten() for group in range(groups)]


class Partners:
    """Draws partners for images: images that share one class with them and differ in another, with
    equal probability."""

    def __init__(self, shared: Tensor, different: Tensor):
        """The classes of every training image, int64[N] each."""
        classes = int(different.max()) + 1
        keys = shared * classes + different
        self._order = keys.argsort(stable=True)
        self._count = keys.bincount(minlength=(int(shared.max()) + 1) * classes).view(-1, classes)
        self._total = self._count.sum(1)
        self._start = self._count.cumsum(1) - self._count
        self._first = self._total.cumsum(0) - self._total

    def lonely(self) -> list[tuple[int, int]]:
        """The pairs of classes whose images have no partner."""
        without_partner = (self._count > 0) & (self._count == self._total[:, None])
        return [tuple(pair) for pair in without_partner.nonzero().tolist()]

    def draw(self, shared: Tensor, different: Tensor) -> Tensor:
        """Indices int64[B] of partners for images with these classes, int64[B] each, none of them
        `lonely`."""
        count, start = self._count[shared, different], self._start[shared, different]
        place = (
            torch.rand(shared.shape, device=shared.device) * (self._total[shared] - count)
        ).long()
        return self._order[self._first[shared] + place + count * (place >= start)]
