"""Methods that balance, retrain the last layer, correct logits, find groups or mask: cases worked
by hand."""

from dataclasses import replace
from math import exp, log, sqrt

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conftest import refused
from diagvib.methods.afr import image_weights
from diagvib.methods.dpe import Prototypes, overlap
from diagvib.methods.groups import random_share
from diagvib.methods.logit_correction import joint
from diagvib.methods.masktune import hot
from diagvib.methods.registry import make_baseline
from diagvib.methods.retraining import Selection, fit
from diagvib.methods.self_disagreement import disagreement
from diagvib.methods.xrm import class_balanced, flip_chance
from diagvib.models.network import Network
from synthetic_images import SIZE
from synthetic_methods import linear, settings_of
from test_methods import annotated, batch_of, known, made
from test_methods_inferring import Fixed, caught, probable


def three(name, **options):
    """The method for three classes."""
    return make_baseline(settings_of(method={"name": name, **options}), 3, SIZE, 0)


def last():
    """Keeps the last epoch of a head."""
    return Selection(torch.empty(0, 1))


def test_how_often_images_of_groups_and_classes_are_drawn():
    data = known([0, 0, 0, 2, 2], [[1], [1], [0], [0], [1]])
    rwg, rwy, suby = made("rwg", supervision="cue-1"), made("rwy"), made("suby")
    assert rwg.sampling("classify", data).tolist() == [2.5, 2.5, 5, 5, 5]
    assert rwy.sampling("classify", data).tolist() == pytest.approx([5 / 3] * 3 + [5 / 2] * 2)
    draws = suby.sampling("classify", data)
    assert data.labels[draws].tolist() == [0, 0, 2, 2] and len(draws.unique()) == 4


@pytest.fixture(scope="module")
def batches():
    return annotated(64, 0), annotated(20, 1)


@pytest.mark.parametrize("name", ["dfr", "llr", "dpe"])
def test_a_trained_class_without_validation_images_is_no_head_of_these(name):
    data, fewer = (known(labels, [[0]] * 3) for labels in ([0, 1, 2], [0, 0, 1]))
    with refused(
        f"{name}: images: validation: no validation image is of blue, .* raise counts.val"
    ):
        three(name, images="validation").setup(replace(data, validation=fewer))


@pytest.mark.parametrize("images", ["training", "validation"])
def test_the_head_is_retrained_on_images_that_were_held_out(batches, images):
    train, val = batches
    data = replace(train.training_data(), validation=val.training_data())
    method = made("llr", images=images)
    method.setup(data)
    held_out = method.memory["held_out"]
    assert len(held_out) == (64 if images == "training" else 20)
    if images == "training":
        assert held_out.sum() == 13, "0.2 of 64, rounded up"
        parts = [method.sampling(phase, data) for phase in ("classify", "retrain")]
        assert torch.equal(torch.cat(parts).sort().values, torch.arange(64))
        assert torch.equal(parts[1], held_out.nonzero().flatten())
    source = train if images == "training" else val
    features, labels = method.held_out()
    expected = method.eval().model.features(source.batch(torch.arange(len(source))).inputs)[
        held_out
    ]
    assert torch.allclose(features, expected, atol=1e-5) and torch.equal(
        labels, source.labels[held_out]
    )
    nn.init.constant_(method.model.head.weight, 100.0)
    before = [parameter.clone() for parameter in method.model.parameters()]
    method.start_phase("retrain", data)
    equal = [torch.equal(*pair) for pair in zip(before, method.model.parameters(), strict=True)]
    assert all(equal[:-2]) and not any(equal[-2:]), "only the head's weight and bias change"
    assert method.model.head.weight.abs().max() < 10, "a new head"


def test_some_image_is_left_to_the_network(batches):
    method = made("llr", held_out=0.99)
    method.setup(batches[0].training_data())
    with refused(r"llr: held_out: 0.99 leaves none of the 64 training"):
        method.sampling("classify", method.data)


