"""`diagvib.load`: images of a workflow's root, or drawn and rendered now."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from diagvib.foundation.errors import unknown_name
from diagvib.foundation.torch_defaults import initial_defaults
from diagvib.foundation.validation import Name, checked
from diagvib.library.bound_study import bound_study
from diagvib.library.finished_root import FinishedRoot, study_files
from diagvib.library.rendering import Rendering
from diagvib.library.study_dataset import Image, StudyDataset
from diagvib.scenes import PUBLISHED_TEXTURES
from diagvib.settings.keys import ImageCount, ImageSize, Sources, Textures
from diagvib.settings.layout import Layout
from diagvib.studies.study import SPLITS

_MOST_SAMPLES = 32_767  # what the column `sample` of a recipe holds
Split = Literal["train", "val", "test", "all"]


def listed(value: object) -> object:
    """One path as a list of one."""
    return [value] if isinstance(value, str | Path) else value or ()


_Path = Annotated[Path, Field(strict=False)]
_Paths = Annotated[Sequence[_Path], BeforeValidator(listed)]
_Texture = Annotated[
    Textures, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)
]
TexturePaths = Annotated[Sequence[_Texture], BeforeValidator(listed)]
_Mapping = BeforeValidator(lambda value: dict(value) if isinstance(value, Mapping) else value)
Integer = BeforeValidator(lambda value: int(value) if isinstance(value, np.integer) else value)
_Dtype = Annotated[
    Literal["uint8", "float32"], BeforeValidator(lambda value: str(value).removeprefix("torch."))
]


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


def check_drawing(options: Mapping[str, object], location: str) -> None:
    """DiagvibError for an option that does not decide which images are drawn, and has no effect."""
    for name in options:
        if name not in Drawing.__annotations__:
            raise unknown_name("argument", name, Drawing.__annotations__, location)


class _Loading(Drawing, total=False):
    """Those that do not decide the types of image and metadata."""

    dtype: Literal["uint8", "float32"] | torch.dtype
    classes: Literal["all", "sample"]


@overload
def load(
    study: str,
    binding: str,
    split: Split = "train",
    sample: int = 0,
    *,
    transform: None = None,
    metadata: Literal["dict"] = "dict",
    **options: Unpack[_Loading],
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
    **options: Unpack[_Loading],
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
    **options: Unpack[_Loading],
) -> StudyDataset[Image, Any]: ...
@checked
@initial_defaults()
def load(
    study: str,
    binding: str,
    split: Split = "train",
    sample: Annotated[int, Integer, Field(ge=0, le=_MOST_SAMPLES)] = 0,
    *,
    root: _Path | None = None,
    sources: Sources | None = None,
    mirror: _Path | None = None,
    counts: Annotated[dict[Name, Annotated[ImageCount, Integer]] | None, _Mapping] = None,
    image_size: Annotated[ImageSize, Integer] | None = None,
    device: str | torch.device | None = None,
    transform: Callable[[Tensor], Any] | None = None,
    dtype: _Dtype = "uint8",
    metadata: Literal["dict", "tensor"] = "dict",
    classes: Literal["all", "sample"] = "all",
    studies_from: _Paths = (),
    textures: TexturePaths = (),
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
    where digits, and scenes of your own, are drawn, by default cpu; on a GPU, digits are the same.

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
    source: Rendering | FinishedRoot = Rendering(
        sources, mirror, counts, image_size, device, textures or None
    )
    if root is not None:
        source.check_unused(root)
        source = FinishedRoot(Layout(root))
    bound = bound_study(
        study, binding, studies_from or study_files(root), textures or PUBLISHED_TEXTURES
    )
    bound.check_sample(sample)
    bound, images = source.images(bound, sample, SPLITS if split == "all" else (split,))
    return StudyDataset(
        bound, split, sample, images, transform, dtype, metadata == "tensor", classes == "sample"
    )
