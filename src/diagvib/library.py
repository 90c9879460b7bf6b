"""diagvib as a library: a dataset of any study in one line, with its metrics.

Without a workflow's `root`, images are drawn and rendered on the fly. The same names and numbers
give the same images as the workflow's files, byte for byte.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import numpy as np
import pandas as pd
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor
from torch.utils.data import Dataset

from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata, read_yaml
from diagvib.foundation.parallel import one_thread_in_forks
from diagvib.foundation.validation import Name, checked
from diagvib.images import made_from
from diagvib.images.datasets import ImageFiles
from diagvib.images.files import Images, class_indices, rendered
from diagvib.results.evaluation import evaluate
from diagvib.scenes import PUBLISHED_TEXTURES, load_scene
from diagvib.scenes.cache import cached
from diagvib.scenes.scene import Scene
from diagvib.settings.baselines import complete
from diagvib.settings.keys import ImageCount, ImageSize, Sources
from diagvib.settings.layout import Layout, Run
from diagvib.settings.resolve import default_path
from diagvib.studies.binding import Binding, bind_its_own
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.recipes import draw_recipes
from diagvib.studies.scarcity import counts_of
from diagvib.studies.study import SPLITS, Study, load_studies, load_study

_MOST_SAMPLES = 32_767  # what the column `sample` of a recipe holds
# Usual counts of images made of stand-ins for photos, of which there are few.
_STAND_INS = {"train": 360, "val": 60, "test": 120}

Split = Literal["train", "val", "test", "all"]
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
        study: Study,
        binding: Binding,
        split: str,
        sample: int,
        images: Images,
        transform: Callable[[Tensor], Any] | None = None,
        dtype: str = "uint8",
        as_tensor: bool = False,
        classes: Mapping[str, tuple[str, ...]] | None = None,
    ):
        """classes: of factors, those to number; by default all."""
        self.study, self.binding, self.split, self.sample = study.name, binding.name, split, sample
        if "y" in binding.cues:
            raise DiagvibError(f"binding {binding.name}: y is the target's class; rename this cue")
        factors = {**images.factors, **(classes or {})}
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
        self._known_studies = KnownStudies(definitions=(study,))

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Image, int, Metadata]:
        # One image; Subset takes several.
        return self.__getitems__([range(len(self))[operator.index(index)]])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Image, int, Metadata]]:
        """Several images at once, as a DataLoader asks for them."""
        # numpy's own arithmetic, since a fork lacks the threads that torch's may wait for; and a
        # copy, which a transform may change.
        rows = np.asarray(indices, dtype=np.int64)
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
    ) -> StudyDataset[Any, Metadata]:
        """One split of `all`, or a random share of it. transform: applied after this dataset's."""
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
        The same as text."""
        fields, right = self.metadata_fields, (y_pred == y_true).numpy(force=True)
        columns = dict(zip(fields, metadata.numpy(force=True).T, strict=True))
        names = {field: np.array(self.metadata_map[field])[columns[field]] for field in fields}
        frame = pd.DataFrame({**names, "right": right})
        cells = frame.groupby([*reversed([*self.cue_classes, "y"])])["right"].agg(["mean", "size"])
        metrics = {"acc_avg": float(right.mean())}
        for cell, (accuracy, count) in cells.iterrows():
            labels = cell if isinstance(cell, tuple) else (cell,)
            name = "_".join(
                f"{f}:{label}" for f, label in zip(cells.index.names, labels, strict=True)
            )
            metrics |= {f"acc_{name}": accuracy, f"count_{name}": count}
        metrics["acc_wg"] = float(cells["mean"].min())
        by_class = frame.groupby(["group", "y"])["right"].mean().groupby("group").mean()
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
        with an empty group. An empty cell gives a warning.
        """
        if self.split == "all":
            raise DiagvibError(
                "predictions are evaluated on one split; load it by its name, such as split='test'"
            )
        predicted = _array(predictions)
        integers = predicted.ndim == 1 and predicted.dtype.kind in "iu"
        if not integers or (predicted < 0).any() or (predicted >= len(self.classes)).any():
            problem = (
                f"{predicted.min()} to {predicted.max()}"
                if integers
                else f"{predicted.dtype}{[*predicted.shape]}"
            )
            raise DiagvibError(
                f"predictions must be class indices int[{len(self)}], numbers from 0 to "
                f"{len(self.classes) - 1}, not {problem}; for logits, use argmax(1)"
            )
        p = None if confidence is None else _array(confidence)
        if p is not None and not (
            p.shape == (len(self),) and p.dtype.kind in "fiu" and ((p >= 0) & (p <= 1)).all()
        ):
            raise DiagvibError(f"confidence must be {len(self)} probabilities from 0 to 1")
        return evaluate(
            self.study,
            self.binding,
            self.sample,
            self.split,
            self.table,
            np.array(self.classes)[predicted].tolist(),
            self._known_studies,
            p,
        )


