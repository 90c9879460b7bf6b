"""Measuring models on ImageNet-W: gaps of models with known predictions, and photos as users have
them."""

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from torchvision import models
from torchvision.transforms import functional as F
from typer.testing import CliRunner

from diagvib.cli import app
from diagvib.foundation.errors import DiagvibError
from diagvib.imagenet_w import classifiers, evaluation
from diagvib.imagenet_w.classifiers import load_classifier, own_preprocessing
from diagvib.imagenet_w.evaluation import evaluate, versions
from diagvib.imagenet_w.measures import MEASURES, measure
from diagvib.imagenet_w.photo_sets import Folders, photo_sets
from diagvib.imagenet_w.photos import Preprocessing, list_photos, read_batches
from diagvib.imagenet_w.tables import lines, note, read_imagenet_w_tables, table
from imagenet_w_photos import CARTON, CLASSES, cjk_font, write_photos

CPU = torch.device("cpu")
SIZE = 64


@pytest.fixture(scope="module")
def font():
    return cjk_font()


def model(name: str, n_classes: int = len(CLASSES)):
    return load_classifier(f"imagenet_w_photos:{name}", None, n_classes, CPU, SIZE)


def measured(name: str, folders: Folders, font, kept) -> dict:
    return evaluate(model(name), photo_sets(folders), font, kept, 1)


