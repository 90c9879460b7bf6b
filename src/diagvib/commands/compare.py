"""Two results folders compared: another code version, another seed, another machine."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_text
from diagvib.provenance.conditions import other_conditions
from diagvib.provenance.finished import differing
from diagvib.results.read_runs import Collected, read_runs
from diagvib.results.reader_tables import (
    Table,
    describe_missing,
    html,
    interval,
    markdown,
    percent,
    points,
)
from diagvib.results.uncertainty import FEWEST, estimate, sample_interval
from diagvib.settings.layout import Run, run_numbers
from diagvib.settings.resolve import command_for, is_not_pulled
from diagvib.studies.known_studies import SHIPPED

CELL_KEYS = ["study", "baseline", "target", "cue", "group"]
_RUN = ["sample", "seed"]
_MADE_WITH = (
    "settings",
    "training",
    "seed",
    "threads",
    "device",
    "machine",
    "precision",
    "versions",
    "code",
    "images",
    "git",
)
# Of runs that could have the same bytes.
_SAME = ("settings", "training", "code", "images")
_PREDICTED = "predictions.parquet"
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Results compared</title>
<style>:root{{color-scheme:light dark}}body{{font:1rem/1.5 system-ui,sans-serif;margin:2rem}}
table{{border-collapse:collapse;margin:0 0 2rem}}caption{{font-size:1.5rem;text-align:left}}
th,td{{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8884}}
.number{{text-align:right}}</style>
{}</html>
"""


def compare_results(
    reference_root: Path, other_root: Path, threads: int = 1, letter: str = "B"
) -> pd.DataFrame:
    """Every cell of P_ij in either folder: a, b, their standard errors and n, difference (b minus
    a) and verdict.

    reference_root, other_root: results folders (or their `runs`), a and b; threads: the most
    processes that read; letter: of the second folder, for readers. Where both folders have the same
    dataset samples and seeds, the difference is paired by these, over n common samples; low, high:
    its `sample_interval`. Verdict: same (equal in every common run) | differs (the interval
    excludes zero, as in about one in twenty cells that do not differ) | cannot tell (it does not,
    or there is none) | only A | only B | no common sample | missing.
    `attrs["damaged"]` names runs that could not be read, `attrs["changes"]` what the runs were made
    with: rows of `_changes`, `attrs["repeats"]` what `_repeats` says. DiagvibError for folders
    without runs.
    """
    folders = [runs_folder(path) for path in (reference_root, other_root)]
    expected = {tuple(run.values()): run for folder in folders for run in find_runs(folder)}
    collected = [read_runs(folder, expected.values(), threads) for folder in folders]
    a, b = (results.frame for results in collected)
    groups = {f"{name[:-2]}_accuracy": name[:-2] for name in [*a, *b] if name.endswith("_n")}
    if not groups:
        raise DiagvibError(f"{folders[0]}, {folders[1]}: no run can be read: {a['reason'].iloc[0]}")
    table = _compare(_long(a, groups), _long(b, groups))
    table.attrs["damaged"] = [
        f"{name}: {line}"
        for name, frame in (("A", a), (letter, b))
        for line in describe_missing(frame[frame["status"] != "missing"])
    ]
    table.attrs["changes"] = _changes(*collected)
    table.attrs["repeats"] = _repeats(*collected, ("A", letter))
    return table


def _repeats(reference_runs: Collected, other_runs: Collected, letters: tuple[str, str]) -> str:
    """Whether the runs that both folders have of the same settings, images and code have the same
    predictions; if not, how far accuracies are apart, and which conditions of training differ.
    Empty without such runs. letters: of the folders, for readers."""
    pair = [reference_runs, other_runs]
    accuracies = [collected.frame.filter(regex="_accuracy$") for collected in pair]
    gaps = (accuracies[1] - accuracies[0]).abs().max(axis=1)
    records = zip(*(collected.provenance for collected in pair), gaps, strict=True)
    repeats = [
        (a, b, gap)
        for a, b, gap in records
        if a and b and not differing(a, {key: b.get(key) for key in _SAME})
    ]
    if not repeats:
        return ""
    count = f"{len(repeats)} run{'s' * (len(repeats) != 1)}"
    start = f"Of {count} with the same settings, images and code in {' and '.join(letters)}"
    apart = [repeat for repeat in repeats if len({r["files"][_PREDICTED] for r in repeat[:2]}) > 1]
    if not apart:
        return f"{start}, all have the same predictions, byte for byte."
    reasons = Counter(other_conditions(a, b, letters) for a, b, _ in apart)
    trained = "; ".join(
        f"{number} trained {reason or 'where nothing that they record differs'}"
        for reason, number in reasons.most_common()
    )
    return (
        f"{start}, {len(apart)} {'has' if len(apart) == 1 else 'have'} other predictions, with "
        f"accuracies up to {100 * max(gap for *_, gap in apart):.1f} points apart: {trained}. Rounding "
        "depends on hardware, packages and threads, and on a GPU on chance; in training it can grow to "
        "what another seed changes."
    )


