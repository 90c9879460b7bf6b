"""The encode stage: images in, features of a frozen network out, computed once for all baselines
with that network.

Images are read, or rendered, a few hundred at a time. A killed job continues where it was, and ends
with the same bytes.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, write_json, write_table
from diagvib.foundation.progress import Counter
from diagvib.images import FEATURES_FILE
from diagvib.images.datasets import Datasets
from diagvib.images.features import FeatureFiles, features_digest
from diagvib.methods.method import initialised
from diagvib.models.encoder import Encoder
from diagvib.models.network import Network
from diagvib.models.registry import make_network
from diagvib.models.weights import located, state_digest
from diagvib.studies.study import SPLITS
from diagvib.training.batches import IMAGENET, Scaling
from diagvib.training.code_digest import code_digest, package_versions
from diagvib.training.protocol import deterministic

# Images per pass through the network, always as many, so that features do not depend on where a
# killed job had stopped; and images between two notes of the progress.
_BATCH, _BATCH_CPU, _NOTED = 256, 32, 8192


@dataclass(frozen=True)
class Encoding:
    """How features are made. settings: `baselines.encoder_settings`: model and normalise. weights: a
    folder that may contain published weights."""

    settings: dict
    device: torch.device
    threads: int = 1
    weights: Path | None = None


def encode(encoding: Encoding, datasets: Datasets, samples: int, folder: Path) -> None:
    """Write the features of all samples and splits to `folder`, then FEATURES_FILE. What is there
    already, made from the same, is kept."""
    (folder / FEATURES_FILE).unlink(missing_ok=True)  # it must not vouch for new files
    network, files, noted = load_network(encoding, datasets), FeatureFiles(folder), {}
    made_by = made_from(encoding, network)
    splits = [(sample, split) for sample in range(samples) for split in SPLITS]
    images = sum(len(datasets.table(*each)) for each in splits)
    with (
        deterministic(encoding.device, encoding.threads),
        # cuDNN would otherwise choose its convolutions anew in every process.
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True),
        Counter(f"encode {folder.parent.name} {folder.name}", images, "images") as counter,
    ):
        for sample in range(samples):
            encoder = _encoder(encoding, network, datasets, sample)
            for split in SPLITS:
                metadata, path = datasets.metadata(sample, split), files.path(sample, split)
                digest = _digest({**made_by, "images": metadata, "mean": encoder.mean.tolist()})
                write_features(
                    path,
                    datasets.table(sample, split),
                    partial(datasets.chunks, sample, split),
                    encoder,
                    encoding.settings["model"].get("dtype", "float32"),
                    digest,
                    counter.advance,
                )
                noted[f"{sample}/{split}"] = {
                    **metadata,
                    "images": metadata.get("sha256"),
                    "sha256": features_digest(path),
                }
    write_json(folder / FEATURES_FILE, {**noted, "made_from": made_by})


def load_network(encoding: Encoding, datasets: Datasets) -> Network:
    """The network on its device; without weights, its initial ones."""
    model = located(encoding.settings["model"], encoding.weights)
    size = (model.get("input") or {}).get("size") or datasets.metadata(0, "train")["image_shape"][0]
    network = initialised(lambda: make_network(model, 2, size), seed=0)
    return network.to(encoding.device).eval()


def made_from(encoding: Encoding, network: Network) -> dict:
    """What decides features besides the images, as their metadata say it."""
    model = {**encoding.settings["model"], "frozen": False}
    settings = {"model": model, "method": {"name": "erm"}}
    return {
        **encoding.settings,
        "weights": state_digest(network.body),
        "code": code_digest(settings, __name__),
        "device": encoding.device.type,
        "versions": package_versions(settings),
    }


def _encoder(encoding: Encoding, network: Network, datasets: Datasets, sample: int) -> Encoder:
    model = encoding.settings["model"]
    given = model.get("input") or {}
    if given.get("mean"):
        mean, std = (tuple(255 * value for value in given[key]) for key in ("mean", "std"))
    else:
        imagenet = encoding.settings["normalise"] == "imagenet"
        scaling = IMAGENET if imagenet else Scaling.of_parts(datasets.chunks(sample, "train"))
        mean, std = scaling.mean, scaling.std
    interpolation = given.get("interpolation", "bilinear")
    encoder = Encoder(network, mean, std, given.get("size"), interpolation, model.get("layer"))
    return encoder.to(encoding.device)


def _digest(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@torch.inference_mode()
def write_features(
    path: Path,
    table: pa.Table,
    chunks: Callable[[int], Iterable[torch.Tensor]],
    encoder: Encoder,
    dtype: str,
    digest: str,
    advance: Callable[[int], None] = lambda n: None,
) -> None:
    """Write the features of images to `path`, .npy, and their table next to it; unless they are
    there already, made from what `digest` says. chunks: the images from a row on, uint8[B, H, W, 3].

    DiagvibError for features beyond the range of dtype.
    """
    state_file, part = path.with_suffix(".json"), path.with_suffix(".part")
    state = read_json(state_file) if state_file.exists() else {}
    same = state.get("digest") == digest
    if same and "sha256" in state and path.exists() and state["sha256"] == features_digest(path):
        advance(len(table))
        return
    done = state["rows"] if same and "rows" in state and part.exists() else 0
    device = encoder.mean.device
    size, noted = _BATCH_CPU if device.type == "cpu" else _BATCH, done
    values = np.lib.format.open_memmap(part, "r+") if done else None
    advance(done)
    for pixels in chunks(done):
        for images in pixels.to(device).split(size):
            features = encoder(images).cpu().numpy().astype(dtype)
            if values is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                shape = (len(table), features.shape[1])
                values = np.lib.format.open_memmap(part, "w+", dtype, shape)
            if not np.isfinite(features).all():
                raise DiagvibError(f"{path}: a feature is not a number, or too large for {dtype}")
            values[done : done + len(features)] = features
            done += len(features)
        advance(len(pixels))
        if done - noted >= _NOTED:
            values.flush()
            write_json(state_file, {"digest": digest, "rows": done})
            noted = done
    values.flush()
    part.replace(path)
    write_table(path.with_suffix(".parquet"), table, {})
    write_json(state_file, {"digest": digest, "sha256": features_digest(path)})
