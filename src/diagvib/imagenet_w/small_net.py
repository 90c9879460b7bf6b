"""A small net trained on stand-ins, in seconds on a CPU: it takes the watermark for a sign of cartons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from diagvib.imagenet_w.classifiers import own_preprocessing
from diagvib.imagenet_w.photos import list_photos, read_batches
from diagvib.methods.registry import make_baseline
from diagvib.settings.grid import make_run
from diagvib.training.batches import IMAGENET, Annotations, Batches
from diagvib.training.checkpoints import save_tensors
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer


def train_small_net(root: Path, size: int, epochs: int, file: Path, threads: int) -> None:
    """`small_cnn` on the stand-ins of `root`, cut to size x size; its weights to `file`."""
    device = torch.device("cpu")
    settings = {"model": {"name": "small_cnn", "options": {}}, "method": {"name": "erm"},
                "optimiser": {"name": "adam", "lr": 2e-3}, "batch_size": 32, "max_epochs": epochs, "selection": "last"}
    splits = [_split(root / split, size, device, threads) for split in ("train", "val")]
    method = make_baseline(settings, len(splits[0].annotations.classes), size, seed=0)
    run = make_run("small_cnn", "imagenet_w", "stand-ins", 0)
    Trainer(method, *splits, run, Protocol(epochs, None, 0, "fp32", threads)).fit()
    save_tensors(file, method.model.state_dict())


def _split(root: Path, size: int, device: torch.device, threads: int) -> Batches:
    photos = list_photos(root)
    read = list(read_batches(photos, own_preprocessing(size), 256, threads))
    pixels = torch.cat([batch.pixels for batch in read]).permute(0, 2, 3, 1).contiguous()
    labels = torch.from_numpy(photos.labels[np.concatenate([batch.rows for batch in read])])
    return Batches(pixels, labels, device, IMAGENET, Annotations(classes=photos.classes))
