"""Exhibits: pictures of what a trained baseline makes of a few test images, kept with the run in their own file."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from PIL import Image

from diagvib.foundation.files import write_table
from diagvib.images.files import Images
from diagvib.methods.method import Baseline, Exhibit, ToPixels
from diagvib.scenes.digits.factors import FACTORS, classes
from diagvib.settings.grid import Run
from diagvib.studies.study import GROUPS
from diagvib.training.batches import Batches, Scaling
from diagvib.training.protocol import Protocol, autocast, determined

# Test images that are shown, evenly over groups, classes and cells.
SHOWN = 12
# A picture is kept exactly where that takes at most so many bytes, as it does for every input, else as a good WebP of
# this quality: a file of a hundred pictures then stays below 300 kB.
_EXACT_BYTES, _QUALITY = 2500, 90

_SCHEMA = pa.schema([
    ("what", pa.string()), ("image", pa.int32()), ("dimension", pa.int32()), ("kl", pa.float32()),
    ("value", pa.float32()), ("prediction", pa.string()), ("group", pa.string()),
    *((factor, pa.string()) for factor in FACTORS), ("picture", pa.binary())])


def write_exhibits(path: Path, model: Baseline, batches: Batches, test: Images, run: Run, protocol: Protocol) -> None:
    """The exhibits of a trained model on a few of the test images, drawn and written; no rows where it offers none.

    batches: of the images of `test`. Columns: what (kind of picture), image (which of those shown), dimension, kl and
    value (of a latent dimension, else empty), prediction (where asked), group and classes of the image, picture (WebP).
    """
    shown = shown_images(test.table, run)
    exhibits = _draw(model, batches, torch.tensor(shown), protocol)
    content = exhibit_table(exhibits, test.table.take(shown).select(["group", *FACTORS]), classes(run.target))
    write_table(path, content, {"baseline": run.baseline, "study": run.study, "binding": run.binding, "sample": run.sample,
                                "sources": test.metadata["sources"], "comparable": test.metadata["comparable"]})


def shown_images(test: pa.Table, run: Run) -> np.ndarray:
    """Which test images are shown, int64[at most SHOWN]: of each group equally many of each target class, of as many
    cue classes as there are; sorted by group and classes, the first of their kind in the file."""
    factors = [run.target, *([run.cue] if run.cue else [])]
    frame = test.select(["group", *factors]).to_pandas()
    groups = [name for name in GROUPS if (frame["group"] == name).any()]
    parts = []
    for group in groups:
        rows = frame[frame["group"] == group]
        rows = rows.iloc[rows.groupby(factors).cumcount().argsort(kind="stable")]
        rows = rows.iloc[rows.groupby(run.target).cumcount().argsort(kind="stable")][:SHOWN // len(groups)]
        parts.append(rows.sort_values(factors, key=_class_order, kind="stable"))
    return pd.concat(parts).index.to_numpy()


def _class_order(column: pd.Series) -> pd.Series:
    return column.map({name: place for place, name in enumerate(classes(column.name))})


@torch.inference_mode()
def _draw(model: Baseline, batches: Batches, index: torch.Tensor, protocol: Protocol) -> list[Exhibit]:
    model.eval()
    with determined(batches.device, protocol.threads), autocast(protocol.on(batches.device), batches.device):
        return model.exhibits(batches.batch(index), pixels_again(batches.scaling, batches.device))


def pixels_again(scaling: Scaling, device: torch.device) -> ToPixels:
    """The inverse of the z-scoring, for showing what a network made of an image; clipped to 0..255."""
    mean, std = (torch.tensor(values, device=device).view(-1, 1, 1) for values in (scaling.mean, scaling.std))

    def to_pixels(inputs: torch.Tensor) -> torch.Tensor:
        return (inputs.float() * std + mean).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)

    return to_pixels


def exhibit_table(exhibits: list[Exhibit], shown: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """The rows of an exhibits file. shown: group and factor classes of the images; names: the target's classes."""
    images, rows = shown.to_pylist(), []
    for exhibit in exhibits:
        predictions = [None] * len(exhibit.pixels)
        if exhibit.logits is not None:
            predictions = [names[at] for at in exhibit.logits.argmax(1).tolist()]
        for place, pixels in enumerate(exhibit.pixels.cpu().numpy()):
            latent = exhibit.dimension is not None
            image = 0 if latent else place
            rows.append({"what": exhibit.what, "image": image, "dimension": exhibit.dimension, "kl": exhibit.kl,
                         "value": exhibit.values[place] if latent else None, "prediction": predictions[place],
                         **images[image], "picture": _webp(pixels)})
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _webp(pixels: np.ndarray) -> bytes:
    for lossless in (True, False):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, format="webp", lossless=lossless, quality=_QUALITY, method=4)
        if len(content := file.getvalue()) <= _EXACT_BYTES:
            break
    return content