def test_measuring_changes_nothing_and_is_done_in_evaluation_mode(batches):
    """Of a head that was trained again, and of the network that says what MaskTune masks."""
    for name, measure in {
        "llr": lambda method, batch: method.training_step("retrain", batch, None).logits,
        "masktune": lambda method, batch: method.heat(batch.inputs),
    }.items():
        method = made(name)
        method.setup(batches[0].training_data())
        before = {key: value.clone() for key, value in method.state_dict().items()}
        method.train()
        measures = measure(method, batches[0].batch(torch.arange(16)))
        assert all(torch.equal(value, before[key]) for key, value in method.state_dict().items())
        single = measure(method.train(), batches[0].batch(torch.arange(1)))
        assert torch.allclose(single, measures[:1], atol=1e-5)


def test_sgd_on_features_has_momentum_and_weight_decay():
    """Without features, the loss has no gradient with respect to the weights: only decay, twice."""
    head, decay = nn.Linear(1, 2).double(), 1e-4
    nn.init.ones_(head.weight)
    epochs = [[[0, 2], [1, 3]]]
    assert (
        len([*fit(head, torch.zeros(4, 1).double(), torch.tensor([0, 0, 1, 1]), epochs, lr=2.0)])
        == 1
    )
    once = 1 - 2 * decay
    twice = once - 2 * (0.9 * decay + decay * once)
    assert head.weight.flatten().tolist() == pytest.approx([twice] * 2, rel=1e-9)


def test_weights_of_afr_and_a_step():
    """With p = 3/4, 1/4 and 1/2, exp(-4 log(2) p) = 1/8, 1/2 and 1/4; two images of class 0, one of
    class 1."""
    logits = torch.tensor([[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]]).log()
    labels, gamma = torch.tensor([0, 0, 1]), 4 * log(2)
    plain, balanced = (image_weights(logits, labels, gamma, item) for item in (False, True))
    assert plain.tolist() == pytest.approx([1 / 7, 4 / 7, 2 / 7])
    assert balanced.tolist() == pytest.approx([1 / 9, 4 / 9, 4 / 9])
    options = {"gamma": gamma, "pull": 1.0, "head_epochs": 2, "head_lr": 0.5}
    method = linear({"name": "afr", **options}, 2, features=1)
    head = method.model.head
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    # All p are 1/2: weights 1/4, 1/4, 1/2. Only the two images of class 0 have a feature.
    method.retrain(torch.tensor([[1.0], [1.0], [0.0]]), labels, last())
    # The gradient of the first step is (-1/4, 1/4) for the weight, and none for the bias.
    left = 0.5 / 4
    p = 1 / (1 + exp(-2 * left))
    right = left + 0.5 * ((1 - p) / 2 - 2 * left)
    assert head.weight[0].item() == pytest.approx(right, abs=1e-6)
    moved = 0.5 * ((1 - p) / 2 - 1 / 4)  # the bias, in the second step
    assert head.bias.tolist() == pytest.approx([moved, -moved], abs=1e-6)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    method.options.head_epochs = 1
    method.retrain(torch.tensor([[100.0], [100.0], [0.0]]), labels, last())
    # The gradient (-25, 25) is scaled to length 1.
    assert head.weight.flatten().tolist() == pytest.approx([0.5 / sqrt(2), -0.5 / sqrt(2)])


