"""Tables from runs: every expected run is read or named as a hole, then aggregated over samples and cues."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from rich.console import Console
from rich.progress import track

from diagvib.errors import DiagvibError
from diagvib.files import METADATA_KEY, read_json, read_table, write_json, write_text
from diagvib.metrics import chgo_minus_zgo, estimate, faavg, famin, mean_per_class_accuracy
from diagvib.paper import beside_paper, format_tables

# What `tabulate` writes under results/tables.
TABLE_FILES = ("runs.csv", "p_matrix.csv", "metrics.csv", "chgo_minus_zgo.csv", "run_times.csv", "versions.json",
               "tables.md")

RUN_FILES = ("predictions.parquet", "metrics.json", "run.json")
GROUPS = ("id", "ood")
_RUN = ["baseline", "study", "pair", "target", "cue", "sample"]
_RUN_COLUMNS = [*_RUN, "status", "reason", "id_accuracy", "id_n", "ood_accuracy", "ood_n", "sources", "comparable"]


def run_folder(runs: Path, run: dict) -> Path:
    return Path(runs) / run["baseline"] / run["study"] / run["pair"] / str(run["sample"])


def collect_runs(runs: Path, expected: Iterable[dict]) -> pd.DataFrame:
    """One row per expected run, whether it is there or not.

    expected: dicts with baseline, study, pair, target, cue (None without correlation), sample.
    Columns: those (cue empty without correlation), status (ok | missing | damaged), reason, id_accuracy, id_n,
    ood_accuracy, ood_n, sources, comparable.
    Accuracies are computed again from the predictions; a run whose metrics.json says otherwise is damaged.
    """
    rows = [{**{k: run[k] for k in _RUN}, "cue": run["cue"] or "", "reason": "",
             **_read_run(run_folder(runs, run), run)} for run in _progress(list(expected))]
    frame = pd.DataFrame(rows, columns=_RUN_COLUMNS)
    return frame.astype({column: "float64" for column in _RUN_COLUMNS if column.endswith(("_accuracy", "_n"))})


def _progress(runs: list[dict]) -> Iterable[dict]:
    return track(runs, "reading runs", console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _read_run(folder: Path, run: dict) -> dict:
    absent = [name for name in RUN_FILES if not (folder / name).exists()]
    if absent:
        unfinished = folder.exists() and len(absent) < len(RUN_FILES)
        return {"status": "missing", "reason": f"unfinished: no {absent[0]}" if unfinished else "not run"}
    try:
        return {"status": "ok", **_accuracies(folder, run)}
    except DiagvibError as error:
        return {"status": "damaged", "reason": str(error).replace(f"{folder}/", "")}


def _accuracies(folder: Path, run: dict) -> dict:
    path = folder / "predictions.parquet"
    table = read_table(path, ["group", run["target"], "prediction"])
    noted, metrics = _metadata(table, path), read_json(folder / "metrics.json")
    read_json(folder / "run.json")
    _check_names(path, noted, run)
    _check_names(folder / "metrics.json", metrics, run)
    result = {"sources": noted.get("sources"), "comparable": bool(noted.get("comparable"))}
    for group in GROUPS if run["cue"] else GROUPS[:1]:
        accuracy, n = _group_accuracy(table, group, run["target"], path)
        _check_agreement(folder / "metrics.json", metrics, group, accuracy, n)
        result |= {f"{group}_accuracy": accuracy, f"{group}_n": n}
    return result


def _metadata(table: pa.Table, path: Path) -> dict:
    try:
        return json.loads(table.schema.metadata[METADATA_KEY])
    except (KeyError, TypeError, ValueError):
        raise DiagvibError(f"{path}: names no run in its metadata; delete this folder and run again") from None


def _check_names(path: Path, noted: dict, run: dict) -> None:
    for key in ("baseline", "study", "pair", "sample"):
        if noted.get(key) != run[key]:
            raise DiagvibError(f"{path}: says {key} {noted.get(key)}, but lies in the folder of {key} {run[key]}; "
                               "delete this folder and run again")


def _group_accuracy(table: pa.Table, group: str, target: str, path: Path) -> tuple[float, int]:
    rows = table.filter(pa.compute.equal(table["group"], group))
    labels, predictions = (rows[column].to_numpy() for column in (target, "prediction"))
    try:
        return mean_per_class_accuracy(labels, predictions), len(labels)
    except ValueError as error:
        raise DiagvibError(f"{path}: group {group}: {error}; delete this folder and run again") from None


def _check_agreement(path: Path, metrics: dict, group: str, accuracy: float, n: int) -> None:
    noted = metrics.get("groups", {}).get(group, {})
    if noted.get("n") != n or abs(noted.get("accuracy", np.inf) - accuracy) > 1e-6:
        raise DiagvibError(f"{path}: {group} accuracy {noted.get('accuracy')} (n = {noted.get('n')}) disagrees with "
                           f"the predictions, {accuracy:.6f} (n = {n}); delete this folder and run again")


def p_matrix(frame: pd.DataFrame) -> pd.DataFrame:
    """P_ij (ZSO: P_i, cue empty) per study, baseline and group: mean, stderr, n, expected. (Paper, Sec. 3.4.)"""
    rows = []
    for (study, baseline, target, cue), runs in frame.groupby(["study", "baseline", "target", "cue"], sort=False):
        for group in GROUPS if cue else GROUPS[:1]:
            mean, stderr, n = estimate(runs[f"{group}_accuracy"])
            rows.append({"study": study, "baseline": baseline, "target": target, "cue": cue, "group": group,
                         "mean": mean, "stderr": stderr, "n": n, "expected": len(runs)})
    columns = ["study", "baseline", "target", "cue", "group", "mean", "stderr", "n", "expected"]
    return pd.DataFrame(rows, columns=columns)


def metrics_table(frame: pd.DataFrame) -> pd.DataFrame:
    """FAAvg, FAMin and in-distribution accuracy over the configured cues, the paper's numbers beside them.

    Columns: study, baseline, target, metric, mean, stderr, n, expected, cues, paper_mean, paper_stderr, difference.
    For ZSO faavg is P_i, the accuracy on its one group.
    """
    rows = []
    for (study, baseline, target), runs in frame.groupby(["study", "baseline", "target"], sort=False):
        correlated = (runs["cue"] != "").all()
        for metric, reduce, group in _METRICS if correlated else [("faavg", faavg, "id")]:
            acc = accuracy_array(runs, group)
            mean, stderr, n = reduce(acc)
            rows.append({"study": study, "baseline": baseline, "target": target, "metric": metric, "mean": mean,
                         "stderr": stderr, "n": n, "expected": len(acc), "cues": acc.shape[1] if correlated else 0})
    columns = ["study", "baseline", "target", "metric", "mean", "stderr", "n", "expected", "cues"]
    return beside_paper(pd.DataFrame(rows, columns=columns), "stderr", is_comparable(frame))


_METRICS: list[tuple[str, Callable, str]] = [("faavg", faavg, "ood"), ("famin", famin, "ood"),
                                             ("id_accuracy", faavg, "id")]


def accuracy_array(runs: pd.DataFrame, group: str) -> np.ndarray:
    """float[samples, cues] of one (study, baseline, target), NaN where a run is missing."""
    return runs.pivot(index="sample", columns="cue", values=f"{group}_accuracy").to_numpy(dtype=np.float64)


def chgo_table(frame: pd.DataFrame) -> pd.DataFrame:
    """CHGO minus ZGO per baseline and target, where both studies are configured (paper, Table 2).

    Columns: baseline, target, mean, std, n, expected, cues, paper_mean, paper_std, difference.
    """
    rows = []
    for (baseline, target), runs in frame.groupby(["baseline", "target"], sort=False):
        chgo, zgo = (runs[runs["study"] == study] for study in ("chgo", "zgo"))
        if len(chgo) and len(zgo):
            acc = accuracy_array(chgo, "ood")
            change = chgo_minus_zgo(acc, accuracy_array(zgo, "ood"))
            rows.append({"study": "chgo", "baseline": baseline, "target": target, "metric": "improvement_over_zgo",
                         "mean": change.mean, "std": change.std, "n": change.n, "expected": len(acc),
                         "cues": acc.shape[1]})
    columns = ["study", "baseline", "target", "metric", "mean", "std", "n", "expected", "cues"]
    table = beside_paper(pd.DataFrame(rows, columns=columns), "std", is_comparable(frame))
    return table.drop(columns=["study", "metric"])


def is_comparable(frame: pd.DataFrame) -> bool:
    """Whether something ran, and all that ran used the paper's sources."""
    ok = frame[frame["status"] == "ok"]
    return bool(len(ok)) and bool(ok["comparable"].astype(bool).all())


