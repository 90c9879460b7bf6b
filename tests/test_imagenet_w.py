"""ImageNet-W: gaps of models with known predictions, by the quick command and through the stages;
photos as users have them; last layers on features of augmented photos."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import timm
import torch
import yaml
from PIL import Image
from torch import nn
from torchvision import models
from torchvision.transforms import functional as F
from typer.testing import CliRunner

from conftest import refused
from diagvib.cli import app
from diagvib.commands import imagenet_w
from diagvib.commands.imagenet_w import load_classifier, photo_set
from diagvib.commands.table import Choices, methods_table
from diagvib.foundation.files import definition_path, read_yaml
from diagvib.models.encoder import Encoder
from diagvib.models.timm_models import timm_input
from diagvib.models.torchvision_models import torchvision_input
from diagvib.papers.imagenet_w.published import imagenet_w_tables, paper_number
from diagvib.papers.imagenet_w.trades import trade_sentences
from diagvib.papers.imagenet_w.watermark import MEASURES, METRIC_SET, measure
from diagvib.results.reader_tables import metrics_of
from diagvib.results.tidy_tables import read_tables
from diagvib.scenes import load_scene
from diagvib.scenes.photos.answers import answers
from diagvib.scenes.photos.decoding import Crop
from diagvib.scenes.photos.scene import Photos
from diagvib.settings.jobs import stage_settings
from diagvib.settings.resolve import load_config
from diagvib.studies.known_studies import SHIPPED
from diagvib.training.batches import IMAGENET, Annotations, Batches
from imagenet_w_photos import CARTON, CLASSES, blind, cjk_font, write_photos
from synthetic_methods import linear
from test_watermark import plain
from toy import run_here

CPU = torch.device("cpu")
SIZE = 64


@pytest.fixture(scope="module")
def font():
    return cjk_font()


def run(*arguments) -> tuple[int, str]:
    """The quick command: its exit code, and what it says."""
    finished_part = CliRunner().invoke(app, ["imagenet-w", *map(str, arguments)])
    return finished_part.exit_code, str(finished_part.exception or finished_part.output)


def measured(names: list[str], folders: dict[str, Path], out: Path, *arguments) -> pd.DataFrame:
    """The quick command's table, by model."""
    val, *alternatives = folders.values()
    kinds = [f"--{kind.replace('_', '-')}" for kind in folders][1:]
    inputs = [part for pair in zip(kinds, alternatives, strict=True) for part in pair]
    inputs += [part for name in names for part in ("--model", name)]
    code, output = run(val, *inputs, "--size", SIZE, "--threads", 1, "--out", out, *arguments)
    assert code == 0, output
    return pd.read_csv(out / "models.csv").set_index("model")


