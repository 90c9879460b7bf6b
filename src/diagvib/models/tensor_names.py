"""Which tensor of a file is which of a network: by its name, or, where the names are others, by its
order, unless a name contradicts that."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.models.network import Network

COUNTER = "num_batches_tracked"
# Modules that training adds beyond the features: a network works without them.
_AUXILIARY = ("aux", "loss", "criterion")
_HEADS = ("head", "fc", "classifier", "proj", "predict", "logits", "prototype", "decoder")
_HEADS += ("queue", "mask_token")
# What a tensor is for, and what other libraries call it. Not `kernel` and `w` of Flax, Keras and
# Haiku, whose matrices are transposed.
_ROLES = {word: word for word in ("weight", "bias", "mean", "var", "tracked")}
_ROLES |= {"gamma": "weight", "scale": "weight", "beta": "bias", "variance": "var"}


def match_tensors(
    network: Network, tensors: Mapping[str, Tensor], n_classes: int, path: Path
) -> dict[str, Tensor]:
    """A file's tensors under the names of the network's state dict; those that fit nowhere keep
    their names.

    By name if more than half of the body's names are there: as the network has them, or the model
    that was cut to make it, perhaps after a prefix. Otherwise in their order, if all shapes fit;
    the number of classes, in the network `n_classes`, may differ. DiagvibError if names contradict
    the order.
    """
    state = network.state_dict()
    body = {key for key in state if key.startswith("body.")} or state.keys()
    matched, unmatched = _by_name(network, tensors)
    if 2 * len(matched.keys() & body) > len(body):
        return _with_head(network, matched, unmatched)
    for names in ([*state], [key for key in state if not key.endswith(COUNTER)]):
        pairs = dict(zip(names, tensors, strict=False))
        missing = [key for key in body if key in names and key not in pairs]
        if not missing and all(
            same_shape(state[name], tensors[key], n_classes)
            for name, key in pairs.items()
            if name in body
        ):
            _check_order(pairs, tensors, path)
            ordered = {name: tensors[key] for name, key in pairs.items()}
            return ordered | dict([*tensors.items()][len(names) :])
    return matched | unmatched


def same_shape(expected: Tensor, value: Tensor, n_classes: int) -> bool:
    """Whether shapes are the same, apart from the number of classes."""
    return expected.ndim == value.ndim and len(_differing(expected, value)) <= bool(
        _classes(expected, value, n_classes)
    )


def classes_of(state: Mapping[str, Tensor], tensors: Mapping[str, Tensor], n_classes: int) -> int:
    """The number of classes of tensors under the names of a network for `n_classes`: the size that
    they have where the network has `n_classes`."""
    keys = [key for key in state if key in tensors]
    heads = [key for key in keys if key.startswith("head.")]
    for names in (heads, keys):
        sizes = [size for key in names for size in _classes(state[key], tensors[key], n_classes)]
        if sizes:
            return Counter(sizes).most_common(1)[0][0]
    return n_classes


def _differing(expected: Tensor, value: Tensor) -> list[tuple[int, int]]:
    return [pair for pair in zip(expected.shape, value.shape, strict=False) if pair[0] != pair[1]]


def _classes(expected: Tensor, value: Tensor, n_classes: int) -> list[int]:
    """The size, of a tensor that differs from the network's in its number of classes alone."""
    sizes = _differing(expected, value)
    return [size for width, size in sizes if len(sizes) == 1 and width == n_classes]


