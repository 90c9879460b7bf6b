"""Methods that use environments, and w2d: each against a case worked by hand, and the batches
they get."""

import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import nn

from conftest import refused
from diagvib.methods.causirl import split_sets
from diagvib.methods.groups import Partners
from diagvib.methods.method import Batch, Optimiser
from diagvib.methods.mixup import mixed_labels
from diagvib.methods.registry import METHODS, declaration, make_baseline
from diagvib.models.network import Network
from diagvib.training.epochs import epoch_batches
from diagvib.training.optimisers import forget_where, make_optimiser
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE
from synthetic_methods import settings_of
from test_methods import PROTOCOL, RUN, annotated, batch_of, known, made

USING = [name for name in METHODS if "environments" in declaration(name).supervision]


def set_up(name, data, **selection):
    method = made(name, **selection)
    method.setup(data)
    return method


def environments(*source, labels=None):
    """Training data in these environments, by number; all of class 0 if no labels are given."""
    names = ("a", "b", "c")[: 1 + max(source)]
    return known(labels or [0] * len(source), environment=list(source), environments=names)


@pytest.fixture(scope="module")
def data():
    train = annotated(64, 0, environments=3, mistaken=8)
    return train, annotated(24, 1, environments=3, scaling=train.scaling)


# Batches


def test_every_batch_has_equal_shares_of_the_sets():
    """Sets of 3 and 10, batches of 5: 2 of each. In 4 steps the small one is used up more than
    twice. 23 images are enough for 4 batches."""
    sets = [torch.tensor([2, 5, 7]), torch.arange(10, 20)]
    draws, again, alternative = (
        torch.stack(epoch_batches(sets, 23, 5, torch.Generator().manual_seed(seed)))
        for seed in (0, 0, 1)
    )
    assert draws.shape == (4, 4)
    small, large = draws[:, :2].flatten().tolist(), draws[:, 2:].flatten().tolist()
    assert sorted(small[:3]) == sorted(small[3:6]) == [2, 5, 7] and set(small[6:]) < {2, 5, 7}
    assert len(set(large)) == 8 and set(large) <= set(range(10, 20))
    assert torch.equal(draws, again) and not torch.equal(draws, alternative)


@pytest.mark.parametrize("name", USING)
def test_methods_that_use_environments_get_equal_shares(name, data):
    options = {"supervision": "environments"} if name == "group_dro" else {}
    inputs = data[0].training_data()
    sets = set_up(name, inputs, **options).sampling("classify", inputs)
    assert [inputs.environment[item].unique().tolist() for item in sets] == [[0], [1], [2]]
    assert sum(map(len, sets)) == 64


# Refused settings


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            environments(0, 0, 1, 1, 1, labels=[0, 1, 0, 1, 2]),
            "blends images of one class from two environments, but all images of blue are in b",
        ),
        (
            environments(0, 2, 1, 1, 0, labels=[0, 1, 0, 0, 1]),
            "blends images of two classes from one environment, but all images in b are of red",
        ),
    ],
)
def test_images_that_lisa_could_not_blend_with_any(inputs, message):
    with refused(f"method: lisa {message}"):
        set_up("lisa", inputs)


@pytest.mark.parametrize(
    ("model", "size", "message"),
    [
        ("mobilenet_v3_small", 64, "the features of model mobilenet_v3_small are not a pooled map"),
        (
            "small_cnn",
            16,
            "of the 1 cells of model small_cnn's last feature map, cells: 0.25 erases none",
        ),
    ],
)
def test_networks_that_w2d_cannot_use(model, size, message):
    with refused(f"method: w2d.*{message}"):
        make_baseline(settings_of(model, "w2d"), 6, size, 0)


# Penalties that start late


@pytest.mark.parametrize("subject", [{"name": "adam"}, {"name": "sgd", "momentum": 0.9}])
@pytest.mark.parametrize("forget", [True, False])
def test_an_optimiser_that_forgets_is_as_new(subject, forget):
    weight, settings = nn.Parameter(torch.ones(3)), {**subject, "lr": 0.1}
    optimiser = make_optimiser(Optimiser([weight], settings))
    weight.grad = torch.tensor([1.0, 2.0, 3.0])
    optimiser.step()
    alternative = nn.Parameter(weight.detach().clone())
    forget_where(optimiser, torch.tensor(forget))
    weight.grad = alternative.grad = torch.tensor([2.0, -1.0, 0.0])
    optimiser.step()
    make_optimiser(Optimiser([alternative], settings)).step()
    assert torch.equal(weight, alternative) == forget


