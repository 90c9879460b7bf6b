"""Measuring models on ImageNet-W: gaps of models with known predictions, and photos as users have
them."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image, ImageDraw, ImageFont
from torchvision import models
from torchvision.transforms import functional as F
from typer.testing import CliRunner

from diagvib.cli import app
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path, read_yaml
from diagvib.foundation.validation import validated
from diagvib.imagenet_w import classifiers, evaluation
from diagvib.imagenet_w.classifiers import load_classifier, own_preprocessing
from diagvib.imagenet_w.evaluation import evaluate, versions
from diagvib.imagenet_w.photo_sets import MEASURES, measure, photo_sets
from diagvib.imagenet_w.photos import Preprocessing, list_photos, read_photos
from diagvib.imagenet_w.settings import Configuration
from diagvib.imagenet_w.tables import read_imagenet_w_tables, shown_table, table
from imagenet_w_photos import CARTON, CLASSES, cjk_font, write_photos

CPU = torch.device("cpu")
SIZE = 64


@pytest.fixture(scope="module")
def font():
    return cjk_font()


def model(name: str, n_classes: int = len(CLASSES)):
    return load_classifier(f"imagenet_w_photos:{name}", None, n_classes, CPU, SIZE)


def measured(name: str, folders: dict, font, kept) -> dict:
    return evaluate(model(name), photo_sets(folders), font, kept, 1)


def folders(top, *others) -> dict:
    return {"val": write_photos(top / "val"), **{name: top / name for name in others}}


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
    found = measured(name, folders(tmp_path), font, tmp_path / "kept")
    assert {key: found[key] for key in KNOWN[name]} == pytest.approx(KNOWN[name], abs=1e-4)
    assert found["sin_gap"] is found["in_r_gap"] is found["in_9_gap"] is None
    assert found["photos"] == {"in_1k": 12, "in_w": 12}
    if name == "blind":
        assert found["p_carton_factor"] == 1 and found["carton_rank"] == 1
    else:
        assert found["p_carton_factor"] > 1e6 and found["carton_rank"] == 1


class Raises(torch.nn.Module):
    """Doubles the odds of carton, and quadruples those of the first 3 of 1,000 classes, where there
    is a watermark."""

    def __init__(self):
        super().__init__()
        self.nothing = torch.nn.Parameter(torch.zeros(()))

    def forward(self, inputs):
        marked = inputs.flatten(1).max(1).values > -1
        logits = torch.zeros(len(inputs), 1000) + self.nothing
        logits[marked, 478] += np.log(2)
        logits[marked, :3] += np.log(4)
        return logits


def raises(n_classes, image_size):
    return Raises()


def test_any_folder_of_photos_has_the_cartons_probability_but_no_accuracy(tmp_path, font):
    """Also without cartons; of nested folders, and with a file that is no photo."""
    write_photos(tmp_path / "holiday", ("beach", "hills"))
    (tmp_path / "holiday" / "notes.txt").write_text("no photo")
    classifier = load_classifier("test_imagenet_w:raises", None, 1000, CPU, SIZE)
    sets = photo_sets({"val": tmp_path / "holiday"})
    found = evaluate(classifier, sets, font, tmp_path / "kept", 1)
    factor = 2 / ((996 + 2 + 12) / 1000)
    assert found["p_carton"] == pytest.approx(0.1) and found["carton_rank"] == 4
    assert found["p_carton_factor"] == pytest.approx(factor, abs=1e-4)
    assert found["delta_p_carton"] == pytest.approx(0.1 * (factor - 1), abs=1e-5)
    assert found["photos"] == {"in_1k": 6, "in_w": 6}
    for name in ("in1k_accuracy", "in_w_gap", "carton_gap", "sin_gap"):
        assert found[name] is None
    with pytest.raises(DiagvibError, match="has no class folders, which the other sets need"):
        list(photo_sets({"val": tmp_path / "holiday", "sin": tmp_path}))


def write_nine(root, shift: int):
    """ImageNet-9 with two classes: mixed-same matches the classes, mixed-rand is moved by
    `shift`."""
    for name, moved in (("mixed_same", 0), ("mixed_rand", shift)):
        write_photos(root / name / "val", ("00_first", "01_second"), shift=moved)
    (root / "in_to_in9.json").write_text(json.dumps({"0": 0, "1": 1, "2": -1, "3": 1}))
    return root


def test_gaps_of_other_sets_are_those_of_the_answers(tmp_path, font):
    """Stylised photos all read as the next class; one of ImageNet-R's two classes does."""
    write_photos(tmp_path / "sin", shift=1)
    write_photos(tmp_path / "in_r", CLASSES[:2], each=2)
    write_photos(tmp_path / "extra", CLASSES[1:2], each=2, shift=0)  # reads as class 0
    for path in (tmp_path / "extra" / CLASSES[1]).iterdir():
        path.rename(tmp_path / "in_r" / CLASSES[1] / f"other_{path.name}")
    write_nine(tmp_path / "in_9", shift=1)
    given = folders(tmp_path, "sin", "in_r", "in_9")
    found = measured("blind", given, font, tmp_path / "kept")
    assert found["sin_gap"] == -100
    assert found["in_r_gap"] == pytest.approx(100 * (4 / 6 - 1), abs=1e-4)
    # Mixed-rand: the first class reads as class 1, of the second nine; the second as class 2, of
    # none.
    assert found["in_9_gap"] == -100