def test_self_uses_the_images_whose_prediction_changed_most(monkeypatch):
    """Here those that are certain only in the end, more than one that was certain only before."""
    early, final = torch.full((1, 2), 0.5).log(), torch.tensor([[0.75, 0.25]]).log()
    assert disagreement(early, final).item() == pytest.approx(log(4 / 3) / 2)
    method, used = linear({"name": "self", "finetuned": 2, "steps": 30}, 2, features=1), []
    phases = [
        (phase.name, phase.max_epochs) for phase in method.phases(replace(known([0]), max_epochs=8))
    ]
    assert phases == [("early", 4), ("classify", 4), ("retrain", 1)]
    head = method.model.head
    head.weight.data, head.bias.data = torch.tensor([[1.0], [0.0]]), torch.zeros(2)
    features, labels = torch.tensor([[0.0], [6.0], [0.0], [-6.0]]), torch.tensor([0, 0, 1, 1])
    method.memory["early"] = torch.tensor([[4.0, 0], [0, 0], [0, 0], [0, 0]])

    def fit(head, features, labels, epochs, lr):
        used.extend([features.flatten().tolist(), labels.tolist(), [batch for (batch,) in epochs]])
        return [None]

    monkeypatch.setattr("diagvib.methods.self_disagreement.fit", fit)
    method.retrain(features, labels, last())
    assert sorted(used[0]) == [-6, 6] and sorted(used[1]) == [0, 1] and not method.doubts
    method.options.finetuned, labels = 10, torch.tensor([0, 0, 0, 1])
    assert "at most 10 images are held out" in method.doubts[0]
    method.retrain(features, labels, last())
    assert [len(batch) for batch in used[5]] == [16] * 30
    draws = torch.tensor(used[4])[torch.cat(used[5])]
    assert draws.float().mean().item() == pytest.approx(0.5, abs=0.1), "classes alike"


def test_self_keeps_the_predictions_at_the_end_of_its_early_phase(batches):
    method, data = made("self"), batches[0].training_data()
    method.setup(data)
    method.start_phase("early", data)
    assert "early" not in method.memory
    method.start_phase("classify", data)
    features, _ = method.held_out()
    assert torch.equal(method.memory["early"], method.model.head(features))
    with torch.autocast("cpu", torch.bfloat16):
        method.start_phase("classify", data)
        features, _ = method.held_out()
    with torch.no_grad():
        final = method.model.head(features)
    assert torch.equal(method.memory["early"], final), "an unchanged network agrees with itself"


LABELS, BELIEVED = [0, 0, 1], [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1]]
# Of z and y: over the images of each label, a third of the sum of the probabilities of z.
PRIOR = [[0.9 / 3, 0.1 / 3, 0], [0.9 / 3, 0.8 / 3, 0], [0.2 / 3, 0.1 / 3, 0]]


def corrected(p, prior, label):
    weighted = [a * b for a, b in zip(p, prior, strict=True)]
    return -log(weighted[label] / sum(weighted))


