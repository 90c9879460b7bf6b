"""The style of all figures: one scale for accuracies, colour-blind safe colours, files that are
reproducible. Importing this module sets it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from math import ceil
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure as Drawing

from diagvib.foundation.files import whole_file

INK = "#1f2933"
MUTED = "#66727f"
RULE = "#d5dbe1"
NOT_CONFIGURED = "#e6e9ed"
# Okabe and Ito's palette without its yellow, and with what stands out less than 3 to 1 from white
# darkened; markers repeat the colours' information.
PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#a97b00",
    "#2f8fc6",
    "#4d4d4d",
    "#8f66b8",
    "#5f7d1f",
)
MARKERS = "os^DvPX<>"
TRAINED, HELD_OUT = PALETTE[:2]
# Of test groups, in their order; the first two also of what is trained and held out.
GROUP_COLOURS = (TRAINED, HELD_OUT, PALETTE[2], PALETTE[7], *PALETTE[3:7], PALETTE[8])

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # a class may be called $0-$50
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
mpl.rcParams.update(_STYLE)


# Whether panels are stacked, as for a phone.
_narrow: ContextVar[bool] = ContextVar("narrow", default=False)
# Inches, at which a phone shows the letters of a figure in a readable size.
PHONE = 4.4
# Between pictures, as a share of their side.
GAP = 0.04
# In the name of a figure's file with stacked panels, which only the page uses.
STACKED = "_stacked"


@contextmanager
def stacked() -> Iterator[None]:
    """Draw for a phone: panels above each other, as far as a figure can."""
    token = _narrow.set(True)
    try:
        yield
    finally:
        _narrow.reset(token)


def is_stacked() -> bool:
    return _narrow.get()


def new_figure(width: float, height: float) -> Drawing:
    """A figure of width x height inches that belongs to no window system."""
    figure = Drawing(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_panels(
    count: int, across: int, size: tuple[float, float], margin: tuple[float, float]
) -> tuple[Drawing, list[Axes]]:
    """A figure with panels on common scales, in rows of at most `across`, or what a phone has room
    for. size: of a panel, and margin: around all of them; in inches."""
    if is_stacked():
        across = min(across, count, max(1, int((PHONE - margin[0]) / size[0])))
        size = (PHONE - margin[0]) / across, size[1]
    columns = min(across, count)
    rows = -(-count // columns)
    figure = new_figure(size[0] * columns + margin[0], size[1] * rows + margin[1])
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)[:count]
    for empty in grid.flat[count:]:
        empty.remove()
    for lowest in panels[-columns:]:
        lowest.tick_params(labelbottom=True)
    return figure, panels


def add_legend(figure: Drawing, handles: Sequence[Artist] = (), **look) -> None:
    """One legend above all panels. handles: its entries; by default, each label of the panels
    once. Each row of entries but the first makes the figure higher."""
    legends = [axes.get_legend_handles_labels() for axes in figure.axes]
    of_panels = {label: handle for legend in legends for handle, label in zip(*legend, strict=True)}
    handles = [*handles] or [*of_panels.values()]
    # A letter of the legend is 0.075 inches wide.
    wide = 0.075 * max((len(handle.get_label()) for handle in handles), default=0) + 0.6
    room = min(5, max(1, int(figure.get_figwidth() / wide)))
    look = {"ncols": min(room, len(handles)), "fontsize": 8.5, "alignment": "left", **look}
    rows = ceil(len(handles) / look["ncols"])
    figure.set_figheight(figure.get_figheight() + 0.2 * (rows - 1))
    figure.legend(handles=handles, loc="outside upper left", **look)


def write(axes: Axes, x: float, y: float, text: str, **look) -> None:
    """A text, by default in the middle of x and y."""
    axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": 9.5, **look})


def show_pictures(axes: Axes, pictures: Sequence[Sequence[np.ndarray]], top: float) -> None:
    """Pictures uint8[H, W, 3] in rows and columns of one unit each from `top` on, as one image with
    clear gaps: an image for each takes three times as long."""
    opaque = np.array([[np.insert(picture, 3, 255, axis=2) for picture in row] for row in pictures])
    rows, columns, side = opaque.shape[:3]
    gap = max(2, round(side * GAP))
    padding = (gap // 2, gap - gap // 2)
    tiles = np.pad(opaque, ((0, 0), (0, 0), padding, padding, (0, 0)))
    mosaic = np.vstack([np.hstack(row) for row in tiles])
    axes.imshow(mosaic, interpolation="none", extent=(0, columns, top + rows, top))


def draw_chance(axes: Axes, chance: float, along: str = "y") -> None:
    line = axes.axhline if along == "y" else axes.axvline
    line(chance, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))


def save_figure(figure: Drawing, path: Path, kinds: Sequence[str]) -> None:
    """Write {path}.{kind} for each kind, png or svg, complete and without dates."""
    figure.set_dpi(mpl.rcParams["savefig.dpi"])
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine(None)  # final; savefig would draw everything once more to compute it
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    for kind in kinds:
        with whole_file(path.with_name(f"{path.name}.{kind}")) as temporary:
            figure.savefig(temporary, format=kind, metadata=metadata[kind])


def accuracy_stops(chance: float) -> list[tuple[float, str]]:
    """The colours of accuracies, fixed from 0 to 1, pale at chance: below it (vermilion) a model
    follows the cue, above it (blue) it recognises the target."""
    above = chance + 0.43 * (1 - chance)
    places = [0, chance / 2, chance, above, 1]
    colours = ["#b1420c", "#e89a68", "#f8efda", "#8ab8dc", "#0c4a80"]
    return list(zip(places, colours, strict=True))


@cache
def accuracy_scale(chance: float) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list("accuracy", accuracy_stops(chance))


def accuracy_colours(value: float, chance: float) -> tuple[str, str]:
    """Fill and text colour (hex) of an accuracy on the scale of this chance."""
    fill = to_hex(accuracy_scale(chance)(value))
    return fill, text_on(fill)


def luminance(colour: str) -> float:
    """Relative luminance of a colour (WCAG 2.2)."""
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def text_on(fill: str) -> str:
    """Black or white, whichever has more contrast, at least 4.5 to 1, on a fill that is the same in
    every theme. (Pure white would become the page's own colour.)"""
    return "#000000" if luminance(fill) > 0.179 else "#fefefe"


def by_baseline(baselines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of every baseline, by its position in the configuration: another pair for
    each of the first 81."""
    return {
        name: (
            PALETTE[number % len(PALETTE)],
            MARKERS[(number + number // len(PALETTE)) % len(MARKERS)],
        )
        for number, name in enumerate(baselines)
    }
