"""The playground: a page on which a digit is changed by hand and networks answer, computed in the
browser. One file, which loads nothing.

It has up to three small_cnn networks trained on one target, with the same cue or none, whose weights
were kept (`keep_weights`).
"""

import base64
from collections.abc import Sequence
from pathlib import Path

import jinja2
import numpy as np
import torch
from torch import Tensor

from diagvib.foundation.files import read_json, read_metadata, write_text
from diagvib.foundation.plug_ins import imported
from diagvib.provenance.finished import RUN_RECORD
from diagvib.report.report_data import ReportData
from diagvib.scenes import load_scene
from diagvib.scenes.prepared import is_prepared
from diagvib.settings.layout import WEIGHTS_FILE
from diagvib.studies.known_studies import sample_of

FILE = "playground.html"
_SCENE, _SOURCES = "digits", "diagvib.scenes.digits.browser:browser_sources"
_NETWORKS = 3  # as many as fit into 1.5 MB
_BODY = "model.body"
# The positions in the body of small_cnn's convolutions, each followed by its batch norm; their
# strides; and the names of all tensors. A method with more of them does not only run this network.
_STRIDES = {0: 4, 3: 2, 6: 2}
_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_TENSORS = {
    "model.head.weight",
    "model.head.bias",
    *(f"{_BODY}.{position}.weight" for position in _STRIDES),
    *(f"{_BODY}.{position + 1}.{part}" for position in _STRIDES for part in _NORM),
}
_EPSILON = 1e-5  # batch norm's
# Weights are integers of 20 bits: with 16, logits of 100 are off by 0.002.
_LEVELS = 2**19 - 1


def playground_runs(report_data: ReportData) -> list[dict]:
    """The runs of dataset sample 0 that the page shows; none without a run that has a cue, or
    without prepared digits."""
    runs = [
        run for run in report_data.first_runs.to_dict("records") if _has_network(report_data, run)
    ]
    bindings = [run["binding"] for run in runs if run["binding"].count("-") == 1]
    if not bindings or not is_prepared(report_data.prepared(_SCENE)):
        return []
    binding = report_data.binding if report_data.binding in bindings else bindings[0]
    related = [run for run in runs if run["binding"] in (binding, run["target"])]
    related = [run for run in related if run["target"] == binding.split("-")[0]]
    headline = report_data.known_studies.headline({run["study"] for run in related})
    compared = (headline.without, headline.shortcut) if headline else ()
    related.sort(key=lambda run: run["study"] not in compared)
    return related[:_NETWORKS]


def _has_network(report_data: ReportData, run: dict) -> bool:
    """Whether a run's weights were kept, and are those of small_cnn alone, trained on digits."""
    if report_data.known_studies.studies[run["study"]].scene != _SCENE:
        return False
    if not (run["folder"] / WEIGHTS_FILE).is_file():
        return False
    model = read_json(run["folder"] / RUN_RECORD)["settings"].get("model") or {}
    return model.get("name") == "small_cnn" and {*_weights(run["folder"])} == _TENSORS


def _weights(folder: Path) -> dict[str, Tensor]:
    return torch.load(folder / WEIGHTS_FILE, weights_only=True)


def write_playground(report_data: ReportData, runs: Sequence[dict], out: Path) -> None:
    """Write {out}/playground.html with the networks of these runs (`playground_runs`); nothing
    without any."""
    if not runs:
        return
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True
    )
    page = environment.get_template("playground.html.j2").render(
        data=playground_data(report_data, runs),
        licences=load_scene(_SCENE).licences(report_data.settings.get("sources")),
    )
    write_text(out / FILE, page)


def playground_data(report_data: ReportData, runs: Sequence[dict]) -> dict:
    """What the page's script reads."""
    networks = [_network(report_data, run) for run in runs]
    strongest = max(networks, key=lambda network: network["share"])
    target, cue = next(run["binding"] for run in runs if "-" in run["binding"]).split("-")
    sources = imported(_SOURCES, "function")(report_data.prepared(_SCENE))
    return {
        "size": report_data.settings["image_size"],
        "target": target,
        "cue": cue,
        "logits": load_scene(_SCENE).factors[target],
        "classes": sample_of(_SCENE, 0).classes,
        "labels": strongest["labels"],
        "share": strongest["share"],
        "regions": sources["regions"],
        "digits": {name: _base64(masks) for name, masks in sources["digits"].items()},
        "textures": {name: _base64(part) for name, part in sources["textures"].items()},
        "networks": networks,
    }


def _network(report_data: ReportData, run: dict) -> dict:
    """A run's network and what its training images were. labels: class of the cue -> the target's
    class that it points to; share: of the training images, those for which it is right."""
    record, weights = read_json(run["folder"] / RUN_RECORD), _weights(run["folder"])
    trained = read_metadata(run["folder"] / "predictions.parquet")["trained"]
    factors = run["binding"].split("-")
    pointers = report_data.known_studies.cue_label(run["study"], factors, 0, trained)[:1]
    labels = {
        name: min(targets)
        for label in pointers
        for name, targets in label.items()
        if len(targets) == 1
    }
    agreeing = sum(trained.get(f"{label}-{name}", 0) for name, label in labels.items())
    share = agreeing / sum(trained.values())
    return {
        "baseline": run["baseline"],
        "study": report_data.known_studies.title(run["study"]),
        "cued": "-" in run["binding"],
        "labels": labels,
        "share": round(share, 3),
        "mean": record["pixel_mean"],
        "std": record["pixel_std"],
        "layers": [
            {"stride": stride, **_convolution(weights, position)}
            for position, stride in _STRIDES.items()
        ],
        "head": _rounded(
            weights["model.head.weight"].double(), weights["model.head.bias"].double()
        ),
    }


def _convolution(weights: dict[str, Tensor], position: int) -> dict:
    """A convolution with the batch norm that follows it, as `_rounded`."""
    gain, bias, mean, variance = (
        weights[f"{_BODY}.{position + 1}.{part}"].double() for part in _NORM[:4]
    )
    gain = gain / (variance + _EPSILON).sqrt()
    kernel = weights[f"{_BODY}.{position}.weight"].double()
    return _rounded(kernel * gain[:, None, None, None], bias - mean * gain)


def _rounded(kernel: Tensor, bias: Tensor) -> dict:
    """A layer for the page: its shape, weights as multiples of a step for each output, 16 bits of each
    apart from its last four, and biases."""
    rows = kernel.flatten(1)
    steps = (rows.abs().amax(1) / _LEVELS).clamp(min=1e-30).float()
    levels = (rows / steps.double()[:, None]).round().clamp(-_LEVELS, _LEVELS).int().numpy()
    low, high = (levels.reshape(-1, 2).T & 15).astype(np.uint8)
    return {
        "shape": [*kernel.shape],
        "levels": _base64((levels >> 4).astype("<i2")),
        "rest": _base64(low | high << 4),
        "steps": _base64(steps.numpy().astype("<f4")),
        "bias": _base64(bias.numpy().astype("<f4")),
    }


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array)).decode()
