"""`irm`, invariant risk minimisation: one classifier should be optimal in every environment
(Arjovsky et al., 2019)."""

from torch import Tensor

from diagvib.methods.environments import Annealed


class Irm(Annealed):
    """Adds weight times the mean over environments of g_1 g_2: the derivatives, at w = 1, of the
    cross entropy of w times the logits, over every other image of the environment starting from the
    first, and from the second (IRMv1 in DomainBed's form). Published: weight 1 for 500 steps, then
    100."""

    options = {"weight": {"minimum": 0, "maximum": 1.0e9, "default": 100.0}}

    def penalty(self, features, batch):
        slopes = self.by_environment(scale_slopes(self.model.head(features), batch.labels))
        return self.weight() * (slopes[:, ::2].mean(1) * slopes[:, 1::2].mean(1)).mean()


def scale_slopes(logits: Tensor, labels: Tensor) -> Tensor:
    """The derivative at w = 1 of each image's cross entropy of w times its logits: the logit
    expected under the softmax, minus the label's. float[B], from logits [B, classes] and
    int64[B]."""
    logits = logits.float()
    return (logits.softmax(1) * logits).sum(1) - logits.gather(1, labels[:, None]).squeeze(1)