# 4 classes of 3 photos.
PUBLISHED = {
    "blind": (1, 0, 0, 0.25, 0, 0),
    "follower": (1, -0.75, 0, 0.25, 0.75, 0),
    "only_by_watermark": (0.75, -0.5, 1, 0, 1, 1),
}


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
    """Also without cartons; of nested folders, with a file that is no photo, and another text."""
    write_photos(tmp_path / "holiday", ("beach", "hills"))
    (tmp_path / "holiday" / "notes.txt").write_text("no photo")
    out = ("--model", "test_imagenet_w:raises", "--size", SIZE, "--out", tmp_path, "--text", "##")
    _, output = run(tmp_path / "holiday", *out)
    frame = pd.read_csv(tmp_path / "models.csv").iloc[0]
    factor = 2 / ((996 + 2 + 12) / 1000)
    assert frame["p_carton"] == pytest.approx(0.001) and frame["carton_rank"] == 4
    assert frame["p_carton_factor"] == pytest.approx(factor, abs=1e-4)
    assert frame["photos"] == 6 and "notes.txt: left out" in output
    assert frame["font"].endswith("text '##'")
    assert "only an imitation" in (tmp_path / "models.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"holiday", "models.csv", "models.md"}
    assert frame[["in1k_accuracy", "in_w_gap", "carton_gap"]].isna().all()


def test_a_network_that_likes_bright_pixels_is_seen_to_look_at_the_watermark(tmp_path, font):
    names = [f"imagenet_w_photos:{name}" for name in ("bright", "blind")]
    measured(names, {"val": write_photos(tmp_path / "val")}, tmp_path / "out")
    notes = (tmp_path / "out/models.md").read_text()
    ((name, share, area),) = re.findall(
        r"(\w+): with the watermark, (\d+).% of what .* on cartons lies .*, which are (\d+)", notes
    )
    assert name == "bright" and int(share) > 1.5 * int(area) > 0
    with Image.open(tmp_path / "out/looks.png") as sheet:
        assert sheet.width > 400, "six pictures beside their names"


def write_others(top: Path) -> dict[str, Path]:
    """Stylised photos all read as the next class; so does one of ImageNet-R's two classes, and
    mixed-rand of ImageNet-9's two groups."""
    for name, shift in (("val", 0), ("sin", 1)):
        write_photos(top / name, shift=shift)
    (top / "val/labels.csv").write_text("beside the classes")
    write_photos(top / "in_r", CLASSES[:1], item=2)
    write_photos(top / "in_r", CLASSES[1:2], item=2)  # reads as class 0
    for name, shift in (("mixed_same", 0), ("mixed_rand", 1)):
        write_photos(top / "in9" / name / "val", ("00_first", "01_second"), shift=shift)
    (top / "in9/in_to_in9.json").write_text(json.dumps({"0": 0, "1": 1, "2": -1, "3": 1}))
    return {name: top / name for name in ("val", "sin", "in_r", "in9")}


ALTERNATIVES = {"sin_gap": -1, "in_r_gap": -0.5, "in_9_gap": -1}


def test_on_imagenet_r_only_its_classes_compete():
    """A model that prefers class 3, then 0 on a photo of class 0: right if only 0 and 1 compete."""
    names = {"log_p": 0.0, "raised_more": 0}
    clean = {"group": "in-1k", "label": ["0", "3"], "prediction": "3", "among": ["0", "1"], **names}
    draws = {"group": "in-r", "label": ["0", "1"], "prediction": "3", "among": "0", **names}
    measures = measure(pd.concat([pd.DataFrame(clean), pd.DataFrame(draws)]))
    assert measures["in_r_gap"] == -0.5 and measures["in1k_accuracy"] == 0.5


def test_augmix_of_the_papers_table_4_trades_the_watermark_for_cartons_and_backgrounds():
    """From the paper's numbers: what the paper says of AugMix, and nothing of methods that only narrow
    gaps or only widen them."""
    names = {"metric_set": "watermark", "study": "in-w-last-layer", "target": "class"}
    names |= {"binding": "class-watermark-photos", "cue": "watermark-photos", "model": "resnet50"}
    rows = [
        {**names, "baseline": method, "method": method, "metric": metric, "mean": value / 100}
        for method in ("erm", "augmix", "mixup", "sd", "jtt", "lle")
        for metric, value in imagenet_w_tables()["resnet50", "IMAGENET1K_V1", method].items()
    ]
    ((section, sentences),) = METRIC_SET.sentences({"metrics": pd.DataFrame(rows)}, None).items()
    first, *_, caution = sentences
    assert section == METRIC_SET.title and "one photo" in caution
    assert first == (
        "augmix, compared with erm: narrower IN-W gap (-25.40 to -23.41), SIN gap (-69.43 to -68.51), IN-R gap "
        "(-56.22 to -54.91); wider Carton gap (+30.00 to +38.00), IN-9 gap (-5.19 to -5.85)."
    )
    assert [text.partition(",")[0] for text in sentences[:-1]] == ["augmix", "mixup", "sd"]
    before, after = ({"in_w_gap": gap, "carton_gap": gap} for gap in (-0.00004, 0.00006))
    gaps = dict.fromkeys(MEASURES, np.nan)
    text, _ = trade_sentences([("b", "a", gaps | after, gaps | before)])
    assert "(+0.00 to +0.01)" in text, "no minus zero"


# A user's photos through the stages.

LEARNED = [
    f"last-layer-{name}"
    for name in (
        "erm",
        "cutmix",
        "watermark_augmentation",
        "augmix",
        "lle",
        "lle_watermark",
        "eiil",
    )
]


def write_scene(path: Path) -> None:
    """The scene of the photos of four classes in the folder `photos` beside it."""
    scene = read_yaml(definition_path("imagenet_w/imagenet.yaml")) | {"folder": "photos"}
    scene["factors"]["class"] = [*CLASSES]
    path.write_text(yaml.safe_dump(scene))


def prepared_scene(folder: Path) -> Photos:
    """That scene, prepared in the folder itself."""
    write_scene(folder / "imagenet.yaml")
    scene = load_scene(str(folder / "imagenet.yaml"))
    scene.fetch(folder / "raw", None)
    scene.make(folder / "raw", folder, "official")
    return scene


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, font) -> Path:
    """Runs on plain photos: networks as published, and last layers from theirs."""
    top = tmp_path_factory.mktemp("imagenet_w")
    folders = write_others(top / "photos")
    for name in ("train", "train_style", "train_background"):
        write_photos(top / "photos" / name, item=8)
    for name in ("mixed_same", "mixed_rand"):
        (folders["in9"] / name / "val").rename(top / "photos" / name)
    (folders["in9"] / "in_to_in9.json").rename(top / "photos/in_to_in9.json")
    write_scene(top / "imagenet.yaml")
    studies = read_yaml(definition_path("imagenet_w/studies.yaml"))
    study = studies["studies"]["in-w-last-layer"] | {"scene": str(top / "imagenet.yaml")}
    study["roles"] = {"target": 4, "watermark": 2, "photos": 8}
    (top / "studies.yaml").write_text(
        yaml.safe_dump({"title": "t", "studies": {"mine": study}}, sort_keys=False)
    )
    shipped = read_yaml(definition_path("imagenet_w/baselines.yaml"))

    def like(name: str, network: str) -> dict:
        """A shipped baseline with a network of the tests, at a learning rate of almost zero."""
        options = {"name": f"imagenet_w_photos:{network}", "weights": None}
        model = {**shipped[name]["model"], **options}
        model["input"] = {**model["input"], "size": SIZE, "resize": 73}
        optimiser = {"name": "sgd", "lr": 1.0e-9}
        subset = {"batch_size": 16, "max_epochs": 1, "optimiser": optimiser}
        return {**shipped[name], **subset, "model": model}

    baselines = {name: like("resnet50_v1", name) for name in PUBLISHED}
    baselines |= {name: like(name, "follower") for name in LEARNED}
    (top / "baselines.yaml").write_text(yaml.safe_dump(baselines))
    config = read_yaml(definition_path("imagenet_w.yaml")) | {
        "mirror": None,
        "studies": ["mine"],
        "studies_from": [str(top / "studies.yaml")],
        "baselines_from": [str(top / "baselines.yaml")],
        "baselines": [*baselines],
        "training": {"patience": None, "precision": "fp32", "threads": 1},
    }
    (top / "mine.yaml").write_text(yaml.safe_dump(config))
    run_here(top / "mine.yaml", root=top / "root")
    return top


