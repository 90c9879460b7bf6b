"""Images of a study and of its scene: one from each cell (paper, Fig. 3), one of each class of each
factor (paper, Fig. 2), and all combinations of a binding's classes."""

import base64
import io
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pyarrow as pa
from matplotlib.patches import Patch
from PIL import Image

from diagvib.foundation.files import file_metadata, open_parquet, read_table
from diagvib.report.report_data import Figure, ReportData
from diagvib.report.style import (
    GROUP_COLOURS,
    MUTED,
    Drawing,
    add_legend,
    new_figure,
    show_pictures,
    write,
)
from diagvib.scenes import load_scene
from diagvib.scenes.prepared import is_prepared
from diagvib.settings.layout import folder_name
from diagvib.studies.known_studies import KnownStudies, sample_of
from diagvib.studies.metric_needs import GAP_GROUPS

PICTURES = "In pictures"
_SIDE, _TEXT = 0.86, 0.2  # inches: of an image, and the height of the text below it
_EXAMPLE_SIDE = 96  # pixels of one combination on the page
# Of a factor, on its sheet; with more, there are no pictures of combinations.
MOST_CLASSES = 24

Cell = tuple[str, ...]  # target class, then the class of each cue


def sheet_figures(report_data: ReportData) -> Iterator[Figure]:
    """A sheet of dataset sample 0 for each study with images: of the binding that shows a shortcut
    best or, for a study whose metrics name none, of its first binding."""
    known_studies, runs = report_data.known_studies, report_data.frames["runs"]
    for study, bindings in runs.groupby("study", sort=False)["binding"].unique().items():
        study_definition = known_studies.studies[study]
        first_bindings = (
            [report_data.binding]
            if study_definition.metrics == "shortcut" and report_data.binding
            else []
        )
        for binding in [*first_bindings, *bindings]:
            factors = binding.split("-")
            folder = (
                report_data.images / study / "-".join(factors[: len(study_definition.bound)]) / "0"
            )
            all_bound = len(study_definition.bound) <= len(factors) in (2, 3)
            if all_bound and folder.exists() and _fit(shown_classes(study, factors, known_studies)):
                title = f"{known_studies.title(study)}: an image of every combination of {binding}"
                draw = partial(contact_sheet, folder, study, factors, known_studies)
                yield Figure(
                    f"sheets/{study}_{binding}", title, draw, PICTURES, study_definition.meaning
                )
                break


