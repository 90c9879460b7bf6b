"""Masks for photos that have none, from a real Mask R-CNN with random weights except for its chosen
answers."""

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from conftest import refused
from diagvib.foundation.files import file_sha256
from diagvib.models.foregrounds import (
    MODEL,
    categories,
    class_indices,
    cut_out_photos,
    largest_instance,
    load_network,
    without_mask,
)

CPU = torch.device("cpu")


def all_trucks(pixels):
    """Instead of a network: every photo is a truck, above everything that is less certain."""
    (photo,) = pixels
    assert photo.min() >= 0 and photo.max() <= 1
    masks = torch.zeros(3, 1, *photo.shape[1:])
    masks[0, 0, :2], masks[1, 0, :3], masks[2] = 0.9, 0.9, 0.9
    labels = torch.tensor([3, 8, 8])
    return [{"labels": labels, "scores": torch.tensor([0.9, 0.8, 0.3]), "masks": masks}]


@pytest.fixture
def folder(tmp_path):
    """Three photos that need a mask, one that has one, one that is transparent, and one file that
    is not a photo."""
    (tmp_path / "urban").mkdir()
    for name in ("a.jpg", "b.jpg", "c.png", "b.mask.png", "urban/grey.png"):
        Image.fromarray(np.full((48, 64), 99, np.uint8)).save(tmp_path / name)
    Image.fromarray(np.zeros((8, 8, 4), np.uint8)).save(tmp_path / "urban" / "cut.png")
    (tmp_path / "text.jpg").write_text("no photo")
    return tmp_path


def test_photos_that_need_a_mask_get_one(folder, capsys):
    photos = without_mask(folder)
    assert photos == [folder / name for name in ("a.jpg", "c.png", "urban/grey.png")]
    assert capsys.readouterr().err.startswith(f"{folder / 'text.jpg'}: left out, not an image")
    finished_part, before = [], (folder / "b.mask.png").read_bytes()
    assert cut_out_photos(all_trucks, photos, ["car", "truck"], CPU, finished_part.append) == 3
    assert finished_part == [1, 1, 1] and without_mask(folder) == []
    for path in photos:
        mask = np.asarray(Image.open(path.with_suffix(".mask.png")))
        assert mask.tolist() == [[255] * 64] * 3 + [[0] * 64] * 45, "the largest certain one"
    assert (folder / "b.mask.png").read_bytes() == before


def test_photos_of_one_name_would_have_one_mask(folder, capsys):
    (folder / "a.png").write_bytes((folder / "c.png").read_bytes())
    assert folder / "a.png" not in without_mask(folder)
    assert f"{folder / 'a.png'}: left out, because another photo has this name" in (
        capsys.readouterr().err
    )


def test_what_shows_nothing_of_the_kind_is_named(folder, capsys):
    assert cut_out_photos(all_trucks, [folder / "a.jpg"], ["horse"], CPU, [].append) == 0
    message = f"{folder / 'a.jpg'}: left out, because no horse was found in it\n"
    assert capsys.readouterr().err == message
    assert not (folder / "a.mask.png").exists()


def test_a_real_network_is_loaded_and_used(tmp_path):
    """With weights for which every region is a truck, and all of a region belongs to it."""
    net = torchvision.models.get_model(MODEL, weights=None, weights_backbone=None)
    heads = net.roi_heads
    for last, bias in (
        (heads.box_predictor.cls_score, torch.eye(91)[categories().index("truck")]),
        (heads.mask_predictor.mask_fcn_logits, torch.ones(91)),
    ):
        torch.nn.init.zeros_(last.weight)
        last.bias.data = 9 * bias
    torch.save(net.state_dict(), path := tmp_path / "random.pth")
    with refused(r"random.pth: wrong hash: expected sha256 \w+"):
        load_network(CPU, path)
    net = load_network(CPU, path, file_sha256(path)[:16])
    net.transform.min_size = (64,)  # smaller than published, to be faster
    photo = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    mask = largest_instance(net, photo, class_indices(["truck"]))
    assert mask.shape == (30, 40) and set(np.unique(mask)) == {0, 255}


def test_categories_are_checked():
    with refused("unknown category 'trcuk'; did you mean truck"):
        class_indices(["car", "trcuk"])
    assert class_indices(["car", "truck"]).tolist() == [3, 8]
