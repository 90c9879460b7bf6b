"""Methods without supervision and infer a network's bias, on cases worked by hand."""

import re
from dataclasses import replace
from math import log

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diagvib.methods.eiil import inferred_environments
from diagvib.methods.irm import scale_slopes
from diagvib.methods.method import Optimiser
from diagvib.training.optimisers import make_optimiser
from diagvib.training.trainer import Trainer
from synthetic_methods import linear
from test_methods import PROTOCOL, RUN, annotated, batch_of, known, made


class Fixed(nn.Module):
    """A network whose logits are given, whatever the images."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, inputs):
        return self.logits * 1


def probable(p, labels):
    """Logits [B, 3] that give each label the probability p [B], and the other two classes half of
    the rest each."""
    p = torch.tensor(p)[:, None]
    return torch.where(F.one_hot(torch.tensor(labels), 3).bool(), p, (1 - p) / 2).log()


def caught(losses):
    """An update that records the losses and changes nothing."""
    return lambda name, loss: losses.update({name: loss})


@pytest.mark.parametrize(("name", "right"), [("lff", "biased"), ("debian", "discoverer")])
def test_second_networks_begin_with_weights_of_their_own(name, right):
    method, erm = made(name), made("erm").model.state_dict()
    alternative = getattr(method, right).state_dict()
    assert all(torch.equal(value, erm[key]) for key, value in method.model.state_dict().items())
    assert not any(torch.equal(alternative[key], erm[key]) for key in erm if erm[key].ndim > 1)


def test_weights_and_losses_of_lff_on_two_fixed_networks():
    """The labels' probabilities are 1/2 and 1/4 to the biased network, 1/4 to the other: losses of
    log 2 and 2 log 2. Over the largest of the class: 1/2 and 1; 1 and 1."""
    method, data, losses = made("lff"), known([0, 0]), {}
    method.biased, method.model = (Fixed(probable(p, [0, 0])) for p in ([0.5, 0.25], [0.25, 0.25]))
    method.setup(data)
    output = method.training_step("classify", batch_of(data, [0, 1]), caught(losses))
    assert output.loss.tolist() == pytest.approx([2 * log(2)] * 2)
    assert losses["model"].item() == pytest.approx((1 / 3 + 1 / 2) / 2 * 2 * log(2))
    assert losses["biased"].item() == pytest.approx(
        0.7 * (0.5**0.7 * log(2) + 0.25**0.7 * 2 * log(2)) / 2
    )
    slope = torch.autograd.grad(losses["biased"], method.biased.logits)[0][0, 0]
    assert slope.item() == pytest.approx(0.7 * 0.5**0.7 * (0.5 - 1) / 2), (
        "no gradient through the weight"
    )


def test_averages_of_lff():
    """Two images of class 0 and one of class 1; first visits give the loss itself, later ones 0.7
    old + 0.3 new."""
    method, data = made("lff"), known([0, 0, 1])
    method.setup(data)
    left = method.weights(
        torch.tensor([[2.0, 1.0, 5.0], [1.0, 1.0, 5.0]]), batch_of(data, [0, 1, 2])
    )
    assert left.tolist() == pytest.approx([1 / (1 + 1), 0.5 / (0.5 + 1), 1 / (1 + 1)])
    # 0.7 + 0.9 of at most 2; 0.7 of at most 1.
    assert method.weights(
        torch.tensor([[3.0], [0.0]]), batch_of(data, [1])
    ).item() == pytest.approx(0.8 / (0.8 + 0.7))
    # 1.4 is still divided by 2, although no image has that value any more.
    assert method.weights(
        torch.tensor([[0.0], [0.0]]), batch_of(data, [0])
    ).item() == pytest.approx(0.7 / (0.7 + 0.7))


def misled(n=240):
    """Logits of a model that follows a cue, labels, and where the cue misleads it: in an eighth of
    the images."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 3
    against = torch.arange(n) % 8 == 0
    cue = torch.where(against, labels + 1, labels) % 3
    logits = (
        torch.randn(n, 3, generator=generator) / 4 + 3 * F.one_hot(cue, 3) + F.one_hot(labels, 3)
    )
    return logits, labels, against


def test_the_closed_form_of_eiil_is_its_definition():
    """Compared with gradients through the dummy scale, and torch's own Adam, before the assignment
    has converged."""
    logits, labels, _ = misled(60)
    torch.manual_seed(5)
    environment = inferred_environments(scale_slopes(logits, labels), labels, 40, 0.05)
    torch.manual_seed(5)
    e, scale = torch.randn(60, requires_grad=True), torch.ones((), requires_grad=True)
    start = e.detach().clone()
    adam = make_optimiser(Optimiser([e], {"name": "adam", "lr": 0.05}))
    for _ in range(40):
        adam.zero_grad()
        losses = F.cross_entropy(logits * scale, labels, reduction="none")
        parts = [
            (losses * share)[labels == item].mean()
            for item in range(3)
            for share in (e.sigmoid(), 1 - e.sigmoid())
        ]
        slopes = [torch.autograd.grad(part, scale, create_graph=True)[0] for part in parts]
        (-sum(slope.square() for slope in slopes) / 2).backward()
        adam.step()
    assert torch.equal(environment, (e > 0).long())
    assert 5 < ((e > 0) != (start > 0)).sum() < 55


