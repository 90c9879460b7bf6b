"""Methods that change images, labels or logits, each against a case worked by hand or a closed
form."""

import operator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as changes

from diagvib.methods import augmix
from diagvib.methods.method import Batch, StepOutput
from diagvib.training.batches import Batches
from diagvib.training.running_metrics import RunningMetrics
from synthetic_images import SIZE, separable
from synthetic_methods import linear
from test_methods import CPU, made


def constant_images(n, size=16):
    """A batch whose image i is i + 1 everywhere, of class i % 3."""
    values = torch.arange(1.0, n + 1)[:, None, None, None]
    labels = torch.arange(n) % 3
    return Batch(
        values.expand(n, size, size, 3).to(torch.uint8),
        values.expand(n, 3, size, size).clone(),
        labels,
        torch.empty(n, 0),
        torch.zeros_like(labels),
        torch.arange(n),
    )


def test_mixup_blends_images_and_labels_by_one_share():
    method, batch, shares = made("mixup", alpha=1.0), constant_images(3), []
    for seed in range(5):
        torch.manual_seed(seed)
        mixed = method.augment(batch)
        share = mixed.labels[0, 0]
        subject = torch.eye(3, 6)
        assert torch.allclose(mixed.labels, subject.roll(1, 0).lerp(subject, share))
        assert torch.allclose(mixed.inputs, batch.inputs.roll(1, 0).lerp(batch.inputs, share))
        shares.append(share.item())
    assert len(set(shares)) == 5 and torch.equal(batch.inputs, constant_images(3).inputs)


def test_losses_and_accuracy_of_soft_labels():
    """The loss is the labels' mixture of losses; the label with the larger share counts as
    correct."""
    logits = torch.tensor([[2.0, 0, 1], [2, 0, 1], [2, 0, 1]])
    soft = torch.tensor([[0.7, 0.3, 0], [0.3, 0.7, 0], [0.1, 0.3, 0.6]])
    losses = made("mixup").losses(logits, soft)
    assert torch.allclose(losses, -(soft * logits.log_softmax(1)).sum(1))
    for output, accuracy in (
        (StepOutput(losses, logits, soft), 1 / 3),
        (StepOutput(losses, torch.eye(3)[[0, 2, 2]]), 2 / 3),  # the batch's own labels
    ):
        metrics = RunningMetrics(CPU, 3)
        metrics.add(output, constant_images(3))
        assert metrics.means(3)[1] == pytest.approx(accuracy)


def test_the_label_of_cutmix_is_the_true_area():
    """Of one box, the same in every image; beyond an edge it is cut off, so its sides differ."""
    method, batch, cut_off = made("cutmix"), constant_images(4), 0
    for seed in range(40):
        torch.manual_seed(seed)
        mixed = method.augment(batch)
        box = mixed.inputs[0, 0] != batch.inputs[0, 0]
        assert torch.equal(mixed.inputs, torch.where(box, batch.inputs.roll(1, 0), batch.inputs))
        rows, columns = box.any(1), box.any(0)
        assert torch.equal(box, rows[:, None] & columns)
        subject = F.one_hot(batch.labels, 6).float()
        expected = subject.lerp(subject.roll(1, 0), box.float().mean())
        assert torch.allclose(mixed.labels, expected, atol=1e-6)
        cut_off += rows.sum().item() != columns.sum().item()
    assert cut_off > 5


def test_the_box_of_cutmix_has_the_share_that_is_drawn(monkeypatch):
    """A quarter of the pixels, unless it is cut off."""
    monkeypatch.setattr("diagvib.methods.cutmix.random_share", lambda *_: torch.tensor(0.75))
    batch, areas = constant_images(4), []
    for seed in range(40):
        torch.manual_seed(seed)
        mixed = made("cutmix").augment(batch)
        areas.append((mixed.inputs[0, 0] != batch.inputs[0, 0]).float().mean().item())
    assert max(areas) == pytest.approx(0.25)


