"""Figures from tables, drawn in several processes; the same tables give the same bytes."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from diagvib.foundation.parallel import in_processes
from diagvib.report.cell_sheets import cell_sheet
from diagvib.report.confusion import confusion_bars
from diagvib.report.curves import shown_routes, study_curves
from diagvib.report.examples import factor_sheet, is_prepared, write_examples
from diagvib.report.gap_figures import gap_bars, gap_pareto
from diagvib.report.heat_maps import heat_map
from diagvib.report.judged import bindings_of
from diagvib.report.overviews import asymmetry, dominance, paper_scatter, training_curves
from diagvib.report.preference import preference_curves
from diagvib.report.sheets import shown_classes, study_sheet
from diagvib.report.style import HELD_OUT, save_figure
from diagvib.report.visualisation_sheets import visualisations
from diagvib.results.known_studies import SHIPPED, KnownStudies, known_studies
from diagvib.results.shortcut import telling_bindings
from diagvib.results.tables import read_histories, read_preferences, read_tables, source_note
from diagvib.scenes import load_scene
from diagvib.settings.grid import folder_name
from diagvib.studies.binding import Binding

# With fewer figures, starting another process costs more time than it saves.
FIGURES_A_PROCESS = 12

# The name of a figure, and the function that draws it (None: nothing to show).
Task = tuple[str, Callable[[], Figure | None]]


def draw_figures(
    tables: Path,
    out: Path,
    images: Path,
    settings: dict,
    prepared: Callable[[str], Path] | None = None,
    runs: Path | None = None,
    threads: int = 1,
) -> list[Path]:
    """Every figure of the tables under `tables`, written under `out` as PNG and SVG; returns the
    paths.

    images: the folder of image files; the study sheets of the most telling binding are drawn from
    those that exist. prepared: the folder of a scene's prepared sources; examples of classes and
    bindings are rendered from it if it exists. runs: the folder of all runs, whose recorded
    pictures are shown. settings: the configuration. threads: the most processes that draw; the
    files do not depend on it.
    """
    frames = read_tables(tables)
    p, known = frames["p_matrix"], known_studies(settings)
    binding = sheet_binding(p, known)
    save = partial(_save, out=Path(out), note=source_note(frames["runs"], settings))
    # The slowest come first, so that all processes end at about the same time.
    tasks = list(
        chain(
            _examples(prepared, frames["runs"], Path(out), known) if prepared else (),
            _training(frames["runs"], Path(tables), known),
            _gaps(frames, Path(images), known),
            visualisations(frames["runs"], runs, binding, known) if runs else (),
            _curves(frames["metrics"], frames["reference"], known),
            _overviews(frames, known),
            _confusion(frames["average"], known),
            _sheets(p, binding, images, known),
            _heat_maps(p, known),
        )
    )
    return [
        path
        for written in in_processes(save, tasks, threads, FIGURES_A_PROCESS)
        for path in written
    ]


def _save(task: Task, out: Path, note: str) -> list[Path]:
    """Draw and write one figure; no file where there is nothing to show."""
    name, draw = task
    figure = draw()
    if figure is None:
        return []
    if note:
        figure.supxlabel(note, fontsize=7, color=HELD_OUT, x=0.01, ha="left")
    return save_figure(figure, out / name)


def _overviews(frames: dict[str, pd.DataFrame], known: KnownStudies) -> Iterator[Task]:
    p = frames["p_matrix"]
    baselines, headline = list(p["baseline"].unique()), known.headline(p["study"])
    yield "paper/scatter", partial(paper_scatter, frames["comparison"], baselines)
    if headline:
        study = headline.shortcut
        yield f"dominance/{study}", partial(dominance, frames["runs"], study, known)
        for name in baselines:
            yield f"asymmetry/{study}_{name}", partial(asymmetry, p, name, study, known)


def _confusion(average: pd.DataFrame, known: KnownStudies) -> Iterator[Task]:
    for study in filter(None, average["study"].unique()):
        yield f"confusion/{study}", partial(confusion_bars, average, study, known)


def _training(runs: pd.DataFrame, tables: Path, known: KnownStudies) -> Iterator[Task]:
    for baseline in runs["baseline"].unique():
        yield f"training/{baseline}", partial(_draw_training, tables, baseline, known)

    for study in runs["study"].unique():
        if known.studies[study].cues:
            yield f"preference/{study}", partial(_draw_preference, tables, study, known)


def _draw_preference(tables: Path, study: str, known: KnownStudies) -> Figure | None:
    return preference_curves(read_preferences(tables, study), study, known)


def _draw_training(tables: Path, baseline: str, known: KnownStudies) -> Figure | None:
    # Read here: the epochs of all baselines at once would need more memory than anything else in
    # drawing.
    return training_curves(read_histories(tables, baseline), baseline, known)


def _examples(
    prepared: Callable[[str], Path], runs: pd.DataFrame, out: Path, known: KnownStudies
) -> Iterator[Task]:
    """A sheet for each prepared scene; if there are several, the name includes the scene."""
    studies = {study: known.studies[study].scene for study in runs["study"].unique()}
    for scene in dict.fromkeys(studies.values()):
        own = runs[runs["study"].map(studies) == scene]
        name = (
            "sheets/factors"
            if len(set(studies.values())) == 1
            else f"sheets/factors_{folder_name(scene)}"
        )
        if is_prepared(load_scene(scene), folder := Path(prepared(scene))):
            pairs = own.loc[own["binding"].str.count("-") == 1, ["study", "binding"]]
            shown = [
                shown_classes(study, Binding(tuple(binding.split("-"))), 0, known)
                for study, binding in pairs.drop_duplicates().itertuples(index=False)
            ]
            yield name, partial(_draw_examples, scene, folder, shown, out / "examples")


def _draw_examples(scene: str, prepared: Path, shown: list, out: Path) -> Figure:
    """The sheet of factor classes; also writes the bindings' examples for the page."""
    named = {
        f"{folder_name(scene)}-{target}-{cue}-{len(rows)}x{len(columns)}": [
            (target, rows),
            (cue, columns),
        ]
        for (target, rows), (cue, columns) in shown
    }
    write_examples(load_scene(scene), prepared, named, out)
    return factor_sheet(load_scene(scene), prepared)


