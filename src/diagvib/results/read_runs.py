"""Reads runs: each expected run is either read or reported missing, with a reason. One pass over
the files."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from pydantic import BaseModel

from diagvib.foundation.errors import DiagvibError, one_line, some_names
from diagvib.foundation.files import METADATA_KEY, read_json
from diagvib.foundation.parallel import in_processes
from diagvib.foundation.progress import progress_bar
from diagvib.provenance.finished import changed_files, differing
from diagvib.results import saliency_shares
from diagvib.results.calibration import calibration_errors, is_calibration
from diagvib.results.cells import (
    RUN_KEYS,
    cells_table,
    count_cells,
    mean_per_class,
    read_predictions,
)
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.settings.layout import RUN_FILES, run_folder_name
from diagvib.settings.method_settings import has_probabilities, is_trained, method_of
from diagvib.studies.known_studies import SHIPPED, KnownStudies

# Columns of a run's epochs that every run records. After them come an accuracy for each test group
# if `training.track_test` asks for it, WORST_CLASS, which runs made before it lack, those of cues,
# and ENVIRONMENTS if a study has several.
EPOCH_COLUMNS = ("epoch", "train_loss", "train_accuracy", "val_loss", "val_accuracy")
_ACCURACIES = [EPOCH_COLUMNS.index(name) for name in ("train_accuracy", "val_accuracy")]
WORST_CLASS, ENVIRONMENTS = "val_worst_class", "val_environment_accuracy"
SELECTABLE = "selectable"
# These may differ between runs besides the versions of packages.
_CIRCUMSTANCES = ("date", "device", "machine", "precision", "seed")
_COMMIT = "commit"
# With fewer runs, starting another process costs more time than it saves.
RUNS_A_PROCESS = 1000


class _Git(BaseModel, strict=True):
    commit: str
    changed: bool


class _Made(BaseModel, strict=True):
    """The contents of run.json, as far as they are read."""

    settings: dict | None = None
    training: dict | None = None
    versions: dict | None = None
    seconds: dict[str, float] | None = None
    device: str | None = None
    precision: str | None = None
    seed: int | None = None
    git: _Git | None = None
    date: str | None = None
    machine: str | None = None
    images_per_second: float | None = None


class _Origin(BaseModel, strict=True):
    """The metadata of predictions, as far as they are read."""

    sources: str
    comparable: bool
    trained: dict[str, int] = {}


class _Region(BaseModel, strict=True):
    share: float
    area: float


class _Metrics(BaseModel, strict=True):
    doubts: list[str] = []
    saliency: dict[str, _Region] = {}


@dataclass(frozen=True)
class Collected:
    """The runs that were read: `frame`, as in `read_runs`, and per row what made the run (None if
    it is missing).

    history: every epoch, indexed by the row of its run: RUN_KEYS, `history_columns` (NaN if not
    recorded), and SELECTABLE, whether it is of the last phase, in which weights are selected.
    cells: the long table (`cells.CELL_COLUMNS`) of the complete runs. cue_label: per row of the
    frame, class of the first cue -> classes that it points to; None where the study's metrics do
    not count the predictions that follow it.
    """

    frame: pd.DataFrame
    provenance: list[dict | None]
    history: pd.DataFrame
    cells: pd.DataFrame
    cue_label: Sequence[dict[str, Set[str]] | None] = ()


class _Read(NamedTuple):
    """The contents of one run's files."""

    status: str
    reason: str = ""
    sources: str | None = None
    comparable: bool | None = None
    cells: Sequence[dict] = ()  # from `cells.count_cells`
    provenance: dict | None = None
    epochs: Sequence[np.ndarray] = ()  # from `read_history`
    # Of metric sets beyond cells, and of the saliency.
    measures: dict[str, float] | None = None
    untested: str = ""
    cue_label: dict[str, Set[str]] | None = None


def run_folder(runs: Path, run: dict) -> Path:
    folder = run_folder_name(run["sample"], run["seed"])
    return runs / run["baseline"] / run["study"] / run["binding"] / folder