def test_on_imagenet_r_only_its_classes_compete():
    """A model that prefers class 3, then 0 on a photo of class 0: right if only 0 and 1 compete."""
    known = {"log_p_carton": [0, 0], "classes_raised_more": [0, 0]}
    clean = pd.DataFrame({"label": [0, 3], "predicted": [3, 3], "predicted_among": [0, 1], **known})
    renditions = pd.DataFrame(
        {"label": [0, 1], "predicted": [3, 3], "predicted_among": [0, 0], **known}
    )
    found = measure({"in_1k": clean, "in_w": clean, "in_r": renditions}, carton=3)
    assert found["in_r_gap"] == -50 and found["in1k_accuracy"] == 50


def test_the_watermark_comes_after_the_crop_and_before_normalisation(tmp_path, font):
    """A photo's full path to a prediction, compared with plain PIL and torchvision."""
    (tmp_path / CARTON).mkdir()
    photo = np.random.default_rng(0).integers(0, 256, (300, 410, 3), dtype=np.uint8)
    Image.fromarray(photo).save(tmp_path / CARTON / "0.png")
    chosen, preprocessing = next(photo_sets({"val": tmp_path})), Preprocessing()
    pixels, _ = next(read_photos(chosen.photos, np.arange(1), preprocessing, 1, 1))
    shown = versions(chosen, pixels, font)
    ours = {name: preprocessing.inputs(each) for name, each in shown.items()}
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
    write_photos(tmp_path / "sin", shift=1)
    given = folders(tmp_path, "sin")
    whole = measured("follower", given, font, tmp_path / "whole")
    write_views, asked = evaluation.write_views, []

    def interrupted(classifier, photos, *rest):
        if photos.root.name == "sin":
            raise KeyboardInterrupt
        return write_views(classifier, photos, *rest)

    monkeypatch.setattr(evaluation, "write_views", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured("follower", given, font, tmp_path / "kept")
    monkeypatch.setattr(evaluation, "write_views", write_views)
    read = evaluation.read_photos

    def reading(photos, *rest):
        asked.append(photos.root.name)
        return read(photos, *rest)

    monkeypatch.setattr(evaluation, "read_photos", reading)
    assert measured("follower", given, font, tmp_path / "kept") == whole
    assert asked == ["sin"]
    for file in (tmp_path / "whole").iterdir():
        assert file.read_bytes() == (tmp_path / "kept" / file.name).read_bytes()


def test_what_was_kept_counts_for_the_same_model_photos_and_font_alone(tmp_path, font):
    given = folders(tmp_path)
    assert measured("blind", given, font, tmp_path / "kept")["in_w_gap"] == 0
    other = model("blind")
    with torch.no_grad():
        other.network.body.certainty.fill_(-20)  # the same model, with other parameters
    other = replace(other, digest="another")
    assert evaluate(other, photo_sets(given), font, tmp_path / "kept", 1)["in1k_accuracy"] == 0
    (tmp_path / "val" / CLASSES[0] / "0.png").unlink()
    assert measured("blind", given, font, tmp_path / "kept")["photos"]["in_1k"] == 11
    (tmp_path / "kept" / "in_w.npy").write_bytes(b"damaged")
    assert measured("blind", given, font, tmp_path / "kept")["photos"]["in_w"] == 11


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
    found = measured("blind", {"val": root}, font, tmp_path / "kept")
    assert found["photos"] == {"in_1k": 18, "in_w": 18} and found["in1k_accuracy"] == 100
    supervision = [line for line in capfd.readouterr().err.splitlines() if "left out" in line]
    assert [line.split(":")[0].rpartition("/")[2] for line in supervision] == [
        "cut.jpeg",
        "empty.jpg",
        "text.png",
    ]
    assert "it is empty" in supervision[1]


def test_photos_are_read_as_they_are_asked_for_and_no_further(tmp_path, capfd):
    """Only the first batches of 60 photos are read; files long after them, which would be reported,
    are not opened."""
    (tmp_path / CARTON).mkdir()
    for number in range(60):
        path = tmp_path / CARTON / f"{number:02d}.png"
        _ = Image.new("RGB", (20, 20), (number,) * 3).save(path) if number < 30 else path.touch()
    photos, preprocessing = list_photos(tmp_path), own_preprocessing(16)
    batches = read_photos(photos, np.arange(60), preprocessing, 4, 2)
    pixels, usable = next(batches)
    batches.close()
    assert pixels.shape == (4, 3, 16, 16) and usable.all()
    assert "left out" not in capfd.readouterr().err
    order = np.arange(60)[::-1]
    rest = list(read_photos(photos, order[25:], preprocessing, 8, 3))
    assert [len(usable) for _, usable in rest] == [8, 8, 8, 8, 3]
    shown = torch.cat([pixels[usable, 0, 0, 0] for pixels, usable in rest])
    assert shown.tolist() == order[30:].tolist()


def test_a_folder_without_a_photo_is_an_error(tmp_path):
    for name in CLASSES:
        (tmp_path / name).mkdir()
    (tmp_path / CARTON / "text.png").write_text("no photo")
    with pytest.raises(DiagvibError, match="none of its 1 images can be used"):
        measured("blind", {"val": tmp_path}, cjk_font(), tmp_path / "kept")


def run(*arguments) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["imagenet-w", *map(str, arguments)])
    return done.exit_code, str(done.exception or done.output)