def test_vrex_penalises_the_variance_over_environments():
    """Means of 2 and 6: mean 4, variance 4."""
    data = environments(0, 0, 1, 1)
    method, losses = set_up("vrex", data, anneal_steps=500), torch.tensor([1.0, 3.0, 5.0, 7.0])
    for step, weight in ((0, 1), (499, 1), (500, 10)):
        method.step.fill_(step)
        assert method.combine(losses, batch_of(data, range(4))).item() == 4 + weight * 4


def test_weights_from_before_the_penalty_had_its_weight_are_doubtful():
    """In weights that are saved, the step is saved, too."""
    method, late = (set_up("vrex", environments(0, 0, 1, 1), anneal_steps=500) for _ in range(2))
    late.step.fill_(501)
    for step, doubts in ((500, 1), (501, 0)):
        method.load_state_dict({**late.state_dict(), "step": torch.tensor(step)})
        assert len(method.doubts) == doubts
    method.step.fill_(12)
    assert method.doubts[0].startswith("its weights are those after step 12, when its penalty")
    assert not set_up("vrex", environments(0, 1), anneal_steps=500, weight=1.0).doubts


def test_the_penalty_of_irm_on_a_linear_model():
    """Logits (log 3, 0) make probabilities of 3/4 and 1/4. Scaled by w, the loss changes at w = 1
    by -1/4 log 3 with label 0 and by 3/4 log 3 with label 1."""
    labels = [0, 1, 0, 1, 0, 0, 0, 0]
    data = environments(*[0] * 4, *[1] * 4, labels=labels)
    method, batch = set_up("irm", data, anneal_steps=500), batch_of(data, range(8))
    method.model.head = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        method.model.head.weight.copy_(torch.tensor([[1.0], [0.0]]))
    features = torch.full((8, 1), math.log(3))
    expected = (-1 / 4 * 3 / 4 + 1 / 4 * 1 / 4) / 2 * math.log(3) ** 2
    assert method.penalty(features, batch).item() == pytest.approx(expected)
    method.step.fill_(500)
    assert method.penalty(features, batch).item() == pytest.approx(100 * expected)


# Distances of features


def test_a_penalty_on_what_is_not_trained_is_refused(data):
    method = made("coral")
    method.model.body.requires_grad_(False)
    with refused("the penalty of coral depends on nothing that is train"):
        Trainer(method, *data, RUN, PROTOCOL).fit()


FEATURES = torch.tensor([[1.0, 0.0], [2.0, 2.0], [-1.0, 0.0], [2.0, 0.0]])


def kernel(squared):
    return sum(math.exp(-(10.0**power) * squared) for power in range(-3, 4))


def test_mmd_of_equal_and_of_known_environments():
    """0 and 1 in one environment, 0 and 2 in the other: squared distances 1 within the first, 4
    within the second, and 0, 4, 1, 1 between them."""
    data = environments(0, 0, 1, 1)
    method, batch = set_up("mmd", data, gamma=3.0), batch_of(data, range(4))
    features = torch.tensor([[0.0], [1.0], [0.0], [2.0]])
    expected = (7 + kernel(1)) / 2 + (7 + kernel(4)) / 2 - 2 * (7 + kernel(4) + 2 * kernel(1)) / 4
    assert method.penalty(features, batch).item() == pytest.approx(3 * expected, rel=1e-5)
    far = features + torch.tensor([1000.0])
    assert method.penalty(far, batch).item() == pytest.approx(3 * expected, rel=1e-3)
    assert method.penalty(features[[0, 1, 1, 0]], batch).item() == pytest.approx(0, abs=1e-5)