def _composed(before: Callable | None, after: Callable | None) -> Callable | None:
    if before is None or after is None:
        return before or after
    return lambda image: after(before(image))


def _array(values: Tensor | np.ndarray | Sequence) -> np.ndarray:
    if isinstance(values, Tensor):
        values = (values.float() if values.is_floating_point() else values).numpy(force=True)
    return np.asarray(values)


def _listed(value: object) -> object:
    """One path as a list of one."""
    return [value] if isinstance(value, str | Path) else value or ()


_Path = Annotated[Path, Field(strict=False)]
_Paths = Annotated[Sequence[_Path], BeforeValidator(_listed)]
_Integer = BeforeValidator(lambda value: int(value) if isinstance(value, np.integer) else value)
_Dtype = Annotated[
    Literal["uint8", "float32"], BeforeValidator(lambda value: str(value).removeprefix("torch."))
]

# The head that `probe` trains, and the images that it draws unless `counts` says otherwise.
_HEAD = {
    "model": {"name": "small_cnn", "frozen": True},  # its features are given
    "optimiser": {"name": "adam", "lr": 1e-3},
    "batch_size": 64,
}
_PROBED = {"train": 1800, "val": 360, "id": 360, "ood": 360}


class Drawing(TypedDict, total=False):
    """Options of `load` about which images are drawn."""

    root: str | Path | None
    sources: Sources | None
    mirror: str | Path | None
    counts: Mapping[str, int] | None
    image_size: int | None
    device: str | torch.device | None
    studies_from: str | Path | Sequence[str | Path] | None
    textures: str | Path | Sequence[str | Path] | None


@overload
def load(
    study: str,
    binding: str,
    split: Split = "train",
    sample: int = 0,
    *,
    transform: None = None,
    metadata: Literal["dict"] = "dict",
    dtype: Literal["uint8", "float32"] | torch.dtype = "uint8",
    classes: Literal["all", "sample"] = "all",
    **options: Unpack[Drawing],
) -> StudyDataset[Tensor, dict[str, Any]]: ...
@overload
def load(
    study: str,
    binding: str,
    split: Split = "train",
    sample: int = 0,
    *,
    transform: None = None,
    metadata: Literal["tensor"],
    dtype: Literal["uint8", "float32"] | torch.dtype = "uint8",
    classes: Literal["all", "sample"] = "all",
    **options: Unpack[Drawing],
) -> StudyDataset[Tensor, Tensor]: ...
@overload
def load(
    study: str,
    binding: str,
    split: Split = "train",
    sample: int = 0,
    *,
    transform: Callable[[Tensor], Image],
    metadata: Literal["dict", "tensor"] = "dict",
    dtype: Literal["uint8", "float32"] | torch.dtype = "uint8",
    classes: Literal["all", "sample"] = "all",
    **options: Unpack[Drawing],
) -> StudyDataset[Image, Any]: ...
@checked
def load(
    study: str,
    binding: str,
    split: Split = "train",
    sample: Annotated[int, _Integer, Field(ge=0, le=_MOST_SAMPLES)] = 0,
    *,
    root: _Path | None = None,
    sources: Sources | None = None,
    mirror: _Path | None = None,
    counts: dict[Name, Annotated[ImageCount, _Integer]] | None = None,
    image_size: Annotated[ImageSize, _Integer] | None = None,
    device: str | torch.device | None = None,
    transform: Callable[[Tensor], Any] | None = None,
    dtype: _Dtype = "uint8",
    metadata: Literal["dict", "tensor"] = "dict",
    classes: Literal["all", "sample"] = "all",
    studies_from: _Paths = (),
    textures: _Paths = (),
) -> StudyDataset:
    """A split of a study's dataset, in memory (49,152 bytes per image of 128 pixels).

    study: such as `zgo` (`diagvib.studies()`); binding: the factors of its roles, `shape-hue`;
    split: train, val, test, or all three, one after the other; sample: number of the dataset sample
    (only 0 for scenes of photos).

    root: the folder in which a workflow has made images, or into which they were pulled; metrics
    follow the study as it was when the images were drawn. Without it, they are drawn and rendered
    now, from `sources` official (the default; downloaded once and checked by hash, or taken from
    the folder `mirror`) or embedded (no download; results are not comparable to a paper's).
    Prepared sources are kept in $DIAGVIB_CACHE, by default ~/.cache/diagvib.
    counts: images of the splits train and val, and of each test group, or of `test`, all groups
    together, for studies none of whose groups is named; groups of other studies are ignored.
    Defaults are those of config/config.yaml, DiagViB-6's, with as many for other groups together as
    for val; far fewer for stand-ins of photos. image_size: pixels per side, by default 128. device:
    where a scene of your own renders, by default cpu; the shipped scenes always draw on the CPU.

    transform: applied to each image, a tensor of `dtype`: uint8, or float32 with values from 0 to 1,
    as `Normalize` needs; for transforms of PIL images, put torchvision's `ToPILImage()` first.
    metadata: a dict for each image, or its row of `metadata_array`.
    classes: the numbers of classes count all of a factor, 10 of shape, or the dataset sample's alone:
    three, from 0, so that a network needs no more outputs.
    studies_from: your own study files; by default those of the root's configuration. textures: the
    classes of the factor texture, as in a configuration: `published`, folders of photos, or lists of
    files.
    DiagvibError for unknown names, unavailable sources, missing or damaged files, and, if `root` is
    given, for arguments about rendering.
    """
    studies_from = studies_from or _study_files(root)
    definition = load_study(study, studies_from, [*map(str, textures)] or PUBLISHED_TEXTURES)
    scene = load_scene(definition.scene)
    _check_sample(scene, sample)
    bound = bind_its_own(definition, binding, scene.factors)
    splits = SPLITS if split == "all" else (split,)
    rendering = _Rendering(sources, mirror, counts, image_size, device, textures or None)
    if root is None:
        numbers = rendering.image_counts(definition, scene, studies_from)
        images = rendering.images(definition, bound, sample, numbers, splits)
    else:
        rendering.check_unused(root)
        files = ImageFiles(Layout(root).images(definition.name, bound.name))
        _check_current(Layout(root), definition.name, bound.name)
        definition, images = files.together(definition, sample, splits)
    known_studies = KnownStudies(definitions=(definition,))
    sample_classes = known_studies.classes(definition.name, bound.factors, sample)
    return StudyDataset(
        definition,
        bound,
        split,
        sample,
        images,
        transform,
        dtype,
        metadata == "tensor",
        dict(zip(bound.factors, sample_classes, strict=False)) if classes == "sample" else None,
    )


