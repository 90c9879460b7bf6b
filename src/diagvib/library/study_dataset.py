"""One split of a study's dataset, or all, as a PyTorch dataset that knows its metrics."""

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import Dataset

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.images.files import Images, class_indices
from diagvib.library.bound_study import BoundStudy
from diagvib.results.evaluation import below_chance, evaluate
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.study import SPLITS

Image = TypeVar("Image", covariant=True)
Metadata = TypeVar("Metadata", covariant=True)


class StudyDataset(Dataset[tuple[Image, int, Metadata]], Generic[Image, Metadata]):
    """One split of a study's dataset, or all: `image, target, metadata = dataset[i]`.

    image: uint8[3, size, size], or float32 from 0 to 1, or what `transform` makes of it.
    target: index of the class in `classes`. metadata: group, environment if the study names any,
    split if there are several, and for each cue the index of its class in `cue_classes[cue]`. A
    DataLoader collates all three. `pixels`, `targets` and `table` hold all images at once:
    uint8[N, size, size, 3], int64[N], and a pyarrow table that describes each image.

    As in WILDS, `metadata_array` int64[N, F] has all metadata as numbers: `metadata_fields` names
    its columns, of which the last, y, is the target, and `metadata_map` the meaning of each number.
    With `metadata="tensor"`, code written for WILDS' datasets accepts this one: loaders, groupers,
    algorithms and `run_expt` of WILDS, and SpuCo's wrapper of such datasets.
    """

    # What code for WILDS' datasets asks for.
    collate, y_size, is_classification, is_detection = None, 1, True, False
    split_dict: ClassVar = {name: number for number, name in enumerate(SPLITS)}
    split_names: ClassVar = dict(zip(SPLITS, ("Train", "Validation", "Test"), strict=True))

    def __init__(
        self,
        bound: BoundStudy,
        split: str,
        sample: int,
        images: Images,
        transform: Callable[[Tensor], Any] | None = None,
        dtype: str = "uint8",
        as_tensor: bool = False,
        sample_classes: bool = False,
    ):
        """sample_classes: number those of the dataset sample alone."""
        study, binding = bound.study, bound.binding
        self.study, self.binding, self.split, self.sample = study.name, binding.name, split, sample
        if "y" in binding.cues:
            raise DiagvibError(f"binding {binding.name}: y is the target's class; rename this cue")
        self._known_studies = KnownStudies(definitions=(study,))
        factors = dict(images.factors)
        if sample_classes:
            classes = self._known_studies.classes(study.name, binding.factors, sample)
            factors |= zip(binding.factors, classes, strict=False)
        self.classes = factors[binding.target]
        self.cue_classes: Mapping[str, tuple[str, ...]] = {
            cue: factors[cue] for cue in binding.cues
        }
        self.pixels, self.table = images.pixels.cpu(), images.table
        texts = {"group": [row.group for row in study.rows]}
        if study.names_environments:
            texts["environment"] = [row.environment for row in study.rows]
        if split == "all":
            texts["split"] = SPLITS
        self.metadata_map = {
            name: [*dict.fromkeys(values)]
            for name, values in {**texts, **self.cue_classes, "y": self.classes}.items()
        }
        self.metadata_fields = [*self.metadata_map]
        columns = [*self.metadata_fields[:-1], binding.target]
        numbers = [
            class_indices(self.table, column, values)
            for column, values in zip(columns, self.metadata_map.values(), strict=True)
        ]
        self.metadata_array = torch.from_numpy(np.stack(numbers, axis=1))
        *cues, self.targets = map(torch.from_numpy, numbers)
        self.metadata: dict[str, Sequence] = {
            name: self.table[name].to_pylist() if name in texts else values.tolist()
            for name, values in zip(columns, cues, strict=False)
        }
        self.comparable: bool = images.metadata["comparable"]
        self._image_metadata = images.metadata
        self.transform, self.dtype, self._as_tensor = transform, dtype, as_tensor

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Image, int, Metadata]:
        # One image; Subset takes several.
        return self.__getitems__([range(len(self))[operator.index(index)]])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Image, int, Metadata]]:
        """Several images at once, as a DataLoader asks for them. DiagvibError for what are no numbers,
        as of a mask, which would be taken for images 0 and 1."""
        numbers = np.asarray(indices)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise DiagvibError(
                f"images have numbers from 0 to {len(self) - 1}, not {numbers.dtype}; for a mask, use "
                "numpy.flatnonzero(mask)"
            )
        # numpy's own arithmetic, since a fork lacks the threads that torch's may wait for; and a
        # copy, which a transform may change.
        rows = numbers.astype(np.int64)
        pixels = self.pixels.numpy()[rows]
        if self.dtype == "float32":
            pixels = np.divide(pixels, np.float32(255), dtype=np.float32)
        images: Any = torch.from_numpy(pixels).permute(0, 3, 1, 2).unbind()
        images = images if self.transform is None else map(self.transform, images)
        metadata: Any = self.metadata_array[rows].unbind()
        if not self._as_tensor:
            metadata = [
                {name: values[row] for name, values in self.metadata.items()} for row in rows
            ]
        return [*zip(images, self.targets.numpy()[rows].tolist(), metadata, strict=True)]

    def __repr__(self) -> str:
        return (
            f"StudyDataset({self.study}, {self.binding}, {self.split}, sample {self.sample}: {len(self)} images of "
            f"{self.pixels.shape[1]} pixels, {len(self.classes)} classes)"
        )

    @property
    def dataset_name(self) -> str:
        return self.study

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def y_array(self) -> Tensor:
        return self.targets

    @property
    def original_resolution(self) -> tuple[int, int]:
        """Rows and columns of an image."""
        rows, columns = self.pixels.shape[1:3]
        return rows, columns

    @property
    def split_array(self) -> np.ndarray:
        """The number of each image's split in `split_dict`, int64[N]."""
        if self.split == "all":
            return self.metadata_array[:, self.metadata_fields.index("split")].numpy()
        return np.full(len(self), SPLITS.index(self.split))

    def get_input(self, index: int) -> Image:
        return self[index][0]

    def get_subset(
        self, split: str, frac: float = 1.0, transform: Callable[[Image], Any] | None = None
    ) -> "StudyDataset[Any, Metadata]":
        """One split of `all`, or a random share of it, from 0 to 1. transform: applied after this
        dataset's."""
        if not 0 <= frac <= 1:
            raise DiagvibError(f"frac {frac}: a share from 0 to 1 is needed")
        if split not in (SPLITS if self.split == "all" else (self.split,)):
            raise DiagvibError(
                f"split {split!r}: this dataset has {self.split}; load split='all', which has "
                f"{', '.join(SPLITS)}"
            )
        rows = np.flatnonzero(self.split_array == SPLITS.index(split))
        part, remaining = copy(self), slice(rows[0], rows[-1] + 1)  # one after the other
        if frac < 1:
            remaining = np.sort(np.random.permutation(rows)[: round(len(rows) * frac)])
        part.split = split
        for name in ("pixels", "targets", "metadata_array"):
            setattr(part, name, getattr(self, name)[remaining])
        part.table = self.table.take(rows if frac == 1 else remaining)
        part.metadata = {
            name: np.array(values, dtype=object)[remaining].tolist()
            for name, values in self.metadata.items()
        }
        part.transform = _composed(self.transform, transform)
        return part

    def eval(
        self, y_pred: Tensor, y_true: Tensor, metadata: Tensor
    ) -> tuple[dict[str, float], str]:
        """WILDS' metrics of predictions in any order, with the targets and rows of metadata that
        came with them: the accuracy on all, on each combination of classes, `acc_wg` on the worst;
        and `GROUP_accuracy`, the mean over classes on a group of the study, as `evaluate` gives it.
        The same as text. DiagvibError unless they are class indices, int[N], and the targets are the
        column y of the metadata."""
        fields, truth, rows = self.metadata_fields, _array(y_true), _array(metadata)
        if not truth.size:
            raise DiagvibError("eval: there are no predictions; give those of one image or more")
        predicted = _class_indices(y_pred, truth.size, len(self.classes))
        if rows.shape != (len(predicted), len(fields)) or not np.array_equal(truth, rows[:, -1]):
            raise DiagvibError(
                f"targets{[*truth.shape]} and metadata{[*rows.shape]} are not those that came with the "
                f"{len(predicted)} predictions; give each one's target, and its row of {', '.join(fields)}"
            )
        right, columns = predicted == truth, dict(zip(fields, rows.T, strict=True))
        names = {field: np.array(self.metadata_map[field])[columns[field]] for field in fields}
        frame = pd.DataFrame({**names, "is right": right})  # no name of a factor
        cells = frame.groupby(["y", *reversed(self.cue_classes)])["is right"].agg(["mean", "size"])
        metrics = {"acc_avg": float(right.mean())}
        for cell, (accuracy, count) in cells.iterrows():
            labels = cell if isinstance(cell, tuple) else (cell,)
            name = "_".join(
                f"{f}:{label}" for f, label in zip(cells.index.names, labels, strict=True)
            )
            metrics |= {f"acc_{name}": accuracy, f"count_{name}": count}
        metrics["acc_wg"] = float(cells["mean"].min())
        by_class = frame.groupby(["group", "y"])["is right"].mean().groupby("group").mean()
        metrics |= {f"{group}_accuracy": value for group, value in by_class.items() if group}
        return metrics, "".join(f"{name}: {value:.3f}\n" for name, value in metrics.items())

    def evaluate(
        self,
        predictions: Tensor | np.ndarray | Sequence[int],
        confidence: Tensor | np.ndarray | Sequence[float] | None = None,
    ) -> dict[str, float]:
        """The metrics, as fractions, of predictions: class indices int[N] in the order of the
        images; confidence: the probability of each, for calibration errors.

        See `results.evaluation.evaluate` for their names. DiagvibError unless there is exactly one
        class index, and one probability, for each image; for the split `all`; and for a test split
        with an empty group. An empty cell gives a warning, and so do numbers that seem to be counted
        among the dataset sample's classes alone.
        """
        if self.split == "all":
            raise DiagvibError(
                "predictions are evaluated on one split; load it by its name, such as split='test'"
            )
        predicted = _class_indices(predictions, len(self), len(self.classes))
        present = np.unique(self.targets)
        if not np.isin(predicted, present).all() and predicted.max() < len(present):
            warnings.warn(
                f"all predictions are below {len(present)}, but the images' classes are "
                f"{', '.join(map(str, present))} of {len(self.classes)}; if they are counted among these, "
                "load the split with classes='sample'",
                stacklevel=2,
            )
        p = None if confidence is None else _array(confidence)
        if p is not None and not (
            p.shape == (len(self),) and p.dtype.kind in "fiu" and ((p >= 0) & (p <= 1)).all()
        ):
            raise DiagvibError(f"confidence must be {len(self)} probabilities from 0 to 1")
        if p is not None and (low := below_chance(p, len(self.classes))).size:
            raise DiagvibError(
                f"confidence[{low[0]}] is {p[low[0]]:.3g}, below 1/{len(self.classes)}, so another class would be "
                "predicted; give the probability of each predicted class"
            )
        return evaluate(
            self.study,
            self.binding,
            self.sample,
            self.split,
            self.table,
            np.array(self.classes)[predicted].tolist(),
            self._known_studies,
            None if p is None else p.astype(np.result_type(p, np.float32)),
        )