def source_note(frame: pd.DataFrame, settings: dict) -> str:
    """What must stand on everything made from other sources than the paper's; empty where nothing must.

    While nothing has run, the configuration's `sources` decide.
    """
    ran = sorted(set(frame[frame["status"] == "ok"]["sources"]))
    if is_comparable(frame) or (not ran and settings.get("sources", "official") == "official"):
        return ""
    return f"Made from {' and '.join(ran or [settings['sources']])} sources: not comparable to the paper."


def run_times(frame: pd.DataFrame, runs: Path) -> pd.DataFrame:
    """One row per finished run: images_per_second and seconds per stage, as its run.json says."""
    rows = []
    for run in frame[frame["status"] == "ok"][_RUN].to_dict("records"):
        noted = read_json(run_folder(runs, run) / "run.json")
        rows.append({**{k: run[k] for k in ("baseline", "study", "pair", "sample")},
                     "device": noted.get("device"), "images_per_second": noted.get("images_per_second"),
                     **{f"seconds_{stage}": value for stage, value in (noted.get("seconds") or {}).items()}})
    return pd.DataFrame(rows or {"baseline": [], "study": [], "pair": [], "sample": []})


def versions(frame: pd.DataFrame, runs: Path) -> dict:
    """What made the finished runs: every version, device, precision and seed that occurs; settings per baseline."""
    seen: dict[str, set] = {}
    settings: dict[str, dict] = {}
    for run in frame[frame["status"] == "ok"][_RUN].to_dict("records"):
        noted = read_json(run_folder(runs, run) / "run.json")
        facts = {**(noted.get("versions") or {}), **{k: noted.get(k) for k in ("device", "precision", "seed")}}
        for name, value in facts.items():
            seen.setdefault(name, set()).add(str(value))
        settings.setdefault(run["baseline"], noted.get("settings") or {})
    return {"versions": {name: sorted(values) for name, values in sorted(seen.items())}, "baselines": settings,
            "sources": sorted(set(frame["sources"].dropna())), "comparable": is_comparable(frame)}