def runs(checkout: Path) -> pd.DataFrame:
    return pd.read_csv(checkout / "root/results/tables/runs.csv").set_index("baseline")


def test_the_quick_command_and_the_stages_measure_the_known_gaps(checkout, font, tmp_path):
    names = [f"imagenet_w_photos:{name}" for name in PUBLISHED]
    measures = measured(names, write_others(tmp_path), tmp_path / "out")
    assert (measures["photos"] == 12).all() and (measures["font"] == font.name).all()
    assert (measures["carton_rank"] == 1).all()
    assert (measures["p_carton_factor"] > 1e6).tolist() == [False, True, True]
    quick, subject = measures[[*MEASURES]], runs(checkout).loc[[*PUBLISHED]]
    assert (subject["status"] == "ok").all()
    np.testing.assert_allclose(subject[[*MEASURES]].astype(float), quick.astype(float), rtol=1e-9)
    assert quick.iloc[:, :6].to_numpy() == pytest.approx(np.array([*PUBLISHED.values()]), abs=1e-6)
    assert quick.loc[names[0], [*ALTERNATIVES]].to_dict() == ALTERNATIVES
    assert quick.loc[names[0], "p_carton_factor"] == 1
    table = methods_table(checkout / "root", Choices(metric="carton_rank"))
    assert {row[-1] for row in table.rows} == {"1.0 (n = 1)"} and "percent" not in table.title