class _Rendering(NamedTuple):
    """The arguments of `load` about images that are rendered now."""

    sources: Sources | None
    mirror: Path | None
    counts: dict[str, int] | None
    image_size: int | None
    device: str | torch.device | None
    textures: Sequence[Path] | None

    def image_counts(
        self, study: Study, scene: Scene, studies_from: Sequence[Path]
    ) -> dict[str, int]:
        """The number of images of each split and test group."""
        stand_ins = _few(scene, self.sources)
        defaults = _STAND_INS if stand_ins else read_yaml(default_path())["counts"]
        return counts_of(study, self.counts or {}, defaults, load_studies(studies_from))

    def images(
        self,
        study: Study,
        binding: Binding,
        sample: int,
        counts: dict[str, int],
        splits: Sequence[str],
    ) -> Images:
        """Images of these splits, drawn and rendered."""
        scene = load_scene(study.scene)
        prepared = cached(scene, self.sources or "official", self.mirror)
        catalogue, samples = scene.catalogue(prepared), [dataset_sample(sample, scene)]
        recipes = draw_recipes(study, binding, samples, counts, scene, catalogue, splits)
        device = resolve_device("cpu" if self.device is None else str(self.device))
        with one_thread_in_forks():
            renderer = scene.rendering(prepared, self.image_size or 128, device)
            pixels = rendered(recipes, renderer, prepared)
        return Images(pixels, recipes, {"scene": study.scene, "comparable": catalogue.comparable})

    def check_unused(self, root: Path) -> None:
        """DiagvibError for arguments that have no effect on the images in a root."""
        for name, value in self._asdict().items():
            if value is not None:
                raise DiagvibError(
                    f"diagvib.load: {name} is for images that are rendered now, but those in {root} "
                    f"are finished; leave out {name} or root"
                )


def _check_sample(scene: Scene, sample: int) -> None:
    if sample and scene.replicates == "seeds":
        raise DiagvibError(
            f"dataset sample {sample}: the scene {scene.name} has one dataset sample, 0, since there "
            "is one set of photos; repetitions differ in their training seeds alone"
        )


