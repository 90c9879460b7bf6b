"""Where networks look in photos with and without ImageNet-W's watermark (Li et al., 2023, Fig.
3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor
from torchvision.models import ResNet50_Weights

from diagvib.methods.method import Unlabelled
from diagvib.models.encoder import Encoder
from diagvib.papers.imagenet_w.watermark import CARTON
from diagvib.report.style import save_figure
from diagvib.report.visualisation_sheets import visualisation_sheet
from diagvib.results.reader_tables import whole_percent
from diagvib.scenes.photos.decoding import Crop
from diagvib.scenes.photos.scene import Photos
from diagvib.settings.layout import LOOKS
from diagvib.training.batches import Batches, Scaling
from diagvib.training.protocol import Protocol
from diagvib.training.saliency import saliency
from diagvib.training.visualisations import dimmed

_PHOTOS, _PHOTO = 6, "photo"
_CLEAN, _MARKED = "as they are", "with the watermark"


@dataclass(frozen=True)
class Classifier:
    """A network as `saliency` wants it."""

    network: torch.nn.Module

    def eval(self) -> None:
        self.network.eval()

    def predict(self, batch: Unlabelled) -> Tensor:
        return self.network(batch.inputs)


@dataclass(frozen=True)
class Looks:
    """pictures: of `visualisation_sheet`, the photos and where a network looks; share and area: of
    what speaks for its prediction on watermarked photos, the part on the watermark's pixels, and
    these as a part of the image."""

    pictures: pd.DataFrame
    share: float
    area: float


def looks_of(
    scene: Photos, prepared: Path, encoder: Encoder, crop: Crop, threads: int
) -> Looks | None:
    """Where a network looks in a few photos of cartons. None if there are none, or the network has
    no gradient."""
    cells = pd.DataFrame({"group": [_CLEAN, _MARKED], "watermark": ["absent", "present"]})
    photos = scene.every_photo(cells.assign(photos="val"), scene.catalogue(prepared))
    photos = photos[photos["class"] == CARTON].assign(**{"class": "carton"})
    photos = photos.groupby("group").head(_PHOTOS).sort_values("group", kind="stable")
    if photos.empty:
        return None
    device, rows = encoder.mean.device, np.arange(len(photos))
    render = scene.rendering(prepared, crop.size, device, crop=crop)
    pixels = render(pa.Table.from_pandas(photos, preserve_index=False))
    scaling = Scaling(tuple(encoder.mean.tolist()), tuple((1 / encoder.factor).tolist()))
    batches = Batches(pixels, torch.zeros(len(photos), dtype=torch.int64), device, scaling)
    classifier, protocol = Classifier(encoder.network), Protocol(1, None, 0, "fp32", threads)
    # One photo at a time, since large networks keep gigabytes of activations for the gradient.
    maps = [saliency(classifier, batches, rows[[row]], protocol) for row in rows]
    if any(saliency_map is None for saliency_map in maps):
        return None
    logits, heat = (torch.cat(parts) for parts in zip(*maps, strict=True))
    pixels = pixels.cpu()
    clean, marked = pixels.chunk(2)
    of_watermark = (clean != marked).any(3)
    share = (heat.chunk(2)[1] * of_watermark).sum((1, 2)).mean().item()
    pictures = [
        photos.assign(what=_PHOTO, picture=[*pixels.numpy()], prediction=""),
        photos.assign(
            what=LOOKS,
            picture=[*dimmed(pixels, heat).numpy()],
            prediction=class_words(scene.factors["class"])[logits.argmax(1).numpy()],
        ),
    ]
    return Looks(pd.concat(pictures), share, of_watermark.float().mean().item())


def class_words(synsets: Sequence[str]) -> np.ndarray:
    """A short word for each class: of all of ImageNet's, torchvision's."""
    if len(synsets) == len(words := ResNet50_Weights.DEFAULT.meta["categories"]):
        return np.array([word[:14] for word in words])
    return np.array(["carton" if synset == CARTON else synset for synset in synsets])


def save_looks(networks: dict[str, Looks], path: Path) -> list[str]:
    """Draw the photos, and where each network looks, to {path}.png; the shares in sentences."""
    first_looks = next(iter(networks.values()))
    strips = [first_looks.pictures[first_looks.pictures["what"] == _PHOTO]]
    for name, network in networks.items():
        of_network = network.pictures[network.pictures["what"] == LOOKS]
        strips.append(of_network.assign(what=name))
    rows = pd.concat(strips).assign(dimension=np.nan, value=np.nan)
    title = "Where networks look, without and with the watermark"
    save_figure(visualisation_sheet(rows, ["class", "watermark"], title), path, ["png"])
    return [
        f"{name}: with the watermark, {whole_percent(network.share)} of what speaks for its predictions "
        f"on cartons lies on the watermark's pixels, which are {whole_percent(network.area)} of the "
        f"image ({path.name}.png)."
        for name, network in networks.items()
    ]