def test_an_average_without_one_of_the_networks_is_missing(checkout):
    tables = read_tables(checkout / "root/results/tables")
    rows = metrics_of(tables, "watermark")
    (whole,) = METRIC_SET.shown(rows, tables, SHIPPED)
    lost = (rows["baseline"] == next(iter(PUBLISHED))) & (rows["metric"] == "in_w_gap")
    (partial,) = METRIC_SET.shown(rows.assign(mean=rows["mean"].mask(lost)), tables, SHIPPED)
    column = whole.heads.index(MEASURES["in_w_gap"])
    assert (
        whole.rows[-1][0] == "average" and partial.rows[-1][column] == "-" != whole.rows[-1][column]
    )
    assert partial.rows[-1][:column] == whole.rows[-1][:column]


def test_last_layers_start_from_the_networks_own(checkout, font):
    """At a learning rate of almost zero, the measures are those of the network itself."""
    result = runs(checkout)
    assert (result["status"] == "ok").all()
    assert "-75.00" in (checkout / "root/results/tables/tables.md").read_text()
    sources = json.loads((checkout / "root/data/prepared/imagenet/sources.json").read_text())
    assert font.name in sources["sources"] and not sources["comparable"]
    follower = result.loc["follower", [*MEASURES]].astype(float).tolist()
    for name in LEARNED:
        subject = result.loc[name, [*MEASURES]].astype(float).tolist()
        assert subject == pytest.approx(follower, abs=1e-4), name


def test_every_photo_stands_once_in_each_row_that_it_fits(checkout):
    recipes = pd.read_parquet(checkout / "root/data/recipes/mine/class-watermark-photos.parquet")
    groups = {"in-1k": 12, "in-w": 12, "sin": 12, "in-r": 4, "mixed-same": 6, "mixed-rand": 6}
    test = recipes.loc[recipes["split"] == "test", "group"]
    assert len(recipes) == 32 + 12 + 52 and test.value_counts().to_dict() == groups
    assert not recipes.duplicated(["split", "group", "photo"]).any()
    train = recipes.loc[recipes["split"] == "train", "photo"]
    assert not train.is_monotonic_increasing, "in random order"


def test_a_view_of_files_has_the_changed_version_of_each_photo(font, tmp_path):
    write_photos(tmp_path / "photos/train", item=2)
    write_photos(tmp_path / "photos/train_style", item=2, shift=1)
    scene = prepared_scene(tmp_path)
    catalogue = scene.catalogue(tmp_path)
    cells = pd.DataFrame({"watermark": ["absent"], "photos": ["train"]})
    recipes = pa.Table.from_pandas(
        scene.every_photo(cells, catalogue).sample(frac=1, random_state=0)
    )
    changed = scene.twins(recipes, "style", tmp_path)
    paths = catalogue.photos["path"]
    before, after = (paths.take(table["photo"]).tolist() for table in (recipes, changed))
    assert after == [path.replace("train/", "train_style/") for path in before]
    render = scene.rendering(tmp_path, 64, CPU, crop=Crop(64, 64))
    shift = (render(changed).float() - render(recipes).float()).flatten(1).mean(1)
    assert {round(float(value)) for value in shift} == {10, -30}
    with refused("background needs a changed version of every .* no train_background/n0"):
        scene.twins(recipes, "background", tmp_path)


