"""Masks for photos that have none, from a real Mask R-CNN with random weights except for its chosen
answers."""

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256
from diagvib.models.cutout import (
    MODEL,
    categories,
    class_indices,
    cut_out_photos,
    largest_instance,
    load_network,
    without_mask,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A weights file with which every region is a truck, and all of a region belongs to it."""
    torch.manual_seed(0)
    net = torchvision.models.get_model(MODEL, weights=None, weights_backbone=None)
    torch.nn.init.zeros_(net.roi_heads.box_predictor.cls_score.weight)
    net.roi_heads.box_predictor.cls_score.bias.data = torch.where(
        torch.arange(91) == categories().index("truck"), 9.0, 0.0
    )
    net.roi_heads.mask_predictor.mask_fcn_logits.bias.data.fill_(9.0)
    torch.nn.init.zeros_(net.roi_heads.mask_predictor.mask_fcn_logits.weight)
    path = tmp_path_factory.mktemp("weights") / "random.pth"
    torch.save(net.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def net(weights):
    return load_network(CPU, weights, file_sha256(weights)[:16], 64)


@pytest.fixture
def folder(tmp_path):
    """Three photos that need a mask, one that has one, one that is transparent, and one file that
    is not a photo."""
    generator = np.random.default_rng(0)
    for name in ("a.jpg", "b.jpg", "c.png"):
        Image.fromarray(generator.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(
            tmp_path / name
        )
    (tmp_path / "urban").mkdir()
    Image.fromarray(generator.integers(0, 256, (40, 30), dtype=np.uint8)).save(
        tmp_path / "urban" / "grey.png"
    )
    Image.fromarray(np.zeros((48, 64), np.uint8)).save(tmp_path / "b.mask.png")
    Image.fromarray(np.zeros((8, 8, 4), np.uint8)).save(tmp_path / "urban" / "cut.png")
    (tmp_path / "text.jpg").write_text("no photo")
    return tmp_path


def test_photos_that_need_a_mask_get_one(folder, net, capsys):
    photos = without_mask(folder)
    assert [str(path.relative_to(folder)) for path in photos] == [
        "a.jpg",
        "c.png",
        "urban/grey.png",
    ]
    assert capsys.readouterr().err.startswith(f"{folder / 'text.jpg'}: left out, not an image")
    done, before = [], (folder / "b.mask.png").read_bytes()
    assert cut_out_photos(net, photos, ["car", "truck"], CPU, done.append) == 3
    assert done == [1, 1, 1] and without_mask(folder) == []
    for path in photos:
        mask = np.asarray(Image.open(path.with_suffix(".mask.png")))
        assert (
            mask.shape == np.asarray(Image.open(path)).shape[:2]
            and set(np.unique(mask)) <= {0, 255}
            and mask.any()
        )
    assert (folder / "b.mask.png").read_bytes() == before


def test_what_shows_nothing_of_the_kind_is_named(folder, net, capsys):
    assert cut_out_photos(net, [folder / "a.jpg"], ["horse"], CPU) == 0
    assert (
        capsys.readouterr().err
        == f"{folder / 'a.jpg'}: left out, because no horse was found in it\n"
    )
    assert not (folder / "a.mask.png").exists()


def test_the_largest_sure_instance_is_taken():
    masks = torch.zeros(4, 1, 6, 6)
    masks[0, 0, :2], masks[1, 0, :3], masks[2, 0, :5], masks[3, 0] = 0.9, 0.9, 0.9, 0.9
    found = {
        "labels": torch.tensor([3, 8, 8, 17]),
        "scores": torch.tensor([0.9, 0.8, 0.3, 0.9]),
        "masks": masks,
    }

    def net(pixels):
        assert pixels[0].shape == (3, 6, 6) and pixels[0].min() >= 0 and pixels[0].max() == 1
        return [found]

    mask = largest_instance(net, np.full((6, 6, 3), 255, np.uint8), torch.tensor([3, 8]))
    assert mask.dtype == np.uint8 and mask.tolist() == [[255] * 6] * 3 + [[0] * 6] * 3
    found["scores"] = torch.full((4,), 0.4)
    assert largest_instance(net, np.full((6, 6, 3), 255, np.uint8), torch.tensor([3, 8])) is None


def test_weights_and_categories_are_checked(weights, tmp_path):
    with pytest.raises(DiagvibError, match="unknown category 'trcuk'; did you mean truck"):
        class_indices(["car", "trcuk"])
    assert class_indices(["car", "truck"]).tolist() == [3, 8]
    with pytest.raises(DiagvibError, match=r"random.pth: wrong hash: expected sha256 \w+"):
        load_network(CPU, weights)
    with pytest.raises(DiagvibError, match="absent.pth: no such file"):
        load_network(CPU, tmp_path / "absent.pth")