def test_the_distances_of_coral_are_of_means_and_covariances():
    data, features = environments(*[0] * 3, *[1] * 4, *[2] * 5), torch.randn(12, 20)
    distances = [
        (single.mean(0) - alternative.mean(0)).square().mean()
        + (single.T.cov() - alternative.T.cov()).square().mean()
        for single, alternative in combinations(features.split([3, 4, 5]), 2)
    ]
    penalty = set_up("coral", data, gamma=3.0).penalty(features, batch_of(data, range(12)))
    assert penalty.item() == pytest.approx(sum(distances).item(), rel=1e-5)


def test_of_more_environments_all_pairs_count():
    """Features of coral and mmd that differ in one environment of three: two of three pairs do."""
    two, three = environments(0, 0, 1, 1), environments(0, 0, 1, 1, 2, 2)
    features = torch.tensor([[0.0], [1.0], [0.0], [1.0], [3.0], [4.0]])
    for name in ("coral", "mmd"):
        single = set_up(name, two).penalty(features[2:], batch_of(two, range(4))).item()
        penalty = set_up(name, three).penalty(features, batch_of(three, range(6))).item()
        assert penalty == pytest.approx(2 / 3 * single, rel=1e-4)
        assert single == pytest.approx(3**2) or name == "mmd"


MIXED = kernel(5) + kernel(1) + kernel(13) + kernel(9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("causirl_coral", (4 + 1) / 2 + (4 + 4) / 4),
        ("causirl_mmd", (7 + kernel(4)) - 2 * MIXED / 4),
    ],
)
def test_causirl_compares_first_and_second_parts(name, expected, monkeypatch):
    """Each environment's two images are split in the middle: (1, 0), (-1, 0) against (2, 2), (2,
    0)."""
    data, places = environments(0, 0, 1, 1), torch.tensor([[1], [1]])
    method, batch = set_up(name, data, gamma=2.0), batch_of(data, range(4))
    monkeypatch.setattr(torch, "randint", lambda *arguments, **keywords: places)
    assert method.penalty(FEATURES, batch).item() == pytest.approx(2 * expected, rel=1e-5)
    places[1] = 0
    assert method.penalty(FEATURES, batch).item() == 0, "one image has no covariance"


def test_causirl_splits_every_environment_at_a_place_of_its_own():
    torch.manual_seed(0)
    batch = batch_of(environments(*[0] * 50, *[1] * 50), range(100))
    left, right = split_sets(2, batch)
    assert torch.equal(left + right, torch.ones(100))
    assert left[:50].sum() != left[50:].sum() and 0 < left.sum() < 100


@pytest.mark.parametrize("name", ["irm", "vrex"])
def test_the_optimiser_is_reset_when_the_penalty_gets_its_full_weight(name):
    data, request = annotated(16, 0), []
    method = set_up(name, data.training_data(), anneal_steps=2)
    batch = data.batch(torch.arange(16))
    for _ in range(4):
        method.training_step("classify", batch, lambda *_, forget: request.append(bool(forget)))
    assert request == [False, False, True, False]


# Fish


def test_fish_keeps_a_part_of_one_step_per_environment():
    """w x with x = 1 and the loss (w - y)^2, from w = 0 in steps of 0.1 times the gradient: -2 in
    the first environment leads to 0.2, and -5.6 in the second to 0.76, a half of which is kept."""
    data = environments(0, 0, 1, 1, labels=[1, 1, 3, 3])
    method = set_up("fish", data)
    method.model = Network(nn.Flatten(), nn.Linear(1, 1, bias=False))
    weight = method.model.head.weight
    nn.init.zeros_(weight)
    method.losses = lambda logits, labels: (logits[:, 0] - labels).square()
    sgd, calls = torch.optim.SGD([weight], lr=0.1), []

    def update(name, loss):
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        calls.append(weight.item())

    batch = replace(batch_of(data, range(4)), inputs=torch.ones(4, 1))
    output = method.training_step("classify", batch, update)
    assert calls == pytest.approx([0.2, 0.76]) and weight.item() == pytest.approx(0.38)
    assert output.loss.tolist() == pytest.approx(
        [1, 1, 2.8**2, 2.8**2]
    ) and output.logits.shape == (4, 1)
    assert weight is method.model.head.weight and weight.requires_grad


