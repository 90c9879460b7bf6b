"""Pictures of what a trained method sees in a few test images, kept with the run in a separate
file."""

import io
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from PIL import Image

from diagvib.foundation.files import write_table
from diagvib.foundation.seeding import seed_generators
from diagvib.images.files import Images
from diagvib.methods.method import Denormalise, Method, Unlabelled, Visualisation
from diagvib.scenes import load_scene
from diagvib.settings.layout import LOOKS, SMOOTH, Run
from diagvib.training.batches import Batches, Scaling
from diagvib.training.protocol import Protocol, deterministic
from diagvib.training.saliency import saliency, smooth_saliency

# Number of test images shown, and of those whose saliency is counted, spread evenly over groups,
# classes and cells.
IMAGES_SHOWN, SALIENCY_IMAGES = 12, 48
# Brightness of what does not speak for the prediction.
_DIM = 0.2
# A picture is stored losslessly if that takes at most this many bytes, as for every input;
# otherwise as WebP of this quality: a file of a hundred pictures then stays below 300 kB.
_EXACT_BYTES, _QUALITY = 2500, 90


def visualisation_schema(factors: Iterable[str]) -> pa.Schema:
    """Columns of a file of visualisations. factors: the scene's."""
    return pa.schema(
        [
            ("what", pa.string()),
            ("image", pa.int32()),
            ("dimension", pa.int32()),
            ("kl", pa.float32()),
            ("value", pa.float32()),
            ("prediction", pa.string()),
            ("group", pa.string()),
            *((factor, pa.string()) for factor in factors),
            ("picture", pa.binary()),
        ]
    )


def write_visualisations(
    path: Path, method: Method, batches: Batches, test: Images, run: Run, protocol: Protocol
) -> None:
    """Draw and write pictures of a few of the test images: the method's visualisations and, of dataset
    sample 0, of whose first seed reports show them, where it looks.

    batches: of the images of `test`. Columns: what (kind of picture), image (which of those shown),
    dimension, kl and value (of a latent dimension, else empty), prediction (if asked for), group
    and classes of the image, picture (WebP).
    """
    rows = shown_images(test, run)
    images = test.table.take(rows).select(["group", *test.factors])
    method.eval()
    with (
        torch.inference_mode(),
        deterministic(batches.device, protocol.threads),
        protocol.autocast(batches.device),
    ):
        batch = batches.batch(torch.tensor(rows))
        seed_generators(protocol.seed)
        pictures = method.visualisations(
            Unlabelled(batch.pixels, batch.inputs),
            denormalisation(batches.scaling, batches.device),
        )
    if run.folder == "0":
        photos = load_scene(test.metadata["scene"]).replicates == "seeds"
        looks = _looks(method, batches, rows, protocol, photos)
        pictures = [*pictures, *islice(looks, bool(pictures), None)]
    content = visualisation_table(pictures, images, test.factors[run.target])
    facts = {key: test.metadata[key] for key in ("sources", "comparable")}
    write_table(path, content, run.names | facts)


def _looks(
    method: Method,
    batches: Batches,
    rows: np.ndarray,
    protocol: Protocol,
    photos: bool,
) -> Iterator[Visualisation]:
    """The images, and again with everything dimmed that does not speak for the prediction (`saliency`,
    and of photos `smooth_saliency`); nothing if there is no saliency."""
    saliency_maps = saliency(method, batches, rows, protocol)
    if saliency_maps is None:
        return
    logits, heat = saliency_maps
    pixels = batches.pixels[torch.tensor(rows)].cpu()
    yield Visualisation("input", pixels)
    yield Visualisation(LOOKS, dimmed(pixels, heat), logits)
    smooth = smooth_saliency(method, batches, rows, protocol) if photos else None
    if smooth is not None:
        yield Visualisation(SMOOTH, dimmed(pixels, smooth), logits)


def dimmed(pixels: torch.Tensor, heat: torch.Tensor) -> torch.Tensor:
    """The images, the darker the lower the heat."""
    strength = heat / heat.amax((1, 2), keepdim=True).clamp_min(1e-12)
    return (pixels * (_DIM + (1 - _DIM) * strength[..., None])).round().to(torch.uint8)


def shown_images(test: Images, run: Run, count: int = IMAGES_SHOWN) -> np.ndarray:
    """Which test images are shown, int64[at most count]: equally many per group and target class,
    with as many cue classes as possible; sorted by group and classes, the first of their kind in
    the file."""
    factors = {name: pd.CategoricalDtype(test.factors[name]) for name in run.factors}
    frame = test.table.select(["group", *factors]).to_pandas().astype(factors)
    for columns in (["group", *factors], ["group", run.target]):
        frame = frame.iloc[frame.groupby(columns, observed=True).cumcount().argsort(kind="stable")]
    rows = frame.groupby("group").head(max(count // frame["group"].nunique(), 1))
    return rows.sort_values(["group", *factors], kind="stable").index.to_numpy()


def denormalisation(scaling: Scaling, device: torch.device) -> Denormalise:
    """The inverse of z-scoring, to show what a network made of an image; clipped to 0..255."""
    mean, std = (
        torch.tensor(values, device=device).view(-1, 1, 1) for values in (scaling.mean, scaling.std)
    )

    def denormalise(inputs: torch.Tensor) -> torch.Tensor:
        return (
            (inputs.float() * std + mean).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
        )

    return denormalise


def visualisation_table(
    visualisations: list[Visualisation], image_rows: pa.Table, names: tuple[str, ...]
) -> pa.Table:
    """A file's rows. image_rows: group and factor classes of the images; names: the target's
    classes."""
    images, rows = image_rows.to_pylist(), []
    for picture in visualisations:
        predictions = [None] * len(picture.pixels)
        if picture.logits is not None:
            predictions = [names[class_index] for class_index in picture.logits.argmax(1).tolist()]
        for position, pixels in enumerate(picture.pixels.cpu().numpy()):
            latent = picture.dimension is not None
            image = 0 if latent else position
            rows.append(
                {
                    "what": picture.what,
                    "image": image,
                    "dimension": picture.dimension,
                    "kl": picture.kl,
                    "value": picture.values[position] if latent else None,
                    "prediction": predictions[position],
                    **images[image],
                    "picture": _webp(pixels),
                }
            )
    return pa.Table.from_pylist(rows, schema=visualisation_schema(image_rows.column_names[1:]))


def _webp(pixels: np.ndarray) -> bytes:
    for lossless in (True, False):
        file = io.BytesIO()
        Image.fromarray(pixels).save(
            file, format="webp", lossless=lossless, quality=_QUALITY, method=4
        )
        if len(content := file.getvalue()) <= _EXACT_BYTES:
            break
    return content
