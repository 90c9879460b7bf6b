"""`vrex`, risk extrapolation: all environments should have the same loss (Krueger et al., 2021)."""

from diagvib.methods.environments import Annealed


class Vrex(Annealed):
    """Adds weight times the variance of the environments' mean losses (divisor: their number, not
    one fewer). Published, in DomainBed's form: weight 1 for 500 steps, then 10."""

    options = {"weight": {"minimum": 0, "maximum": 1.0e9, "default": 10.0}}

    def combine(self, losses, batch):
        of_environments = self.by_environment(losses).mean(1)
        return of_environments.mean() + self.weight() * of_environments.var(correction=0)