def test_the_watermark_comes_after_the_crop_and_before_normalisation(tmp_path, font):
    """A photo's full path to a network's input, compared with plain PIL and torchvision."""
    photo = np.random.default_rng(0).integers(0, 256, (300, 410, 3), dtype=np.uint8)
    (tmp_path / "photos/val" / CARTON).mkdir(parents=True)
    Image.fromarray(photo).save(tmp_path / "photos/val" / CARTON / "0.png")
    scene = prepared_scene(tmp_path)
    render = scene.rendering(tmp_path, 224, CPU, crop=Crop(256, 224))
    cells = pd.DataFrame({"watermark": ["absent", "present"]})
    recipes = pa.Table.from_pandas(
        scene.every_photo(cells.assign(photos="val"), scene.catalogue(tmp_path))
    )
    ours = Encoder(blind(4, 224), IMAGENET.mean, IMAGENET.std).inputs(render(recipes))
    image = np.array(F.center_crop(F.resize(Image.fromarray(photo), 256), 224))
    marked = plain(image, font, "捷径捷径捷径", 36, 0.5, (0.01, 0.4))
    for part, text in zip(ours, (image, marked), strict=True):
        theirs = F.normalize(F.to_tensor(text), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        assert torch.allclose(part, theirs, atol=1e-5)
    assert not torch.equal(ours[0], ours[1])


def test_networks_get_photos_as_their_weights_want_them():
    """The published numbers cannot be computed here; how photos are prepared can be compared."""
    published = read_yaml(definition_path("imagenet_w/baselines.yaml"))
    shipped = [
        item["model"] for item in published.values() if str(item["method"]).endswith(":Published")
    ]
    assert len(shipped) == 13
    for model in shipped:
        weights, inputs = torchvision_input(model["name"], model["weights"])
        assert (weights, inputs) == (model["weights"], model["input"])
        assert model.get("options", {}).get("image_size", 224) in (224, inputs["size"])


def test_a_photo_and_its_watermarked_copy_are_compared_wherever_they_stand():
    """More photos than are looked at together; the watermark raises the second class alone."""
    number = np.arange(300)
    pair = [
        pd.DataFrame({"photo": number, "watermark": values}) for values in ("absent", "present")
    ]
    photos = pd.concat(pair, ignore_index=True).assign(group="in-w", label="x")
    marked = torch.tensor((photos["watermark"] == "present").to_numpy())
    logits = torch.randn(300, 3, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    logits[marked] += torch.tensor([0.0, 1.0, -1.0])
    result = answers(photos, lambda rows: logits[rows], ["x", "y", "z"], "x", {})
    assert (result["raised_more"][marked.numpy()] == 1).all()


def test_renditions_have_fewer_classes_and_mixed_photos_are_judged_by_group():
    """in-r has x and z alone; y and w are one of ImageNet-9's groups."""
    groups = ["in-r", "in-r", "in-1k", "mixed-same"]
    photos = pd.DataFrame({"photo": range(4), "group": groups, "label": ["x", "z", "w", "w"]})
    logits = torch.tensor([[0.0, 3, 1, 2], [1, 3, 0, 2], [0, 1, 2, 3], [0, 1, 2, 3]])
    message = answers(
        photos.assign(watermark="absent"), lambda rows: logits[rows], [*"xyzw"], "x", {3: 0, 1: 0}
    )
    assert message["among"].tolist() == ["z", "x", "z", "z"]
    assert message["prediction"].tolist() == ["y", "y", "w", "y"]
    p = logits.softmax(1)
    pair = torch.stack([p[0, 1], p[1, 1], p[2, 3], p[3, 1] + p[3, 3]])
    assert message["confidence"].to_numpy() == pytest.approx(pair.numpy())


def test_the_rank_is_the_median_over_photos():
    raised = {"group": "in-w", "label": "0", "prediction": "0", "among": "0", "log_p": 0.0}
    assert measure(pd.DataFrame({**raised, "raised_more": [0, 1, 900]}))["carton_rank"] == 2


def test_a_file_for_a_model_of_timm_is_scaled_as_timm_says(tmp_path):
    name = "vit_tiny_patch16_224"
    torch.save(timm.create_model(name, num_classes=4).state_dict(), tmp_path / "own.pth")
    weights = str(tmp_path / "own.pth")
    encoder, crop, _ = load_classifier(f"timm/{name}", weights, 4, 224, None)
    assert encoder.mean.flatten().tolist() == pytest.approx([127.5] * 3)
    assert (crop.resize, crop.size, crop.interpolation) == (256, 224, "bicubic")


def test_a_network_trained_on_whole_photos_gets_them_whole():
    """Scaled to its square, as timm does where the weights' crop mode is squash."""
    tag, inputs = timm_input("timm/tf_efficientnetv2_l", "in21k_ft_in1k")
    assert "resize" not in inputs
    photo = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    size, mean = inputs["size"], {"mean": inputs["mean"], "std": inputs["std"]}
    config = timm.get_pretrained_cfg(f"tf_efficientnetv2_l.{tag}").to_dict()
    theirs = timm.data.create_transform(**timm.data.resolve_data_config(pretrained_cfg=config))
    ours = Crop(inputs.get("resize"), size, inputs["interpolation"])(photo)
    ours = F.normalize(F.to_tensor(ours), **mean)
    assert torch.allclose(ours, theirs(Image.fromarray(photo)), atol=1e-5)


def test_weights_that_stand_in_the_name_of_a_network_are_named_apart():
    with refused("apart: timm/resnet18, weights a1_in1k"):
        load_classifier("timm/resnet18.a1_in1k", None, 4, 64, None)


def test_logits_that_are_no_numbers_are_refused():
    photos = pd.DataFrame({"photo": [0], "watermark": "absent", "group": "in-1k", "label": "x"})
    with refused("logits of some photos are no numbers"):
        answers(photos, lambda rows: torch.full((1, 2), torch.nan), ["x", "y"], "x", {})


@pytest.mark.parametrize(
    ("last", "n_classes", "says"),
    [
        (nn.Linear(512, 4), 5, "resnet18 has 4 classes, but 5 are needed"),
        (
            nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)),
            4,
            "holds the weights of another model",
        ),
    ],
)
def test_a_file_of_another_network_is_refused(tmp_path, last, n_classes, says):
    net = models.get_model("resnet18")
    net.fc = last
    torch.save(net.state_dict(), tmp_path / "own.pth")
    with refused(says):
        load_classifier("resnet18", str(tmp_path / "own.pth"), n_classes, 64, None)