def test_the_loss_of_logit_correction():
    """Without a correction for the third class, which no image has."""
    method, data, losses = three("lc", temperature=1.0, decay=0.0), known(LABELS), {}
    assert torch.allclose(joint(torch.tensor(BELIEVED), data.labels), torch.tensor(PRIOR))
    method.biased = Fixed(torch.tensor(BELIEVED).log())
    method.model = Fixed(probable([0.5, 0.5, 0.5], LABELS))
    method.setup(data)
    output = method.training_step("classify", batch_of(data, range(3)), caught(losses))
    rows, z = [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [0, 1, 1]
    inputs = [[*(v + 1e-4 for v in row[:2]), 1] for row in PRIOR]
    expected = [corrected(p, inputs[k], y) for p, k, y in zip(rows, z, LABELS, strict=True)]
    assert output.loss.tolist() == pytest.approx(expected, rel=1e-5)
    assert losses["model"].item() == pytest.approx(sum(expected) / 3, rel=1e-5)
    biased = sum(0.8 * p**0.8 * -log(p) for p in (0.7, 0.2, 0.8)) / 3
    assert losses["biased"].item() == pytest.approx(2 * biased, rel=1e-5)
    method.options.decay = 0.5
    method.biased.logits.data = torch.eye(3).log()
    method.training_step("classify", batch_of(data, range(3)), caught(losses))
    moved = [
        [0.9 / 6 + 1 / 6, 0.1 / 6, 0],
        [0.9 / 6 + 1 / 6, 0.8 / 6, 0],
        [0.1 / 3, 0.1 / 6 + 1 / 6, 0],
    ]
    assert torch.allclose(method.memory["prior"], torch.tensor(moved), atol=1e-6)


def test_the_loss_of_unsupervised_logit_adjustment(batches):
    """P(y | z) is a row of P over its sum, without a correction for the third class, which no image
    has; the biased layer is trained on the features of the first
    weights, with which the network itself still begins."""
    method, data, losses = three("ula", strength=2.0), known(LABELS), {}
    method.biased = Fixed(torch.tensor(BELIEVED).log())
    method.model = Fixed(probable([0.5, 0.5, 0.5], LABELS))
    method.memory["prior"] = torch.tensor(PRIOR)
    output = method.train().training_step("classify", batch_of(data, range(3)), caught(losses))
    assert not method.biased.training
    inputs = [[*((v / sum(row)) ** 2 for v in row[:2]), 1] for row in PRIOR]
    expected = corrected([0.25, 0.5, 0.25], inputs[1], 1)
    assert output.loss[2].item() == pytest.approx(expected, rel=1e-5)
    assert set(losses) == {"model"}
    method, (train, val) = made("ula", bias_epochs=3), batches
    data = replace(train.training_data(), validation=val.training_data())
    method.setup(data)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method.start_phase("classify", data)
    changed = [n for n, value in method.state_dict().items() if not torch.equal(value, before[n])]
    assert changed == ["biased.head.weight", "biased.head.bias"]
    validated = val.batch(torch.arange(20))
    cue = method.biased.eval()(validated.inputs).argmax(1)
    assert torch.equal(method.memory["validation_group"], 6 * cue + val.labels)
    entire = batches[0].batch(torch.arange(64))
    assert method.memory["prior"].sum().item() == pytest.approx(1)
    assert torch.allclose(
        method.memory["prior"], joint(method.biased.eval()(entire.inputs).softmax(1), entire.labels)
    )


def test_twins_of_xrm_take_over_each_others_confident_predictions():
    chances = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.0, 1.0]]).log()
    assert flip_chance(chances).tolist() == pytest.approx([0, 0.5, 1])
    losses, labels = torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 2])
    assert class_balanced(losses, labels, 3).item() == 2 + 5
    method, data, result = three("xrm"), known(LABELS), {}
    method.setup(data)
    method.memory["half"] = torch.tensor([0, 1, 0])
    certain = F.one_hot(torch.tensor([2, 2, 2])).float().log()  # infinitely sure
    left, right = probable([0.5, 0.25, 0.25], LABELS), probable([0.125, 0.25, 0.5], LABELS)
    method.twins = nn.ModuleList([Fixed(left), Fixed(right)])
    right[0], left[1] = certain[0], torch.zeros(3)
    torch.manual_seed(0)
    output = method.training_step("twins", batch_of(data, range(3)), caught(result))
    assert output.loss.tolist() == pytest.approx([log(2), log(4), log(4)])
    assert result["twins"].item() == pytest.approx(1.5 * log(2) + log(4))
    assert method.memory["labels"].tolist()[:2] == [2, 0], "certain, and no idea"
    method.twins = nn.ModuleList([Fixed(2 * left), Fixed(torch.zeros(3, 3))])
    validated = method.validation_step("twins", batch_of(data, range(3)))
    assert torch.allclose(validated.loss, F.cross_entropy(left, data.labels, reduction="none"))


def test_each_twin_of_xrm_has_about_half_of_the_images():
    method = three("xrm")
    torch.manual_seed(0)
    method.setup(known([0, 1] * 100))
    assert method.memory["half"].bincount().tolist() == pytest.approx([100, 100], abs=30)


