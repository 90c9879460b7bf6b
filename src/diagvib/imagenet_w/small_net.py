"""A small network trained on stand-ins, in seconds on a CPU: it learns the watermark as a sign of
cartons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from diagvib.imagenet_w.classifiers import own_preprocessing
from diagvib.imagenet_w.photos import list_photos, read_photos
from diagvib.methods.registry import make_baseline
from diagvib.models.network import Network
from diagvib.settings.grid import make_run
from diagvib.training.batches import IMAGENET, Annotations, Batches
from diagvib.training.checkpoints import save_tensors
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer

NAME = f"{__name__}:small_net"


class _Pooled(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([maps.amax((2, 3)), maps.mean((2, 3))], 1)


def small_net(n_classes: int, image_size: int) -> Network:
    """Three convolutions, whose maximum and mean over the image are the features: like a large
    network's, and unlike small_cnn's, they do not contain the position of a stroke of text."""
    layers = []
    for before, width, kernel in ((3, 24, 5), (24, 48, 3), (48, 96, 3)):
        convolution = nn.Conv2d(before, width, kernel, 2, kernel // 2, bias=False)
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
    return Network(nn.Sequential(*layers, _Pooled()), nn.Linear(2 * 96, n_classes))


def train_small_net(root: Path, size: int, epochs: int, file: Path, threads: int) -> None:
    """Train `small_net` on the stand-ins of `root`, cropped to size x size; write its weights to
    `file`."""
    settings = {
        "model": {"name": NAME, "options": {}},
        "method": {"name": "erm"},
        "optimiser": {"name": "adam", "lr": 2e-3},
        "batch_size": 32,
        "max_epochs": epochs,
        "selection": "last",
    }
    splits = [_split(root / split, size, threads) for split in ("train", "val")]
    method = make_baseline(settings, len(splits[0].annotations.classes), size, seed=0)
    run = make_run("small_net", "imagenet_w", "stand-ins", 0)
    Trainer(method, *splits, run, Protocol(epochs, None, 0, "fp32", threads)).fit()
    save_tensors(file, method.model.state_dict())


def _split(root: Path, size: int, threads: int) -> Batches:
    photos = list_photos(root)
    rows, preprocessing = np.arange(len(photos)), own_preprocessing(size)
    ((pixels, _),) = read_photos(photos, rows, preprocessing, len(photos), threads)
    pixels, known = pixels.permute(0, 2, 3, 1).contiguous(), Annotations(classes=photos.classes)
    return Batches(pixels, torch.from_numpy(photos.labels), torch.device("cpu"), IMAGENET, known)