def test_cutout_erases_a_box_and_nothing_else():
    """Of the share and the ratio asked for, in a tenth of the images."""
    torch.manual_seed(0)
    batch = constant_images(2000, 32)
    has_cutout = (made("cutout", p=0.1).augment(batch).inputs != batch.inputs).flatten(1).any(1)
    assert has_cutout.float().mean().item() == pytest.approx(0.1, abs=0.02)
    inputs = made("cutout", p=1).augment(batch).inputs
    erased = inputs[:, 0] == 0
    assert torch.equal(inputs, torch.where(erased[:, None], 0, batch.inputs))
    rows, columns = erased.any(2), erased.any(1)
    assert torch.equal(erased, rows[:, :, None] & columns[:, None, :])
    height, width = rows.sum(1), columns.sum(1)
    # The sides are rounded to whole pixels.
    assert ((height - 0.5) * (width - 0.5)).max() < 0.33 * 32**2 < 1.2 * (height * width).max()
    assert 3 < ((height - 0.5) / (width + 0.5)).max() < 3.3
    assert erased.float().mean().item() == pytest.approx((0.02 + 0.33) / 2, abs=0.02)
    assert (height > width).float().mean().item() == pytest.approx(0.5, abs=0.1)
    turned = made("cutout", area=[0.33, 0.02], ratio=[3.3, 0.3])
    assert (turned.augment(batch).inputs != batch.inputs).any()
    too_long = made("cutout", p=1, area=[0.9, 0.95], ratio=[2, 2]).augment(batch).inputs
    assert torch.equal(too_long, batch.inputs), "such a box would cover a side"


def test_divergence_of_known_distributions():
    p = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    by_hand = sum((row * (row / p.mean(0)).log()).sum() for row in p) / 3
    assert augmix.jensen_shannon(p.log()[:, None]).item() == pytest.approx(by_hand.item())


def test_the_gradient_of_the_divergence_is_finite_where_a_probability_is_zero():
    logits = (200 * torch.eye(3)[[0, 1, 0]])[:, None].requires_grad_()
    augmix.jensen_shannon(logits).sum().backward()
    assert logits.grad.isfinite().all()


def noise(n, size=24):
    return torch.randint(0, 256, (n, 3, size, size), generator=torch.Generator().manual_seed(0)).to(
        torch.uint8
    )


def operation(number, images, strength):
    return augmix.OPERATIONS[number](images, torch.full((len(images),), strength))


