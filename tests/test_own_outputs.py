"""Classifiers that were fitted elsewhere, with their own outputs, and tables of predictions."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import nn

import diagvib
from conftest import REPOSITORY, refused
from diagvib import stages
from diagvib.commands.evaluate import frozen_baseline, write_configuration
from diagvib.commands.fitted_classifier import fitted_baseline, read_classes, write_fitted
from diagvib.commands.score import (
    Dataset,
    class_names,
    read_predictions,
    score,
    scored_images,
)
from diagvib.commands.try_baseline import with_one_baseline
from diagvib.foundation.files import file_sha256
from diagvib.methods.fitted import Fitted
from diagvib.methods.method import Unlabelled
from diagvib.methods.predictions import PredictedDatasets, image_name
from diagvib.models.fitted import (
    Logits,
    check_numbers,
    class_logits,
    fitted_network,
    outputs_of_classes,
    transformers_input,
)
from diagvib.models.own import output_names
from diagvib.models.registry import make_network
from diagvib.scenes.photos.scene import photo_scene
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from toy import images_here, run_here, runs_here

COUNTS = {"train": 45, "val": 18, "id": 18, "ood": 36}
SMALL = {"sources": "embedded", "image_size": 64, "counts": COUNTS}
CONFIG = {"root": "outputs/small", "studies": ["zgo"], "bindings": ["shape-hue", "hue-shape"]}
CONFIG |= {"samples": 1, "images": "render", "baselines": ["small_cnn"], **SMALL}
MODULE = """
import torch
from torch import nn

def network(outputs=10):
    pool, norm = nn.AvgPool2d(16), nn.LayerNorm(48, elementwise_affine=False)
    net = nn.Sequential(pool, nn.Flatten(), norm, nn.Linear(48, outputs, bias=False))
    net[-1].weight.data = torch.arange(48.0 * outputs).sin().view(outputs, 48)  # as if loaded
    return net
"""

NAMES = """
class Whole(nn.Sequential):
    pass

def named(n_classes=3, image_size=64, whole=False, more=0):
    net = network(n_classes)
    net = Whole(*net) if whole else net
    net.classes = ["c", "a", "b", "d"][: 3 + more]
    return net
