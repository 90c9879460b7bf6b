"""Masks for photos without one, from torchvision's Mask R-CNN (He et al., 2017), trained on COCO.

A mask shows the largest instance of any of some categories, in a file next to the photo:
`name.mask.png`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import whole_file
from diagvib.models.weights import load_weights
from diagvib.scenes.cars.sources import MASK
from diagvib.scenes.photos.decoding import open_photo
from diagvib.scenes.photos.listing import EXTENSIONS, files_in, leave_out

MODEL, WEIGHTS = "maskrcnn_resnet50_fpn_v2", "COCO_V1"
# The score from which an instance counts, and the probability from which a pixel belongs to it.
SURE = 0.5
_NO_CATEGORIES = ("__background__", "N/A")


def categories() -> list[str]:
    """The names of COCO's categories; their position is the network's class index."""
    return list(torchvision.models.get_model_weights(MODEL)[WEIGHTS].meta["categories"])


def without_mask(folder: Path) -> list[Path]:
    """The photos in a folder and its subfolders that need a mask: there is none next to them, and
    they have no transparency. Unreadable files are named on standard error.
    """
    mask_photos: dict[Path, Path] = {}
    for path in map(folder.joinpath, files_in(folder)):
        photo = path.suffix.lower() in EXTENSIONS and not path.name.endswith(MASK)
        mask = path.with_suffix(MASK)
        if not photo or mask.exists():
            continue
        if mask in mask_photos:
            reason = "because another photo has this name, and so the same mask; rename one"
            leave_out(path, reason)
            continue
        try:
            opaque = (open_photo(path, "RGBA")[..., 3] == 255).all()
        except DiagvibError as error:
            leave_out(path, str(error).removeprefix(f"{path}: "))
            continue
        if opaque:
            mask_photos[mask] = path
    return [*mask_photos.values()]


def load_network(
    device: torch.device, file: Path | None = None, sha256: str | None = None
) -> nn.Module:
    """Mask R-CNN with its weights, ready for use.

    file: with the weights, instead of torch's cache or a download; sha256: its hash, if it is not
    the published one. DiagvibError for weights that are unavailable, unreadable or have the wrong
    hash.
    """
    net = torchvision.models.get_model(MODEL, weights=None, weights_backbone=None)
    load_weights(net, MODEL, WEIGHTS, file and str(file), sha256)
    return net.to(device).eval()


def class_indices(names: Sequence[str]) -> torch.Tensor:
    """The network's class indices of COCO's categories. DiagvibError for an unknown one."""
    all_categories = categories()
    for name in names:
        if name not in all_categories or name in _NO_CATEGORIES:
            raise unknown_name(
                "category",
                name,
                [category for category in all_categories if category not in _NO_CATEGORIES],
            )
    return torch.tensor([all_categories.index(name) for name in names])


def cut_out_photos(
    net: nn.Module,
    photos: Sequence[Path],
    names: Sequence[str],
    device: torch.device,
    advance: Callable[[int], None],
) -> int:
    """Write a mask next to each photo; returns how many, since photos without such an object get
    none.

    names: of COCO's categories. advance: called with the number of further photos processed.
    """
    indices, written = class_indices(names).to(device), 0
    for path in photos:
        mask = largest_instance(net, open_photo(path), indices)
        if mask is None:
            leave_out(path, f"because no {' or '.join(names)} was found in it")
        else:
            with whole_file(path.with_suffix(MASK)) as temporary:
                Image.fromarray(mask).save(temporary, "PNG")
            written += 1
        advance(1)
    return written


@torch.inference_mode()
def largest_instance(net: nn.Module, photo: np.ndarray, indices: torch.Tensor) -> np.ndarray | None:
    """Where the largest instance of some classes is in a photo uint8[H, W, 3]: uint8[H, W], 255
    there, 0 elsewhere.

    None if there is no instance with a high enough score.
    """
    pixels = torch.from_numpy(photo.copy()).to(indices.device).permute(2, 0, 1) / 255
    (detections,) = net([pixels])
    masks = (
        detections["masks"][
            torch.isin(detections["labels"], indices) & (detections["scores"] >= SURE), 0
        ]
        >= SURE
    )
    areas = masks.sum((1, 2))
    if not len(areas) or not areas.max():
        return None
    return (masks[areas.argmax()].to(torch.uint8) * 255).cpu().numpy()
