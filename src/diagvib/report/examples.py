"""Example images from the prepared sources: each class of each factor (paper, Fig. 2), each combination of a pair."""

import base64
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from diagvib.foundation.files import whole_file
from diagvib.report.style import new_figure, styled
from diagvib.scenes.digits.factors import FACTORS, REGIONS, Binding, classes
from diagvib.scenes.digits.prepare import Prepared
from diagvib.studies.study import dataset_sample

# What stands still while another factor changes.
_USUAL = {"position": "center-center", "hue": "blue", "lightness": "brighter", "scale": "large", "shape": "5",
          "texture": "wood"}
_CROP = (108, 108)  # the middle of a 256 x 256 texture
_SIDE = 96  # pixels of one combination on the page


def render_classes(prepared: Prepared, wanted: Iterable[dict[str, str]]) -> np.ndarray:
    """One image per wanted choice of classes (factors left out: the usual class), uint8[N, 128, 128, 3].

    Every class is shown by the middle of its region, every digit by the first of its kind in the test split.
    """
    from diagvib.scenes.digits.renderer import Renderer  # imports torch, which pages without examples need not wait for
    chosen = [{**_USUAL, **one} for one in wanted]
    digits = np.stack([prepared.digits[np.flatnonzero((prepared.label == int(shape)) & (prepared.split == "test"))[0]]
                       for shape in classes("shape")])
    middle = {factor: np.array([np.mean(REGIONS[factor][one[factor]], axis=1) for one in chosen])
              for factor in ("position", "hue", "lightness", "scale")}
    return Renderer(digits, prepared.textures).render(
        digit=np.array([int(one["shape"]) for one in chosen], dtype=np.int64),
        texture=np.array([classes("texture").index(one["texture"]) for one in chosen], dtype=np.int64),
        crop=np.tile(np.array(_CROP, dtype=np.int64), (len(chosen), 1)), hue=middle["hue"][:, 0] % 360,
        lightness=middle["lightness"], position=middle["position"], scale=middle["scale"][:, 0]).cpu().numpy()


def factor_sheet(prepared: Prepared) -> Figure:
    """A row per factor, an image per class; everything else stands still (paper, Fig. 2)."""
    names = [(factor, name) for factor in FACTORS for name in classes(factor)]
    images = dict(zip(names, render_classes(prepared, [dict([name]) for name in names]), strict=True))
    columns = max(len(classes(factor)) for factor in FACTORS)
    with styled():
        figure = new_figure(0.98 * columns + 0.9, 1.16 * len(FACTORS) + 0.2)
        for row, factor in zip(figure.subplots(len(FACTORS), columns), FACTORS, strict=True):
            for axes, name in zip(row, classes(factor), strict=False):
                axes.imshow(images[factor, name], interpolation="none")
                axes.set_title(name, fontsize=8, loc="center", pad=3)
            for axes in row:
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
            for axes in row[len(classes(factor)):]:
                axes.set_visible(False)
            row[0].set_ylabel(factor, fontsize=9)
    return figure


def write_examples(prepared: Prepared, bindings: list[Binding], out: Path) -> None:
    """For each pair {out}/{pair}.webp: the 3 x 3 combinations of dataset sample 0, rows target, columns cue classes."""
    chosen = dataset_sample(0).classes
    cells = [{binding.target: target, binding.cue: cue} for binding in bindings for target in chosen[binding.target]
             for cue in chosen[binding.cue]]
    images = render_classes(prepared, cells)
    for binding, nine in zip(bindings, images.reshape(len(bindings), 3, 3, *images.shape[1:]), strict=True):
        whole = np.concatenate([np.concatenate(list(row), axis=1) for row in nine])
        with whole_file(out / f"{binding.name}.webp") as temporary:
            Image.fromarray(whole).resize((3 * _SIDE, 3 * _SIDE), Image.Resampling.LANCZOS).save(
                temporary, format="webp", quality=82, method=6)


def example_addresses(folder: Path) -> dict[str, str]:
    """What `write_examples` wrote, as data addresses for a page, by pair."""
    return {path.stem: "data:image/webp;base64," + base64.b64encode(path.read_bytes()).decode()
            for path in sorted(folder.glob("*.webp"))}