def write_tables(frame: pd.DataFrame, out: Path, settings: dict) -> None:
    """Tidy CSV files (accuracies are fractions, an empty field is a missing number) and tables.md under `out`.

    The aggregated tables say in a column `sources` what they were made from.
    """
    sources = " and ".join(sorted(set(frame["sources"].dropna())))
    tables = {"p_matrix": p_matrix(frame), "metrics": metrics_table(frame), "chgo_minus_zgo": chgo_table(frame)}
    for name, table in {"runs": frame, **{k: t.assign(sources=sources) for k, t in tables.items()}}.items():
        write_text(Path(out) / f"{name}.csv", table.to_csv(index=False, float_format="%.10g"))
    text = format_tables(tables["metrics"], tables["chgo_minus_zgo"], frame, source_note(frame, settings))
    write_text(Path(out) / "tables.md", text)


def tabulate(runs: Path, out: Path, expected: Iterable[dict], settings: dict) -> pd.DataFrame:
    """Read every expected run under `runs`, write TABLE_FILES to `out`; returns the frame of `collect_runs`."""
    frame = collect_runs(runs, expected)
    write_tables(frame, out, settings)
    write_text(Path(out) / "run_times.csv", run_times(frame, runs).to_csv(index=False))
    write_json(Path(out) / "versions.json", {**versions(frame, runs), "settings": settings})
    return frame


def read_tables(tables: Path) -> dict[str, pd.DataFrame]:
    """The CSV files of `write_tables`, by name. DiagvibError if one is absent or damaged."""
    frames = {}
    for name in ("runs", "p_matrix", "metrics", "chgo_minus_zgo"):
        path = Path(tables) / f"{name}.csv"
        try:
            frames[name] = pd.read_csv(path, dtype={"id_n": float, "ood_n": float})
        except (OSError, ValueError) as error:
            raise DiagvibError(f"{path}: not readable ({error}); run `diagvib tabulate` again") from None
        for column in set(frames[name].columns) & {"cue", "reason", "sources"}:
            frames[name][column] = frames[name][column].astype(object).where(frames[name][column].notna(), "")
    return frames


def telling_pairs(p: pd.DataFrame) -> pd.DataFrame:
    """Which pairs show a shortcut best: baseline, target, cue, zso, zgo, recovered, by (study); best first.

    p: the table of `p_matrix`. zso: accuracy without correlation; zgo: where the cue misleads after training on nothing
    but the shortcut; recovered: the best of the studies with generalization opportunities. NaN where nothing ran.
    """
    accuracy = p[((p["group"] == "ood") | (p["cue"] == "")) & (p["n"] > 0)]
    rows = []
    for (baseline, target, cue), _ in p[p["cue"] != ""].groupby(["baseline", "target", "cue"], sort=False):
        own = accuracy[(accuracy["baseline"] == baseline) & (accuracy["target"] == target)]
        means = own[own["cue"].isin(["", cue])].set_index("study")["mean"]
        others = means.drop(["zso", "zgo", "chgo"], errors="ignore")
        rows.append({"baseline": baseline, "target": target, "cue": cue, "zso": means.get("zso", np.nan),
                     "zgo": means.get("zgo", np.nan), "recovered": others.max() if len(others) else np.nan,
                     "by": others.idxmax() if len(others) else ""})
    found = pd.DataFrame(rows, columns=["baseline", "target", "cue", "zso", "zgo", "recovered", "by"])
    score = found["zso"].fillna(1) - 2 * found["zgo"] + found["recovered"].fillna(found["zgo"])
    return found.loc[score.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)
