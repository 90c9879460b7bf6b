"""Image files with the real layout whose classes can be seen at a glance: the hue as colour, the
position as position."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from diagvib.foundation.files import write_table
from diagvib.scenes.digits.factors import FACTORS, classes
from diagvib.training.batches import Batches

SIZE = 64
_COLOURS = np.array([[220, 40, 40], [40, 220, 40], [40, 40, 220]])


def separable(n: int, seed: int = 0, size: int = SIZE) -> tuple[torch.Tensor, torch.Tensor]:
    """pixels uint8[n, size, size, 3] and labels int64[n]: three colours on noise."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, n)
    pixels = generator.integers(90, 160, (n, size, size, 3))
    pixels[:, 16:40, 16:40] = _COLOURS[labels][:, None, None]
    return torch.from_numpy(pixels.astype(np.uint8)), torch.from_numpy(labels)


def small_batches(n: int) -> tuple[Batches, Batches]:
    """This many `separable` images for training, and 30 for validation, on the CPU."""
    train = Batches(*separable(n), torch.device("cpu"))
    return train, Batches(*separable(30, seed=1), train.device, train.scaling)


def write_dataset(
    folder: Path,
    study: str,
    binding: str,
    sample: int,
    changed: dict | None = None,
    counts=(48, 16, 24),
) -> None:
    """The three files of one dataset; hue is the target. changed: metadata of the test file that
    should differ."""
    for number, (split, n) in enumerate(zip(("train", "val", "test"), counts, strict=True)):
        pixels, labels = separable(n, seed=10 * sample + number)
        names = {factor: [classes(factor)[0]] * n for factor in FACTORS}
        names["hue"] = [classes("hue")[i] for i in labels.tolist()]
        group = ["id"] * n if split != "test" or study == "zso" else ["id", "ood"] * (n // 2)
        table = pa.table(
            {
                "sample": [sample] * n,
                "split": [split] * n,
                "group": group,
                **names,
                "image": pa.array([image.tobytes() for image in pixels.numpy()], pa.binary()),
            }
        )
        factors = binding.split("-")
        metadata = {
            "study": study,
            "binding": binding,
            "roles": dict(zip(("target", "cue"), factors, strict=False)),
            "scene": "digits",
            "sample": sample,
            "split": split,
            "sources": "embedded",
            "comparable": False,
            "sources_digest": "s",
            "recipe_digest": "r",
            "image_shape": [SIZE, SIZE, 3],
            "layout": "HWC",
            "dtype": "uint8",
        }
        write_table(
            folder / str(sample) / f"{split}.parquet",
            table,
            {**metadata, **((changed or {}) if split == "test" else {})},
        )
