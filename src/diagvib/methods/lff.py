"""`lff`, Learning from Failure: images that a biased network finds hard weigh more (Nam et al.,
2020)."""

import torch
from torch import Tensor

from diagvib.methods.method import Batch, Method, StepOutput


class Lff(Method):
    """Two networks. The biased one learns by generalised cross entropy: an image's cross entropy,
    times q times the q-th power of the probability that the network gives to its label. The other,
    which predicts, learns by cross entropy times W = l_B / (l_B + l_D + 1e-8), with l_B and l_D the
    losses of the biased network and of this one.

    These l are moving averages over an image's occurrences, `decay` times the old plus 1 - decay
    times the new value, divided by the largest of any image of the class.
    """

    options = {
        "q": {"exclusiveMinimum": 0, "maximum": 1, "default": 0.7},
        "decay": {"minimum": 0, "exclusiveMaximum": 1, "default": 0.7},
    }

    def build(self):
        super().build()
        self.biased = self._new_network()

    def setup(self, data):
        super().setup(data)
        device = data.labels.device
        self.memory |= {
            "averages": torch.zeros(2, len(data), device=device),
            "largest": torch.zeros(2, self.n_classes, device=device),
            "visited": torch.zeros(len(data), dtype=torch.bool, device=device),
        }

    def optimisers(self, phase):
        return {**super().optimisers(phase), "biased": self.optimiser(self.biased)}

    def training_step(self, phase, batch, update):
        biased, logits = self.biased(batch.inputs), self.model(batch.inputs)
        loss_biased, loss = self.losses(biased, batch.labels), self.losses(logits, batch.labels)
        weight = self.weights(torch.stack([loss_biased, loss]).detach(), batch)
        update("biased", generalised(loss_biased, self.options.q).mean())
        update("model", (weight * loss).mean())
        return StepOutput(loss, logits)

    def weights(self, losses: Tensor, batch: Batch) -> Tensor:
        """W float[B], from losses [2, B] of the biased network and the other, which update the
        averages."""
        averages, largest, visited = (
            self.memory[name] for name in ("averages", "largest", "visited")
        )
        index, labels = batch.index, batch.labels.expand(2, -1)
        current = torch.where(
            visited[index], averages[:, index].lerp(losses, 1 - self.options.decay), losses
        )
        averages.index_copy_(1, index, current)
        visited.index_fill_(0, index, True)
        largest.scatter_reduce_(1, labels, current, "amax")
        of_biased, of_other = current / largest.gather(1, labels).clamp(min=1e-8)
        return of_biased / (of_biased + of_other + 1e-8)


def generalised(losses: Tensor, q: float) -> Tensor:
    """Cross entropies float[B], each times q p^q, with p = exp(-loss), through which no gradient
    passes."""
    return losses * q * (-q * losses.detach()).exp()