@pytest.mark.parametrize(
    ("name", "options", "changed"),
    [
        ("resnet18", {}, lambda state: {"n_averaged": torch.tensor(3), **prefixed(state)}),
        ("resnet18", {}, lambda state: uncounted(state)),
        (
            "resnet18",
            {},
            lambda state: {f"port.{n}": v for n, v in enumerate(uncounted(state).values())},
        ),
        ("resnet18", {}, lambda state: state),
        ("vit_b_32", {"image_size": 64}, lambda state: state),
        ("googlenet", {"init_weights": False}, lambda state: state),
    ],
)
def test_files_of_every_kind_are_loaded(tmp_path, name, options, changed):
    net = models.get_model(name, num_classes=4, **options).eval()
    path = tmp_path / "own.pth.tar"
    torch.save(changed(net.state_dict()), path)
    encoder, crop, weights = load_classifier(name, str(path), 4, 64, None)
    images = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        assert torch.allclose(encoder.network.eval()(images), net(images), atol=1e-5)
    assert weights == path.name and crop == Crop(73, 64)


def prefixed(state):
    return {f"module.{key}": value for key, value in state.items()}


def uncounted(state):
    return {key: value for key, value in state.items() if "num_batches" not in key}


def test_weights_of_ones_own_have_no_published_numbers():
    row = {"method": "diagvib.methods.views:Published", "baseline": "mine", "metric": "in_w_gap"}
    model = {"name": "resnet50", "weights": {"file": "mine.pth", "sha256": "0"}}
    assert paper_number(row, None, {"model": model}) == {}
    published = {**model, "weights": "IMAGENET1K_V1"}
    assert paper_number(row, None, {"model": published})
    assert paper_number(row, None, {"model": {**published, "weights_sha256": "ab" * 32}}) == {}


def test_only_the_shipped_last_layers_have_published_numbers():
    config = load_config(definition_path("tables/imagenet_w_4_7.yaml"), ["mirror=null"])
    configured = stage_settings(config, "tabulate").plain()["baselines"]
    shipped = {row["name"]: row["settings"] for row in configured if "last" in row["name"]}

    def numbers(baseline: str, settings: dict) -> dict:
        row = {"method": settings["method"]["name"], "baseline": baseline, "metric": "in_w_gap"}
        return paper_number(row, None, settings)

    assert len(shipped) == 17 and all(numbers(*item) for item in shipped.items())
    erm, two_heads = (
        shipped["last-layer-erm"],
        shipped["last-layer-lle"]["method"] | {"views": ["watermark"]},
    )
    printed = {
        name: numbers(f"last-layer-{name}", shipped[f"last-layer-{name}"])["printed"]
        for name in ("lle", "lle_with_augmix", "erm")
    }
    assert printed == {"lle": "-6.18", "lle_with_augmix": "-7.27", "erm": "-25.40"}
    assert numbers("last-layer-lle", {**shipped["last-layer-lle"], "method": two_heads}) == {}
    for alternative in (
        {"max_epochs": 89},
        {"method": shipped["last-layer-jtt"]["method"]},
        {"model": {**erm["model"], "frozen": False}},
    ):
        assert numbers("last-layer-erm", {**erm, **alternative}) == {}
    assert numbers("erm", erm) == {}, "of another name"


