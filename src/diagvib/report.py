"""One page that says what was run and what came out: numbers, pictures, curves, matrices, tables, holes, settings."""

import re
from pathlib import Path

import jinja2
import pandas as pd
import yaml
from markupsafe import Markup, escape

from diagvib.factors import FACTORS
from diagvib.figures import ROUTES, sheet_pair
from diagvib.files import read_json, write_text
from diagvib.metrics import CHANCE
from diagvib.paper import METRIC_TITLES, PAPER_CUES, describe_holes, paper_percent, percent
from diagvib.schemas import validate
from diagvib.studies import load_study
from diagvib.style import HELD_OUT, INK, MUTED, RULE, TRAINED, accuracy_colours
from diagvib.tables import read_tables, source_note, telling_pairs

# In the page the figures' fixed colours give way to the theme's.
_THEME = {INK: "currentColor", MUTED: "var(--muted)", RULE: "var(--rule)", TRAINED: "var(--trained)",
          HELD_OUT: "var(--held-out)", "#ffffff": "var(--paper)", "#4d4d4d": "var(--muted)"}


def write_report(tables: Path, figures: Path, out: Path, settings: dict) -> None:
    """Write the page: one file, everything embedded, nothing fetched.

    tables, figures: what `tabulate` and `draw_figures` wrote; settings: the configuration. DiagvibError for absent or
    damaged tables.
    """
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["upper_study"] = str.upper
    page = environment.get_template("report.html.j2").render(_context(Path(tables), Path(figures), settings))
    write_text(out, page)


def _context(tables: Path, figures: Path, settings: dict) -> dict:
    frames, made = read_tables(tables), read_json(tables / "versions.json")
    runs, p, metrics = frames["runs"], frames["p_matrix"], frames["metrics"]
    return {
        "runs": runs_summary(runs), "note": source_note(runs, settings), "shortened": shortened_protocol(settings),
        "headlines": headlines(p), "chance": CHANCE, "factors": FACTORS, "studies": _study_titles(p),
        "sheets": _sheets(p, figures), "curves": _curves(figures, metrics), "matrices": matrices(p, metrics),
        "scale": [(f"{100 * i / 30:.3g}%", accuracy_colours(i / 30)[0]) for i in range(31)],
        "tables": result_tables(metrics, frames["chgo_minus_zgo"]), "holes": describe_holes(runs),
        "cues": int(metrics["cues"].max()), "paper_cues": PAPER_CUES, "versions": made["versions"],
        "settings": yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100),
        "baseline_settings": yaml.safe_dump(made["baselines"], sort_keys=False, allow_unicode=True, width=100),
    }


def runs_summary(runs: pd.DataFrame) -> dict:
    """What was asked for and how much of it is there."""
    counts = {name: int(runs[name].nunique()) for name in ("baseline", "study", "sample")}
    pairs = int(runs.loc[runs["cue"] != "", "pair"].nunique())
    done = runs["status"].value_counts()
    return {**counts, "pair": pairs, "expected": len(runs), "ok": int(done.get("ok", 0)),
            "missing": int(done.get("missing", 0)), "damaged": int(done.get("damaged", 0)),
            "baselines": list(runs["baseline"].unique())}


def shortened_protocol(settings: dict) -> list[str]:
    """How the configuration falls short of the paper's protocol: `4,374 training images (paper: 43,740)`, ..."""
    paper = validate({}, "config", "defaults")
    counts, of_paper, samples = settings.get("counts", {}), paper["counts"], settings.get("samples")
    measures = [
        ("training images", counts.get("train"), of_paper["train"]),
        ("test images per group", counts.get("ood"), of_paper["ood"]),
        ("dataset samples" if samples != 1 else "dataset sample", samples, paper["samples"]),
        ("pixels a side", settings.get("image_size"), paper["image_size"]),
        ("epochs at most", settings.get("training", {}).get("max_epochs"), paper["training"]["max_epochs"]),
    ]
    return [f"{ours:,} {what} (paper: {theirs:,})" for what, ours, theirs in measures if ours and ours < theirs]


