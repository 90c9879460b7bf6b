"""Predictions that were made elsewhere, in a table, in place of a network."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.foundation.files import file_sha256
from diagvib.images.datasets import Datasets
from diagvib.images.files import Images
from diagvib.methods.fitted import Untrained
from diagvib.models.fitted import NEVER
from diagvib.models.network import Network

# How much less the logit of another class is than that of the prediction.
_LESS = 1e-6
# Columns of the table; RECIPES: the digest of those that the image is of.
FILE, PREDICTION, CONFIDENCE, RECIPES = "file", "prediction", "confidence", "recipes"


class Predictions(Untrained):
    """Gives the predictions of a table, which `PredictedDatasets` reads in place of images. file: as
    `diagvib score` writes it; sha256: of the file; probabilities: whether it has them."""

    own_network = True
    options = {
        "file": {"type": "string", "default": ""},
        "sha256": {"type": "string", "default": ""},
        "probabilities": {"type": "boolean", "default": False},
    }

    def build(self):
        self.model = Network(nn.Identity(), nn.Identity(), separable=False)


def image_name(metadata: dict, row: int) -> str:
    """An image's name: that of its file in a folder to which `diagvib export --png` writes.
    metadata: of its split."""
    names = (str(metadata[key]) for key in ("study", "binding", "sample"))
    return "/".join([*names, "png", metadata["split"], f"{row:06}.png"])


@dataclass(frozen=True)
class PredictedDatasets:
    """Datasets in which test images are predictions: instead of pixels, logits float32[N, classes]
    of the target's classes. method: a baseline's, `Predictions`. Methods as of `ImageFiles`."""

    datasets: Datasets
    method: dict

    def path(self, sample: int, split: str) -> Path:
        return self.datasets.path(sample, split)

    def metadata(self, sample: int, split: str) -> dict:
        return self.datasets.metadata(sample, split)

    def table(self, sample: int, split: str) -> pa.Table:
        return self.datasets.table(sample, split)

    def load(self, sample: int, split: str) -> Images:
        table, metadata = self.table(sample, split), self.metadata(sample, split)
        images = Images(torch.zeros(len(table), 0), table, metadata)
        classes = images.factors[metadata["binding"].split("-")[0]]
        logits = torch.zeros(len(table), len(classes))
        if split == "test":
            logits = self._logits(metadata, len(table), classes)
        return Images(logits, table, metadata)

    def _logits(self, metadata: dict, count: int, classes: tuple[str, ...]) -> Tensor:
        path = Path(self.method["file"])
        if not path.is_file() or file_sha256(path) != self.method["sha256"]:
            raise DiagvibError(f"{path}: missing or changed; run `diagvib score` again")
        rows = pd.read_csv(path, dtype=str, keep_default_na=False).set_index(FILE)
        names = [image_name(metadata, row) for row in range(count)]
        rows = rows.reindex(names)
        digest = metadata["recipe_digest"]
        lost = [*rows.index[rows[RECIPES] != digest]]
        if lost:
            raise DiagvibError(
                f"{path}: {len(lost):,} of {count:,} test images have no prediction, or are others than "
                f"those that were predicted: {some_names(lost, 3)}; run `diagvib score` again"
            )
        labels = torch.from_numpy(pd.Index(classes).get_indexer(rows[PREDICTION]))[:, None]
        if CONFIDENCE not in rows:
            return torch.full((count, len(classes)), NEVER).scatter(1, labels, 0.0)
        p = torch.tensor(rows[CONFIDENCE].astype(float).to_numpy())[:, None]
        others = ((1 - p) / max(len(classes) - 1, 1)).expand(-1, len(classes))
        logits = others.scatter(1, labels, p).log().clamp_min(NEVER).float()
        # Equal or rounded probabilities do not turn a prediction into another.
        greatest = logits.gather(1, labels)
        return logits.clamp_max(greatest - _LESS).scatter(1, labels, greatest)