# Methods on features of augmented photos.


def method_of(name: str, views: dict[str, torch.Tensor], n_classes: int, **options):
    method = linear({"name": f"diagvib.methods.views:{name}", **options}, n_classes)
    n = len(next(iter(views.values())))
    names = Annotations(classes=tuple(map(str, range(n_classes))))
    batches = Batches(torch.zeros(n, 2), torch.arange(n) % n_classes, CPU, annotations=names)
    batches.views = views
    method.setup(batches.training_data())
    return method, batches.batch(torch.arange(n))


def test_mixed_labels_are_those_of_both_photos():
    view = torch.tensor([[5, 6, 0.75, 0, 2], [7, 8, 0.5, 0, 0], [1, 1, 1, 0, 1]]).half()
    method, batch = method_of("Mixed", {"mixup": view}, 3)
    mixed = method.augment(batch)
    assert mixed.inputs.tolist() == [[5, 6], [7, 8], [1, 1]]
    assert mixed.labels.tolist() == [[0.75, 0, 0.25], [0.5, 0.5, 0], [0, 0, 1]]


def test_a_share_of_photos_is_seen_as_augmented():
    for p in (0.0, 0.1, 1.0):
        method, batch = method_of("Augmented", {"cutout": torch.ones(4000, 2)}, 2, p=p)
        changed = method.augment(batch).inputs
        assert torch.equal(*changed.T), "all of a photo"
        assert changed.mean().item() == pytest.approx(p, abs=0.03)
    with refused(r"Augmented needs watermark among the views of model.views"):
        method_of("Augmented", {"cutout": torch.ones(4, 2)}, 2, view="watermark")[0].augment(batch)


# The command.


@pytest.mark.parametrize(
    ("classes", "arguments", "says"),
    [
        (None, "resnet50", "val: no such folder"),
        (CLASSES[:2], "resnet50", "watermark.points_to: is not a class"),
        (CLASSES, "resnet55", "'resnet55'; did you mean resnet50"),
        (CLASSES, "a --model b --weights c", "given 1 times"),
    ],
)
def test_what_cannot_be_measured_is_said(tmp_path, font, classes, arguments, says):
    if classes is not None:
        write_photos(tmp_path / "val", classes)
    code, output = run(tmp_path / "val", "--model", *arguments.split(), "--out", tmp_path / "out")
    assert code == 1 and says in output


def test_a_thousand_folders_must_be_imagenets(tmp_path):
    for name in [*(f"n{number:08d}" for number in range(999)), CARTON]:
        (tmp_path / "val" / name).mkdir(parents=True)
        (tmp_path / "val" / name / "0.png").touch()
    with refused("is not folder 478 in sorted order"):
        photo_set({"val": tmp_path / "val"}, None, "#", tmp_path / "out")


def test_photos_are_resized_as_the_weights_want(monkeypatch):
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    monkeypatch.setattr(imagenet_w, "located", lambda settings, folder: settings)
    monkeypatch.setattr(imagenet_w, "make_network", lambda *_: pooled)
    _, crop, _ = load_classifier("regnet_y_32gf", "IMAGENET1K_SWAG_E2E_V1", 4, 64, None)
    assert crop == Crop(384, 384, "bicubic")


# The paper.


def test_the_papers_numbers_are_those_of_its_tables():
    names = imagenet_w_tables()
    assert names["resnet50", "IMAGENET1K_V1", ""]["carton_gap"] == 40
    assert names["vit_b_32", "IMAGENET1K_V1", ""]["in_w_gap"] == -8.71, "Table 6 has more digits"
    assert names["resnet50", "IMAGENET1K_V1", "lle"]["in_w_gap"] == -6.18


def test_only_the_published_photos_are_comparable(tmp_path):
    """Fifty of each class in val, and the paper's font."""
    scene = load_scene(str(definition_path("imagenet_w/imagenet.yaml")))
    names = scene.factors["class"]
    frame = pd.DataFrame({"class": np.repeat(names, 50), "photos": "val", "lot": ""})
    assert scene.is_published(frame)
    for fewer in (frame[1:], frame[50:], frame[:0]):
        assert not scene.is_published(fewer)
