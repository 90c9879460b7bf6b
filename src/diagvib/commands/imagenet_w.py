"""The command `diagvib imagenet-w`: measure networks on folders of photos at once, without a
configuration. Scene, answers and metrics are those of `config/imagenet_w.yaml`."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from diagvib.commands.evaluate import published_input, weights_of, with_tag
from diagvib.commands.imagenet_w_looks import looks_of, save_looks
from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_text
from diagvib.foundation.validation import validated
from diagvib.models.encoder import Encoder
from diagvib.models.registry import PACKAGES, family, make_network
from diagvib.models.weights import located
from diagvib.papers.imagenet_w.published import imagenet_w_tables
from diagvib.papers.imagenet_w.trades import trade_sentences
from diagvib.papers.imagenet_w.watermark import (
    AVERAGE,
    CARTON,
    MEASURES,
    METRIC_SET,
    measure,
    number,
)
from diagvib.results.reader_tables import PAPER, Table, markdown
from diagvib.scenes.photos.answers import answers
from diagvib.scenes.photos.decoding import Crop
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.listing import files_in
from diagvib.scenes.photos.scene import Photos
from diagvib.scenes.photos.watermark import TEXT, Font, find_font
from diagvib.settings.model_settings import ModelSettings, published_folder
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
_IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def photo_set(
    folders: Mapping[str, Path], font: str | None, text: str, out: Path
) -> tuple[Photos, bool]:
    """The scene of these folders' photos, linked in `out`, and whether their classes are known: the
    names of the subfolders of val that are synsets, if any. folders: val, and perhaps others of
    _GROUPS. text: the watermark's. DiagvibError for classes without carton, or a folder that is not
    there."""
    out.mkdir(parents=True)
    rows = []
    for kind, folder in folders.items():
        rows += [(f"{kind}/{path}", path.partition("/")[0], kind) for path in files_in(folder)]
        (out / kind).symlink_to(folder.resolve())
    table = pd.DataFrame(rows, columns=["file", "class", "photos"])
    classes = sorted({name for _, name, kind in rows if kind == "val" and _SYNSET.fullmatch(name)})
    has_classes = bool(classes)
    if not has_classes:
        if len(folders) > 1:
            raise DiagvibError(
                f"{folders['val']}: no folder is named by a synset, such as {CARTON}; --sin, --in-r and --in9 need "
                "that, so leave them out"
            )
        classes = [f"class {number}" for number in range(_CLASSES)]
        classes[_CARTON_INDEX] = CARTON
        table["class"] = classes[0]
    if len(classes) == _CLASSES and classes[_CARTON_INDEX] != CARTON:
        raise DiagvibError(
            f"{folders['val']}: {CARTON} (carton) is not folder {_CARTON_INDEX} in sorted order; "
            "ImageNet's 1,000 class folders are needed"
        )
    if "mixed_same" in folders:
        above = folders["mixed_same"].parents
        holding = [folder for folder in above if (folder / _NINE).exists()] or above
        shutil.copy(holding[0] / _NINE, out / _NINE)
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
    return Photos(
        out / "photos.yaml", validated(PhotoSet, definition, str(folders["val"]))
    ), has_classes


def photo_answers(
    scene: Photos, prepared: Path, has_classes: bool, encoder: Encoder, crop: Crop
) -> pd.DataFrame:
    """A network's answers to each photo in each test group, as `measure` wants them. has_classes:
    whether the photos' classes are known."""
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
    photo_predictions = answers(photos, logits_of, scene.factors["class"], CARTON, groups)
    if not has_classes:
        photos["label"] = ""
    return photos.join(photo_predictions)


def load_classifier(
    name: str, weights: str | None, n_classes: int, size: int, folder: Path | None
) -> tuple[Encoder, Crop, str]:
    """A network with its own last layer, how photos are prepared for it, and its weights' name.

    weights: a published name (default: the package's own choice), an installed package of
    `PACKAGES`, or a .pt or .pth file, the state_dict of such a model for `n_classes`; images for it,
    and for a function, are cropped to `size`, and scaled as timm does for its model, or else as for
    ImageNet. DiagvibError for other weights, or another number of classes.
    """
    name, weights = with_tag(name, weights)
    shown_weights, prepared = _classifier_input(name, weights, size)
    if shown_weights is None and family(name) != "own":
        raise DiagvibError(
            f"model: {name} has no published weights; name a .pt or .pth file of yours"
        )
    side = prepared["size"]
    fixed_size = family(name) == "torchvision" and name.startswith("vit")
    options = {"image_size": side} if fixed_size else {}
    entry = {"name": name, "weights": weights_of(weights or shown_weights), "options": options}
    entry |= {"frozen": True, "head": "published", "input": prepared}
    settings = validated(ModelSettings, entry, f"model: {name}").model_dump()
    settings = located(settings, published_folder(settings, [folder]))
    network = make_network(settings, n_classes, side)
    mean, std = (tuple(255 * value for value in prepared[key]) for key in ("mean", "std"))
    encoder = Encoder(network, mean, std)
    with torch.inference_mode():
        outputs = network(torch.zeros(1, 3, side, side)).shape[1]
    if outputs != n_classes:
        raise DiagvibError(
            f"model: {name} has {outputs:,} classes, but {n_classes:,} are needed: one for each class folder of the "
            "validation images, in sorted order; ImageNet's 1,000 if no folder is named by a synset"
        )
    crop = Crop(prepared.get("resize"), side, prepared.get("interpolation", "bilinear"))
    return encoder, crop, shown_weights or ""