def _composed(before: Callable | None, after: Callable | None) -> Callable | None:
    if before is None or after is None:
        return before or after
    return partial(_in_turn, before, after)  # which other processes can be given


def _in_turn(before: Callable, after: Callable, image: Any) -> Any:
    return after(before(image))


def _class_indices(predictions: Any, count: int, classes: int) -> np.ndarray:
    """Predictions for so many images. DiagvibError unless they are indices of so many classes."""
    predicted = _array(predictions)
    integers = predicted.ndim == 1 and predicted.dtype.kind in "iu"
    if not integers or (predicted < 0).any() or (predicted >= classes).any():
        problem = (
            f"{predicted.min()} to {predicted.max()}"
            if integers
            else f"{predicted.dtype}{[*predicted.shape]}"
        )
        raise DiagvibError(
            f"predictions must be class indices int[{count}], numbers from 0 to {classes - 1}, not "
            f"{problem}; for logits, use argmax(1)"
        )
    return predicted


def _array(values: Tensor | np.ndarray | Sequence) -> np.ndarray:
    try:
        if isinstance(values, Tensor):
            values = (values.float() if values.is_floating_point() else values).numpy(force=True)
        return np.asarray(values)
    except (TypeError, ValueError) as error:  # of a list of batches, for example
        raise DiagvibError(
            f"{type(values).__name__} is not one array of numbers ({one_line(error)}); join batches by "
            "torch.cat(...)"
        ) from None