def headlines(p: pd.DataFrame, most: int = 3) -> list[dict]:
    """The most telling pair of each baseline in words and bars; only baselines and studies that ran."""
    pairs = telling_pairs(p)
    best = pairs[pairs["zgo"].notna()].drop_duplicates("baseline").head(most)
    return [{"text": _headline(row, pairs), "bars": _bars(row), "baseline": row.baseline}
            for row in best.itertuples(index=False)]


def _headline(row, pairs: pd.DataFrame) -> str:
    model, target, cue = row.baseline, row.target, row.cue
    text = f"Without a shortcut (ZSO), {model} recognises {target} in {_percent(row.zso)} of the test images. " \
        if row.zso == row.zso else ""
    text += (f"When {cue} gives {target} away in training (ZGO), {'it' if text else model} is right in "
             f"{_percent(row.zgo)} of the images in which {cue} misleads; chance is {_percent(CHANCE)}.")
    if row.zgo < CHANCE / 2:
        text += f" It has learnt {cue} instead of {target}."
    if row.recovered == row.recovered:
        verb = "bring it back to" if row.recovered > row.zgo + 0.05 else "do not bring it back:"
        text += f" {_opportunities(row.by)} {verb} {_percent(row.recovered)}."
    reverse = pairs[(pairs["baseline"] == model) & (pairs["target"] == cue) & (pairs["cue"] == target)]["zgo"].dropna()
    if len(reverse):
        text += (f" The other way round, with {target} as the cue, {cue} is recognised in "
                 f"{_percent(reverse.iloc[0])} of such images.")
    return text


def _opportunities(study: str) -> str:
    kind, _, number = study.partition("-")
    if kind == "fgo":
        return f"Counter-examples, {number} % of the training images ({study.upper()}),"
    return f"Images of {number} further combinations ({study.upper()})" if kind == "cgo" else study.upper()


def _bars(row) -> list[dict]:
    points = [("zso", row.zso), ("zgo", row.zgo), (row.by, row.recovered)]
    return [{"study": study.upper(), "meaning": load_study(study).meaning, "value": value, "text": _percent(value),
             "colour": accuracy_colours(value)[0]} for study, value in points if study and value == value]


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _study_titles(p: pd.DataFrame) -> dict[str, str]:
    return {study: load_study(study).meaning for study in p["study"].unique()}


def _sheets(p: pd.DataFrame, figures: Path) -> list[dict]:
    pair = sheet_pair(p)
    paths = {study: figures / "sheets" / f"{study}_{pair.name}.svg" for study in p["study"].unique()} if pair else {}
    return [{"study": study, "target": pair.target, "cue": pair.cue, "svg": inline_svg(
        path, f"{study.upper()}: example images of the nine combinations of {pair.target} and {pair.cue}")}
        for study, path in paths.items() if path.exists()]


def _curves(figures: Path, metrics: pd.DataFrame) -> list[dict]:
    names = {"faavg": "FAAvg, the mean over cues", "famin": "FAMin, the worst cue"}
    found = []
    for metric, title in names.items():
        for route, studies in ROUTES.items():
            path = figures / "curves" / f"{metric}_{route}.svg"
            there = [study.upper() for study in studies if study in set(metrics["study"])]
            if path.exists() and len(there) > 1 and (metric == "faavg" or metrics["cues"].max() > 1):
                caption = f"{title}: {' → '.join(there)}"
                found.append({"title": caption, "panels": min(3, metrics["target"].nunique()),
                              "svg": inline_svg(path, f"Curves, a panel per factor: {caption}")})
    return found