def _classifier_input(name: str, weights: str | None, size: int) -> tuple[str | None, dict]:
    """The name of a network's weights, None for random ones; and its `input`: that of published
    weights, or `size`, cut from a square a seventh larger, with timm's or ImageNet's scaling."""
    scaling, prepared = _IMAGENET, None
    if weights in PACKAGES or not isinstance(weights_of(weights), dict):
        shown_weights, prepared = published_input(name, weights)
    else:
        shown_weights = Path(weights).name
        if family(name) == "clip":
            prepared = published_input(name, None)[1]
        elif family(name) == "timm":
            scaling = published_input(name, None)[1] or _IMAGENET
    return shown_weights, prepared or {**scaling, "size": size, "resize": round(size * 256 / 224)}


def network_table(measured: Sequence[Mapping], font: Font) -> Table:
    """A line for each network, with the paper's numbers below it if it has any. font: of the
    watermark."""
    rows = []
    for result in measured:
        names = result["model"], result["weights"]
        rows.append([*names, *(number(name, result[name]) for name in MEASURES)])
        if theirs := imagenet_w_tables().get((*names, "")):
            numbers = [f"{theirs[name]:.2f}" if name in theirs else "" for name in MEASURES]
            rows.append([PAPER, "", *numbers])
    if len(measured) > 1:
        means = pd.DataFrame(measured)[[*MEASURES]].astype(float).mean(skipna=False)
        rows.append([AVERAGE, "", *(number(name, means[name]) for name in MEASURES)])
    notes = [*METRIC_SET.introduction, f"Watermark drawn with {font.name}."]
    notes += trade_sentences([*_beside_the_first(measured)])
    if not font.published:
        notes.append(
            f"This is not the paper's font, Source Han Serif SC ExtraLight, or not its text, {TEXT}, so the "
            "watermark is only an imitation."
        )
    heads = ["model", "weights", *MEASURES.values()]
    return Table(METRIC_SET.title, heads, rows, notes)


def _beside_the_first(measured: Sequence[Mapping]) -> Iterator[tuple]:
    """Networks with other weights than the first of their name, as `trade_sentences` wants them."""
    first_results: dict[str, Mapping] = {}
    for result in measured:
        reference = first_results.setdefault(result["model"], result)
        if result is not reference:
            yield *map(_network_name, (result, reference)), result, reference


def _network_name(result: Mapping) -> str:
    return f"{result['model']} {result['weights']}".strip()


def measure_networks(
    models: Sequence[tuple[str, str | None]],
    folders: Mapping[str, Path],
    font: Path | None,
    size: int,
    device: str,
    threads: int,
    weights_folder: Path | None,
    out: Path,
    text: str,
) -> None:
    """Measure models, with their weights, on these folders: val, and perhaps sin, in_r, in_9. Print
    the table, and write it to `out` as CSV and Markdown; and draw where they look. text: the
    watermark's."""
    photo_folders = dict(folders)
    if nine := photo_folders.pop("in_9", None):
        for kind in ("mixed_same", "mixed_rand"):
            inner = nine / kind / "val"
            photo_folders[kind] = inner if inner.is_dir() else nine / kind
    watermark_font, resolved_device = find_font(font, text), resolve_device(device)
    measured, looks = [], {}
    # Links, lists and hashes: needed only now, and never among the user's own files.
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        scene, has_classes = photo_set(photo_folders, font and str(font), text, work / "photos")
        classes = len(scene.factors["class"])
        classifiers = [
            (
                with_tag(model, weights)[0],
                *load_classifier(model, weights, classes, size, weights_folder),
            )
            for model, weights in models
        ]
        scene.fetch(work / "raw", None)
        scene.make(work / "raw", work / "prepared", "official")
        for model, encoder, crop, weights in classifiers:
            with deterministic(resolved_device, threads):
                photos = photo_answers(
                    scene, work / "prepared", has_classes, encoder.to(resolved_device), crop
                )
            count = int((photos["group"] == "in-1k").sum())
            network_measures = {**measure(photos), "photos": count, "font": watermark_font.name}
            measured.append({"model": model, "weights": weights, **network_measures})
            if has_classes:
                network_looks = looks_of(scene, work / "prepared", encoder, crop, threads)
                looks[_network_name(measured[-1])] = network_looks
    table = network_table(measured, watermark_font)
    if looks := {name: network for name, network in looks.items() if network}:
        table = replace(table, notes=[*table.notes, *save_looks(looks, out / "looks")])
    lines = "\n".join(markdown(table))
    write_text(out / "models.csv", pd.DataFrame(measured).to_csv(index=False, lineterminator="\n"))
    write_text(out / "models.md", lines + "\n")
    print(lines)