def test_the_command_measures_models_and_writes_its_tables(tmp_path, font):
    val = write_photos(tmp_path / "val")
    models = ["--model", "imagenet_w_photos:follower", "--model", "imagenet_w_photos:blind"]
    out = ("--size", SIZE, "--font", font.path, "--out", tmp_path / "out", "--device", "cpu")
    given = (val, *models, *out)
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


WRONG_COMMANDS = [
    (None, "resnet50", "val: no such folder; name a folder of photos"),
    ((), "resnet50", "val: has no photos"),
    (CLASSES[:2], "resnet50", f"lacks the class folder {CARTON}"),
    (CLASSES, "resnet55", "'resnet55'; did you mean resnet50"),
    (CLASSES, "resnet50 --weights V9", "unknown weights of"),
    (CLASSES, "small_cnn --weights no.pt", "no.pt: no such file"),
    (CLASSES, "a --model b --weights c", "given 1 times"),
    (CLASSES, "timm/resnet99", "unknown timm model 'resnet99'"),
    (CLASSES, "a --config mine.yaml", "--config names photos and models itself"),
]


@pytest.mark.parametrize(("classes", "model", "says"), WRONG_COMMANDS)
def test_what_cannot_be_measured_is_said(tmp_path, font, classes, model, says):
    if classes is not None:
        (tmp_path / "val").mkdir()
        write_photos(tmp_path / "val", classes)
    code, said = run(tmp_path / "val", "--model", *model.split(), "--out", tmp_path / "out")
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
    with pytest.raises(DiagvibError, match="own.pth: holds the weights of another model"):
        load_classifier(name, str(tmp_path / "own.pth"), 5, CPU, 64)


def test_a_thousand_folders_that_are_not_imagenets_are_refused(tmp_path):
    for number in range(999):
        (tmp_path / f"n0{number:07d}").mkdir()
    write_photos(tmp_path, (CARTON,))
    with pytest.raises(DiagvibError, match=r"\(carton\) is folder 999 of 1000, not 478"):
        next(photo_sets({"val": tmp_path}))


def test_a_class_that_imagenet_lacks_is_refused(tmp_path):
    write_photos(tmp_path / "val")
    write_photos(tmp_path / "sin", (*CLASSES, "n99999999"))
    with pytest.raises(DiagvibError, match="n99999999: this is not one of the 4 classes"):
        list(photo_sets({"val": tmp_path / "val", "sin": tmp_path / "sin"}))


