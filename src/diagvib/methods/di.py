"""`di`, domain-independent training: a linear head per domain, averaged to predict (Wang et al.,
2020)."""

from copy import deepcopy

import torch

from diagvib.methods.groups import domain_index
from diagvib.methods.method import Method, StepOutput
from diagvib.models.network import Heads


class DomainIndependent(Method):
    """A domain is a combination of the classes of all cues, or of one (`supervision: cue-1`).

    An image trains the shared features and its own domain's head by cross entropy; to predict, when
    no domain is known, the logits of all heads are averaged. All heads start as the network's own;
    a domain that does not occur has none.
    """

    supervision = ("cues", "cue")
    uses_head = True

    def setup(self, data):
        super().setup(data)
        self.domain, self.domains = domain_index(data, self.options.supervision)
        # Copies of weights that depend on the seed: nothing is drawn, and checkpoints have the same
        # shapes.
        self.model.head = Heads(deepcopy(self.model.head) for _ in range(self.domains))

    def training_step(self, phase, batch, update):
        logits = self.model.head.each(self.model.features(batch.inputs))
        # A product with the membership [B, domains]: sums in a fixed order.
        own_domain = self.domain[batch.index][:, None] == torch.arange(
            self.domains, device=logits.device
        )
        logits = (own_domain[:, :, None] * logits).sum(1)
        losses = self.losses(logits, batch.labels)
        update("model", losses.mean())
        return StepOutput(losses, logits)