def _by_name(
    network: Network, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors with names of the network, and the others, both without the prefix of most."""
    state = network.state_dict()
    # Older files also contain buffers that are computed anew today.
    full_names = {key: key for key in [*state, *dict(network.named_buffers())]}
    uncut = {key.removeprefix("body."): key for key in full_names if key.startswith("body.")}
    if network.cut_from:
        uncut |= {
            f"{network.cut_from}.{key.removeprefix('head.')}": key
            for key in state
            if key.startswith("head.")
        }
    # The network's own names win if both fit as well.
    (_, prefix), names = max(
        ((_prefix(names, tensors), names) for names in (full_names, uncut)),
        key=lambda pair: pair[0][0],
    )
    short = {_without(prefix, key): value for key, value in tensors.items()}
    if len(short) < len(tensors):  # a name with and without the prefix
        return {}, dict(tensors)
    matched = {names[key]: value for key, value in short.items() if key in names}
    unmatched = {key: value for key, value in short.items() if key not in names}
    return {key: value for key, value in matched.items() if key in state}, unmatched


def _prefix(names: Mapping[str, str], tensors: Iterable[str]) -> tuple[int, str]:
    """How many tensors have a name, and what stands before the names of most, such as `module.`."""
    prefixes: Counter[str] = Counter()
    for key in tensors:
        parts = key.split(".")
        for start in range(len(parts)):
            suffix = ".".join(parts[start:])
            if suffix in names:
                prefixes[key.removesuffix(suffix)] += 1
    return max(((count, prefix) for prefix, count in prefixes.items()), default=(0, ""))


def _without(prefix: str, key: str) -> str:
    """A name without a prefix, or without as many of its parts as stand there."""
    while not key.startswith(prefix):
        prefix = prefix[: prefix[:-1].rfind(".") + 1]
    return key[len(prefix) :]


def _with_head(
    network: Network, matched: dict[str, Tensor], unmatched: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Matched tensors with those of the head, and those that fit nowhere.

    A head of several layers is none of the network's, which is then left without one.
    """
    places = {key.split(".")[1] for key in matched if key.startswith("body.")}
    unmatched_names = {
        key: value for key, value in unmatched.items() if not _is(key, _AUXILIARY, places)
    }
    if not any(key.startswith("head.") for key in matched):
        head = _head_names(network, unmatched_names)
        matched = matched | {name: unmatched_names.pop(key) for name, key in head.items()}
    beyond = {key for key in unmatched_names if _is_beyond(key, network.cut_from, places)}
    if beyond:
        matched = {key: value for key, value in matched.items() if not key.startswith("head.")}
    return matched | {key: value for key, value in unmatched_names.items() if key not in beyond}


def _head_names(network: Network, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The tensors of the head's names -> those of the only module that could be one."""
    head, names = network.head.state_dict(), []
    for module in dict.fromkeys(key.rpartition(".")[0] for key in tensors):
        leaves = {leaf: f"{module}.{leaf}" for leaf in head}
        if all(
            key in tensors
            and same_shape(head[leaf], tensors[key], max(head[leaf].shape[:1], default=0))
            for leaf, key in leaves.items()
        ):
            names.append({f"head.{leaf}": key for leaf, key in leaves.items()})
    return names[0] if len(names) == 1 else {}


def _is_beyond(key: str, cut_from: str, places: set[str]) -> bool:
    """Whether a tensor stands where the network's head was, or after it."""
    place = key.partition(".")[0]
    later = place.isdigit() and cut_from.isdigit() and int(place) > int(cut_from)
    return later or key.startswith(f"{cut_from}.") or _is(key, _HEADS, places)


def _is(key: str, words: Iterable[str], places: set[str]) -> bool:
    """Whether a tensor belongs to a module with such a name, which is none of the body's."""
    place = key.partition(".")[0].lower()
    return place not in places and any(word in place for word in words)


def _check_order(pairs: Mapping[str, str], tensors: Mapping[str, Tensor], path: Path) -> None:
    """DiagvibError, naming a pair, if tensors in their order contradict their names. pairs: a name
    of the network -> that of the file."""
    used = [*pairs.values()]
    reason = _contradiction(pairs) or _disorder(used, tensors)
    if reason:
        raise DiagvibError(
            f"{path}: its names are not the network's, and their order is no help: {reason}; name "
            "the tensors as the network's state_dict does"
        )


def _contradiction(pairs: Mapping[str, str]) -> str | None:
    """The first pair whose names mean different tensors."""
    short = {name.removeprefix("body."): name for name in pairs}
    words = set().union(*map(_words, pairs))
    file_words = set().union(*map(_words, pairs.values()))
    for name, key in pairs.items():
        role, file_role = _role(name), _role(key)
        # Each has a word that the other lacks, although it has a tensor with that word.
        swapped = (_words(key) - _words(name)) & words and (_words(name) - _words(key)) & file_words
        if (role and file_role and role != file_role) or short.get(key, name) != name or swapped:
            return f"{key} would become {name}"
    return None


def _disorder(keys: list[str], tensors: Mapping[str, Tensor]) -> str | None:
    """Why names are not in the order of a network's layers."""
    patterns: dict[tuple, set[str]] = {}
    highest: dict[str, tuple[int, ...]] = {}
    for key in keys:
        pattern = re.sub(r"\d+", "#", key)
        numbers = tuple(map(int, re.findall(r"\d+", key)))
        if numbers < highest.get(pattern, ()):
            return f"{key} stands after a higher number"
        highest[pattern] = numbers
        patterns.setdefault(tuple(tensors[key].shape), set()).add(pattern)
    same_pattern = [names for names in patterns.values() if len(names) > 1]
    if same_pattern and keys == sorted(keys):
        return (
            f"they are sorted, and {' and '.join(sorted(same_pattern[0])[:2])} have the same shape"
        )
    return None


def _words(name: str) -> set[str]:
    return {*re.findall("[a-z]+", name.lower())}


def _role(name: str) -> str:
    """What a tensor is for, by the last part of its name; "" if that only numbers it."""
    leaf = re.split("[./]", name.lower())[-1]
    words = re.findall("[a-z]+", leaf)
    roles = [_ROLES[word] for word in words if word in _ROLES]
    return roles[-1] if roles else "" if leaf[-1:].isdigit() else "".join(words[-1:])