def result(**changed) -> dict:
    return {
        "model": "resnet50",
        "weights": "IMAGENET1K_V1",
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
    rows = shown_table("last_layer", [trained]).rows
    assert rows[1][:1] == ["paper"] and rows[1][4:7] == ["76.25", "-6.18", "+10.00"]
    for published in (True, False):
        notes = shown_table("models", [result(published_font=published)]).notes
        assert ("only an imitation" in " ".join(notes)) is not published


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


SMALL = {
    "name": "diagvib.imagenet_w.small_net:small_net",
    "weights": "toy/data/small_net.pt",
    "size": 112,
}
TOY = {
    "root": "toy",
    "stand_ins": {"train": 30, "val": 10, "size": 112},
    "threads": 1,
    "device": "cpu",
    "models": [SMALL],
    "last_layer": {
        "model": SMALL,
        "methods": ["erm", "watermark_augmentation", "lle"],
        "epochs": 20,
        "batch_size": 32,
        "learning_rates": [0.1],
    },
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Everything at toy size, once, with a bold font that a small network sees."""
    folder = tmp_path_factory.mktemp("imagenet_w")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "toy.yaml").write_text(yaml.safe_dump({**TOY, "font": str(cjk_font().path)}))
        code, said = run("--config", "toy.yaml")
        assert code == 0, said
    return folder / "toy", said


def test_methods_that_know_the_watermark_mend_what_a_small_net_does_with_it(made):
    models_ = pd.read_csv(made[0] / "results/tables/models.csv").iloc[0]
    assert models_["in1k_accuracy"] > 60
    assert models_["carton_gap"] > 0 and models_["p_carton_factor"] > 1.2
    methods = pd.read_csv(made[0] / "results/tables/last_layer.csv").set_index("method")
    assert list(methods.index) == ["erm", "watermark_augmentation", "lle"]
    assert methods[["sin_gap", "in_r_gap", "in_9_gap"]].notna().all(axis=None)


def test_tables_say_what_they_were_made_from(made):
    for name in ("models", "last_layer"):
        text = (made[0] / f"results/tables/{name}.md").read_text()
        assert "not comparable to the paper" in text and cjk_font().name in text
        assert "| paper |" not in text
    result = json.loads((made[0] / "results/last_layer/lle.json").read_text())
    assert result["font"] == cjk_font().name and str(made[0]) not in json.dumps(result)
    assert "Retrained last layers" in made[1]


def test_the_same_command_again_reads_no_photo(made, monkeypatch):
    monkeypatch.chdir(made[0].parent)
    monkeypatch.setattr(evaluation, "read_photos", None)
    before = {path: path.stat().st_mtime_ns for path in (made[0] / "data").rglob("*.*")}
    assert run("--config", "toy.yaml")[0] == 0
    assert before == {path: path.stat().st_mtime_ns for path in (made[0] / "data").rglob("*.*")}


WRONG = [
    ({"photos": None, "stand_ins": None}, "give either photos, your own folders, or stand_ins"),
    ({"photos": {"val": "x"}}, "give either photos, your own folders, or stand_ins"),
    ({"stand_ins": None, "photos": {"val": "x"}}, "last_layer needs training photos"),
    ({"models": [SMALL, SMALL]}, "a model is listed twice"),
    ({"model": [SMALL]}, "unknown key 'model'; did you mean models"),
    (
        {"last_layer": {"model": SMALL, "methods": ["ermm"]}},
        "last_layer.methods.0: unknown value 'ermm'; did you mean",
    ),
    (
        {"last_layer": {"model": SMALL, "methods": ["erm"], "learning_rates": [0]}},
        "last_layer.learning_rates.0",
    ),
    ({"stand_ins": {"train": 1, "val": 9}}, "stand_ins.train"),
]


@pytest.mark.parametrize(("changed", "says"), WRONG)
def test_a_wrong_configuration_is_refused_by_its_key(changed, says):
    with pytest.raises(DiagvibError, match=re.escape(says)):
        validated(Configuration, {**TOY, **changed}, "x.yaml")


@pytest.mark.parametrize("name", ["imagenet_w", "imagenet_w_demo"])
def test_the_shipped_configurations_are_valid(name):
    path = definition_path(f"{name}.yaml")
    assert validated(Configuration, read_yaml(path), str(path)).last_layer
