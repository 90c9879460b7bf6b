"""The paper's Tables 1 (and 6) and 4, in their layout: a row per model, or per method for its last
layer, the paper's below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from diagvib.foundation.files import definition_path, write_json, write_text
from diagvib.imagenet_w.photo_sets import MEASURES
from diagvib.results.table import PAPER, Table, markdown

TITLES = {
    "models": "Models on ImageNet-W (laid out like Table 1 of Li et al., 2023)",
    "last_layer": "Retrained last layers (laid out like Table 4 of Li et al., 2023)",
}
# A number of Table 6, which has more digits, replaces that of Table 1.
_TABLES = {"models": (1, 6), "last_layer": (4,)}
# How the paper's last layers were trained, and the learning rates that they were chosen from.
_PUBLISHED = {"epochs": 90, "batch_size": 1024, "accuracies": {"0.01", "0.001", "0.0001"}}
_NAMES = {
    "models": ("model", "weights"),
    "last_layer": ("method", "learning_rate", "model", "weights"),
}
_NOTE = (
    "IN-1k: top-1 accuracy in percent; P(carton): mean probability in percent; rank: the median place "
    "of carton among the classes that the watermark raises; all others but factors in points."
)
_OTHER_FONT = (
    "This is not the paper's font, Source Han Serif SC ExtraLight, so the watermark is only an "
    "imitation."
)
_STAND_INS = "Made from stand-ins drawn by code: not comparable to the paper."


@cache
def read_imagenet_w_tables() -> pd.DataFrame:
    """The paper's numbers. Columns: table, model, weights, method, metric, value (percent and
    points), note (what is doubtful)."""
    return pd.read_csv(definition_path("papers/imagenet_w.csv"), keep_default_na=False)


def write_tables(folder: Path, stand_ins: bool, **results: Sequence[Mapping]) -> None:
    """Write models.csv, .json, .md and last_layer.csv, .json, .md, for the given results, and print
    them."""
    for kind, found in results.items():
        rows, shown = table(kind, found, stand_ins), shown_table(kind, found, stand_ins)
        write_text(folder / f"{kind}.csv", rows.to_csv(index=False, lineterminator="\n"))
        write_json(folder / f"{kind}.json", {"results": [*found]})
        write_text(folder / f"{kind}.md", "\n".join(markdown(shown)) + "\n")
        _print(shown, len(_NAMES[kind]))


def table(kind: str, found: Sequence[Mapping], stand_ins: bool = False) -> pd.DataFrame:
    """One row per result: its labels, MEASURES, paper_{metric} if the paper has that number, and
    the font."""
    rows = [
        {
            **{key: result[key] for key in _NAMES[kind]},
            **{name: result[name] for name in MEASURES},
            **{f"paper_{name}": paper(kind, result, stand_ins).get(name) for name in MEASURES},
            "font": result["font"],
            "photos": result["photos"]["in_1k"],
        }
        for result in found
    ]
    names = [*_NAMES[kind], *MEASURES, *(f"paper_{name}" for name in MEASURES), "font", "photos"]
    return pd.DataFrame(rows, columns=names)


def paper(kind: str, result: Mapping, stand_ins: bool = False) -> dict[str, float]:
    """The paper's numbers for the same model, weights and method; none for stand-ins, or for a last
    layer that was trained in another way."""
    if stand_ins or (kind == "last_layer" and not _trained_as_published(result)):
        return {}
    known = read_imagenet_w_tables()
    same = (
        known["table"].isin(_TABLES[kind])
        & (known["model"] == result["model"])
        & (known["weights"] == result["weights"])
        & (known["method"] == result.get("method", ""))
    )
    return dict(zip(known[same]["metric"], known[same]["value"], strict=True))


def _trained_as_published(result: Mapping) -> bool:
    how = {key: result[key] for key in _PUBLISHED}
    return {**how, "accuracies": {*result["accuracies"]}} == _PUBLISHED


def shown_table(kind: str, found: Sequence[Mapping], stand_ins: bool = False) -> Table:
    """For each result our texts, with the paper's on the line below if it has any."""
    names, rows = _NAMES[kind], []
    for result in found:
        own = [f"{one:g}" if isinstance(one, float) else one for one in map(result.get, names)]
        rows.append([*own, *(_text(name, result[name]) for name in MEASURES)])
        if theirs := paper(kind, result, stand_ins):
            numbers = [_text(name, theirs.get(name)) for name in MEASURES]
            rows.append([PAPER, *[""] * (len(names) - 1), *numbers])
    fonts = "; ".join(sorted({result["font"] for result in found}))
    notes = [_NOTE, f"Watermark drawn with {fonts}."]
    notes += [_OTHER_FONT] * (not all(result["published_font"] for result in found))
    heads = [*(name.replace("_", " ") for name in names), *MEASURES.values()]
    return Table(kind, TITLES[kind], heads, rows, notes + [_STAND_INS] * stand_ins)


def _print(table: Table, names: int) -> None:
    """The table on the terminal. names: how many columns are no numbers."""
    from rich.console import Console
    from rich.table import Table as Shown

    shown = Shown(title=table.title, title_justify="left")
    for number, head in enumerate(table.heads):
        shown.add_column(head, justify="left" if number < names else "right")
    for row in table.rows:
        shown.add_row(*row)
    console = Console()
    # In a file or pipe a table keeps its width instead of being cut at 80 columns.
    Console(width=console.width if console.is_terminal else 160).print(shown)
    print(*table.notes, sep="\n")


def _text(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    signed = metric not in ("in1k_accuracy", "p_carton", "p_carton_factor", "carton_rank")
    return f"{value:+.2f}" if signed else f"{value:.2f}"