def read_runs(
    runs: Path, expected: Iterable[dict], threads: int = 1, known_studies: KnownStudies = SHIPPED
) -> Collected:
    """Every expected run with its settings, times, epochs and cells, whether it is complete or not.

    expected: dicts with RUN_KEYS (cue None without one) and, to count only runs made as configured,
    their expected `provenance`. threads: the most processes that read. Columns of the frame, which
    has a row per run: RUN_KEYS (cue empty without one), status (ok | missing | damaged), reason, for
    every test group of the studies {group}_accuracy and {group}_n, sources, comparable, untested
    (combinations of classes without a test image). Accuracies are computed from the predictions. A
    run whose files are not those that its run.json names is damaged.
    """
    expected = list(expected)
    frame = pd.DataFrame(expected, columns=RUN_KEYS)
    columns = history_columns(known_studies, frame["study"].unique())
    readings = in_processes(
        partial(_read_run, runs, known_studies, columns), expected, threads, RUNS_A_PROCESS
    )
    with progress_bar() as bar:
        read = bar.track(readings, len(expected), description="reading runs")
        read = pd.DataFrame(read, frame.index, _Read._fields)
    cells = cells_table(frame, read["cells"])
    accuracies = mean_per_class(cells.assign(run=cells.index), ["run", "group"])
    frame = frame.join(read[["status", "reason"]])
    no_epochs = np.zeros((0, len(columns) + 1), np.float32)
    epochs = np.concatenate(
        [no_epochs, *(run_epochs for run_epochs in read["epochs"] if len(run_epochs))]
    )
    row_numbers = frame.index.repeat(read["epochs"].map(len))
    history = frame[RUN_KEYS].join(
        pd.DataFrame(epochs, row_numbers, [*columns, SELECTABLE]), how="inner"
    )
    # Runs of unknown studies name their groups themselves.
    for group in dict.fromkeys([*known_studies.groups(frame["study"]), *accuracies["group"]]):
        group_accuracies = accuracies[accuracies["group"] == group].set_index("run")[
            ["accuracy", "n"]
        ]
        frame[[f"{group}_accuracy", f"{group}_n"]] = group_accuracies.reindex(frame.index).astype(
            float
        )
    frame = frame.join(
        pd.DataFrame([run_measures or {} for run_measures in read["measures"]], frame.index)
    )
    return Collected(
        frame.join(read[["sources", "comparable", "untested"]]),
        [*read["provenance"]],
        history.astype({"epoch": "int64", SELECTABLE: bool}),
        cells.reset_index(drop=True),
        [*read["cue_label"]],
    )


def history_columns(known_studies: KnownStudies, studies: Iterable[str]) -> list[str]:
    """The columns of the epochs of runs of these studies. With cues, `follows` and the worst
    validation accuracy over target x all cues; with several cues, also that over target x each."""
    definitions = [known_studies.studies[name] for name in studies if name in known_studies.studies]
    cues = max((len(study.cues) for study in definitions), default=0)
    cue_columns = [f"val_worst_group_cue_{number}" for number in range(1, cues + 1)]
    return [
        *EPOCH_COLUMNS,
        *(f"{group}_accuracy" for group in known_studies.groups(studies)),
        WORST_CLASS,
        *follows(cues),
        *(["val_worst_group"] if cues else []),
        *(cue_columns if cues > 1 else []),
        *([ENVIRONMENTS] if any(len(study.environments) > 1 for study in definitions) else []),
    ]


def follows(cues: int) -> list[str]:
    """The columns of epochs with the share of predictions on validation images that are the class
    each cue points to. cues: their number."""
    return [f"val_follows_cue_{number}" for number in range(1, cues + 1)]


def _read_run(runs: Path, known_studies: KnownStudies, columns: list[str], run: dict) -> _Read:
    """columns: of the epochs."""
    folder = run_folder(runs, run)
    missing = [name for name in RUN_FILES if not (folder / name).exists()]
    if missing:
        unfinished = len(missing) < len(RUN_FILES)
        return _Read("missing", f"unfinished: no {missing[0]}" if unfinished else "not run")
    try:
        with _reading(folder / "run.json") as path:
            _Made.model_validate(provenance := read_json(path))
        if differences := differing(provenance, run.get("provenance", {})):
            return _Read(
                "missing",
                f"another run is there, of other {', '.join(differences)} than the configuration asks for; "
                "`snakemake` makes it again",
            )
        same_place = provenance.get("run") == "/".join(folder.parts[-4:])
        if changed := ([] if same_place else ["run.json"]) + changed_files(provenance, folder):
            raise DiagvibError(
                f"{changed[0]}: changed since it was made, or another run's; delete this folder and "
                "run again"
            )
        with _reading(folder / "predictions.parquet") as path:
            origin, cells, measures, labels = _read_cells(path, run, known_studies)
        if not has_probabilities(provenance.get("settings")):
            measures = {name: value for name, value in measures.items() if not is_calibration(name)}
        with _reading(folder / "metrics.json") as path:
            metrics = _Metrics.model_validate(read_json(path))
        measures |= saliency_shares.measures(metrics.model_dump()["saliency"], run["binding"])
        with _reading(folder / "history.jsonl") as path:
            epochs = read_history(path, columns)
            if np.isnan(epochs[:, _ACCURACIES]).all():  # nothing was learned
                epochs = epochs[:0]
    except DiagvibError as error:
        return _Read("damaged", one_line(str(error).replace(f"{folder}/", "")))
    return _Read(
        "ok",
        "; ".join(metrics.doubts),
        origin.sources,
        origin.comparable,
        cells,
        provenance,
        epochs,
        measures,
        _untested(known_studies, run, origin.trained, cells),
        labels,
    )


