"""The predictions of a trained method."""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.seeding import seed_generators
from diagvib.images.files import Images
from diagvib.methods.method import Method, Unlabelled
from diagvib.scenes import load_scene
from diagvib.settings.layout import Run
from diagvib.training.batches import Batches
from diagvib.training.job import Job
from diagvib.training.protocol import Protocol, deterministic
from diagvib.training.running_metrics import check_shape


@torch.inference_mode()
def predict(
    method: Method, images: Batches, protocol: Protocol, location: str = "predict"
) -> tuple[Tensor, Tensor]:
    """Predicted class index int64[N] and its probability float32[N] for every image, on the CPU.

    DiagvibError, beginning with `location`, if the logits have another shape or are not numbers: `max`
    would take these for the first class.
    """
    parts = []
    with deterministic(images.device, protocol.threads):
        seed_generators(protocol.seed)
        method.eval()
        for batch in images.in_order():
            with protocol.autocast(images.device):
                logits = method.predict(Unlabelled(batch.pixels, batch.inputs))
            check_shape(logits, (len(batch.labels), method.n_classes), "predict gives logits")
            parts.append(logits.float().softmax(1).max(1))
    probability, index = (torch.cat(part).cpu() for part in zip(*parts, strict=True))
    lost = int(probability.isnan().sum())
    if lost:
        raise DiagvibError(
            f"{location}: the logits of {lost} of {len(index)} images are not numbers; "
            "check the model and method in evaluation mode, or set training.precision: fp32"
        )
    return index, probability


def class_names(images: Images, target: str, prediction: Tensor) -> np.ndarray:
    """The target's classes of these indices, [N]."""
    return np.array(images.factors[target])[prediction.numpy()]


def predict_test(
    job: Job, run: Run, method: Method, test: Images, batches: Batches
) -> tuple[np.ndarray, pd.DataFrame]:
    """The class predicted for each test image, [N]; and columns for predictions.parquet: the
    prediction, its probability, in some scenes more (`Scene.answers`), and the images' files."""
    prediction, confidence = predict(method, batches, job.protocol, run.name)
    predicted = class_names(test, run.target, prediction)
    predictions = pd.DataFrame({"prediction": predicted, "confidence": confidence.numpy()})
    scene = load_scene(test.metadata["scene"])
    answers = _answers(job, run, test, batches, method)
    predictions = predictions if answers is None else answers
    if files := job.prepared and scene.source_files(test.table, job.prepared):
        predictions["path"] = files
    return predicted, predictions


def _answers(
    job: Job, run: Run, test: Images, batches: Batches, method: Method
) -> pd.DataFrame | None:
    """`Scene.answers` to the test images."""
    scene, classes = load_scene(test.metadata["scene"]), test.factors[run.target]

    def logits_of(rows: np.ndarray) -> torch.Tensor:
        batch = batches.batch(torch.from_numpy(rows))
        with job.protocol.autocast(job.device):
            return method.predict(Unlabelled(batch.pixels, batch.inputs))

    with deterministic(job.device, job.protocol.threads):
        method.eval()
        return scene.answers(test.table, run.target, classes, logits_of, job.prepared)