def _changes(reference_runs: Collected, other_runs: Collected) -> list[list[str]]:
    """Differences in how the runs were made: baselines, key, its values in each folder. Settings,
    training protocol, versions, device, and digests of code and images."""
    reference_values, other_values = map(_made_with, (reference_runs, other_runs))
    differing: dict[tuple, list[str]] = {}
    for baseline in [name for name in reference_values if name in other_values]:
        pair = reference_values[baseline], other_values[baseline]
        for key in sorted({*pair[0], *pair[1]}):
            values = [sorted(values_by_key.get(key, ["-"])) for values_by_key in pair]
            if values[0] != values[1]:
                texts = (", ".join(v) if len(v) < 3 else f"{len(v)} values" for v in values)
                differing.setdefault((key, *texts), []).append(baseline)
    return [[", ".join(names), *pair] for pair, names in differing.items()]


def _made_with(collected: Collected) -> dict[str, dict[str, set[str]]]:
    """Baseline -> key -> the values that occur."""
    values_of_baselines: dict[str, dict[str, set[str]]] = {}
    for baseline, provenance in zip(collected.frame["baseline"], collected.provenance, strict=True):
        if provenance is None:
            continue
        parts = {key: provenance.get(key) for key in _MADE_WITH}
        for key, value in pd.json_normalize(parts).iloc[0].dropna().items():
            values_of_baselines.setdefault(baseline, {}).setdefault(key, set()).add(_short(value))
    return values_of_baselines


def _short(value: object) -> str:
    """Of a digest, the first digits."""
    text = str(value)
    return text[:10] if re.fullmatch("[0-9a-f]{40,}", text) else text


def runs_folder(path: Path) -> Path:
    """The folder of runs: in a results folder, in its root, or the given folder itself.
    DiagvibError without one."""
    for folder in (path / "results" / "runs", path / "runs", path):
        if next(folder.glob("*/*/*/*/metrics.json"), None):
            return folder
    if is_not_pulled(path):
        raise DiagvibError(f"{path}: holds no runs yet; run {command_for(path, 'snakemake')}")
    raise DiagvibError(
        f"{path}: holds no runs; name a results folder with "
        "runs/{baseline}/{study}/{binding}/{sample}/metrics.json"
    )


def find_runs(folder: Path) -> list[dict]:
    """The runs in a folder of runs, named as in `Run.keys`."""
    runs = []
    for path in sorted(folder.glob("*/*/*/*")):
        *names, run = path.relative_to(folder).parts
        if path.is_dir() and (numbers := run_numbers(run)):
            sample, seed = numbers
            runs.append(Run(*names, sample, seed=seed).keys)
    return runs


def _long(frame: pd.DataFrame, groups: dict[str, str]) -> pd.DataFrame:
    """A row of accuracies for each of CELL_KEYS, a column per sample and seed. groups: column ->
    test group."""
    keys = [*CELL_KEYS[:-1], *_RUN]
    wide = frame.reindex(columns=[*keys, *groups]).rename(columns=groups)
    long = wide.melt(keys, var_name="group").set_index([*CELL_KEYS, *_RUN])["value"]
    # Versions of pandas before 3.1 give rows the names of others with unstack's `sort=False`.
    return long.unstack(_RUN).loc[long.index.droplevel(_RUN).unique()]


