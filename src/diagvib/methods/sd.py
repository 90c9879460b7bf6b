"""`sd`, spectral decoupling: logits are kept small, so that no cue suppresses the others (Pezeshki
et al., 2021)."""

from diagvib.methods.method import Method


class SpectralDecoupling(Method):
    """Adds weight / 2 times the mean over images of the sum of all squared logits, to the training
    loss only.

    penalised: `mean` adds weight times the mean of all squared logits instead, as DomainBed does;
    `true_class` that of the true classes' logits alone, as UrbanCars' code does. Published for
    UrbanCars: weight 0.1, with weight decay 0, which is a setting of the optimiser.
    """

    options = {
        "weight": {"minimum": 0, "maximum": 1.0e9, "default": 0.1},
        "penalised": {"enum": ["all", "mean", "true_class"], "default": "all"},
    }

    def penalty(self, features, batch):
        squares = self.model.head(features).float().square()
        if self.options.penalised == "all":
            return self.options.weight / 2 * squares.sum(1).mean()
        if self.options.penalised == "true_class":
            squares = squares.gather(1, batch.labels[:, None])
        return self.options.weight * squares.mean()
