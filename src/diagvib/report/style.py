"""The style of all figures: one scale for accuracies, colour-blind safe colours, files that are
reproducible."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure

from diagvib.foundation.files import whole_file
from diagvib.results.metrics import CHANCE

INK = "#1f2933"
MUTED = "#66727f"
RULE = "#d5dbe1"
NOT_CONFIGURED = "#e6e9ed"
TRAINED = "#0072b2"
HELD_OUT = "#d55e00"
TESTED_ID = "#009e73"
TESTED_OOD = "#7a4fa3"

# Okabe and Ito's palette without its yellow, which is hard to see on white; markers repeat the
# colours' information.
BASELINE_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#4d4d4d",
    "#7a4fa3",
    "#8c6d31",
)
BASELINE_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "hatch.color": MUTED,
    "hatch.linewidth": 0.7,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    # Text stays text (small files, readable by screen readers); ids are the same in every run.
    "svg.fonttype": "none",
    "svg.hashsalt": "diagvib",
}


def styled():
    """The context in which figures are drawn and saved."""
    return mpl.rc_context(_STYLE)


def new_figure(width: float, height: float) -> Figure:
    """A figure of width x height inches that belongs to no window system."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write {path}.png and {path}.svg, complete and without dates; returns both paths."""
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    written = []
    with styled():
        figure.set_dpi(mpl.rcParams["savefig.dpi"])
        figure.get_layout_engine().execute(figure)
        figure.set_layout_engine(
            None
        )  # it is final; savefig would draw everything once more to compute it
        for kind in metadata:
            target = path.with_name(f"{path.name}.{kind}")
            with whole_file(target) as temporary:
                figure.savefig(temporary, format=kind, metadata=metadata[kind])
            written.append(target)
    return written


@cache
def accuracy_scale(chance: float = CHANCE) -> LinearSegmentedColormap:
    """Fixed from 0 to 1, pale at chance: below it (vermilion) a model follows the cue, above it
    (blue) it recognises the target."""
    return LinearSegmentedColormap.from_list(
        "accuracy",
        [
            (0, "#b1420c"),
            (chance / 2, "#e89a68"),
            (chance, "#f8efda"),
            (chance + 0.43 * (1 - chance), "#8ab8dc"),
            (1, "#0c4a80"),
        ],
    )


def accuracy_colours(value: float, chance: float = CHANCE) -> tuple[str, str]:
    """Fill and text colour (hex) of an accuracy on the scale of this chance."""
    red, green, blue, _ = accuracy_scale(chance)(value)
    dark = 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45
    return to_hex((red, green, blue)), "#ffffff" if dark else INK


def by_baseline(baselines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of every baseline, by its position in the configuration."""
    return {
        name: (
            BASELINE_COLOURS[i % len(BASELINE_COLOURS)],
            BASELINE_MARKERS[i % len(BASELINE_MARKERS)],
        )
        for i, name in enumerate(baselines)
    }
