"""The report on one page: findings, figures, the matrix, tables, missing runs, settings."""

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import pandas as pd
import yaml
from markupsafe import Markup, escape
from PIL import Image

from diagvib.foundation.files import read_json, write_text
from diagvib.papers.all_tables import shown_tables
from diagvib.papers.diagvib6 import factor_ranks
from diagvib.papers.diagvib6.comparability import protocol_differences
from diagvib.papers.diagvib6.finding import CURVES, MATRIX
from diagvib.papers.diagvib6.shortcut import OVERALL
from diagvib.papers.diagvib6.verdict_tables import VERDICT, verdict_found
from diagvib.papers.notes import scratch_note, source_note
from diagvib.report.epochs import TRAINING
from diagvib.report.matrix import matrix_data, pair_table
from diagvib.report.playground import FILE as PLAYGROUND
from diagvib.report.playground import playground_runs
from diagvib.report.report_data import Figure, ReportData
from diagvib.report.sheets import PICTURES, webp_address
from diagvib.report.style import (
    HELD_OUT,
    INK,
    MUTED,
    RULE,
    STACKED,
    TRAINED,
    accuracy_stops,
)
from diagvib.report.visualisation_sheets import INSIDE
from diagvib.results import calibration, saliency_shares, selection, selection_price, variation
from diagvib.results.combinations import untested_notes
from diagvib.results.metric_sets import cue_strength
from diagvib.results.metric_sets.metric_set import Finding
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.metrics import below_chance
from diagvib.results.reader_tables import (
    Frames,
    Table,
    by_section,
    describe_doubtful,
    describe_missing,
    doubt_reasons,
    doubtful,
    html,
    interval,
    metrics_of,
    narrowed,
    untrained,
    whole_percent,
    with_code,
)
from diagvib.results.tidy_tables import with_seeds

# Sections of numbers that stand elsewhere as pictures, or on how runs were made: without a picture
# that is open, they are among the details at the end.
_DETAILS = [
    "tables",
    "factors",
    "overall",
    "calibration",
    "training",
    "rules",
    "prices",
    "times",
    "variation",
]
_OTHER_KEYS = ("gaps", "shortcut", "accuracy")  # sets of metrics that stand elsewhere below
# The sections in their order, by the name of their macro in the template, if they have one. Others
# follow.
SECTIONS = {
    "gaps": METRIC_SETS["gaps"].title,
    "curves": CURVES,
    "matrices": MATRIX,
    "tables": METRIC_SETS["shortcut"].title,
    "factors": factor_ranks.TITLE,
    "overall": OVERALL,
    "strength": cue_strength.TITLE,
    **{name: METRIC_SETS[name].title for name in METRIC_SETS if name not in _OTHER_KEYS},
    "groups": METRIC_SETS["accuracy"].title,
    "pictures": PICTURES,
    "looks": saliency_shares.TITLE,
    "calibration": calibration.TITLE,
    "training": TRAINING,
    "rules": selection.TITLE,
    "prices": selection_price.TITLE,
    "variation": variation.TITLE,
    "visualisations": INSIDE,
    "verdict": VERDICT,
    "times": "Run times",
}

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


@dataclass
class Section:
    """sentences: those that come first. findings: further ones, with bars. introduction: paragraphs above
    the tables."""

    key: str
    title: str
    sentences: Sequence[str] = ()
    findings: list[Finding] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    introduction: Sequence[str] = ()
    tables: Sequence[Table] = ()

    @property
    def is_detail(self) -> bool:
        """Whether it is folded at the end of the page: it has nothing to show at once."""
        open_figures = any(not figure.folded for figure in self.figures)
        tables = self.key == "matrices" or (self.tables and self.key not in _DETAILS)
        return not (self.findings or open_figures or tables)

    @property
    def folded(self) -> bool:
        """Whether the tables are shown on request: details of what stands above them, or many
        numbers."""
        supports = bool(self.sentences or self.figures) or len(self.tables) > 2
        return not self.is_detail and (supports or any(table.folded for table in self.tables))


