"""`dfr`, deep feature reweighting: a new last layer, learnt from groups of equal size (Kirichenko
et al., 2023)."""

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.groups import equal_groups, group_index
from diagvib.methods.method import Method, Phase, StepOutput, TrainingData
from diagvib.methods.retraining import check_validated

# Inverse strengths of the L1 penalty to choose from; ties go to the first.
STRENGTHS = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)
# The bias of target classes without images.
_NEVER = -1e4


class Dfr(Method):
    """Phase `classify`: plain training. Phase `retrain`: a new head on the features, which are now
    fixed, trained on equally many images of every group, as many as the smallest has. Groups:
    target x all cues (`supervision: cues`), or x one (`supervision: cue-1`). images: `training`, or `validation`,
    the authors' main result.

    head: `logistic`, as published by the authors: on standardised features, with an L1 penalty, one
    class against the rest, averaged over `resamples` draws of equal groups. c: the inverse strength
    of the penalty; null: the one of STRENGTHS with the best worst-group accuracy on the half of a
    draw that is not used for fitting. `sgd`, as in UrbanCars' code: cross entropy on one draw, with
    the baseline's optimiser, for `retrain_epochs`.
    """

    supervision = ("cues", "cue")
    every_group = True
    pairs_if = {"head": "logistic", "c": None}
    unused_if = {
        "retrain_epochs": {"head": ["logistic"]},
        "c": {"head": ["sgd"]},
        "images": {"head": ["sgd"]},
        "resamples": {"head": ["sgd"]},
    }
    options = {
        "head": {"enum": ["logistic", "sgd"], "default": "logistic"},
        "c": {"type": ["number", "null"], "minimum": 1.0e-6, "maximum": 1.0e6, "default": None},
        "images": {"enum": ["training", "validation"], "default": "training"},
        "resamples": {"minimum": 1, "maximum": 1000, "default": 10},
        "retrain_epochs": {"minimum": 1, "maximum": 100_000, "default": 1},
    }
    uses_head = True

    def build(self):
        super().build()
        self.logistic = self.options.head == "logistic"
        self.validates = self.options.images == "validation"

    def setup(self, data):
        super().setup(data)
        if self.validates:
            check_validated(data, self.name)
        self.group, self.groups = group_index(
            data.validation if self.validates else data,
            self.options.supervision,
            self.name,
        )
        if self.logistic and self.options.c is None and self.group.bincount().min() < 2:
            raise DiagvibError(
                f"method: dfr: the smallest group has only one {self.options.images} image, but "
                "half of a group is needed to choose c; give c, such as 0.1, or raise "
                f"counts.{'val' if self.validates else 'train'}"
            )

    def phases(self, data):
        last = ("retrain", 1, "last") if self.logistic else ("retrain", self.options.retrain_epochs)
        return [*super().phases(data), Phase(*last)]

    @torch.no_grad()
    def start_phase(self, phase, data):
        if phase == "retrain":
            subset = equal_groups(self.group, self.groups)
            if not self.validates:
                self.memory["subset"] = subset.flatten()
            if self.logistic:
                self._regress(subset, data)
            else:
                self.model.head.reset_parameters()

    def optimisers(self, phase):
        if phase == "classify":
            return super().optimisers(phase)
        return {} if self.logistic else {"model": self.optimiser(self.model.head)}

    def sampling(self, phase, data):
        return self.memory.get("subset")

    def training_step(self, phase, batch, update):
        """In `retrain` the network is in evaluation mode; the regression is solved before the
        phase's single epoch, which only measures it."""
        if phase == "classify":
            return super().training_step(phase, batch, update)
        with torch.no_grad():
            features = self.model.eval().features(batch.inputs)
        logits = self.model.head(features)
        losses = self.losses(logits, batch.labels)
        if not self.logistic:
            update("model", losses.mean())
        return StepOutput(losses, logits)

    def _regress(self, subset: Tensor, data: TrainingData) -> None:
        """Solve for the head. subset: the first draw, int64[groups, images]."""
        self.eval()
        features = self._features(data)
        mean, std = features.mean(0), features.std(0, correction=0)
        std[std == 0] = 1
        if self.validates:
            data = data.validation
            features = self._features(data)
        features, labels = features.sub_(mean).div_(std), data.labels.cpu()
        c = self.options.c or best_strength(features, labels, subset.cpu())
        draws = [
            subset,
            *(equal_groups(self.group, self.groups) for _ in range(self.options.resamples - 1)),
        ]
        subsets = [draw.flatten().cpu() for draw in draws]
        fitted = torch.stack([regression(features[index], labels[index], c) for index in subsets])
        weight, bias = fitted.mean(0).tensor_split([-1], 1)
        weight, classes, head = weight / std, labels.unique(), self.model.head
        head.weight.zero_()
        head.bias.fill_(_NEVER)
        head.weight[classes] = weight.to(head.weight)
        head.bias[classes] = (bias[:, 0] - weight @ mean).to(head.bias)

    def _features(self, data: TrainingData) -> Tensor:
        return torch.cat(
            [self.model.features(batch.inputs).cpu().double() for batch in data.in_order()]
        )


def regression(features: Tensor, labels: Tensor, c: float) -> Tensor:
    """Weights and, last, bias of every class that occurs, float64[classes, D + 1]: L1 logistic
    regressions with C = c of each class against the rest; with two classes, each gets half, so that
    their difference is the regression's.

    features: float64[N, D]; labels: int64[N].
    """
    from sklearn.linear_model import LogisticRegression  # here, because it takes long to load

    classes = labels.unique()
    rows = []
    for label in classes:
        solver = LogisticRegression(C=c, l1_ratio=1, solver="liblinear", random_state=0)
        solver.fit(features.numpy(), (labels == label).numpy())
        rows.append(
            torch.cat([torch.from_numpy(solver.coef_[0]), torch.from_numpy(solver.intercept_)])
        )
    return torch.stack(rows) / (2 if len(classes) == 2 else 1)


def best_strength(features: Tensor, labels: Tensor, subset: Tensor) -> float:
    """The best of STRENGTHS; subset: int64[groups, images], the first half for fitting, the second
    for judging."""
    fitted, validation = subset.tensor_split(2, 1)
    classes, worst = labels.unique(), []
    for c in STRENGTHS:
        weight, bias = regression(
            features[fitted.flatten()], labels[fitted.flatten()], c
        ).tensor_split([-1], 1)
        predicted = classes[(features[validation] @ weight.T + bias[:, 0]).argmax(-1)]
        worst.append((predicted == labels[validation]).double().mean(1).min())
    return STRENGTHS[int(torch.stack(worst).argmax())]