def test_groups_of_xrm_are_what_either_twin_gets_wrong():
    method, labels = three("xrm"), [0, 0, 0, 1, 1]
    message = [[0, 1, 0, 1, 1], [0, 0, 2, 1, 1]]
    twins = [F.one_hot(torch.tensor(item), 3).float() for item in message]
    data = known(labels)
    data = replace(data, in_order=lambda: [batch_of(data, range(5))])
    data = replace(data, validation=data)
    method.setup(data)
    method.twins = nn.ModuleList(Fixed(item) for item in twins)
    method.start_phase("classify", data)
    assert method.memory["group"].tolist() == [0, 1, 1, 2, 2], "no group of class 1 is wrong"
    assert method.memory["validation_group"].tolist() == [0, 1, 1, 2, 2]
    assert method.memory["q"].tolist() == pytest.approx([1 / 3] * 3) and not method.doubts
    method.twins = nn.ModuleList(Fixed(F.one_hot(data.labels, 3).float()) for _ in range(2))
    method.start_phase("classify", data)
    assert method.doubts == ["it divided no class, so its groups are the classes"]


def test_prototypes_of_dpe():
    points = Prototypes(2, 2)
    points.points.data = torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    points.scale.data = torch.tensor(-2.0)
    assert points(torch.tensor([[5.0, 0.0]])).tolist()[0] == pytest.approx([0, -2 * sqrt(2)])
    inputs, earlier = (
        torch.tensor([[1.0, 2, 0], [0, 1, 0]]),
        torch.tensor([[1.0, 0, 0], [1, -5, 0]]),
    )
    # Products 1 and -5 with the one set, 0 and 2 with the other; D - 1 = 2, and three sets.
    alternative = torch.tensor([[0.0, 0, 1], [0, 2, 0]])
    expected = abs(1 - 5 + 0 + 2) / 2 / 2 / 3
    assert overlap(inputs, [earlier, alternative]).item() == pytest.approx(expected)
    assert overlap(inputs, []).item() == 0


def test_the_loss_of_a_set_of_prototypes(monkeypatch):
    losses, calls = [], []

    def descend(module, draws, loss, **sgd):
        losses.append(loss(torch.arange(4)))
        calls.append(sgd)

    monkeypatch.setattr("diagvib.methods.dpe.descend", descend)
    options = {"entropic_scale": 3.0, "shrinkage": 2.0, "diversity": 5.0, "head_lr": 0.5}
    method = made("dpe", members=3, **options)
    features, labels = torch.randn(4, method.model.head.in_features), torch.tensor([0, 1, 2, 2])
    for number, member in enumerate(method.members):
        method.add(number, features, labels)
        fits = F.cross_entropy(3 * member(features), labels)
        *earlier, points = [alternative.points for alternative in method.members[: number + 1]]
        size, equals = points.square().sum(1).mean(), overlap(points, earlier)
        assert losses[-1].item() == pytest.approx((fits + 2 * size + 5 * equals).item(), rel=1e-5)
    assert calls == [{"lr": 0.5, "momentum": 0.9}] * 3


def test_each_set_of_prototypes_has_balanced_images_of_its_own(monkeypatch):
    method, added = made("dpe", members=2), []
    monkeypatch.setattr(method, "add", lambda number, *images: [added.append(images)])
    method.group = torch.tensor([0] * 40 + [1] * 4)
    method.memory["held_out"] = torch.ones(44, dtype=torch.bool)
    method.retrain(torch.randn(44, 5), method.group, last())
    (single, labels), (alternative, _) = added
    assert labels.bincount().tolist() == [4, 4] and not torch.equal(single, alternative)


def test_prototypes_are_fitted_to_standardised_features():
    """So that the length and the mean of an image's features say nothing."""
    features, points = torch.rand(8, 2048), []
    for inputs in (features, 3 * features + torch.arange(8.0)[:, None]):
        torch.manual_seed(0)
        method = made("dpe", members=1, head_epochs=1)
        method.setup(known([0, 1, 2, 3] * 2))
        torch.manual_seed(0)
        method.retrain(inputs, torch.tensor([0, 1, 2, 3] * 2), last())
        points.append(method.members[0].points.detach().clone())
    assert torch.allclose(*points, atol=1e-5) and points[0].abs().max() > 0