def write_report(
    report_data: ReportData, figures: Sequence[Figure], folder: Path, out: Path
) -> None:
    """Write the page: one file with everything embedded, which loads nothing from the network.

    figures: those that `draw_figures` wrote to the folder.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "svg": lambda figure, sentence: _svgs(folder, figure, sentence),
        "percent": whole_percent,
        "below_chance": below_chance,
        "interval": lambda ends: interval(*ends),
        "code": lambda text: Markup(with_code(text)),
        "html": lambda table: Markup(html(narrowed(table))),
        "yaml": lambda value: yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100),
    }
    page = environment.get_template("page.html.j2").render(_context(report_data, figures))
    write_text(out, page)


def _context(report_data: ReportData, figures: Sequence[Figure]) -> dict:
    frames, settings = report_data.frames, report_data.settings
    known_studies = report_data.known_studies
    versions = read_json(report_data.tables / "versions.json")
    runs, p = frames["runs"], frames["p_matrix"]
    paper = len(frames["comparison"]) > 0
    studies = list(p["study"].unique())
    hero, *other_findings = report_data.findings or [None]
    sections, matrix = _sections(report_data, figures, other_findings), matrix_data(report_data)
    return {
        "hero": hero,
        "hero_intervals": any(low == low for low, _ in hero.intervals.values()) if hero else False,
        "sections": [section for section in sections if not section.is_detail],
        "details": [section for section in sections if section.is_detail],
        "runs": runs_summary(runs),
        "note": source_note(runs, settings),
        "stand_ins": settings.get("sources") == "embedded",
        "paper": paper,
        "remarks": " ".join(
            filter(None, [_untrained_note(frames), versions["mixed"], scratch_note(runs, settings)])
        ),
        "differences": protocol_differences(settings) if paper else [],
        "headline": known_studies.headline(studies),
        "known": known_studies,
        "studies": studies,
        "first_study": next((study for study in studies if known_studies.studies[study].cues), ""),
        "matrix": matrix,
        "pair": pair_table(matrix),
        "scales": {chance: accuracy_stops(chance) for chance in map(known_studies.chance, studies)},
        "missing": describe_missing(runs),
        "samples": report_data.samples,
        "doubtful": describe_doubtful(runs),
        "reasons": doubt_reasons(runs),
        "missing_title": f"Missing{' and doubtful' * bool(doubtful(runs).any())} runs",
        "untested": [
            f"{known_studies.title(study)}, {binding}: {text}"
            for (study, binding), binding_runs in runs.groupby(["study", "binding"], sort=False)
            for text in untested_notes(binding_runs)
        ],
        "cues": frames["metrics"]["cues"].max(),
        "all_cues": max(
            (max(known_studies.possible_cues(name).values()) for name in studies), default=0
        ),
        "citations": known_studies.citations(report_data.studies),
        "made": versions,
        "settings": settings,
        "playground": f"explorer/{PLAYGROUND}" if playground_runs(report_data) else "",
    }


def _untrained_note(frames: Frames) -> str:
    names = untrained(frames)
    return f"{', '.join(names)}: own outputs, not trained here." if names else ""


def _sections(
    report_data: ReportData, figures: Sequence[Figure], other_findings: Sequence[Finding]
) -> list[Section]:
    """Those that have something to show. other_findings: all but the first, which is at the
    top of the page."""
    parts = {title: Section(key, title) for key, title in SECTIONS.items()}

    def of(title: str) -> Section:
        return parts.setdefault(title, Section(f"section-{len(parts)}", title))

    for title, introduction, tables in by_section(
        shown_tables(report_data.frames, report_data.known_studies)
    ):
        of(title).introduction, of(title).tables = introduction, tables
    for figure in figures:
        if figure.section:
            of(figure.section).figures.append(figure)
    for finding in other_findings:
        of(finding.section).findings.append(finding)
    frames, known_studies = report_data.frames, report_data.known_studies
    calibrated = metrics_of(frames, calibration.SET)
    for metric_set in METRIC_SETS.values():
        for title, texts in metric_set.sentences(frames, known_studies).items():
            of(title).sentences = texts
    sentences = {
        saliency_shares.TITLE: saliency_shares.saliency_sentence(frames["runs"], known_studies),
        calibration.TITLE: calibration.calibration_sentence(calibrated, known_studies),
        selection.TITLE: selection.selection_sentence(frames["selection"], known_studies),
        selection_price.TITLE: selection_price.price_sentence(
            frames["selection_price"], known_studies
        ),
        variation.TITLE: variation.variation_sentence(frames["variation"]),
    }
    for title, sentence in sentences.items():
        of(title).sentences = [sentence] if sentence else []
    if len(frames["comparison"]):
        finding_text = verdict_found(frames["comparison"])
        parts[VERDICT].sentences = finding_text
        parts[VERDICT].introduction = parts[VERDICT].introduction[len(finding_text) :]
    own_tables = {MATRIX: "p_matrix", VERDICT: "comparison"}
    return [
        part
        for part in parts.values()
        if part.figures
        or part.tables
        or part.findings
        or len(frames.get(own_tables.get(part.title), ()))
    ]


def runs_summary(runs: pd.DataFrame) -> dict:
    """How many runs were expected and how many are there, with their baselines, studies, bindings
    and samples."""
    cued = runs.loc[runs["cue"] != "", "binding"]
    return {
        **with_seeds(runs)[["study", "sample", "seed"]].nunique(),
        "binding": cued.nunique() or runs["binding"].nunique(),
        "cued": len(cued) > 0,
        "baselines": list(runs["baseline"].unique()),
        "expected": len(runs),
        "doubtful": int(doubtful(runs).sum()),
        **runs["status"].value_counts().reindex(["ok", "missing", "damaged"], fill_value=0),
    }


def _svgs(folder: Path, figure: Figure, sentence: str) -> Markup:
    """A figure, and the one with stacked panels that takes its place on a phone, if there is one."""
    says = f"{figure.title}. {sentence}".strip()
    schemes = [
        inline_svg(path, name, says)
        for name in (figure.name, f"{figure.name}{STACKED}")
        if (path := folder / f"{name}.svg").exists()
    ]
    if len(schemes) == 1:
        return schemes[0]
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(*schemes)


def inline_svg(path: Path, name: str, says: str) -> Markup:
    """An SVG figure as part of the page: the theme's colours, unique ids, smaller pictures. says: to
    screen readers, its title and the numbers that it shows. Parts whose id is `tip: TEXT` say so when
    they are pointed at."""
    svg = path.read_text(encoding="utf-8")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'<g id="tip: ([^"]*)">', r'<g class="tip"><title>\1</title>', svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name.replace('/', '-')}-", svg)
    svg = re.sub(r'href="data:image/png;base64,\s*([^"]+)"', _smaller_picture, svg)
    for colour, variable in _THEME.items():
        svg = svg.replace(colour, variable)
    width = float(re.search(r'width="([\d.]+)pt"', svg)[1]) / 0.75
    look = f'style="--width: {width:.0f}px" role="img" aria-label="{escape(says)}"'
    return Markup(svg.replace("<svg", f"<svg {look}", 1))


def _smaller_picture(match: re.Match) -> str:
    return f'href="{webp_address(Image.open(io.BytesIO(base64.b64decode(match[1]))))}"'