# 4 classes of 3 photos. Percent and points.
KNOWN = {
    "blind": {
        "in1k_accuracy": 100,
        "in_w_gap": 0,
        "carton_gap": 0,
        "p_carton": 25,
        "delta_p_carton": 0,
        "delta_p_carton_given_carton": 0,
    },
    "follower": {
        "in1k_accuracy": 100,
        "in_w_gap": -75,
        "carton_gap": 0,
        "p_carton": 25,
        "delta_p_carton": 75,
        "delta_p_carton_given_carton": 0,
    },
    "only_by_watermark": {
        "in1k_accuracy": 75,
        "in_w_gap": -50,
        "carton_gap": 100,
        "p_carton": 0,
        "delta_p_carton": 100,
        "delta_p_carton_given_carton": 100,
    },
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_model_that_follows_the_watermark_has_the_known_gaps_and_a_blind_one_none(
    tmp_path, font, name
):
    found = measured(name, Folders(write_photos(tmp_path / "val")), font, tmp_path / "kept")
    assert {key: found[key] for key in KNOWN[name]} == pytest.approx(KNOWN[name], abs=1e-4)
    assert found["sin_gap"] is found["in_r_gap"] is found["in_9_gap"] is None
    assert found["photos"] == {"in_1k": 12, "in_w": 12}


def write_nine(root, shift: int):
    """ImageNet-9 with two classes: mixed-same matches the classes, mixed-rand is moved by
    `shift`."""
    for name, moved in (("mixed_same", 0), ("mixed_rand", shift)):
        write_photos(root / name / "val", ("00_first", "01_second"), shift=moved)
    (root / "in_to_in9.json").write_text(json.dumps({"0": 0, "1": 1, "2": -1, "3": 1}))
    return root


def test_gaps_of_other_sets_are_those_of_the_answers(tmp_path, font):
    """Stylised photos all read as the next class; one of ImageNet-R's two classes does."""
    write_photos(tmp_path / "val")
    write_photos(tmp_path / "sin", shift=1)
    write_photos(tmp_path / "in_r", CLASSES[:2], each=2)
    write_photos(tmp_path / "extra", CLASSES[1:2], each=2, shift=0)  # reads as class 0
    for path in (tmp_path / "extra" / CLASSES[1]).iterdir():
        path.rename(tmp_path / "in_r" / CLASSES[1] / f"other_{path.name}")
    found = measured(
        "blind",
        Folders(
            tmp_path / "val",
            tmp_path / "sin",
            tmp_path / "in_r",
            write_nine(tmp_path / "in_9", shift=1),
        ),
        font,
        tmp_path / "kept",
    )
    assert found["sin_gap"] == -100
    assert found["in_r_gap"] == pytest.approx(100 * (4 / 6 - 1), abs=1e-4)
    # Mixed-rand: the first class reads as class 1, of the second nine; the second as class 2, of
    # none.
    assert found["in_9_gap"] == -100


def test_on_imagenet_r_only_its_classes_compete():
    """A model that prefers class 3, then 0 on a photo of class 0: right if only 0 and 1 compete."""
    clean = pd.DataFrame(
        {
            "row": [0, 1],
            "label": [0, 3],
            "predicted": [3, 3],
            "p_carton": [0.1, 0.3],
            "predicted_among": [0, 1],
        }
    )
    renditions = pd.DataFrame(
        {"row": [0, 1], "label": [0, 1], "predicted": [3, 3], "predicted_among": [0, 0]}
    )
    found = measure({"in_1k": clean, "in_w": clean, "in_r": renditions}, carton=3)
    assert found["in_r_gap"] == -50 and found["in1k_accuracy"] == 50


def test_the_watermark_comes_after_the_crop_and_before_normalisation(tmp_path, font):
    """A photo's full path to a prediction, compared with plain PIL and torchvision."""
    (tmp_path / CARTON).mkdir()
    photo = np.random.default_rng(0).integers(0, 256, (300, 410, 3), dtype=np.uint8)
    Image.fromarray(photo).save(tmp_path / CARTON / "0.png")
    chosen, preprocessing = next(photo_sets(Folders(tmp_path))), Preprocessing()
    read = next(read_batches(chosen.photos, preprocessing, 1, 1))
    ours = dict(versions(chosen, read.pixels, preprocessing, font))
    image = F.center_crop(F.resize(Image.fromarray(photo), 256), 224).convert("RGBA")
    layer = Image.new("RGBA", image.size, (255, 255, 255, 0))
    face = ImageFont.truetype(font.path, 36, font.index, layout_engine=ImageFont.Layout.BASIC)
    ImageDraw.Draw(layer).text((2.24, 0.4 * 224), "捷径捷径捷径", (255, 255, 255, 128), face)
    marked = Image.alpha_composite(image, layer).convert("RGB")
    for name, shown in (("in_1k", image.convert("RGB")), ("in_w", marked)):
        theirs = F.normalize(F.to_tensor(shown), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        assert torch.equal(ours[name][0], theirs)
    assert not torch.equal(ours["in_1k"], ours["in_w"])


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("resnet50", "IMAGENET1K_V1"),
        ("resnet50", "IMAGENET1K_V2"),
        ("vit_b_16", "IMAGENET1K_SWAG_E2E_V1"),
    ],
)
def test_published_weights_bring_their_own_preprocessing(monkeypatch, name, weights):
    """The network's published numbers cannot be computed here; how photos are prepared for it
    can."""
    loaded = []
    monkeypatch.setattr(
        classifiers, "load_weights", lambda *arguments: loaded.append(arguments[1:])
    )
    monkeypatch.setattr(
        models, "get_model", lambda *_, **__: torch.nn.Sequential(torch.nn.Linear(1, 1000))
    )
    network, preprocessing, chosen = classifiers._of_torchvision(name, weights, None)
    assert chosen == weights and loaded == [(name, weights, None, None)] and network.separable
    photo = Image.fromarray(
        np.random.default_rng(1).integers(0, 256, (500, 620, 3), dtype=np.uint8)
    )
    theirs = models.get_model_weights(name)[weights].transforms()(photo)
    assert torch.equal(preprocessing.inputs(preprocessing.pixels(photo)[None])[0], theirs)