def _gaps(frames: dict[str, pd.DataFrame], images: Path, known: KnownStudies) -> Iterator[Task]:
    """For each study with two cues: its gaps by binding, their cost, and the cells of the first
    binding with images."""
    gaps, whac = frames["gaps"], frames["whac_a_mole"]
    for study in gaps["study"].unique():
        bindings = bindings_of(gaps, study)
        for binding in bindings:
            yield (
                f"gaps/{study}_{binding or 'all'}",
                partial(gap_bars, gaps, whac, study, binding, known),
            )
        yield f"gaps/pareto_{study}", partial(gap_pareto, gaps, whac, study, bindings[0], known)
        folders = {binding: images / study / binding / "0" for binding in filter(None, bindings)}
        for binding, folder in [(name, path) for name, path in folders.items() if path.exists()][
            :1
        ]:
            yield (
                f"sheets/{study}_{binding}",
                partial(
                    cell_sheet,
                    folder / "train.parquet",
                    folder / "test.parquet",
                    Binding(tuple(binding.split("-"))),
                    known,
                ),
            )


def _heat_maps(p: pd.DataFrame, known: KnownStudies) -> Iterator[Task]:
    for baseline, study in (
        p[["baseline", "study"]].drop_duplicates().itertuples(index=False, name=None)
    ):
        yield f"p_matrix/{study}_{baseline}", partial(heat_map, p, study, baseline, known)


def _curves(metrics: pd.DataFrame, reference: pd.DataFrame, known: KnownStudies) -> Iterator[Task]:
    # With a single cue, FAMin equals FAAvg.
    for metric in ("faavg", "famin") if metrics["cues"].max() > 1 else ("faavg",):
        for route in shown_routes(metrics, known):
            yield (
                f"curves/{metric}_{route}",
                partial(study_curves, metrics, metric, route, reference, known),
            )


def sheet_binding(p: pd.DataFrame, known: KnownStudies = SHIPPED) -> Binding | None:
    """The binding whose study sheets are drawn: the one that shows a shortcut best."""
    found = telling_bindings(p, known)
    return Binding((found["target"][0], *found["cue"][0].split("-"))) if len(found) else None


def _sheets(
    p: pd.DataFrame, binding: Binding | None, images: Path, known: KnownStudies
) -> Iterator[Task]:
    """Sheets of studies with one cue, and of those without."""
    for study in p["study"].unique() if binding and len(binding.cues) == 1 else ():
        roles = len(known.studies[study].bound)
        folder = Path(images) / study / "-".join(binding.factors[:roles]) / "0"
        if roles <= len(binding.factors) and folder.exists():
            yield (
                f"sheets/{study}_{binding.name}",
                partial(
                    study_sheet, folder / "train.parquet", folder / "test.parquet", binding, known
                ),
            )
