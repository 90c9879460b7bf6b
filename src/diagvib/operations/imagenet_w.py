"""The command `diagvib imagenet-w`: measure networks on folders of photos at once, without a
configuration. Scene, answers and metrics are those of `config/imagenet_w.yaml`."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import write_text
from diagvib.foundation.validation import validated
from diagvib.models.encoder import Encoder
from diagvib.models.network import separated_if_equal
from diagvib.models.registry import PACKAGES, family, make_network
from diagvib.models.timm_models import timm_net
from diagvib.models.torchvision_models import check_name
from diagvib.models.weights import fill, located, read_state
from diagvib.reproduction.published import imagenet_w_tables
from diagvib.results.metric_sets.watermark import CARTON, MEASURES, METRIC_SET, measure, number
from diagvib.results.table import PAPER, Table, markdown
from diagvib.scenes.photos.decoding import Crop
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.listing import files_in
from diagvib.scenes.photos.scene import Photos
from diagvib.scenes.photos.watermark import TEXT, drawn_with, find_font
from diagvib.training.answers import answers
from diagvib.training.batches import IMAGENET
from diagvib.training.protocol import deterministic

# Kind of photos -> their test group, as in config/imagenet_w/studies.yaml.
_GROUPS = {
    "val": "in-1k",
    "sin": "sin",
    "in_r": "in-r",
    "mixed_same": "mixed-same",
    "mixed_rand": "mixed-rand",
}
_CLASSES, _CARTON_INDEX, _NINE = 1000, 478, "in_to_in9.json"
_SYNSET = re.compile(r"n\d{8}")
_AT_ONCE = 32  # photos through a network


def photo_set(
    folders: Mapping[str, Path], font: str | None, text: str, out: Path
) -> tuple[Photos, bool]:
    """The scene of these folders' photos, linked in `out`, and whether their classes are known: the
    names of the subfolders of val, if one is a synset. folders: val, and perhaps others of _GROUPS.
    text: the watermark's. DiagvibError for classes without carton, or a folder that is not there."""
    out.mkdir(parents=True)
    rows = []
    for kind, folder in folders.items():
        rows += [(f"{kind}/{path}", path.partition("/")[0], kind) for path in files_in(folder)]
        (out / kind).symlink_to(folder.resolve())
    table = pd.DataFrame(rows, columns=["file", "class", "photos"])
    classes = sorted({name for _, name, kind in rows if kind == "val"})
    known = any(map(_SYNSET.fullmatch, classes))
    if not known:
        if len(folders) > 1:
            raise DiagvibError(f"{folders['val']}: has no class folders, which the others need")
        classes = [f"class {number}" for number in range(_CLASSES)]
        classes[_CARTON_INDEX] = CARTON
        table["class"] = classes[0]
    if len(classes) == _CLASSES and classes.index(CARTON) != _CARTON_INDEX:
        raise DiagvibError(f"{folders['val']}: {CARTON} (carton) is not folder {_CARTON_INDEX}")
    if "mixed_same" in folders:
        nine = next(
            folder / _NINE for folder in folders["mixed_same"].parents if (folder / _NINE).exists()
        )
        shutil.copy(nine, out / _NINE)
    table.to_csv(out / "photos.csv", index=False)
    definition = {
        "folder": str(out.resolve()),
        "table": "photos.csv",
        "factors": {"class": classes, "photos": [*_GROUPS]},
        "watermark": {"points_to": CARTON, "font": font, "text": text},
        "groups": _NINE,
        "upright": False,
        "keep_twins": True,
    }
    return Photos(out / "photos.yaml", validated(PhotoSet, definition, str(folders["val"]))), known


def photo_answers(
    scene: Photos, prepared: Path, known: bool, encoder: Encoder, crop: Crop
) -> pd.DataFrame:
    """A network's answers to each photo in each test group, as `measure` wants them. known: whether
    the photos' classes are."""
    device = encoder.mean.device
    cells = [(group, "absent", kind) for kind, group in _GROUPS.items()]
    cells = pd.DataFrame(
        [*cells, ("in-w", "present", "val")], columns=["group", "watermark", "photos"]
    )
    photos = scene.every_photo(cells, scene.catalogue(prepared))
    photos["label"] = photos["class"]
    recipes = pa.Table.from_pandas(photos, preserve_index=False)
    render = scene.rendering(prepared, crop.size, device, crop=crop)

    def logits_of(rows: np.ndarray) -> torch.Tensor:
        parts = render(recipes.take(rows)).split(_AT_ONCE)
        return torch.cat([encoder.network(encoder.inputs(part)) for part in parts])

    groups = scene.groups(prepared)
    found = answers(photos, logits_of, scene.factors["class"], CARTON, groups)
    if not known:
        photos["label"] = ""
    return photos.join(found)