def test_groups_of_eiil_and_one_that_no_image_is_in():
    """For class 1 the model gives every image the same logits, so all are in one environment."""
    logits, labels, against = misled()
    logits[labels == 1] = torch.tensor([2.0, 0.0, 0.0])
    labels = torch.where(labels == 2, 0, labels)  # as a study of two classes
    subject, alternative = torch.tensor([3.0, 0.0, 0.0]), torch.tensor([-3.0, 0.0, 0.0])
    logits[labels == 0] = torch.where(against[labels == 0, None], alternative, subject)
    method, data = made("eiil", inference_steps=5000), known(labels.tolist())
    everything = replace(batch_of(data, list(range(240))), inputs=logits)
    data = replace(data, in_order=lambda: [everything])
    method.setup(data)
    assert [phase.name for phase in method.phases(data)] == ["reference", "classify"]
    before = method.model.head.bias.clone()
    with torch.no_grad():
        method.model.head.bias.add_(1)
    method.predict = lambda batch: batch.inputs
    torch.manual_seed(0)
    method.start_phase("classify", data)
    assert torch.equal(method.model.head.bias, before), "it begins with the initial weights"
    group = method.memory["group"]
    parts = labels == 1, (labels == 0) & against, (labels == 0) & ~against
    assert sorted(group[part].unique().item() for part in parts) == [0, 1, 2]
    weights = method.sampling("classify", data)
    assert [weights[group == item].sum().item() for item in range(3)] == pytest.approx([240] * 3)


# Class 0: s = 1 where p = 0.9, s = 0 where p = 0.3. Class 1: p+ = 0.9 / 1.5, p- = 0.1 / 0.5, and
# mean s = 3/4.
LABELS = [0, 0, 0, 0, 1, 1]
PART, P = [1.0, 1.0, 0.0, 0.0, 1.0, 0.5], [0.9, 0.9, 0.3, 0.3, 0.8, 0.2]


def test_the_two_networks_of_debian_learn_in_turns():
    """Each is evaluated by the other as in evaluation mode, and passes no gradient to it."""
    method, data, losses, modes = made("debian"), known(LABELS), {}, []
    part = torch.tensor(PART).clamp(1e-4, 1 - 1e-4).logit()
    method.model = Fixed(probable(P, LABELS))
    method.discoverer = Fixed(part[:, None] * F.one_hot(torch.tensor(LABELS), 3))
    for network in (method.model, method.discoverer):
        network.register_forward_hook(
            lambda network, *_: modes.append((network is method.model, network.training))
        )
    entire = batch_of(data, range(6))
    method.setup(replace(data, batch=lambda index: entire))
    method.train()
    method.training_step("classify", entire, caught(losses))
    expected = -sum(w * log(p) for w, p in zip([1, 1, 2, 2, 1, 1.5], P, strict=True)) / 6
    assert losses["model"].item() == pytest.approx(expected, rel=1e-3)
    assert losses["discoverer"].item() == pytest.approx(
        (-log(0.6) - log(0.4) - log(0.5)) / 2, rel=1e-3
    )
    assert modes == [(True, True), (False, False), (False, True), (True, False)]
    assert method.model.training and method.discoverer.training
    for name, alternative in (("model", method.discoverer), ("discoverer", method.model)):
        assert torch.autograd.grad(losses[name], alternative.logits, allow_unused=True) == (None,)


@pytest.mark.parametrize(("mistakes", "says"), [(False, "no .*; lower"), (True, "every .*; raise")])
def test_jtt_says_so_if_its_first_network_errs_nowhere_or_everywhere(mistakes, says, monkeypatch):
    train, method = annotated(96, 0), made("jtt", identify_epochs=2)
    predict = method.predict
    monkeypatch.setattr(
        method, "predict", lambda batch: -predict(batch) if mistakes else predict(batch)
    )
    Trainer(method, train, train, RUN, PROTOCOL).fit()
    assert method.sampling("classify", train) is None
    (doubt,) = method.doubts
    assert re.fullmatch(f"its first network errs on {says} identify_epochs or lr", doubt)


def test_the_reference_of_eiil_on_features_has_a_learning_rate_of_its_own():
    options = {"name": "diagvib.methods.views:EiilOfLargeBatches", "reference_lr": 0.5}
    method = linear(options, 3)
    made = [method.optimisers(phase)["model"] for phase in ("reference", "classify")]
    assert [item.settings["lr"] for item in made] == [0.5, 1e-3]