def test_operations_on_colours_are_torchvisions():
    images = noise(3)
    assert torch.equal(operation(0, images // 2, 0.1), changes.autocontrast(images // 2))
    assert torch.equal(operation(1, images, 0.1), changes.equalize(images))
    assert torch.equal(operation(2, images, 0.1), changes.posterize(images, 4))
    assert torch.equal(operation(2, images, 0.5), changes.posterize(images, 2))
    assert torch.equal(operation(3, images, 0.1), changes.solarize(images, 256 - 25))
    strengths = torch.tensor([0.1, 0.3, 0.6])
    item = [
        changes.solarize(image, 256 - int(256 * s))
        for image, s in zip(images, strengths.tolist(), strict=True)
    ]
    assert torch.equal(augmix.OPERATIONS[3](images, strengths), torch.stack(item))


def one_of(images, left, right):
    """Every image is the first or the second, up to rounding, and both occur."""
    near = [
        (images.float() - expected.float()).abs().flatten(1).amax(1) <= 1
        for expected in (left, right)
    ]
    return (near[0] ^ near[1]).all() and near[0].any() and near[1].any()


def test_operations_on_places_are_torchvisions():
    """Rotation by 15 degrees; a shear whose first row, or column, is fixed; and a shift by 2 of 24
    pixels."""
    torch.manual_seed(1)
    images = noise(12)
    smooth = F.avg_pool2d(images.float(), 5, 1, 2).to(torch.uint8)
    rotated = [changes.rotate(smooth, angle, InterpolationMode.BILINEAR) for angle in (15, -15)]
    assert one_of(operation(4, smooth, 0.5), *rotated)
    right = F.pad(images[..., :-2], (2, 0))
    remaining = F.pad(images[..., 2:], (0, 2))
    assert one_of(operation(7, images, 0.25 + 1e-6), right, remaining)
    assert one_of(operation(8, images.mT, 0.25 + 1e-6).mT, right, remaining)
    ramp = (4 * torch.arange(24).expand(12, 3, 24, 24)).to(torch.uint8)
    inner = slice(8, 16)
    # The colour comes from slope x (row + 1/2) columns further on; it changes by 4 per column.
    moved = 4 * 0.3 * 0.5 * (torch.arange(24)[:, None] + 0.5)
    assert one_of(
        operation(5, ramp, 0.5)[..., inner], (ramp + moved)[..., inner], (ramp - moved)[..., inner]
    )
    assert one_of(
        operation(6, ramp.mT, 0.5).mT[..., inner],
        (ramp + moved)[..., inner],
        (ramp - moved)[..., inner],
    )


def test_chains_are_dealt_lengths_and_operations_in_equal_shares(monkeypatch):
    places, strengths = [], []

    def counted(number):
        def change(images, strength):
            places.append((number, len(images)))
            strengths.append(strength)
            return images + 1

        return change

    monkeypatch.setattr(augmix, "OPERATIONS", tuple(map(counted, range(9))))
    torch.manual_seed(0)
    images = torch.zeros(54, 3, 2, 2, dtype=torch.uint8)
    augmix.change_in_chains(images, 3, 0.2)
    assert torch.bincount(images[:, 0, 0, 0].long()).tolist() == [0, 18, 18, 18]
    assert places == [(number, size) for size in (6, 4, 2) for number in range(9)]
    assert 0.01 <= torch.cat(strengths).min() < 0.05 and 0.15 < torch.cat(strengths).max() <= 0.2


@pytest.fixture
def data():
    return Batches(*separable(8), CPU)


def test_views_of_augmix_are_the_image_and_mixtures(data, monkeypatch):
    """Chains that blacken: x + (1 - m) (black - x); with one operation each, the same whatever the
    weights w."""
    method = made("augmix")
    method.setup(data.training_data())
    torch.manual_seed(0)
    batch = data.batch(torch.arange(8))
    views = method.views(batch.pixels)
    assert views.shape == (3, 8, 3, SIZE, SIZE) and torch.equal(views[0], batch.inputs)
    assert not torch.equal(views[1], views[2])
    monkeypatch.setattr(
        augmix, "OPERATIONS", (lambda images, strength: torch.zeros_like(images),) * 9
    )
    views, black = method.views(batch.pixels), data.inputs(torch.zeros_like(batch.pixels))
    deleted = ((views[1:] - views[0]) / (black - views[0])).flatten(2)
    assert (deleted.amax(2) - deleted.amin(2)).max() < 1e-2, "one m per image"
    assert (
        0 < deleted.mean(2).min() < 0.3
        and 0.7 < deleted.mean(2).max() < 1
        and len(deleted.mean(2).unique()) == 16
    )


def test_mixtures_of_augmix_have_random_shares_and_the_strength_of_its_severity(data, monkeypatch):
    """Chains of red, green and blue: each mixture has its own shares of them."""
    method, request = made("augmix", severity=4.0, width=3, depth=3), set()
    method.setup(data.training_data())

    def painted(chains, depth, strength):
        request.add((depth, strength))
        for colour, part in enumerate(chains.unflatten(0, (2, 3, -1)).unbind(1)):
            part.copy_(255 * torch.eye(3)[colour].view(1, 1, 3, 1, 1))

    monkeypatch.setattr(augmix, "change_in_chains", painted)
    monkeypatch.setattr(augmix, "random_share", lambda alpha, device, *shape: torch.zeros(shape))
    torch.manual_seed(0)
    views = method.views(torch.zeros(8, SIZE, SIZE, 3, dtype=torch.uint8))
    black, white = (data.inputs(torch.full((1, SIZE, SIZE, 3), value)) for value in (0.0, 255.0))
    shares = ((views[1:] - black) / (white - black))[..., 0, 0]
    assert torch.allclose(shares.sum(-1), torch.ones(2, 8), atol=1e-3)
    assert shares.std((0, 1)).min() > 0.1 and request == {(3, 0.4)}


def test_augmix_mirrors_left_to_right(data, monkeypatch):
    method = made("augmix", flip=True)
    method.setup(data.training_data())
    calls, views = [], method.views
    monkeypatch.setattr(method, "views", lambda pixels: calls.append(pixels) or views(pixels))
    batch = data.batch(torch.arange(8))
    pixels = torch.randint(256, batch.pixels.shape, dtype=torch.uint8)
    torch.manual_seed(0)
    method.training_step("classify", replace(batch, pixels=pixels), lambda name, loss: None)
    turned = [
        torch.equal(text, values.flip(1)) for text, values in zip(calls[0], pixels, strict=True)
    ]
    equal = [torch.equal(text, values) for text, values in zip(calls[0], pixels, strict=True)]
    assert all(map(operator.xor, turned, equal)) and 0 < sum(turned) < 8


def test_the_loss_of_augmix(data):
    method, inputs = made("augmix", js_weight=5.0), {}
    method.setup(data.training_data())
    method.eval()
    batch = data.batch(torch.arange(8))
    torch.manual_seed(0)
    views = method.views(batch.pixels)
    torch.manual_seed(0)
    output = method.training_step(
        "classify", batch, lambda name, loss: inputs.update({name: loss.item()})
    )
    divergence = augmix.jensen_shannon(torch.stack([method.model(view) for view in views]))
    expected = (
        F.cross_entropy(method.model(batch.inputs), batch.labels, reduction="none") + 5 * divergence
    )
    assert torch.allclose(output.loss, expected, atol=1e-5) and divergence.min() > 0
    assert inputs["model"] == pytest.approx(expected.mean().item(), rel=1e-4)
    assert torch.allclose(output.logits, method.model(batch.inputs), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 0.1 / 2 * (14 + 17) / 2),
        ({"penalised": "true_class"}, 0.1 * (4 + 1) / 2),
        ({"penalised": "mean"}, 0.1 * (14 + 17) / 6),
    ],
)
def test_the_penalty_of_spectral_decoupling(options, expected):
    """Logits (1, 2, -3) of class 1 and (0, 4, 1) of class 2: squares sum to 14 and 17; of the true
    classes 4 and 1."""
    batch = replace(constant_images(2), labels=torch.tensor([1, 2]))
    method = made("sd", **options)
    method.model.head = torch.nn.Identity()
    logits = torch.tensor([[1.0, 2, -3], [0, 4, 1]])
    assert method.penalty(logits, batch).item() == pytest.approx(expected)


def test_augmix_on_features_reads_both_mixtures():
    method = linear("diagvib.methods.views:AugMixed", 3)
    views = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    method.data = SimpleNamespace(views={"augmix.1": views[1], "augmix.2": views[2]})
    labels = torch.tensor([0, 1, 2, 0])
    batch = SimpleNamespace(inputs=views[0], labels=labels, index=torch.arange(4))
    output = method.training_step("classify", batch, lambda name, loss: None)
    logits = method.model(views.flatten(0, 1)).unflatten(0, (3, 4))
    expected = method.losses(logits[0], labels) + 12 * augmix.jensen_shannon(logits)
    assert torch.allclose(output.loss, expected)