def test_an_interrupted_measurement_goes_on_and_ends_with_the_same_bytes(
    tmp_path, font, monkeypatch
):
    folders = Folders(write_photos(tmp_path / "val"), write_photos(tmp_path / "sin", shift=1))
    whole = measured("follower", folders, font, tmp_path / "whole")
    answers = evaluation._answers

    def interrupted(classifier, chosen, *rest):
        if "sin" in chosen.names:
            raise KeyboardInterrupt
        return answers(classifier, chosen, *rest)

    monkeypatch.setattr(evaluation, "_answers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured("follower", folders, font, tmp_path / "kept")
    assert sorted(os.listdir(tmp_path / "kept")) == ["in_1k.parquet", "in_w.parquet"]
    measured_again = []
    monkeypatch.setattr(
        evaluation,
        "_answers",
        lambda classifier, chosen, *rest: (
            measured_again.append(chosen.names),
            answers(classifier, chosen, *rest),
        )[1],
    )
    assert measured("follower", folders, font, tmp_path / "kept") == whole
    assert measured_again == [("sin",)]
    for file in os.listdir(tmp_path / "whole"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "kept" / file).read_bytes()


def test_what_was_kept_counts_for_the_same_model_photos_and_font_alone(tmp_path, font):
    folders = Folders(write_photos(tmp_path / "val"))
    assert measured("blind", folders, font, tmp_path / "kept")["in_w_gap"] == 0
    network = model("blind")
    with torch.no_grad():
        network.network.body.certainty.fill_(-20)  # the same model, with other parameters
    other = replace(network, digest=classifiers._digest(network.network, network.preprocessing))
    assert evaluate(other, photo_sets(folders), font, tmp_path / "kept", 1)["in1k_accuracy"] == 0
    (tmp_path / "val" / CLASSES[0] / "0.png").unlink()
    assert measured("blind", folders, font, tmp_path / "kept")["photos"]["in_1k"] == 11
    (tmp_path / "kept" / "in_w.parquet").write_bytes(b"damaged")
    assert measured("blind", folders, font, tmp_path / "kept")["photos"]["in_w"] == 11


def test_photos_of_every_mode_are_read_and_broken_files_are_named(tmp_path, font, capfd):
    root = write_photos(tmp_path / "val")
    folder, photo = root / CLASSES[0], Image.new("RGB", (70, 90), (10, 10, 10))
    for mode, name in (
        ("L", "grey.png"),
        ("P", "palette.gif"),
        ("RGBA", "alpha.png"),
        ("CMYK", "cmyk.jpg"),
        ("1", "bits.png"),
        ("RGB", "quality.jpeg"),
    ):
        photo.convert(mode).save(folder / name)
    (folder / "empty.jpg").touch()
    (folder / "text.png").write_text("no photo")
    whole = (folder / "quality.jpeg").read_bytes()
    (folder / "cut.jpeg").write_bytes(whole[: len(whole) // 2])
    found = measured("blind", Folders(root), font, tmp_path / "kept")
    assert found["photos"] == {"in_1k": 18, "in_w": 18} and found["in1k_accuracy"] == 100
    supervision = [line for line in capfd.readouterr().err.splitlines() if "left out" in line]
    assert [line.split(":")[0].rpartition("/")[2] for line in supervision] == [
        "cut.jpeg",
        "empty.jpg",
        "text.png",
    ]
    assert "it is empty" in supervision[1]


def test_photos_are_read_as_they_are_asked_for_and_no_further(tmp_path, capfd):
    """Only the first batch of 60 photos is read; photos long after it, which would be reported, are
    not opened."""
    folder = tmp_path / CARTON
    folder.mkdir()
    for number in range(60):
        path = folder / f"{number:02d}.png"
        _ = Image.new("RGB", (20, 20), (number,) * 3).save(path) if number < 30 else path.touch()
    batches = read_batches(list_photos(tmp_path), own_preprocessing(16), 4, 2)
    first = next(batches)
    assert (
        first.pixels.shape == (4, 3, 16, 16)
        and first.rows.tolist() == [0, 1, 2, 3]
        and first.seen == 4
    )
    batches.close()
    assert "left out" not in capfd.readouterr().err
    order = np.arange(60)[::-1]
    rest = list(read_batches(list_photos(tmp_path), own_preprocessing(16), 7, 3, order, start=25))
    assert np.concatenate([batch.rows for batch in rest]).tolist() == order[30:].tolist()
    assert [int(value) for batch in rest for value in batch.pixels[:, 0, 0, 0]] == order[
        30:
    ].tolist()
    assert [batch.seen for batch in rest] == [37, 44, 51, 58, 60]


def test_a_folder_without_a_photo_is_an_error(tmp_path):
    (tmp_path / CARTON).mkdir()
    (tmp_path / CARTON / "text.png").write_text("no photo")
    with pytest.raises(DiagvibError, match="none of its 1 files can be used"):
        list(read_batches(list_photos(tmp_path), own_preprocessing(16), 4, 1))


def run(*arguments) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["imagenet-w", *map(str, arguments)])
    return done.exit_code, str(done.exception or done.output)


def test_the_command_measures_models_and_writes_its_tables(tmp_path, font):
    val = write_photos(tmp_path / "val")
    given = (
        val,
        "--model",
        "imagenet_w_photos:follower",
        "--model",
        "imagenet_w_photos:blind",
        "--size",
        SIZE,
        "--font",
        font.path,
        "--out",
        tmp_path / "out",
        "--device",
        "cpu",
    )
    code, said = run(*given)
    assert code == 0, said
    assert "-75.00" in said and "IN-W gap" in said and font.family in said.replace("\n", " ")
    assert not (tmp_path / "out/results/tables/last_layer.csv").exists()
    found = pd.read_csv(tmp_path / "out/results/tables/models.csv")
    assert found["in_w_gap"].tolist() == [-75, 0] and set(found["font"]) == {font.name}
    results = json.loads((tmp_path / "out/results/tables/models.json").read_text())["results"]
    assert [result["in_w_gap"] for result in results] == [-75, 0]
    before = {path: path.read_bytes() for path in (tmp_path / "out/results").rglob("*.*")}
    assert run(*given)[0] == 0
    assert before == {path: path.read_bytes() for path in (tmp_path / "out/results").rglob("*.*")}


@pytest.mark.parametrize(
    ("make", "arguments", "says"),
    [
        (
            lambda root: None,
            ["--model", "resnet50"],
            "val: no such folder; name one in ImageNet's layout",
        ),
        (lambda root: (root / "val").mkdir(), ["--model", "resnet50"], "has no class folders"),
        (
            lambda root: write_photos(root / "val", CLASSES[:2]),
            ["--model", "resnet50"],
            f"lacks the class folder {CARTON}",
        ),
        (
            lambda root: write_photos(root / "val"),
            ["--model", "resnet55"],
            "'resnet55'; did you mean resnet50",
        ),
        (
            lambda root: write_photos(root / "val"),
            ["--model", "resnet50", "--weights", "V9"],
            "unknown weights of",
        ),
        (
            lambda root: write_photos(root / "val"),
            ["--model", "small_cnn"],
            "small_cnn has no published weights",
        ),
        (
            lambda root: write_photos(root / "val"),
            ["--model", "small_cnn", "--weights", "no.pt"],
            "no.pt: no such file",
        ),
        (
            lambda root: write_photos(root / "val"),
            ["--model", "a", "--model", "b", "--weights", "c"],
            "given 1 times",
        ),
        (
            lambda root: write_photos(root / "val"),
            ["--model", "timm/resnet99"],
            "unknown timm model 'resnet99'",
        ),
    ],
)
def test_what_cannot_be_measured_is_said(tmp_path, font, make, arguments, says):
    make(tmp_path)
    code, said = run(tmp_path / "val", *arguments, "--out", tmp_path / "out")
    assert code == 1 and says in said


def test_a_thousand_classes_need_a_thousand_folders(tmp_path, font, monkeypatch):
    monkeypatch.setattr(classifiers, "load_weights", lambda *_: None)
    with pytest.raises(
        DiagvibError, match=r"resnet18 has 1,000 classes, but the validation folder has 4 class"
    ):
        load_classifier("resnet18", None, 4, CPU)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("resnet18", lambda: models.get_model("resnet18", num_classes=4)),
        (
            "timm/resnet10t",
            lambda: pytest.importorskip("timm").create_model("resnet10t", num_classes=4),
        ),
    ],
)
def test_own_checkpoints_of_known_networks_are_loaded(tmp_path, name, make):
    net = make().eval()
    torch.save(net.state_dict(), tmp_path / "own.pth")
    found = load_classifier(name, str(tmp_path / "own.pth"), 4, CPU, 64)
    images = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(found.network(images), net(images))
    assert (
        found.weights == "own.pth"
        and found.preprocessing.crop == 64
        and found.preprocessing.resize == 73
    )
    with pytest.raises(
        DiagvibError, match=f"own.pth: holds no weights of {name} for the 5 class folders"
    ):
        load_classifier(name, str(tmp_path / "own.pth"), 5, CPU, 64)