def contact_sheet(
    folder: Path, study: str, factors: list[str], known_studies: KnownStudies
) -> Drawing:
    """An image of each cell: rows and columns are the last two factors' classes; with two cues, a
    block for each target class.

    folder: image files of dataset sample 0. Below each image is its cell's share of the training
    images; the colour of the frame is that of the test group. DiagvibError for missing or damaged
    files.
    """
    *target, (row_factor, rows), (column_factor, columns) = shown_classes(
        study, factors, known_studies
    )
    blocks = [(name,) for name in target[0][1]] if target else [()]
    train, test = folder / "train.parquet", folder / "test.parquet"
    share = read_table(train, factors).to_pandas().value_counts(normalize=True)
    groups = known_studies.groups([study])
    # The test group of each cell; the last one, if it is in several.
    tested = read_table(test, ["group", *factors]).to_pandas().drop_duplicates()
    tested = tested.sort_values("group", key=lambda names: names.map(groups.index))
    group = tested.set_index(factors)["group"].to_dict()
    images = example_images(test, factors) | example_images(train, factors)
    colours = dict(zip(groups, cycle(GROUP_COLOURS), strict=False))
    trained = share.groupby([group.get(cell, "") for cell in share.index]).sum()
    agree = "both cues agree with the target"
    misled = (agree, f"{row_factor} misleads", f"{column_factor} misleads", "both mislead")
    # Groups of other studies may be called `common`, too.
    has_gaps = known_studies.studies[study].metrics == "gaps"
    words = dict(zip(GAP_GROUPS.values(), misled, strict=True)) if has_gaps else {}
    handles = [
        Patch(
            facecolor="none",
            edgecolor=colour,
            linewidth=2,
            label=f"{words.get(name, name)}: {100 * trained.get(name, 0):.3g} % of training",
        )
        for name, colour in colours.items()
        if name in group.values()
    ]
    title = f"{known_studies.title(study)}: rows {row_factor}, columns {column_factor}"
    # A letter of the title is 0.085 inches wide.
    width = max((_SIDE * len(columns) + 0.25) * len(blocks) + 0.5, 0.085 * len(title) + 0.2)
    height = (_SIDE + _TEXT) * len(rows) + 0.5 + 0.2 * bool(target)
    figure = new_figure(width, height)
    parts = figure.subfigures(1, len(blocks), squeeze=False)[0]
    for part, block in zip(parts, blocks, strict=True):
        part.suptitle(f"{target[0][0]}: {block[0]}" if target else "", fontsize=10)
        grid = part.subplots(len(rows), len(columns), squeeze=False)
        for axes, names in zip(grid.flat, product(rows, columns), strict=True):
            cell = (*block, *names)
            if cell in images:
                axes.imshow(images[cell], interpolation="none")
            colour = colours.get(group.get(cell), MUTED)
            axes.spines[:].set(visible=True, edgecolor=colour, linewidth=2.2)
            text = f"{100 * share[cell]:.3g} %" if cell in share else "never"
            axes.set_xlabel(text, fontsize=8, labelpad=2)
            axes.set(xticks=[], yticks=[])
        for axes, name in zip(grid[0], columns, strict=True):
            axes.set_title(name, loc="center", fontsize=8, pad=4)
        for axes, name in zip(grid[:, 0], rows, strict=True):
            axes.set_ylabel(name, fontsize=8)
    add_legend(figure, handles, title=title)
    return figure


def shown_classes(
    study: str, bound: list[str], known_studies: KnownStudies
) -> list[tuple[str, tuple[str, ...]]]:
    """For each of the factors of target and cues: its name, and its classes in dataset sample 0.

    For a study without a role for the cue, the classes that the sample has selected.
    """
    selected = sample_of(known_studies.studies[study].scene, 0).classes
    classes = {**selected, **dict(zip(bound, known_studies.classes(study, bound, 0), strict=False))}
    return [(factor, classes[factor]) for factor in bound]


def _fit(factor_classes: Sequence[tuple[str, Sequence[str]]]) -> bool:
    """Whether pictures of all combinations fit on a page. factor_classes: from `shown_classes`."""
    return all(len(classes) <= MOST_CLASSES for _, classes in factor_classes)


def example_images(path: Path, factors: list[str]) -> dict[Cell, np.ndarray]:
    """The first image of each cell in an image file."""
    cells = read_table(path, factors).to_pandas().drop_duplicates()
    images = images_at(path, cells.index.to_numpy())
    return dict(zip(cells.itertuples(index=False, name=None), images, strict=True))


def images_at(path: Path, rows: np.ndarray) -> list[np.ndarray]:
    """Images uint8[H, W, 3] of an image file, in these rows, which are in order; reads no further
    than necessary."""
    images: list[bytes] = []
    with open_parquet(path) as file:
        shape, start = file_metadata(file, path)["image_shape"], 0
        for batch in file.iter_batches(batch_size=256, columns=["image"]):
            within = rows[(rows >= start) & (rows < start + len(batch))]
            images += batch.take(pa.array(within - start))["image"].to_pylist()
            start += len(batch)
            if start > rows[-1]:
                break
    return [np.frombuffer(image, np.uint8).reshape(shape) for image in images]


def factor_figures(report_data: ReportData) -> Iterator[Figure]:
    """Files only: a sheet for each prepared scene; if there are several, the name includes it."""
    scenes = _prepared_scenes(report_data)
    for scene, folder in scenes.items():
        name = "factors" if len(scenes) == 1 else f"factors_{folder_name(scene)}"
        draw = partial(factor_sheet, scene, folder)
        yield Figure(f"sheets/{name}", f"{scene}: each class of each factor", draw)