def load_classifier(
    name: str, weights: str | None, n_classes: int, size: int, folder: Path | None
) -> tuple[Encoder, Crop, str]:
    """A network with its own last layer, how photos are prepared for it, and its weights' name.

    weights: a published name (default: torchvision's first), an installed package of `PACKAGES`, or
    a .pt or .pth file, the state_dict of such a model for `n_classes`; images for it, and for a
    function, are cropped to `size`. DiagvibError for other weights, or another number of classes.
    """
    kind, crop, scaling = (
        family(name),
        Crop(round(size * 256 / 224), size),
        (IMAGENET.mean, IMAGENET.std),
    )
    settings = {
        "name": name,
        "options": {},
        "weights": None,
        "weights_file": None,
        "weights_sha256": None,
    }
    settings |= {"frozen_statistics": False, "head": "published"}
    if weights and weights.endswith((".pt", ".pth")):
        network = make_network(settings, n_classes, size)
        fill(network, read_state(Path(weights)), Path(weights))
        weights = Path(weights).name
    elif kind == "torchvision":
        from torchvision.models import get_model_weights

        known = [entry.name for entry in get_model_weights(check_name(name))]
        weights = weights or known[0]
        if weights not in known:
            raise unknown_name(f"weights of {name}", weights, known, "--weights")
        given = get_model_weights(name)[weights].transforms()
        resize, side = (
            one[0] if isinstance(one, Sequence) else one
            for one in (given.resize_size, given.crop_size)
        )
        crop = Crop(resize, side, given.interpolation.value)
        if name.startswith("vit"):
            settings["options"] = {"image_size": side}
        network = make_network(located({**settings, "weights": weights}, folder), n_classes, side)
        scaling = _of_bytes(given.mean, given.std)
    elif kind == "timm":
        from timm.data import resolve_model_data_config

        packaged = weights in PACKAGES
        net = timm_net(name.removeprefix("timm/"), None if packaged else weights, not packaged)
        given = resolve_model_data_config(net)
        side = given["input_size"][1]
        crop = Crop(int(side / given["crop_pct"]), side, given["interpolation"])
        scaling = _of_bytes(given["mean"], given["std"])
        if packaged:
            file = {"file": None, "package": weights, "sha256": PACKAGES[weights]}
            network = make_network({**settings, "weights": file}, n_classes, side)
        else:
            weights = weights or net.pretrained_cfg.get("tag") or "default"
            network = separated_if_equal(net, n_classes, side)
    elif kind == "own" and weights is None:
        network, weights = make_network(settings, n_classes, size), ""
    else:
        raise DiagvibError(
            f"model: {name} has no published weights; name a .pt or .pth file of yours"
        )
    encoder = Encoder(network, *scaling)
    with torch.inference_mode():
        found = network(torch.zeros(1, 3, crop.size, crop.size)).shape[1]
    if found != n_classes:
        raise DiagvibError(
            f"model: {name} has {found:,} classes, but the validation folder has {n_classes:,} class folders; there "
            "must be one for each class, since their sorted order gives the indices"
        )
    return encoder, crop, weights


def _of_bytes(*scaling: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(255 * value for value in values) for values in scaling)


def network_table(found: Sequence[Mapping], drawn: str, published: bool) -> Table:
    """A line for each network, with the paper's numbers below it if it has any. drawn: font and text
    of the watermark; published: whether they are the paper's."""
    metric_set, rows = METRIC_SET, []
    names = [*MEASURES]
    for result in found:
        texts = [number(name, result[name]) for name in names]
        rows.append([result["model"], result["weights"], *texts])
        if theirs := imagenet_w_tables().get((result["model"], result["weights"], "")):
            numbers = [f"{theirs[name]:.2f}" if name in theirs else "" for name in names]
            rows.append([PAPER, "", *numbers])
    notes = [*metric_set.about, f"Watermark drawn with {drawn}."]
    if not published:
        notes.append(
            f"This is not the paper's font, Source Han Serif SC ExtraLight, or not its text, {TEXT}, so the "
            "watermark is only an imitation."
        )
    return Table(
        "imagenet_w", metric_set.title, ["model", "weights", *MEASURES.values()], rows, notes
    )


def measure_networks(
    models: Sequence[tuple[str, str | None]],
    folders: Mapping[str, Path],
    font: Path | None,
    size: int,
    device: str,
    threads: int,
    weights_folder: Path | None,
    out: Path,
    text: str = TEXT,
) -> None:
    """Measure models, with their weights, on these folders: val, and perhaps sin, in_r, in_9. Print
    the table, and write it to `out` as CSV and Markdown. text: the watermark's."""
    given = dict(folders)
    if nine := given.pop("in_9", None):
        for kind in ("mixed_same", "mixed_rand"):
            inner = nine / kind / "val"
            given[kind] = inner if inner.is_dir() else nine / kind
    drawn, chosen, found = find_font(font, text), resolve_device(device), []
    # Links, lists and hashes: needed only now, and never among the user's own files.
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        scene, known = photo_set(given, font and str(font), text, work / "photos")
        classes = len(scene.factors["class"])
        classifiers = [
            (model, *load_classifier(model, weights, classes, size, weights_folder))
            for model, weights in models
        ]
        scene.fetch(work / "raw", None)
        scene.make(work / "raw", work / "prepared", "official")
        for model, encoder, crop, weights in classifiers:
            with deterministic(chosen, threads):
                photos = photo_answers(scene, work / "prepared", known, encoder.to(chosen), crop)
            its = {**measure(photos), "photos": int((photos["group"] == "in-1k").sum())}
            its["font"] = drawn_with(drawn, text)
            found.append({"model": model, "weights": weights, **its})
    table = network_table(found, drawn_with(drawn, text), drawn.published and text == TEXT)
    lines = "\n".join(markdown(table))
    write_text(out / "models.csv", pd.DataFrame(found).to_csv(index=False, lineterminator="\n"))
    write_text(out / "models.md", lines + "\n")
    print(lines)