def test_an_absent_mapping_of_the_nine_classes_is_said(tmp_path, font):
    write_photos(tmp_path / "val")
    (write_nine(tmp_path / "in_9", 1) / "in_to_in9.json").unlink()
    with pytest.raises(
        DiagvibError, match="in_to_in9.json: no such file; it comes with ImageNet-9"
    ):
        list(photo_sets(Folders(tmp_path / "val", in_9=tmp_path / "in_9")))


def test_a_thousand_folders_that_are_not_imagenets_are_refused(tmp_path):
    for number in range(999):
        (tmp_path / f"n0{number:07d}").mkdir()
    (tmp_path / CARTON).mkdir()
    with pytest.raises(DiagvibError, match=r"\(carton\) is folder 999 of 1000, not 478"):
        next(photo_sets(Folders(tmp_path)))


def test_a_class_that_imagenet_lacks_is_refused(tmp_path):
    write_photos(tmp_path / "val")
    write_photos(tmp_path / "sin", (*CLASSES, "n99999999"))
    with pytest.raises(DiagvibError, match="n99999999: this is not one of the 4 classes"):
        list(photo_sets(Folders(tmp_path / "val", tmp_path / "sin")))


def result(**changed) -> dict:
    return {
        "model": "resnet50",
        "weights": "IMAGENET1K_V1",
        "classes": 1000,
        "font": "Some font",
        "photos": {"in_1k": 9},
        "published_font": True,
        **dict.fromkeys(MEASURES, 1.5),
        **changed,
    }