def _prepared_scenes(report_data: ReportData) -> dict[str, Path]:
    """The scenes of which everything is present that they render from, and where that is."""
    scenes = dict.fromkeys(
        report_data.known_studies.studies[study].scene for study in report_data.studies
    )
    folders = {scene: report_data.prepared(scene) for scene in scenes}
    return {scene: folder for scene, folder in folders.items() if is_prepared(folder)}


def factor_sheet(scene: str, prepared: Path) -> Drawing:
    """A row per factor, an image per class, of the first classes if there are many; all other factors
    are fixed (paper, Fig. 2)."""
    loaded = load_scene(scene)
    factors = {factor: classes[:MOST_CLASSES] for factor, classes in loaded.factors.items()}
    names = [{factor: name} for factor, classes in factors.items() for name in classes]
    images, columns = iter(loaded.examples(prepared, names)), max(map(len, factors.values()))
    figure = new_figure(max(0.98 * columns + 0.4, 3.6), 1.16 * len(factors) + 0.2)
    axes = figure.subplots()
    for row, (factor, classes) in enumerate(factors.items()):
        top = 1.25 * row
        show_pictures(axes, [[next(images) for _ in classes]], top)
        write(axes, -0.08, top + 0.5, factor, ha="right", rotation=90, fontsize=9)
        for column, name in enumerate(classes):
            write(axes, column + 0.5, top - 0.03, name, va="bottom", fontsize=8)
    axes.set(xlim=(0, columns), ylim=(1.25 * len(factors) - 0.25, -0.25), aspect="equal")
    axes.set_axis_off()
    return figure


def example_pictures(report_data: ReportData) -> dict[str, str]:
    """For each pair of target and cue in the matrix, a data address with all combinations of its
    classes: rows target, columns cue classes. The key is {scene}-{target}-{cue}-{rows}x{columns}."""
    known_studies, pictures = report_data.known_studies, {}
    runs = report_data.frames["runs"].drop_duplicates(["study", "binding"])
    runs = runs[runs["study"].isin(report_data.frames["p_matrix"]["study"])]
    runs = runs[runs["binding"].str.count("-") == 1]
    for scene, folder in _prepared_scenes(report_data).items():
        class_pairs = {
            tuple(shown_classes(run.study, run.binding.split("-"), known_studies)): None
            for run in runs.itertuples()
            if known_studies.studies[run.study].scene == scene
        }
        pictures |= combinations(scene, folder, [*filter(_fit, class_pairs)])
    return pictures


def combinations(scene: str, prepared: Path, class_pairs: Collection[tuple]) -> dict[str, str]:
    """Pictures of every combination of classes, as addresses, by name. class_pairs: for each picture,
    factor and classes of target and cue, as from `shown_classes`."""
    cells = [
        {target: row, cue: column}
        for (target, rows), (cue, columns) in class_pairs
        for row, column in product(rows, columns)
    ]
    images = iter(load_scene(scene).examples(prepared, cells) if cells else ())
    pictures = {}
    for (target, rows), (cue, columns) in class_pairs:
        lines = [np.hstack([next(images) for _ in columns]) for _ in rows]
        size = (len(columns) * _EXAMPLE_SIDE, len(rows) * _EXAMPLE_SIDE)
        picture = Image.fromarray(np.vstack(lines)).resize(size, Image.Resampling.LANCZOS)
        key = f"{folder_name(scene)}-{target}-{cue}-{len(rows)}x{len(columns)}"
        pictures[key] = webp_address(picture)
    return pictures


def webp_address(picture: Image.Image) -> str:
    """A picture as a data address, a tenth of the size of a PNG file."""
    file = io.BytesIO()
    picture.save(file, format="webp", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