def _study_files(root: str | Path | None) -> list[Path]:
    """The study files of a root's configuration, which names them as seen from the folder in which
    the workflow ran."""
    if root is None:
        return []
    folders = [Path(), Path(root), *Path(root).absolute().parents]
    names = _configuration(Path(root)).get("studies_from", [])
    paths = {name: [folder / name for folder in folders] for name in names}
    return [next(filter(Path.is_file, places), Path(name)) for name, places in paths.items()]


def _configuration(root: Path) -> dict:
    """The keys of a root's configuration; none if there is none."""
    file = root / "config.yaml"
    return read_yaml(file) if file.is_file() else {}


def _check_current(layout: Layout, study: str, binding: str) -> None:
    """DiagvibError if a root's images are of other recipes than those that it has, or of another
    size than its configuration's, as after `images: render`."""
    recipes, digests = layout.recipes(study, binding), layout.digests(study, binding)
    if not (recipes.is_file() and digests.is_file()):
        return
    image_size = _configuration(layout.root).get("image_size")
    rendered_size = read_json(digests).get("image_size")
    if image_size and rendered_size and image_size != rendered_size:
        raise DiagvibError(
            f"{digests.parent}: its images have {rendered_size} pixels per side, but "
            f"{layout.root / 'config.yaml'} has image_size: {image_size}; render them again with "
            "`snakemake images --cores all` and `images: parquet`, or leave out `root`"
        )
    rendered_from = read_json(digests).get("recipes")
    if rendered_from and rendered_from != made_from(read_metadata(recipes), 0)["recipes"]:
        raise DiagvibError(
            f"{digests.parent}: its images are of earlier recipes than those in {recipes}; render "
            "them again with `snakemake images --cores all` and `images: parquet`, or leave out `root`"
        )


def _few(scene: Scene, sources: Sources | None) -> bool:
    """Whether images are of stand-ins for photos, of which there are few."""
    return sources == "embedded" and scene.replicates == "seeds"


@torch.inference_mode(False)
@torch.enable_grad()
def probe(
    features: Callable[[Tensor], Tensor | np.ndarray],
    study: str,
    binding: str,
    sample: int = 0,
    *,
    method: str | dict = "erm",
    seed: int = 0,
    **options: Unpack[Drawing],
) -> dict[str, float]:
    """The metrics of a study for a linear layer trained on features of your own network.

    features: images uint8[B, 3, size, size] to features [B, D], a tensor or an array; it scales the
    pixels itself. method: how the layer is trained: a name of `diagvib.methods()`, or a name with
    options as in config/baselines. seed: of its weights and of the order of images. options: those
    of `load` about which images are drawn: root, sources, mirror, counts (by default 1,800 for
    train, 360 each for val, id and ood, or as many as for val for other test groups together; for
    stand-ins of photos, those of `load`), image_size, device, studies_from.

    Returns what `StudyDataset.evaluate` gives for the test split. The layer is trained by Adam with
    learning rate 1e-3 and batches of 64, or of all images if there are fewer, for at most 100
    epochs, until the validation loss has not fallen for five. DiagvibError as for `load`, for
    features that are not finite or have another shape, or that depend on the images that come
    together, as in training mode, and for a method that needs pixels.
    """
    from diagvib.training.probe import features_by, head_predictions
    from diagvib.training.protocol import Protocol

    entry = {**_HEAD, "method": method, "origin": "diagvib.probe; not tuned"}
    settings = complete(entry, "probe", "diagvib.probe")
    files = _listed(options.get("studies_from")) or _study_files(options.get("root"))
    definition = load_study(study, files)
    few_images = _few(load_scene(definition.scene), options.get("sources"))
    counts = options.get("counts") or {}
    if options.get("root") is None and not few_images and isinstance(counts, dict):
        has_groups = "test" not in counts and {*definition.groups} <= {*_PROBED, *counts}
        default_keys = _PROBED if has_groups else ("train", "val")
        options["counts"] = {**{key: _PROBED[key] for key in default_keys}, **counts}
    data = {split: load(study, binding, split, sample, **options) for split in SPLITS}
    settings["batch_size"] = min(settings["batch_size"], len(data["train"]))
    splits = {
        split: features_by(features, Images(images.pixels, images.table, images._image_metadata))
        for split, images in data.items()
    }
    run = Run("probe", data["test"].study, data["test"].binding, sample)
    protocol = Protocol(100, 5, seed, "fp32")
    return data["test"].evaluate(head_predictions(splits, settings, run, protocol))