def test_the_papers_numbers_stand_beside_the_same_model_alone():
    assert table("models", [result()])["paper_in_w_gap"].tolist() == [-26.7]
    both = table("models", [result(model="vit_b_32")]).iloc[0]
    assert (both["paper_in_w_gap"], both["paper_sin_gap"]) == (-8.71, -57.16), "Table 6"
    assert both["paper_delta_p_carton"] == 1.2, "Table 1"
    for other in (result(model="resnet18"), result(weights="IMAGENET1K_V2")):
        assert table("models", [other])["paper_in_w_gap"].isna().all()
    assert table("models", [result()], stand_ins=True)["paper_in_w_gap"].isna().all()
    trained = result(
        method="lle",
        learning_rate=1e-3,
        epochs=90,
        batch_size=1024,
        accuracies={"0.01": 70.0, "0.001": 76.0, "0.0001": 75.0},
    )
    assert table("last_layer", [trained])["paper_carton_gap"].tolist() == [10]
    for changed in ({"epochs": 9}, {"batch_size": 512}, {"accuracies": {"0.001": 76.0}}):
        assert table("last_layer", [{**trained, **changed}])["paper_carton_gap"].isna().all()
    _, rows = lines("last_layer", [trained])
    assert rows[1][:1] == ["paper"] and rows[1][4:7] == ["76.25", "-6.18", "+10.00"]
    assert "only an imitation" in note([result(published_font=False)]) and "imitation" not in note(
        [result()]
    )


def test_the_papers_tables_are_whole(mirror):
    known = read_imagenet_w_tables()
    for number, ours in known[known["table"] != 4].groupby("table"):
        theirs = pd.read_csv(mirror / f"paper/imagenet_w_table{number}.csv")
        theirs = theirs[theirs.iloc[:, 0] != "average"]
        metrics = [name for name in MEASURES if name in theirs]
        rows = ours.pivot_table("value", ["model", "weights", "method"], "metric", sort=False)
        assert sorted(rows[metrics].to_numpy().tolist()) == sorted(
            theirs[metrics].to_numpy().tolist()
        )
    four = known[known["table"] == 4].pivot(index="method", columns="metric", values="value")
    assert four.shape == (14, 6) and not four.isna().any(axis=None)
    assert four.loc["erm", "in_w_gap"] == -25.4 and four.loc["lle", "sin_gap"] == -61