def inline_svg(path: Path, title: str) -> Markup:
    """An SVG figure as part of the page: the theme's colours, ids of its own, a title for screen readers."""
    svg = path.read_text(encoding="utf-8")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg"):], flags=re.DOTALL)
    used = set(re.findall(r"#([A-Za-z][\w-]*)\"", svg)) | set(re.findall(r"url\(#([\w-]+)\)", svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{path.stem}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{path.stem}-", svg)
    for colour, variable in _THEME.items():
        svg = svg.replace(colour, variable)
    opening = svg.index(">")
    return Markup(f'{svg[:opening]} role="img" aria-label="{escape(title)}"{svg[opening:]}')


def matrices(p: pd.DataFrame, metrics: pd.DataFrame) -> list[dict]:
    """Per baseline its P_ij tables, cell by cell as the page shows them."""
    result = []
    for baseline in p["baseline"].unique():
        own = p[(p["baseline"] == baseline) & ((p["group"] == "ood") | (p["cue"] == ""))]
        values = {(r.study, r.target, r.cue): r for r in own.itertuples(index=False)}
        studies = [study for study in own["study"].unique() if study != "zso"]
        with_zso = "zso" in set(own["study"])
        maps = [{"study": study, "zso": with_zso, "rows": [
            {"target": target, "zso": _cell(values.get(("zso", target, "")), target, ""),
             "cells": [None if cue == target else _cell(values.get((study, target, cue)), target, cue)
                       for cue in FACTORS]} for target in FACTORS]} for study in studies]
        result.append({"baseline": baseline, "maps": maps})
    return result


def _cell(row, target: str, cue: str) -> dict:
    what = f"{target}, cue {cue}" if cue else f"{target}, no cue"
    if row is None:
        return {"kind": "blank", "text": "", "label": f"{what}: not configured", "partial": ""}
    if row.n == 0:
        return {"kind": "hole", "text": "-", "label": f"{what}: missing, 0 of {row.expected} samples", "partial": ""}
    fill, ink = accuracy_colours(row.mean)
    return {"kind": "value", "text": f"{100 * row.mean:.0f}", "fill": fill, "ink": ink,
            "label": f"{what}: {percent(row.mean, row.stderr, row.n, row.expected)} %, n = {row.n}",
            "partial": f"n={row.n}" if row.n < row.expected else ""}


def result_tables(metrics: pd.DataFrame, chgo: pd.DataFrame) -> list[dict]:
    """One table per metric: rows (baseline, study), columns factors, the paper's numbers in the cells."""
    chgo = chgo.assign(study="chgo", metric="improvement_over_zgo")
    chgo = chgo.rename(columns={"std": "stderr", "paper_std": "paper_stderr"})
    rows = pd.concat([metrics, chgo]) if len(chgo) else metrics
    tables = []
    for metric, title in METRIC_TITLES.items():
        table = rows[rows["metric"] == metric]
        if len(table):
            factors = [factor for factor in FACTORS if factor in set(table["target"])]
            groups = table.groupby(["baseline", "study"], sort=False)
            tables.append({"title": title, "factors": factors, "paper": table["paper_mean"].notna().any(), "rows": [
                {"baseline": baseline, "study": study, "cells": [_result(group, factor) for factor in factors]}
                for (baseline, study), group in groups]})
    return tables


def _result(rows: pd.DataFrame, factor: str) -> dict:
    found = rows[rows["target"] == factor]
    if not len(found):
        return {"text": "", "value": "", "paper": "", "hole": False}
    row = found.iloc[0]
    paper = ""
    if row["paper_mean"] == row["paper_mean"]:
        paper = f"paper {paper_percent(row['paper_mean'], row['paper_stderr'])}"
        paper += f", {100 * row['difference']:+.1f}" if row["n"] else ""
    return {"text": percent(row["mean"], row["stderr"], row["n"], row["expected"]), "hole": row["n"] == 0,
            "value": "" if row["n"] == 0 else f"{row['mean']:.6f}", "paper": paper}
