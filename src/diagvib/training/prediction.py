"""The predictions of a trained method."""

import torch
from torch import Tensor

from diagvib.methods.method import Method
from diagvib.training.batches import Batches
from diagvib.training.protocol import Protocol, autocast, deterministic


@torch.inference_mode()
def predict(method: Method, images: Batches, protocol: Protocol) -> tuple[Tensor, Tensor]:
    """Predicted class index int64[N] and its probability float32[N] for every image, on the CPU."""
    parts = []
    with deterministic(images.device, protocol.threads):
        method.eval()
        for batch in images.in_order():
            with autocast(protocol.on(images.device), images.device):
                logits = method.predict(batch)
            parts.append(logits.float().softmax(1).max(1))
    return torch.cat([p.indices for p in parts]).cpu(), torch.cat([p.values for p in parts]).cpu()
