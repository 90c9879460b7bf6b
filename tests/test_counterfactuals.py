"""Images with one cue exchanged, and the methods that learn from them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from conftest import refused
from diagvib.images.counterfactuals import SceneCounterfactuals
from diagvib.images.files import Images
from diagvib.methods.augmix import jensen_shannon
from diagvib.methods.registry import check_scene, make_baseline
from diagvib.scenes import load_scene
from diagvib.scenes.cache import cached
from diagvib.training.batches import Annotations, Batches
from synthetic_methods import settings_of
from test_scenes import recipes

CPU, SIZE, CUES = torch.device("cpu"), 64, ("hue", "lightness")


@pytest.fixture(scope="module")
def batches():
    """40 digits, shape the target, with hue and lightness as cues."""
    scene = load_scene("digits")
    prepared = cached(scene, "embedded", None)
    rows = recipes(scene, prepared, "train")
    images = Images(scene.renderer(prepared, SIZE, CPU)(rows), rows, {"scene": "digits"})
    names = Annotations(
        torch.stack([images.labels(cue) for cue in CUES], 1),
        None,
        scene.factors["shape"],
        {cue: scene.factors[cue] for cue in CUES},
    )
    return Batches(
        images.pixels,
        images.labels("shape"),
        CPU,
        None,
        names,
        SceneCounterfactuals(images, CUES, prepared, CPU),
    )


def made(batches, name="lle", **options):
    method = make_baseline(settings_of(method={"name": name, **options}), 10, SIZE, 1)
    method.setup(batches.training_data())
    return method


def test_an_exchanged_image_shows_the_donors_cue(batches):
    scene, output = load_scene("digits"), batches.counterfactuals
    rows, donors = (output.images.table.take(index) for index in ([3, 5], [7, 0]))
    index = torch.tensor([3, 5])
    pixels = output.exchanged(index, 1, torch.tensor([7, 0]))
    render = scene.renderer(output.prepared, SIZE, CPU)
    assert torch.equal(pixels, render(scene.exchange(rows, "lightness", donors)))
    assert torch.equal(output.exchanged(index, 0, index), batches.pixels[index])


def test_boxes_are_of_whole_pixels(batches, monkeypatch):
    output = batches.counterfactuals
    fresh = SceneCounterfactuals(output.images, output.cues, output.prepared, CPU)
    boxes = torch.rand(len(output.images.table), 4)
    monkeypatch.setattr(type(load_scene("digits")), "object_boxes", lambda *_: boxes)
    with refused("pixels as integers, one box of 4 for each image"):
        fresh.object_boxes(torch.tensor([0]))


def test_lle_exchanges_one_cue_of_an_image_or_none(batches):
    method = made(batches)
    torch.manual_seed(0)
    batch = batches.batch(torch.arange(40))
    changed, shift = method.shifted(batch)
    assert set(shift.tolist()) == {0, 1, 2}
    retained = shift == 0
    assert torch.equal(changed.inputs[retained], batch.inputs[retained])
    assert torch.equal(changed.inputs, batches.inputs(changed.pixels))
    differ = (changed.pixels != batch.pixels).flatten(1).any(1)
    assert differ[~retained].all() and not differ[retained].any()
    assert torch.equal(batch.pixels, batches.pixels[:40]), "the images themselves stay"


def test_lle_is_one_head_where_the_shift_is_certain(batches):
    """And the mean of all where it is not."""
    method = made(batches).eval()
    batch = batches.batch(torch.arange(8))
    torch.nn.init.normal_(method.heads[1].weight)
    logits = [head(method.model.features(batch.inputs)) for head in method.heads]
    for shift in range(3):
        method.shift.bias.data = 1e4 * F.one_hot(torch.tensor(shift), 3).float()
        assert torch.allclose(method.predict(batch), logits[shift])
    method.shift.bias.data.zero_()
    assert torch.allclose(method.predict(batch), sum(logits) / 3, atol=1e-6)


@pytest.mark.parametrize("detach", [True, False])
def test_the_shift_predictor_reaches_the_features_only_if_asked(batches, detach):
    method = made(batches, detach=detach)
    torch.nn.init.normal_(method.shift.weight)
    results = []

    def update(name, loss):
        loss.backward()
        results.append([p.grad.clone() for p in method.model.body.parameters()])

    for weight in (1.0, 3.0):
        torch.manual_seed(0)
        method.zero_grad()
        method.shift.weight.data *= weight
        method.training_step("classify", batches.batch(torch.arange(16)), update)
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True)) == detach


def test_a_step_of_lle(batches):
    """The loss of each image's own head, and that of the shift; donors show another class."""
    method = made(batches)
    torch.nn.init.normal_(method.shift.weight)
    batch, used = batches.batch(torch.arange(16)), []
    torch.manual_seed(3)
    method.training_step("classify", batch, lambda name, loss: used.append(loss))
    torch.manual_seed(3)
    changed, shift = method.shifted(batch)
    features = method.model.features(changed.inputs)
    logits = torch.stack([head(features) for head in method.heads])[shift, torch.arange(16)]
    expected = F.cross_entropy(logits, batch.labels) + F.cross_entropy(
        method.shift(features), shift
    )
    assert torch.allclose(used[0], expected, atol=1e-5)
    donors = method.donors.draw(torch.zeros_like(batch.labels), batch.labels)
    assert (batches.labels[donors] != batch.labels).all()
    calls = []
    method.data = replace(
        method.data,
        counterfactuals=SimpleNamespace(
            exchanged=lambda *arguments: calls.append(arguments) or batches.pixels[arguments[0]]
        ),
    )
    method.shifted(batch, torch.ones(16, dtype=int))
    assert (batches.labels[calls[0][2]] != batch.labels).all()