@contextmanager
def _reading(path: Path) -> Iterator[Path]:
    """Turns any error with a file into a DiagvibError that names the file: files made by others may
    contain anything, and one run must not stop all tables."""
    try:
        yield path
    except DiagvibError:
        raise
    except Exception as error:
        raise DiagvibError(
            f"{path}: damaged ({type(error).__name__}: {one_line(error)}); delete this folder and run "
            "again"
        ) from None


def _read_cells(
    path: Path, run: dict, known_studies: KnownStudies
) -> tuple[_Origin, list[dict], dict[str, float], dict[str, Set[str]] | None]:
    """Origin, cells, the measures of metric sets beyond cells, and the first cue's
    `misleading_label`."""
    target, *cues = factors = run["binding"].split("-")
    table = read_predictions(path, target, cues)
    origin = _Origin.model_validate_json(table.schema.metadata[METADATA_KEY])
    labels = known_studies.misleading_label(run["study"], factors, run["sample"], origin.trained)
    cells = count_cells(table, target, cues, labels, origin.trained)
    study = known_studies.studies.get(run["study"])
    measures = {}
    if "confidence" in table.column_names:
        measures = calibration_errors(table, target)
        del measures["ece"]  # the table `runs` has the groups'
    if study is not None:
        measures |= METRIC_SETS[study.metrics].of_predictions(path, target)
    return origin, cells, measures, labels


def _untested(
    known_studies: KnownStudies, run: dict, trained: Mapping[str, int], cells: Sequence[Mapping]
) -> str:
    """The combinations without a test image: `wren-land, gull-sea and 2 more`."""
    factors = run["binding"].split("-")
    tested = {"-".join(filter(None, (cell["target_class"], cell["cue_class"]))) for cell in cells}
    return some_names(known_studies.untested(run["study"], factors, run["sample"], trained, tested))


def read_history(path: Path, columns: Sequence[str]) -> np.ndarray:
    """A run's epochs, float32[epochs, columns and SELECTABLE], NaN for what was not recorded.

    columns: EPOCH_COLUMNS, which every epoch has, and others that an epoch may lack.
    """
    rows = json.loads("[" + ",".join(path.read_text(encoding="utf-8").splitlines()) + "]")
    values = [
        [row[key] if key in EPOCH_COLUMNS else row.get(key, np.nan) for key in columns]
        + [row.get("phase") == rows[-1].get("phase")]
        for row in rows
    ]
    epochs = np.array(values, dtype=np.float32)
    if not len(epochs) or not np.isfinite(epochs[:, 0]).all():
        raise ValueError("no epochs, or some without a number")
    return epochs


def run_times(collected: Collected) -> pd.DataFrame:
    """One row per finished run: images_per_second and seconds per stage, from its run.json."""
    keys = ["baseline", "study", "binding", "sample", "seed"]
    names = collected.frame[keys].to_dict("records")
    rows = [
        {
            **name,
            "device": provenance.get("device"),
            "images_per_second": provenance.get("images_per_second")
            if is_trained(method_of(provenance.get("settings")).get("name"))
            else None,
            **{
                f"seconds_{stage}": value
                for stage, value in (provenance.get("seconds") or {}).items()
            },
        }
        for name, provenance in zip(names, collected.provenance, strict=True)
        if provenance is not None
    ]
    return pd.DataFrame(rows or {key: [] for key in [*keys, "device"]})


def versions(collected: Collected) -> dict:
    """How the finished runs were made: every version, device, precision and seed that occurs, and
    settings per baseline."""
    seen_values: dict[str, set] = {}
    settings: dict[str, dict] = {}
    for baseline, provenance in zip(collected.frame["baseline"], collected.provenance, strict=True):
        if provenance is None:
            continue
        facts = {
            **(provenance.get("versions") or {}),
            **{key: provenance[key] for key in _CIRCUMSTANCES if provenance.get(key) is not None},
        }
        if git := provenance.get("git"):
            facts[_COMMIT] = f"{git['commit'][:10]}{', code changed since' * git['changed']}"
        for name, value in facts.items():
            seen_values.setdefault(name, set()).add(str(value))
        settings.setdefault(baseline, provenance.get("settings") or {})
    return {
        "versions": {name: sorted(values) for name, values in sorted(seen_values.items())},
        "baselines": settings,
    }


def mixed_note(versions: dict[str, list[str]]) -> str:
    """A sentence that names the packages, devices and precisions of which runs used several; empty
    if there are none. versions: as from `versions`."""
    packages = [name for name in versions if name not in (*_CIRCUMSTANCES, _COMMIT)]
    several = [
        f"{name} {', '.join(versions[name])}"
        for name in [*packages, "device", "precision"]
        if len(versions.get(name, ())) > 1
    ]
    text = "Not all runs were made with the same packages and devices"
    return f"{text}: {'; '.join(several)}." if several else ""
