"""The predictions of a trained method."""

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.seeding import seed_generators
from diagvib.methods.method import Method, Unlabelled
from diagvib.training.batches import Batches
from diagvib.training.protocol import Protocol, deterministic
from diagvib.training.running_metrics import check_shape


@torch.inference_mode()
def predict(
    method: Method, images: Batches, protocol: Protocol, location: str = "predict"
) -> tuple[Tensor, Tensor]:
    """Predicted class index int64[N] and its probability float32[N] for every image, on the CPU.

    DiagvibError, beginning with `where`, if the logits have another shape or are not numbers: `max`
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