"""


def draw(file: str, options: list[str]) -> None:
    """Recipes, without Snakemake."""
    config = load_config(file)
    if not Path(config.root, "data").exists():
        images_here(config, Path(config.root))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a configuration and a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("diagvib.commands.score.run_workflow", draw)
    Path("small.yaml").write_text(yaml.safe_dump(CONFIG))
    Path("lab").mkdir()
    Path("lab/nets.py").write_text(MODULE)
    return tmp_path


def network(outputs=10) -> nn.Module:
    names: dict = {}
    exec(MODULE, names)
    return names["network"](outputs)


def evaluated(entry: dict, *overrides: str, root: str = "root"):
    """The run of an entry on shape-hue: its predictions, metrics and record; and the layout."""
    path, config = write_fitted(entry, ["zgo"], "small.yaml", [*overrides], root)
    assert [binding for *_, binding in config.train_jobs] == ["shape-hue"]
    layout = run_here(path, root=Path(root))
    run = layout.runs(config.baselines[0].name, "zgo", "shape-hue") / "0"
    facts = [json.loads((run / f"{name}.json").read_text()) for name in ("metrics", "run")]
    return pd.read_parquet(run / "predictions.parquet"), *facts, layout


def test_a_function_of_a_file_is_measured_as_it_is_and_so_are_its_predictions(folder):
    """Its own logits decide; the same predictions, as a table, give the same metrics exactly."""
    rows, metrics, record, layout = evaluated(fitted_baseline("lab/nets.py:network"))
    test = diagvib.load("zgo", "shape-hue", "test", **SMALL)
    with torch.inference_mode():
        logits = network()(test.pixels.permute(0, 3, 1, 2).float() / 255)
    expected = np.array(test.classes)[logits.argmax(1).numpy()]
    assert rows["prediction"].tolist() == expected.tolist() and len(set(expected)) > 2
    assert record["settings"]["method"]["trained"] == "elsewhere"
    assert record["training"]["precision"] == "fp32"
    scored = diagvib.score(network(), "zgo", "shape-hue", **SMALL)
    for group in ("id", "ood"):
        assert scored[f"{group}_accuracy"] == metrics["groups"][group]["accuracy"]
    assert len([name for name in scored if name.count("-") == 1]) == 9 and "follows_hue" in scored
    page = (layout.tables / "tables.md").read_text()
    assert "fitted_lab.nets-network §" in page and "§ own outputs, not trained here" in page
    runs = pd.read_csv(layout.tables / "runs.csv")
    assert (
        runs["ood_ece"].notna().all()
        and pd.read_csv(layout.tables / "run_times.csv")["images_per_second"].isna().all()
    )

    files = [f"export/zgo/shape-hue/0/png/test/{row:06}.png" for row in range(len(rows))]
    table = pd.DataFrame({"file": files, "prediction": rows["prediction"]})
    table.sample(frac=1, random_state=0).to_csv("mine.csv", index=False)

    shape = ["bindings=[shape-hue]"]
    path, _ = score(Path("mine.csv"), Path("small.yaml"), None, None, shape, "scored")
    config, scored_layout = load_config(path), Layout("scored")
    runs_here(config, scored_layout)
    stages.tabulate(scored_layout, stage_settings(config, "tabulate"), 1)
    (again,) = scored_layout.all_runs.rglob("metrics.json")
    again = json.loads(again.read_text())
    assert again["groups"] == metrics["groups"] and again["trained"] == metrics["trained"]
    ours, theirs = (
        pd.read_csv(place.tables / "metrics.csv").query("metric_set != 'calibration'")["mean"]
        for place in (layout, scored_layout)
    )
    assert ours.tolist() == theirs.tolist() and len(ours)
    assert "ood_ece" not in pd.read_csv(scored_layout.tables / "runs.csv")


def test_a_saved_classifier_of_transformers_is_matched_by_its_names(folder):
    transformers = pytest.importorskip("transformers")
    settings = {"layer_type": "basic", "depths": [1] * 2, "hidden_sizes": [8, 16]}
    torch.manual_seed(0)
    config = transformers.ResNetConfig(embedding_size=8, **settings)
    config.id2label = {number: str((number + 1) % 10) for number in range(10)}
    config.label2id = {name: number for number, name in config.id2label.items()}
    model = transformers.ResNetForImageClassification(config).eval()
    model.classifier[-1].weight.data *= 50
    model.save_pretrained("saved")
    saved = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "size": {"shortest_edge": 40}}
    saved |= {"do_center_crop": True, "crop_size": {"height": 32, "width": 32}, "resample": 3}
    saved |= {"rescale_factor": 1 / 127.5, "rescale_offset": True}  # from -1 to 1
    preparation = Path("saved/preprocessor_config.json")
    preparation.write_text(json.dumps({**saved, "do_flip_channel_order": True}))
    with refused("do_flip_channel_order: the network reads blue first"):
        fitted_baseline("saved")
    preparation.write_text(json.dumps(saved))
    rows, _, record, _ = evaluated(fitted_baseline("saved"))
    test = diagvib.load("zgo", "shape-hue", "test", **SMALL)
    images = nn.functional.interpolate(
        test.pixels.permute(0, 3, 1, 2).float() / 255, (32, 32), mode="bicubic", antialias=True
    )
    assert images.max() > 1.01
    with torch.inference_mode():
        outputs = model((2 * images.clamp(0, 1) - 1 - 0.5) / 0.25).logits
    numbers = outputs.argmax(1).tolist()
    assert rows["confidence"].to_numpy() == pytest.approx(outputs.softmax(1).amax(1), abs=1e-5)
    assert rows["prediction"].tolist() == [config.id2label[number] for number in numbers]
    assert record["settings"]["depends"] == sorted(map(str, Path("saved").iterdir()))
    scored = diagvib.score(model, "zgo", "shape-hue", transform=lambda x: x / 255, **SMALL)
    assert 0 <= scored["follows_hue"] <= 1


def test_a_last_layer_that_transformers_would_draw_is_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"embedding_size": 8, "depths": [1] * 2, "hidden_sizes": [8, 16]}
    body = transformers.ResNetModel(transformers.ResNetConfig(layer_type="basic", **sizes))
    body.save_pretrained(tmp_path)
    settings = {"name": f"transformers/{tmp_path}", "weights": None, "options": {}}
    with refused(r"has no weights classifier\.1\.bias, classifier\.1\.weight of this shape"):
        make_network({**settings, "head": "published"}, 2, 32)
    make_network(settings, 2, 32)  # a new layer


@pytest.mark.parametrize("processor", ["EfficientNet", "Perceiver", "ViT"])
def test_images_are_prepared_as_by_the_saved_processor(tmp_path, processor):
    transformers = pytest.importorskip("transformers")
    made = getattr(transformers, f"{processor}ImageProcessor")(resample=0)
    made.save_pretrained(tmp_path)
    values = transformers_input(tmp_path)
    if processor == "Perceiver":
        made.do_center_crop = False  # of a square, as images are here
    image = torch.randint(256, (3, 300, 300), dtype=torch.uint8)
    expected = made(image, return_tensors="pt").pixel_values
    method = Fitted.__new__(Fitted)
    method.__dict__["options"] = SimpleNamespace(**values)
    batch = Unlabelled(image.permute(1, 2, 0)[None], torch.zeros(1, 3, 300, 300))
    torch.testing.assert_close(method._images(batch), expected, atol=1e-3, rtol=1e-4)


SCALED = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


@pytest.mark.parametrize(
    ("saved", "says"),
    [
        (None, "preprocessor_config.json: no such file, .* save its image processor"),
        ({"do_resize": False}, "it has no image_mean and image_std"),
        ({**SCALED, "resample": 1}, r"resample: 1: .* 0 \(nearest\), 2 \(bilinear\), 3"),
        ({**SCALED, "size": {"height": 9, "width": 8}}, "size: .* is no square"),
    ],
)
def test_an_unknown_preparation_is_refused(tmp_path, saved, says):
    if saved is not None:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(saved))
    with refused(says):
        transformers_input(tmp_path)


LETTERS = "abcdefghijkl"


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"classes": np.array([*LETTERS])}, None),
        ({"config": SimpleNamespace(id2label={str(n): LETTERS[n] for n in range(12)})}, None),
        ({"classes": {"a": 0}}, "a dict does not say which output each name is of"),
        ({"config": SimpleNamespace(id2label={1: "a", 2: "b"})}, "numbers of the outputs, from 0"),
    ],
)
def test_outputs_have_the_names_that_the_network_says(named, says):
    net = nn.Linear(3, 12)
    vars(net).update(named)
    if says:
        with refused(says):
            output_names(net)
    else:
        assert output_names(net) == tuple(LETTERS)


@pytest.mark.parametrize("whole", [False, True])
def test_weights_of_a_file_keep_the_names_of_a_network(folder, whole):
    Path("lab/nets.py").write_text(MODULE + NAMES)
    torch.save(network(3).state_dict(), "net.pt")
    settings = {"name": "lab.nets:named", "options": {"whole": whole}}
    digest = hashlib.sha256(Path("net.pt").read_bytes()).hexdigest()
    weights = {"file": "net.pt", "package": None, "sha256": digest}
    for source in (None, weights):
        assert fitted_network({**settings, "weights": source}, 64).names == ("c", "a", "b")
    with refused("it names 4 outputs, but has 3; name each"):
        fitted_network({**settings, "weights": None, "options": {"more": 1}}, 64)


def test_weights_of_timm_have_their_own_scaling_and_a_mapping(folder):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    net = timm.create_model("resnet10t", num_classes=4).eval()
    torch.save(net.state_dict(), "net.pt")
    classes = "0=red,1=green,2=red,3=blue"
    entry = fitted_baseline("timm/resnet10t", "net.pt", None, classes)
    assert entry["method"]["mean"] == pytest.approx([0.485, 0.456, 0.406])
    _, config = write_fitted(entry, ["zgo"], "small.yaml", None, "root")
    assert [binding for *_, binding in config.train_jobs] == ["hue-shape"]
    with refused(
        "--classes: shape: the classifier has 4 outputs, and there are 10 classes: 0, 1, 2"
    ):
        write_fitted(
            fitted_baseline("timm/resnet10t", "net.pt"), ["zgo"], "small.yaml", None, "root"
        )


def test_features_beside_logits_are_not_taken_for_them():
    class Pair(nn.Linear):
        def forward(self, images):
            return images.flatten(1), super().forward(images.flatten(1))

    with refused(r"the network returns tensors \[B, N\] with N 3 and 48; return the logits alone"):
        Logits(Pair(48, 3))(torch.rand(2, 3, 4, 4))
    assert Logits(Pair(3, 3))(torch.rand(2, 3, 1, 1)).shape == (2, 3)


def test_outputs_of_a_class_count_together_and_the_others_never():
    outputs = outputs_of_classes(
        {"a": "x", "2": "x", "b": "y"}, ["a", "b", "c"], 3, ["x", "y", "z"]
    )
    assert outputs == [[0, 2], [1], []]
    logits = class_logits(torch.tensor([[0.0, 0.5, 0.0], [0.0, 1.0, 0.0]]), outputs)
    assert logits.argmax(1).tolist() == [0, 1] and logits[:, 2].max() < -1000
    assert torch.equal(logits[:, 1], torch.tensor([0.5, 1.0]))  # exactly
    assert outputs_of_classes({}, ["y", "x"], 2, ["x", "y"]) == [[1], [0]]
    with refused("say which output means which class, such as cat=x"):
        outputs_of_classes({}, ["cat", "dog"], 2, ["x", "y"])
    # A name of one output that is the number of another means what all of them can mean.
    assert outputs_of_classes({0: 0, 1: 2}, ["0", "2"], 2, ["0", "1", "2"]) == [[0], [], [1]]
    assert outputs_of_classes({"1": "x", "2": "y"}, ["1", "2"], 2, ["x", "y"]) == [[0], [1]]
    with refused("4 unknown outputs: c, d, e and 1 more; the classifier has 1 outputs"):
        outputs_of_classes(dict.fromkeys("cdef", "x"), [], 1, ["x"])
    with refused("1 unknown class: q; there are x"):
        outputs_of_classes({"0": "q"}, [], 1, ["x"])


@pytest.mark.parametrize(
    ("mapping", "names", "says"),
    [
        ({0: "x", "0": "y"}, (), "output 0 is there twice, as a number and as a text"),
        (["x", "y", "x"], (), r"a mapping {output: class} is needed, not list"),
        ({}, ("x", "y"), "3 outputs, but 2 names for them"),
        ({"0": "x"}, ("a", "b", "c", "d"), "3 outputs, but 4 names for them"),
        (
            {"0": "x", "1": "y"},
            ("2", "1", "0"),
            "0 is the name of one output and the number of anot",
        ),
        (
            {"a": "x", "1": "y", "2": "x"},
            ("a", "2", "b"),
            "2 is the name of one output and the num",
        ),
        ({"crane": "x"}, ("crane", "dog", "crane"), "2 outputs are called crane; .* 0 and 2"),
    ],
)
def test_outputs_that_may_be_others_are_refused(mapping, names, says):
    with refused(says):
        outputs_of_classes(mapping, names, 3, ["x", "y"])


class Perfect(nn.Module):
    """Knows the images of a test split, and has an output for each of these classes."""

    def __init__(self, test, outputs, classes=None):
        super().__init__()
        self.outputs, self.classes = outputs, classes
        keys = [image.numpy().tobytes() for image in test.pixels.permute(0, 3, 1, 2)]
        self.labels = dict(
            zip(keys, test.table[test.binding.split("-")[0]].to_pylist(), strict=True)
        )

    def forward(self, images):
        keys = [image.numpy().tobytes() for image in (images * 255).round().byte()]
        return torch.tensor([[9.0 * (self.labels[key] == n) for n in self.outputs] for key in keys])


def test_outputs_with_the_names_of_a_samples_classes_are_matched_by_them():
    options = "zgo", "hue-shape", "test"
    test, sample = (
        diagvib.load(*options, **SMALL),
        diagvib.load(*options, classes="sample", **SMALL),
    )
    ordered, ascending = [*sample.classes], sorted(sample.classes)
    assert ordered != ascending
    for network in (Perfect(test, ascending, ascending), Perfect(test, ordered)):
        assert diagvib.score(network, "zgo", "hue-shape", **SMALL)["accuracy"] == 1
    with refused("score: classes: the classifier has 3 outputs .a, b, c., and there are 3 classes"):
        diagvib.score(Perfect(test, ordered, ["a", "b", "c"]), "zgo", "hue-shape", **SMALL)
    perfect = Perfect(test, ordered)
    with pytest.warns(UserWarning, match="like those of a sigmoid"):
        diagvib.score(lambda images: perfect(images).sigmoid(), "zgo", "hue-shape", **SMALL)


@pytest.mark.parametrize("classes", [("land", "water"), tuple("0123456789")])
def test_a_prediction_remains_the_most_probable_class(tmp_path, classes):
    """Also if others are as probable, at its confidence, as far as it is written out."""
    metadata = {"study": "s", "binding": "a-b", "sample": 0, "split": "test", "recipe_digest": "x"}
    confidence = [str(1 / len(classes)), f"{1 / len(classes) + 1e-8:.8f}", "1"]
    names = [image_name(metadata, row) for row in range(3)]
    table = {"file": names, "prediction": classes[-1], "confidence": confidence, "recipes": "x"}
    file = tmp_path / "p.csv"
    pd.DataFrame(table).to_csv(file, index=False)
    datasets = PredictedDatasets(None, {"file": str(file), "sha256": file_sha256(file)})
    p, predicted = datasets._logits(metadata, 3, classes).softmax(1).max(1)
    assert (predicted == len(classes) - 1).all()
    assert p.tolist() == pytest.approx([*map(float, confidence)], abs=1e-6)


def test_a_confidence_may_be_rounded_below_chance():
    names = {"train": [], "val": [], "test": [("a.png",)]}
    dataset = Dataset("digits", names, ("x", "y", "z"), ("x", "y", "z"), "")

    def scored(confidence):
        row = {"file": "a.png", "prediction": "x", "confidence": confidence}
        return scored_images(pd.DataFrame([row]), [dataset], {})

    assert scored("0.333")["confidence"].tolist() == ["0.333"]
    with refused("1 confidences below 1/3, so another class would be predicted: a.png"):
        scored("0.32")


def test_numbers_in_another_order_than_the_classes_are_not_counted():
    """As in CelebA, whose table has 1 for the first class of the scene, and -1 for the second."""
    scene = photo_scene(REPOSITORY / "config/photos/celeba/scene.yaml")
    values, classes = scene.class_values("male"), scene.factors["male"]
    assert values == {"1": "male", "-1": "female"} and classes == ("male", "female")
    dataset = Dataset("celeba", {}, classes, classes, "", values=values)
    assert class_names(pd.Series(["-1", "1"]), dataset, {}) == ["female", "male"]
    with refused("predictions such as 1 may be names or numbers of classes, or the table's values"):
        class_names(pd.Series(["1"]), dataset, {})
    with refused("the table has 1 for male, -1 for female, which is another order .* 0=male"):
        class_names(pd.Series(["0", "1"]), dataset, {})
    assert class_names(pd.Series(["0", "1"]), dataset, {"0": "female", "1": "male"})[0] == "female"
    check_numbers({}, (), scene.class_values("blond"))
    check_numbers({}, ("male", "female"), values)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name,prediction\na,1", "no column file among name, prediction"),
        ("file,prediction\na,\nb,2", "1 rows without a file or a prediction: line 2"),
        ("file,prediction\na,1\na,2\nb,1\nb,1", "2 files with several predictions: a, b"),
        ("file,prediction,prediction\na,1,2", "1 columns are there twice: prediction"),
        ("file,prediction,confidence\na,1,2", "1 rows whose confidence is no probability .*: a"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, text, says):
    (tmp_path / "p.csv").write_text(text)
    with refused(says):
        read_predictions(tmp_path / "p.csv")
    with pytest.raises(FileNotFoundError):  # of which the command says only this
        read_predictions(tmp_path / "q.csv")


FILES = [f"{row:06}.png" for row in range(54)]  # of one dataset: enough of a name
HUE = ["bindings=[hue-shape]"]


def write_predictions(path, files=FILES, predictions="red") -> None:
    table = pd.DataFrame({"file": files, "prediction": predictions})
    table.to_csv(path, index=False)


def test_files_and_classes_that_do_not_fit_are_named(folder):
    def scored(files, predictions, classes=None):
        write_predictions("p.csv", files, predictions)
        return score(Path("p.csv"), Path("small.yaml"), None, classes, HUE)

    with refused("p.csv: 51 of 54 test images have no prediction: zgo/hue-shape/0/png/test/000003"):
        scored(FILES[:3], ["red"] * 3)
    with refused("2 files are of no image of these studies: x.png, y.png; images are called like"):
        scored([*FILES, "x.png", "y.png"], ["red"] * 56)
    with refused("1 files are of an image that another row is of, too: test/000000.png"):
        scored([*FILES, "test/000000.png"], ["red"] * 55)
    with refused("zgo hue-shape 0: .*|2 unknown classes: mauve, puce; .* numbers from 0 to 2"):
        scored(FILES, ["mauve", "puce"] * 27)
    with refused("1 unknown prediction: b; give each one a class"):
        scored(FILES, ["a", "b"] * 27, "a=red")
    numbered = Path(scored(FILES, ["2", "0", "1"] * 18)[0]).with_name("predictions.csv")
    present = pd.read_csv(numbered)["prediction"][:3].tolist()
    hues = diagvib.load("zgo", "hue-shape", "test", **SMALL)
    ordered = [name for name in hues.classes if name in hues.table["hue"].to_pylist()]
    assert present == [ordered[2], ordered[0], ordered[1]]


SEARCH = {"bindings": ["shape-hue"], "trials": {"small_cnn": 3}}
RANGES = {"all": {"model.options.width": {"choice": [8, 16]}}}


@pytest.mark.parametrize(
    ("changes", "stem"),
    [
        ({"mine": "small_cnn"}, "prédictions"),
        ({"tuning": {"study": "zgo", "random_search": SEARCH}}, "p" * 140),
        ({"tuning": {"study": "zgo", "random_search": {**SEARCH, "ranges": RANGES}}}, "p"),
    ],
)
def test_keys_of_a_configurations_baselines_do_not_concern_another(folder, changes, stem):
    base, path = Path("base.yaml"), Path(f"{stem}.csv")
    base.write_text(yaml.safe_dump({**CONFIG, **changes}))
    load_config(base)
    write_predictions(path)
    _, config = score(path, base, None, None, HUE)
    (baseline,) = config.baselines
    assert baseline.name.startswith("scored_p") and len(baseline.name) < 128
    assert (baseline.name == "scored_p") == (stem == "p")
    entry = frozen_baseline("small_cnn")
    assert write_configuration(entry, ["zgo"], base, None, "frozen")[1].tuning.random_search is None
    tried = with_one_baseline(base, None, "resnet18", "zgo", "shape-hue")
    assert [entry.name for entry in tried.baselines] == ["resnet18"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("baselines.yaml", "frozen_a: {}\nmine: {}\n"),
        ("configuration.yaml", "baselines: [frozen_a, {name: mine}]\n"),
        ("predictions.csv", "file,prediction,annotator\n"),
    ],
)
def test_the_users_own_files_are_not_overwritten(folder, file, text):
    """Those in the root, and the inputs wherever they are; what a command has written, it may."""
    base, predictions = Path("small.yaml"), Path("root/predictions.csv")
    Path("root").mkdir()
    write_predictions("p.csv")

    def scored(path="p.csv", base=base):
        return score(Path(path), Path(base), None, None, HUE, "root")

    Path("root", file).write_text(text)
    with refused(f"^root/{file}: would be overwritten; name another folder with --root"):
        scored()
    entry = fitted_baseline("lab/nets.py:network")
    if file != predictions.name:
        with refused(f"^root/{file}: would be overwritten"):
            write_fitted(entry, ["zgo"], "small.yaml", None, "root")
    assert Path("root", file).read_text() == text
    Path("root", file).unlink()
    assert scored()[0].read_text() == scored()[0].read_text()
    for sources in ({"path": predictions}, {"base": "root/configuration.yaml"}):
        with refused("^root/.*: would be overwritten"):
            scored(**sources)
    write_fitted(entry, ["zgo"], "small.yaml", None, "root")
    with refused("^root/configuration.yaml: would be overwritten"):
        write_fitted(entry, ["zgo"], "root/configuration.yaml", None, "root")


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        ("red", "--classes red: red; write output=class"),
        ("0=red,0=blue", "1 outputs mean several classes: 0"),
        ("none.csv", "none.csv: no such file"),
    ],
)
def test_a_mapping_that_is_none_is_refused(folder, classes, says):
    with refused(says):
        read_classes(classes)
    Path("map.csv").write_text("output,class\ntabby,cat\n7,dog\n", encoding="utf-8-sig")  # of Excel
    Path("map.yaml").write_text("tabby: cat\n7: dog\n")
    expected = {"tabby": "cat", "7": "dog"}
    assert read_classes("map.csv") == read_classes("map.yaml") == expected
    assert read_classes("tabby=cat,7=dog") == expected
