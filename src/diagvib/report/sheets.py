"""Study sheets: one image from each cell of target and cue, to show the shortcut (paper, Fig.
3)."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_metadata, open_parquet, read_table
from diagvib.report.style import HELD_OUT, MUTED, TRAINED, new_figure, styled
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.scenes import load_scene
from diagvib.studies.binding import Binding
from diagvib.studies.dataset_sample import DatasetSample, dataset_sample

Cell = tuple[str, ...]  # target class, then the class of each cue


def study_sheet(train: Path, test: Path, binding: Binding, known: KnownStudies = SHIPPED) -> Figure:
    """The cells of a dataset: rows target classes, columns cue classes, one image each.

    train, test: image files of one (study, binding, sample); binding: of one target and one cue.
    Each cell is labelled with its share of the training images; cells tested as `ood` have a dashed
    vermilion border, the others a solid blue one. DiagvibError for missing or damaged files.
    """
    share, tested = cell_shares(train, binding), ood_cells(test, binding)
    with open_parquet(train) as file:
        metadata = file_metadata(file, train)
    (target_factor, rows), (cue_factor, columns) = shown_classes(
        metadata["study"], binding, metadata["sample"], known
    )
    images = example_images(train, binding, set(share.index) - tested) | example_images(
        test, binding, tested
    )
    with styled():
        figure = new_figure((4 + 13 * len(columns)) / 10, (6 + 15 * len(rows)) / 10)
        axes = figure.subplots(len(rows), len(columns), squeeze=False)
        for i, target in enumerate(rows):
            for j, cue in enumerate(columns):
                cell = (target, cue)
                _draw_cell(axes[i, j], images.get(cell), float(share.get(cell, 0)), cell in tested)
                if i == 0:
                    axes[i, j].set_title(cue, loc="center", fontsize=10.5)
            turned = {} if len(target) > 2 else {"rotation": 0, "va": "center", "labelpad": 9}
            axes[i, 0].set_ylabel(target, fontsize=10.5, **turned)
        figure.suptitle(
            f"{known.title(metadata['study'])}: rows {target_factor}, columns {cue_factor}",
            fontsize=11,
            x=0.02,
            ha="left",
        )
    return figure


def scene_sample(scene: str, number: int) -> DatasetSample:
    """A dataset sample of a scene, by its number."""
    loaded = load_scene(scene)
    return dataset_sample(number, loaded.factors, loaded.published_samples)


def shown_classes(
    study: str, binding: Binding, sample: int, known: KnownStudies
) -> list[tuple[str, tuple[str, ...]]]:
    """For target and cues: the factor, and its classes in a dataset sample.

    For a study without a role for the cue, the classes that the sample has selected.
    """
    definition = known.studies[study]
    chosen, factors = scene_sample(definition.scene, sample), load_scene(definition.scene).factors
    counts = [definition.roles.get(role) for role in definition.bound]
    counts += [None] * (len(binding.factors) - len(counts))
    return [
        (factor, chosen.chosen(factor, count, factors[factor]) if count else chosen.classes[factor])
        for factor, count in zip(binding.factors, counts, strict=True)
    ]


def cell_shares(train: Path, binding: Binding) -> pd.Series:
    """Share of the training images in each drawn cell, indexed by (target class, cue classes)."""
    return read_table(train, list(binding.factors)).to_pandas().value_counts(normalize=True)


def ood_cells(test: Path, binding: Binding) -> set[Cell]:
    """The cells of a test file's group `ood`; empty if a study has none."""
    table = read_table(test, ["group", *binding.factors]).to_pandas()
    held_out = table[table["group"] == "ood"]
    return set(zip(*(held_out[factor] for factor in binding.factors), strict=True))


def example_images(path: Path, binding: Binding, cells: set[Cell]) -> dict[Cell, np.ndarray]:
    """The first image uint8[H, W, 3] of each requested cell in an image file; reads no further than
    necessary."""
    found: dict[Cell, np.ndarray] = {}
    with open_parquet(path) as file:
        shape = file_metadata(file, path).get("image_shape")
        if shape is None:
            raise DiagvibError(
                f"{path}: not an image file; made by `diagvib render`, it has a column 'image'"
            )
        for batch in file.iter_batches(batch_size=256, columns=[*binding.factors, "image"]):
            names = zip(
                *(batch.column(factor).to_pylist() for factor in binding.factors), strict=True
            )
            for row, cell in enumerate(names):
                if cell in cells and cell not in found:
                    found[cell] = np.frombuffer(
                        batch.column("image")[row].as_py(), np.uint8
                    ).reshape(shape)
            if len(found) == len(cells):
                break
    return found


def _draw_cell(axes: Axes, image: np.ndarray | None, share: float, tested: bool) -> None:
    axes.set(xticks=[], yticks=[])
    if image is None:
        axes.set_facecolor("none")
        axes.text(
            0.5,
            0.5,
            "not used",
            transform=axes.transAxes,
            ha="center",
            va="center",
            color=MUTED,
            fontsize=9,
        )
    else:
        axes.imshow(image, interpolation="none")
    for spine in axes.spines.values():
        spine.set(
            visible=True,
            edgecolor=HELD_OUT if tested else TRAINED,
            linewidth=2.2,
            linestyle=(0, (3, 1.5)) if tested else "solid",
        )
    trained = f"{100 * share:.3g} % of training" if share else "never trained"
    axes.set_xlabel(
        f"{trained}\ntested as ood" if tested else trained,
        fontsize=9,
        color=HELD_OUT if tested else TRAINED,
        labelpad=3,
    )
