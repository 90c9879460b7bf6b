"""The report on one page: numbers, pictures, curves, matrices, tables, missing runs, settings."""

import base64
import io
import re
from collections.abc import Mapping
from pathlib import Path

import jinja2
import pandas as pd
import yaml
from markupsafe import Markup, escape
from PIL import Image

from diagvib.foundation.files import read_json, write_text
from diagvib.report.curves import shown_routes
from diagvib.report.examples import example_addresses
from diagvib.report.figures import sheet_binding
from diagvib.report.gap_section import gap_section
from diagvib.report.headlines import headlines
from diagvib.report.matrix import matrix_data
from diagvib.report.page_tables import (
    accuracy_rows,
    agreement_rows,
    average_rows,
    comparison_rows,
    folded_tables,
    gap_rows,
    reference_rows,
    result_tables,
    rule_tables,
)
from diagvib.report.style import HELD_OUT, INK, MUTED, RULE, TRAINED, accuracy_colours
from diagvib.results.agreement import agreement_sentence, rule_sentence, simulated_sentence
from diagvib.results.comparability import NOT_TUNED, protocol_differences
from diagvib.results.known_studies import KnownStudies, known_studies
from diagvib.results.paper import PAPER_CUES, describe_missing
from diagvib.results.reference import reference_note
from diagvib.results.tables import read_tables, scratch_note, source_note
from diagvib.results.verdicts import COMPARED, LEAST_SAMPLES, MARGIN, VERDICTS, verdict_sentence

# On the page, the theme's colours replace the figures' fixed ones.
_THEME = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    TRAINED: "var(--trained)",
    HELD_OUT: "var(--held-out)",
    "#ffffff": "var(--paper)",
    "#4d4d4d": "var(--muted)",
}