def test_statistics_of_batch_norm_are_weights_for_fish(data):
    method = set_up("fish", data[0].training_data(), meta_lr=0.25)
    method.train()
    statistics = method.model.body[1].running_mean
    before, between = statistics.clone(), []
    batch = data[0].batch(torch.cat(method.sets)[:15])
    method.training_step("classify", batch, lambda name, loss: between.append(statistics.clone()))
    assert len(between) == 3 and not torch.equal(between[-1], before)
    assert torch.allclose(statistics, before + 0.25 * (between[-1] - before))


def test_weights_with_two_names_move_once_in_fish(data):
    method = set_up("fish", data[0].training_data(), meta_lr=0.25)
    layer = nn.Linear(3, 3)
    method.model = Network(nn.Sequential(nn.AvgPool2d(SIZE), nn.Flatten(), layer, layer), layer)
    before = layer.weight.clone()

    def update(name, loss):
        with torch.no_grad():
            layer.weight.add_(1)

    method.training_step("classify", data[0].batch(torch.cat(method.sets)[:15]), update)
    torch.testing.assert_close(layer.weight.detach(), before + 0.25 * len(method.sets))


# W2D


def test_w2d_keeps_the_worst_third_until_the_last_quarter():
    """Of 8 steps; a last batch of one image counts."""
    method = set_up("w2d", replace(known([0] * 64), max_epochs=2))
    losses = torch.tensor([3.0, 9, 1, 4, 8, 2, 5, 7, 6, 0])
    for step, retained in ((0, [1, 4, 7]), (5, [1, 4, 7]), (6, range(10))):
        method.memory["step"].fill_(step)
        assert method.hard(losses).nonzero().flatten().tolist() == list(retained)
    method.memory["step"].fill_(0)
    assert method.hard(losses[:2]).sum() == 1
    method.settings["drop_last"] = False
    method.setup(replace(known([0] * 65), max_epochs=2))
    assert method.hard_until == 0.75 * 10


@pytest.fixture
def reader():
    """W2d on a network whose map is its input, 2 x 2 cells, and whose logit of class c is the mean
    of channel c."""
    method = set_up("w2d", replace(known([0] * 64), max_epochs=2))
    method.model = Network(
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(3, 3, bias=False)
    )
    method.model.head.weight = nn.Parameter(torch.eye(3))
    method.pool, method.erased_cells = method.model.body[0], 1
    return method