@torch.inference_mode(False)
def score(
    model: torch.nn.Module | Callable[[Tensor], Any],
    study: str,
    binding: str,
    sample: int = 0,
    *,
    classes: Mapping[str | int, str] | None = None,
    transform: Callable[[Tensor], Tensor] | None = None,
    **options: Unpack[Drawing],
) -> dict[str, float]:
    """The metrics of a study for a fitted classifier, with its own outputs; nothing is trained.

    model: a network of any library in PyTorch, also of transformers, used in evaluation mode and on
    its device; or a function of images to logits [B, outputs]. classes: an output, by its name or
    number -> a class of the target; several outputs may mean one class, and those that mean none
    are left out. By default, outputs with the names of the classes (transformers' `id2label`, or
    an attribute `classes` of the model), or as many outputs as there are classes in all, or in this
    dataset sample, in the order of `load(...).classes`. transform: images uint8[B, 3, size, size] to
    what the model takes; by default their values from 0 to 1. options: those of `load` about which
    images are drawn; the test images decide.

    Returns what `StudyDataset.evaluate` gives for the test split, with calibration errors;
    `{target}-{cue}_accuracy` of each combination of classes; and `follows_{cue}`, the share of
    predictions that are the class a cue points to, of the images on which it points to another
    class than theirs. DiagvibError as for `load`, for outputs that do not fit the classes, and for
    logits that are not finite or depend on the images that come together.
    """
    from diagvib.models.fitted import Logits, class_logits, outputs_of_classes
    from diagvib.training.probe import features_by

    network = Logits(model) if isinstance(model, torch.nn.Module) else model
    prepare = transform or (lambda images: images.float() / 255)

    def logits_of(images: Tensor) -> Tensor:
        weights = next(network.parameters(), images) if network is not model else images
        return network(prepare(images).to(weights.device))

    test = load(study, binding, "test", sample, **options)
    images = Images(test.pixels, test.table, test._image_metadata)
    modes = {part: part.training for part in model.modules()} if network is not model else {}
    try:
        if modes:
            network.eval()
        logits = features_by(logits_of, images, "score").pixels
    finally:
        for part, training in modes.items():
            part.training = training
    factors = test.binding.split("-")
    sample_classes = test._known_studies.classes(test.study, factors, sample)[0]
    count, mapping = logits.shape[1], {str(key): name for key, name in (classes or {}).items()}
    if not mapping and count == len(sample_classes) < len(test.classes):
        mapping = {str(number): name for number, name in enumerate(sample_classes)}
    try:
        names = getattr(network, "names", ())
        outputs = outputs_of_classes(mapping, names, count, test.classes)
    except DiagvibError as error:
        raise DiagvibError(f"score: classes: {error}") from None
    confidence, predicted = class_logits(logits, outputs).softmax(1).max(1)
    metrics = test.evaluate(predicted, confidence)
    labels = np.array(test.classes)[predicted.numpy()]
    combinations = _combinations(test)
    right = pd.Series(labels == test.table[factors[0]].to_numpy(), dtype=float)
    shares = right.groupby(combinations, sort=False).mean().add_suffix("_accuracy")
    trained: Any = {}
    if test._known_studies.studies[test.study].as_published:
        trained = _combinations(load(study, binding, "train", sample, **options)).value_counts()
    return shares.to_dict() | metrics | _follows(test, labels, dict(trained))


def _combinations(dataset: StudyDataset) -> pd.Series:
    """The classes of each image, as {target}-{cue}."""
    columns = [dataset.table[factor].to_pylist() for factor in dataset.binding.split("-")]
    return pd.Series(["-".join(names) for names in zip(*columns, strict=True)])


def _follows(
    test: StudyDataset, labels: np.ndarray, trained: Mapping[str, int]
) -> dict[str, float]:
    """Of each cue, the share of predictions that are the class it points to, where that is wrong."""
    target, *cues = test.binding.split("-")
    cue_labels = test._known_studies.cue_label(test.study, [target, *cues], test.sample, trained)
    truth, shares = test.table[target].to_pylist(), {}
    for cue, names_of in zip(cues, cue_labels, strict=False):
        misleading = [
            names_of.get(name, frozenset()) - {label}
            for name, label in zip(test.table[cue].to_pylist(), truth, strict=True)
        ]
        followed = [
            label in names for label, names in zip(labels, misleading, strict=True) if names
        ]
        if followed:
            shares[f"follows_{cue}"] = float(np.mean(followed))
    return shares
