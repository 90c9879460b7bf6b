"""A proposal for a folder of photos: a scene, and studies with as many images as its photos allow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.foundation.files import whole_file
from diagvib.report.style import new_figure
from diagvib.scenes.photos.decoding import open_photo, square
from diagvib.scenes.photos.shares import LEAST_IMAGES, serving_split
from diagvib.studies.rows import SPLITS

# Possible shares of training images in which the cue gives the target away, in the study `shortcut`:
# the first one with which every other combination of classes has _COUNTER training images.
_AGREE, _COUNTER = (0.95, 0.9, 0.8, 0.7), 3
# Images of each split or test group for each training image.
_PARTS = {"train": 1, "val": 1 / 5, "id": 1 / 3, "ood": 1 / 3}
_MOST_CELLS = 400  # that are listed


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
    target, cue, *_ = proposal.classes
    classes = proposal.photos.groupby("split")[target].unique()
    # Of a published split.
    if untrained := sorted({*classes.get("test", ())} - {*classes.get("train", ())}):
        lines.append(
            f"{target} {some_names(untrained)}: has test photos, but none to train with, so that no answer "
            "can be right; leave it out, or add photos"
        )
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
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=100, format="png")