def write_report(tables: Path, figures: Path, out: Path, settings: dict) -> None:
    """Write the page: one file with everything embedded, which loads nothing from the network.

    tables, figures: what `tabulate` and `draw_figures` wrote; settings: the configuration.
    DiagvibError for absent or damaged tables.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    context = _context(Path(tables), Path(figures), settings)
    page = environment.get_template("page.html.j2").render(context)
    write_text(out, context["known"].about_repetitions(page, context["all_studies"]))


def _context(tables: Path, figures: Path, settings: dict) -> dict:
    frames, made, known = (
        read_tables(tables),
        read_json(tables / "versions.json"),
        known_studies(settings),
    )
    runs, p, metrics = frames["runs"], frames["p_matrix"], frames["metrics"]
    headline, paper = known.headline(p["study"]), len(frames["comparison"]) > 0
    return {
        "runs": runs_summary(runs),
        "note": source_note(runs, settings),
        "paper": paper,
        "remarks": " ".join(filter(None, [made.get("mixed", ""), scratch_note(runs, settings)])),
        "differences": protocol_differences(settings) if paper else [],
        "headlines": headlines(p, known),
        "headline": headline,
        "known": known,
        "factors": known.factors(runs["study"]),
        "studies": {study: known.studies[study] for study in p["study"].unique()},
        "all_studies": list(runs["study"].unique()),
        "sheets": _sheets(p, figures, known),
        "curves": _curves(figures, metrics, known),
        "matrix": matrix_data(frames, example_addresses(figures / "examples"), known),
        "first_study": next(
            (study for study in p["study"].unique() if known.studies[study].cues), ""
        ),
        "verdict": verdict(frames, figures, known),
        "reference": reference(frames, known),
        "false_alarms": simulated_sentence(),
        "overviews": _overviews(figures, runs, headline.shortcut if headline else "", known),
        "overviews_title": "Which factors win" if headline else "Training",
        "visualisations": _visualisations(figures, runs, known),
        "scales": {
            chance: [
                (f"{100 * i / 30:.3g}%", accuracy_colours(i / 30, chance)[0]) for i in range(31)
            ]
            for chance in map(known.chance, p["study"].unique())
        },
        "tables": result_tables(frames, known),
        "folded_tables": folded_tables(frames, known),
        "accuracy": accuracy_rows(frames["accuracy"], known),
        "gaps": gap_rows(frames["gap_methods"], known),
        "moles": gap_section(frames, figures, known, inline_svg),
        "average": average_rows(frames["average_methods"], known),
        "confusion": _confusion(figures, runs, known),
        "rules": rule_tables(frames["selection_average"], known),
        "missing": describe_missing(runs),
        "cues": int(metrics["cues"].max()) if len(metrics) else 0,
        "paper_cues": PAPER_CUES,
        "versions": made["versions"],
        "settings": yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100),
        "baseline_settings": yaml.safe_dump(
            made["baselines"], sort_keys=False, allow_unicode=True, width=100
        ),
    }


def runs_summary(runs: pd.DataFrame) -> dict:
    """How many runs were expected and how many are there, with their baselines, studies, bindings
    and samples."""
    counts = {name: int(runs[name].nunique()) for name in ("baseline", "study", "sample")}
    bindings = int(runs.loc[runs["cue"] != "", "binding"].nunique())
    done = runs["status"].value_counts()
    return {
        **counts,
        "binding": bindings,
        "expected": len(runs),
        "ok": int(done.get("ok", 0)),
        "missing": int(done.get("missing", 0)),
        "damaged": int(done.get("damaged", 0)),
        "baselines": list(runs["baseline"].unique()),
    }


def _sheets(p: pd.DataFrame, figures: Path, known: KnownStudies) -> list[dict]:
    binding = sheet_binding(p, known)
    paths = (
        {study: figures / "sheets" / f"{study}_{binding.name}.svg" for study in p["study"].unique()}
        if binding and len(binding.cues) == 1
        else {}
    )
    both = " and ".join(binding.factors) if binding else ""
    return [
        {
            "study": study,
            "factors": both,
            "svg": inline_svg(
                path, f"{known.title(study)}: example images of the combinations of {both}"
            ),
        }
        for study, path in paths.items()
        if path.exists()
    ]


def _curves(figures: Path, metrics: pd.DataFrame, known: KnownStudies) -> list[dict]:
    names = {"faavg": "FAAvg, the mean over cues", "famin": "FAMin, the worst cue"}
    found = []
    for metric, title in names.items():
        for route, studies in shown_routes(metrics, known).items():
            path = figures / "curves" / f"{metric}_{route}.svg"
            if path.exists() and (metric == "faavg" or metrics["cues"].max() > 1):
                caption = f"{title}: {' → '.join(map(known.title, studies))}"
                found.append(
                    {
                        "title": caption,
                        "panels": min(3, metrics["target"].nunique()),
                        "svg": inline_svg(path, f"Curves, a panel per factor: {caption}"),
                    }
                )
    return found


def inline_svg(path: Path, title: str, tips: Mapping[str, str] | None = None) -> Markup:
    """An SVG figure as part of the page: the theme's colours, unique ids, a title for screen
    readers.

    tips: the text shown when a part is pointed at, by the part's id.
    """
    svg = path.read_text(encoding="utf-8")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for part, tip in (tips or {}).items():
        svg = svg.replace(f'<g id="{part}">', f'<g class="tip"><title>{escape(tip)}</title>')
    used = set(re.findall(r"#([A-Za-z][\w-]*)\"", svg)) | set(re.findall(r"url\(#([\w-]+)\)", svg))
    svg = re.sub(
        r' id="([^"]+)"', lambda m: f' id="{path.stem}-{m[1]}"' if m[1] in used else "", svg
    )
    svg = re.sub(r'(href="|url\()#', rf"\1#{path.stem}-", svg)
    for colour, variable in _THEME.items():
        svg = svg.replace(colour, variable)
    opening = svg.index(">")
    return Markup(f'{svg[:opening]} role="img" aria-label="{escape(title)}"{svg[opening:]}')


def _overviews(figures: Path, runs: pd.DataFrame, study: str, known: KnownStudies) -> list[dict]:
    """Dominance and symmetry in a study, training curves and cue preferences, if they were
    drawn."""
    title = f"Factors by how they do against the others ({known.title(study)})"
    wanted = [(f"dominance/{study}", title, 3, False)]
    for name in runs["baseline"].unique():
        wanted += [
            (
                f"asymmetry/{study}_{name}",
                f"{name}: on the line, one factor of a pair wins what the other loses",
                1,
                True,
            ),
            (f"training/{name}", f"{name}: training curves of every run", 3, True),
        ]
    alone = [
        name
        for name in runs["study"].unique()
        if name not in known.judged_by("gaps", runs["study"])
    ]
    wanted += [
        (f"preference/{name}", f"{known.title(name)}: when target and cue are learnt", 3, True)
        for name in alone
    ]
    return [
        {
            "title": title,
            "panels": panels,
            "folded": folded,
            "svg": inline_svg(figures / f"{path}.svg", title),
        }
        for path, title, panels, folded in wanted
        if (figures / f"{path}.svg").exists()
    ]


def _confusion(figures: Path, runs: pd.DataFrame, known: KnownStudies) -> list[dict]:
    """The bars of each study judged by `average`, if they were drawn."""
    paths = {
        study: figures / "confusion" / f"{study}.svg"
        for study in known.judged_by("average", runs["study"])
    }
    titles = {
        study: f"{known.title(study)}: wrong predictions of a class that the cue points to"
        for study in paths
    }
    return [
        {"title": titles[study], "svg": inline_svg(path, titles[study])}
        for study, path in paths.items()
        if path.exists()
    ]


def _visualisations(figures: Path, runs: pd.DataFrame, known: KnownStudies) -> list[dict]:
    """Sheets of what baselines see in test images, studies with cues first; the first of a baseline
    is open."""
    found = []
    for baseline, own in runs.groupby("baseline", sort=False):
        jobs = (
            own[["study", "binding"]]
            .drop_duplicates()
            .sort_values(
                "study",
                key=lambda names: [not known.studies[name].cues for name in names],
                kind="stable",
            )
        )
        paths = {
            f"{known.title(study)} {binding}": figures
            / "exhibits"
            / f"{baseline}_{study}_{binding}.svg"
            for study, binding in jobs.itertuples(index=False, name=None)
        }
        there = [(name, path) for name, path in paths.items() if path.exists()]
        for place, (name, path) in enumerate(there):
            title = f"{baseline}, {name}"
            svg = inline_svg(path, f"{title}: what the model sees in test images")
            found.append({"title": title, "folded": place > 0, "svg": _smaller_pictures(svg)})
    return found


def _smaller_pictures(svg: Markup) -> Markup:
    """An SVG figure with its pixels as WebP, a tenth of the size."""

    def smaller(found: re.Match) -> str:
        picture, file = Image.open(io.BytesIO(base64.b64decode(found[1]))), io.BytesIO()
        picture.save(file, format="webp", quality=75, method=4)
        return f'href="data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"'

    return Markup(re.sub(r'href="data:image/png;base64,\s*([^"]+)"', smaller, svg))


def verdict(frames: dict[str, pd.DataFrame], figures: Path, known: KnownStudies) -> dict:
    """The verdict in sentences, as bars by study, baseline and factor, as a scatter plot and cell
    by cell."""
    comparison, summary, scatter = (
        frames["comparison"],
        frames["summary"],
        figures / "paper" / "scatter.svg",
    )
    groups = [
        {"by": by, "rows": [_shares(row) for _, row in rows.iterrows()]}
        for by, rows in summary[summary["by"] != "overall"].groupby("by", sort=False)
    ]
    why = comparison[comparison["verdict"] == "not comparable"]["reason"].value_counts()
    untuned = sorted(
        {
            row.baseline
            for row in comparison[comparison["verdict"].isin(COMPARED)].itertuples()
            if NOT_TUNED in row.mentions
        }
    )
    return {
        "sentence": verdict_sentence(comparison),
        "joint": agreement_sentence(frames["agreement"]),
        "test": rule_sentence(),
        "margin": 100 * MARGIN,
        "least_samples": LEAST_SAMPLES,
        "untuned": untuned,
        "agreement": agreement_rows(frames["agreement"]),
        "groups": groups,
        "table": comparison_rows(comparison, known),
        "reasons": [f"Not comparable, {count} cells: {reason}." for reason, count in why.items()],
        "scatter": inline_svg(scatter, "The paper's numbers (x) and ours (y)")
        if scatter.exists()
        else "",
    }


def _shares(row: pd.Series) -> dict:
    kinds = [verdict.replace(" ", "_") for verdict in VERDICTS]
    parts = [{"kind": kind, "cells": row[kind]} for kind in kinds if row[kind]]
    label = ", ".join(f"{row[verdict.replace(' ', '_')]} {verdict}" for verdict in VERDICTS)
    decided = row["agrees"] + row["differs"]
    return {
        "name": row["name"],
        "parts": parts,
        "count": f"{row['agrees']} of {decided}",
        "label": f"{row['name']}: {label}",
    }


def reference(frames: dict[str, pd.DataFrame], known: KnownStudies) -> dict | None:
    """Models without a comparable cell, compared with the paper's nine; None if every model has
    one."""
    table = frames["reference"]
    if not len(table):
        return None
    return {
        "note": reference_note(table),
        "table": reference_rows(table, known),
    }