def _by_sample(accuracies: pd.DataFrame) -> np.ndarray:
    """The means over the seeds that are there, float[cells, samples]."""
    return accuracies.T.groupby(level="sample").mean().T.to_numpy()


def _compare(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    rows, tested = [], {name: study.groups for name, study in SHIPPED.studies.items()}
    b = b.reindex_like(a)
    common = a.notna() & b.notna()
    equal = (a.eq(b) | ~common).all(axis=1)
    frames = map(_by_sample, (a, b, a.where(common), b.where(common)))
    for key, is_equal, *all_values, reference_values, other_values in zip(
        a.index, equal, *frames, strict=True
    ):
        ours, theirs = map(estimate, all_values)
        change = estimate(other_values - reference_values)
        if not ours.n and not theirs.n and key[-1] not in tested.get(key[0], ()):
            continue
        low, high = sample_interval(other_values, reference_values)
        if change.n:
            verdict = "same" if is_equal else "differs" if low > 0 or high < 0 else "cannot tell"
        elif ours.n and theirs.n:
            verdict = "no common sample"
        else:
            verdict = "only A" if ours.n else "only B" if theirs.n else "missing"
        rows.append([*key, *ours, *theirs, change.mean, low, high, change.n, verdict])
    columns = ["a", "a_stderr", "a_n", "b", "b_stderr", "b_n", "difference", "low", "high", "n"]
    return pd.DataFrame(rows, columns=[*CELL_KEYS, *columns, "verdict"])


def compare_sentence(table: pd.DataFrame) -> str:
    counts = table["verdict"].value_counts()
    texts = ", ".join(f"{n} {name}" for name, n in counts.items())
    parts = [f"{len(table)} cell{'s' * (len(table) != 1)}: {texts}."]
    if "cannot tell" in counts:
        parts.append(
            "Cannot tell: the 95 % interval of the difference contains zero, or there are fewer than "
            f"{FEWEST} common samples; the cells need not be equal."
        )
    if "differs" in counts:
        parts.append(
            "Differs: the 95 % interval of the difference excludes zero, as in about one of twenty cells "
            "that do not differ."
        )
    parts += [f"Left out, {line}." for line in table.attrs["damaged"]]
    return " ".join(parts)


def shown(table: pd.DataFrame, letter: str = "B") -> list[Table]:
    """The comparison for readers, and what changed. letter: of the second folder."""
    rows = [
        [
            SHIPPED.title(r.study),
            r.baseline,
            r.target,
            r.cue or "-",
            r.group,
            percent(r.a, r.a_stderr, r.a_n, r.a_n),
            percent(r.b, r.b_stderr, r.b_n, r.b_n),
            points(r.difference),
            interval(r.low, r.high, change=True),
            str(r.n),
            r.verdict,
        ]
        for r in table.itertuples()
    ]
    heads = [*CELL_KEYS, "A", letter, f"{letter} - A", "95 % interval", "n", "verdict"]
    title = f"A and {letter} compared (percent)"
    notes = [compare_sentence(table), *filter(None, [table.attrs["repeats"]])]
    cells = Table(title, heads, rows, notes)
    changes = table.attrs["changes"]
    heading = f"What the runs of A and {letter} were made with, where it differs"
    provenance_table = Table(heading, ["baselines", "key", "A", letter], changes)
    return [cells, *([provenance_table] if changes else [])]


def write_comparison(tables: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Write comparisons as CSV, Markdown or HTML, depending on the file name's ending. tables: by
    the letter of the second folder. DiagvibError for another ending."""
    all_tables = [
        shown_table for letter, table in tables.items() for shown_table in shown(table, letter)
    ]
    long = pd.concat([table.assign(folder=letter) for letter, table in tables.items()])
    writers = {
        ".csv": lambda: long.to_csv(index=False, float_format="%.10g"),
        ".md": lambda: "\n".join(
            line for shown_table in all_tables for line in (*markdown(shown_table), "")
        ),
        ".html": lambda: _PAGE.format("\n".join(map(html, all_tables))),
    }
    if path.suffix not in writers:
        raise DiagvibError(f"--out {path}: ends in '{path.suffix}'; use {', '.join(writers)}")
    write_text(path, writers[path.suffix]())