@pytest.mark.parametrize("ablation", ["ensemble", "shift_classifier", "augmix"])
def test_what_is_left_of_lle_without_a_part(batches, ablation):
    """One head, or the mean of all; no shift is predicted; and AugMix's loss of all three views."""
    method = made(batches, ablation=ablation).eval()
    for number, head in enumerate(method.heads):
        head.bias.data[number] += 1
    batch, used = batches.batch(torch.arange(16)), []

    def outcome(inputs):
        features = method.model.features(inputs)
        return torch.stack([head(features) for head in method.heads])

    assert torch.allclose(method.predict(batch), outcome(batch.inputs).mean(0), atol=1e-6)
    torch.manual_seed(3)
    method.training_step("classify", batch, lambda name, loss: used.append(loss))
    torch.manual_seed(3)
    if ablation == "augmix":
        views = [method.shifted(batch, torch.full((16,), k))[0].inputs for k in range(3)]
        logits = torch.stack([outcome(view)[0] for view in views])
        divergence = jensen_shannon(logits).mean()
        expected = F.cross_entropy(logits[0], batch.labels) + 12 * divergence
    else:
        changed, shift = method.shifted(batch)
        subject = torch.zeros_like(shift) if ablation == "ensemble" else shift
        logits = outcome(changed.inputs)[subject, torch.arange(16)]
        expected = F.cross_entropy(logits, batch.labels)
    assert torch.allclose(used[0], expected, atol=1e-5)


def test_lle_augments_what_it_exchanges(batches):
    """Or the augmentation would tell which images were changed."""
    method = made(batches)
    batch, shift, output = batches.batch(torch.arange(2)), torch.tensor([0, 1]), []
    for augment in (lambda pixels: pixels, lambda pixels: 255 - pixels):
        method.data = replace(method.data, augment=augment)
        torch.manual_seed(0)
        output.append(method.shifted(batch, shift)[0].pixels)
    assert torch.equal(output[1][1], 255 - output[0][1]) and torch.equal(
        output[1][0], batch.pixels[0]
    )


def test_cf_f_keeps_the_box_or_all_but_it(batches):
    method = made(batches, "cf_f")
    torch.manual_seed(0)
    batch = batches.batch(torch.arange(40))
    factual, counterfactual = method.changed(batch)
    boxes, colours = batches.counterfactuals.object_boxes(batch.index).tolist(), []
    for position, (top, remaining, bottom, right) in enumerate(boxes):
        inside = torch.zeros(SIZE, SIZE, dtype=torch.bool)
        inside[top:bottom, remaining:right] = True
        assert torch.equal(factual[position][:, inside], batch.inputs[position][:, inside])
        assert torch.equal(counterfactual[position], batch.inputs[position].masked_fill(inside, 0))
        assert factual[position][:, ~inside].std(1).min() > 0.05
        colours.append(factual[position][:, ~inside].mean(1))
    assert torch.stack(colours).std(0).min() > 0.2, "a colour for each image"


def test_cf_f_adds_three_losses(batches):
    method = made(batches, "cf_f").eval()
    batch, used = batches.batch(torch.arange(8)), []
    torch.manual_seed(3)
    factual, counterfactual = method.changed(batch)
    torch.manual_seed(3)
    output = method.training_step("classify", batch, lambda name, loss: used.append(loss))
    subject, retained, deleted = (
        method.model(inputs).log_softmax(1) for inputs in (batch.inputs, factual, counterfactual)
    )
    rows = torch.arange(8)
    alternatives = -(deleted.sum(1) - deleted[rows, batch.labels]) / 9
    expected = alternatives - subject[rows, batch.labels] - retained[rows, batch.labels]
    assert torch.allclose(output.loss, expected, atol=1e-5)
    assert torch.allclose(used[0], expected.mean(), atol=1e-5)


def test_boxes_that_are_off_the_middle_cannot_be_mirrored(batches):
    flipping = make_baseline(settings_of(method="cf_f", augment=["flip"]), 10, SIZE, 1)
    with refused("augment: flip mirrors images, but the boxes"):
        flipping.setup(batches.training_data())


def test_what_a_scene_cannot_do_is_said_at_planning():
    check_scene({"name": "lle"}, "digits")
    with refused(
        "cf_f needs a scene that can say where an image's object is, but squares:Squares cannot",
    ):
        check_scene({"name": "cf_f"}, "squares:Squares")