def test_dpe_predicts_the_mean_probability_of_its_members(batches):
    """And by its head until they are fitted."""
    method = made("dpe", members=2, head_epochs=1)
    method.setup(batches[0].training_data())
    batch = method.eval() and batches[0].batch(torch.arange(5))
    assert torch.equal(method.predict(batch), method.model(batch.inputs))
    method.start_phase("retrain", method.data)
    features = method.model.features(batch.inputs)
    read = (features - features.mean(1, keepdim=True)) / features.std(1, correction=0, keepdim=True)
    item = [member(read).softmax(1) for member in method.members]
    assert torch.allclose(method.predict(batch).exp(), (item[0] + item[1]) / 2, atol=1e-4)


def test_dpe_with_groups_holds_out_images_of_each():
    """A fifth of each, but at least one."""
    labels, cues = [0] * 42 + [1] * 41, [[0]] * 40 + [[1]] * 2 + [[1]] * 40 + [[0]]
    method = made("dpe", supervision="cues")
    method.setup(known(labels, cues))
    held_out = method.group[method.memory["held_out"]]
    assert held_out.bincount().tolist() == [8, 1, 1, 8]
    group = torch.tensor([0] * 9 + [1] * 2)
    assert group[random_share(group, 2, 0.2)].bincount().tolist() == [2, 1], "rounded"


def test_the_heat_of_masktune_is_what_the_largest_logit_gets_from_each_cell():
    """Logits are means of channels: 10 of the first, with weight 1/4, and 1 of the others."""
    method, maps = made("masktune"), torch.ones(1, 3, 2, 2)
    maps[0, 0] = torch.tensor([[4.0, 8.0], [12.0, 16.0]])
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    method.trained = Network(pooled, nn.Linear(3, 3, bias=False))
    method.trained.head.weight.data = torch.eye(3)
    assert method.heat(maps).flatten().tolist() == pytest.approx([0, 1, 2, 3])


def test_masktune_blackens_what_is_much_hotter_than_the_rest():
    heat = torch.zeros(1, 8, 8)
    heat[0, 1:3] = 1.0  # 16 positive pixels, mean 1.5625, standard deviation 2.18
    heat[0, 1, 1] = 10.0
    assert hot(heat, 8, 2.0).nonzero().tolist() == [[0, 1, 1]]
    assert not hot(torch.zeros(1, 8, 8), 8, 2.0).any()
    # Bilinearly, 1, 3/4, 1/4 and 0 of the rows times 0, 1/4, 3/4 and 1 of the columns; mean 4/9.
    corner = hot(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]), 4, 0.0)
    assert corner.nonzero().tolist() == [[0, 0, 2], [0, 0, 3], [0, 1, 2], [0, 1, 3]]
    method = made("masktune")
    method.setup(annotated(8, 0).training_data())
    batch = method.data.batch(torch.arange(8))
    nn.init.normal_(method.model.head.weight)
    method.start_phase("mask", method.data)
    assert torch.equal(method.trained.head.weight, method.model.head.weight)
    black = hot(method.heat(batch.inputs), SIZE, 2.0)
    calls, step = [], type(method.model).features
    method.model.features = lambda inputs: calls.append(inputs) or step(method.model, inputs)
    method.training_step("mask", batch, lambda name, loss: None)
    inputs = method.data.inputs(batch.pixels * ~black[..., None])
    assert black.any() and torch.equal(calls[0], inputs)


def test_a_network_without_a_map_cannot_be_masked():
    with refused(r"method: masktune .* model mobilenet_v3_small are not a pooled map"):
        make_baseline(settings_of("mobilenet_v3_small", "masktune"), 6, SIZE, 0)