def test_w2d_erases_the_cells_that_decide(reader):
    """The largest cell of the true class's channel; in those hard images whose probability this
    lowers most."""
    maps, labels = torch.zeros(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    for image, (row, column, value) in enumerate([(0, 1, 2), (1, 0, 4), (1, 1, 1), (0, 0, 8)]):
        maps[image, labels[image], row, column] = value
        maps[image, (labels[image] + 1) % 3] = 0.5  # of another class
    cells = [[0, 0, 0, 1], [1, 0, 1, 0], [2, 0, 1, 1]]

    def erased(share):
        reader.options.erased_images = share
        hard = torch.tensor([True, True, True, False])
        return reader.erased(maps.clone(), labels, hard).nonzero().tolist()

    assert erased(1 / 3) == cells[1:2] and erased(1.0) == cells
    # Half of three is two, but no more than those in which erasing changes something.
    assert erased(0.5) == cells[:2]
    maps[0] = maps[2] = 0
    assert erased(0.5) == cells[1:2]
    maps[0, labels[0], 0, 0] = 1e-3  # by less than 1e-4
    assert erased(0.5) == cells[1:2]


def test_w2d_learns_from_what_is_left(reader):
    """Of three images with labels 0 the worst, of channel 0 at -4 in one cell and 4 in another,
    loses the latter."""
    inputs = torch.zeros(3, 3, 2, 2)
    inputs[0, 0, 0] = torch.tensor([-4.0, 4.0])
    inputs[1, 0], inputs[2, 0] = 3, 5
    labels, learnt = torch.zeros(3, dtype=torch.int64), []
    reader.options.erased_images = 1.0
    batch = Batch(torch.empty(0), inputs, labels, torch.empty(3, 0), labels, torch.arange(3))
    output = reader.training_step(
        "classify", batch, lambda name, loss: learnt.append((name, loss.item()))
    )
    ((name, loss),) = learnt
    assert name == "model" and loss == pytest.approx(-math.log(math.exp(-1) / (math.exp(-1) + 2)))
    assert output.loss[0].item() == pytest.approx(math.log(3)) and reader.memory["step"].item() == 1
    reader.model.dropout = 1.0 - 1e-9  # all features are 0, so all classes are alike
    reader.training_step("classify", batch, lambda name, loss: learnt.append((name, loss.item())))
    assert learnt[1][1] == pytest.approx(math.log(3))


# Blends of environments


def coded(data):
    """The data, in which image i is i + 1 everywhere."""

    def batch(index):
        inputs = (1.0 + index)[:, None, None, None].expand(-1, 3, 2, 2).clone()
        return replace(batch_of(data, index.tolist()), inputs=inputs)

    return replace(data, batch=batch)


def test_lisa_blends_only_what_it_may():
    """In a batch all partners are of the same kind; each image has a share of its own."""
    labels, environment = [0, 0, 1, 1, 2, 2, 0, 1, 2, 2], [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    data = coded(environments(*environment, labels=labels))
    method, partners = set_up("lisa", data), []
    method.data = replace(data, batch=lambda index: partners.append(index) or data.batch(index))
    batch, kinds, shares = data.batch(torch.arange(10)), [], []
    torch.manual_seed(0)
    for _ in range(400):
        mixed, alternative = method.augment(batch), partners[-1]
        same_label = data.labels[alternative] == batch.labels
        assert torch.equal(same_label, data.environment[alternative] != batch.environment)
        share = (mixed.inputs[:, 0, 0, 0] - 1 - alternative) / (batch.index - alternative)
        expected = mixed_labels(batch.labels, data.labels[alternative], share, 6)
        assert torch.allclose(mixed.labels, expected, atol=1e-4)
        kinds.append(same_label.unique().item())
        shares.append(share)
    shares = torch.stack(shares)
    assert sum(kinds) == pytest.approx(200, abs=40) and shares.std(1).min() > 0.05
    assert shares.var().item() == pytest.approx(1 / 20, abs=0.005), "Beta(2, 2)"


def test_partners_are_all_as_likely():
    shared, different = torch.tensor([1, 0, 1, 1, 0, 1]), torch.tensor([0, 1, 2, 1, 0, 2])
    partners = Partners(shared, different)
    assert partners.lonely() == []
    torch.manual_seed(0)
    for image in range(6):
        draws = partners.draw(
            *(value[image].expand(12_000) for value in (shared, different))
        ).bincount(minlength=6)
        allowed = (shared == shared[image]) & (different != different[image])
        assert torch.allclose(draws / 12_000, allowed / allowed.sum(), atol=0.02)


def test_env_mixup_blends_each_environment_with_the_next():
    """Each environment's images have a separate class, so that labels show which ones were
    blended."""
    source = torch.arange(12) // 4
    data = coded(environments(*source.tolist(), labels=source.tolist()))
    method, batch = set_up("env_mixup", data), data.batch(torch.arange(12))
    orders, shares = set(), []
    torch.manual_seed(0)
    for _ in range(300):
        mixed = method.augment(batch)
        share = mixed.labels[batch.index, source]
        alternatives, partner = mixed.labels.scatter(1, source[:, None], -1).max(1)
        assert (share.view(3, 4) == share.view(3, 4)[:, :1]).all(), "one for each pair"
        shares.append(share[::4])
        if (alternatives > 0.01).all():  # else another image can hardly be seen
            orders.add(tuple(partner[::4].tolist()))
            alternative = 4 * partner + batch.index % 4
            expected = 1 + share * batch.index + (1 - share) * alternative
            assert torch.allclose(mixed.inputs[:, 0, 0, 0], expected, atol=1e-4)
    assert orders == {(1, 2, 0), (2, 0, 1)}
    assert torch.stack(shares).var().item() == pytest.approx(1 / (4 * 1.4), abs=0.02), (
        "Beta(.2, .2)"
    )
