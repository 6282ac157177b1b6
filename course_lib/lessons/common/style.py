"""The house style of all figures: quiet, readable in greyscale, with the finding as the title."""

import base64
import html
import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

# Dark to light, so that the order survives greyscale; each line also has its own marker and dash.
COLOURS = ("#16324f", "#c8553d", "#2a9d8f", "#e9b44c", "#8d99ae")
MARKERS = ("o", "s", "^", "D", "v")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)))


class HouseFigure(Figure):
    """A figure that a notebook displays by itself, without pyplot, a backend or global state."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the picture, and HTML with the titles as alternative text, which front ends only take from HTML."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        picture = base64.b64encode(buffer.getvalue()).decode()
        look = "max-width:100%;background:white"
        tag = f'<img alt="{html.escape(self.described())}" style="{look}" src="data:image/png;base64,{picture}">'
        return {"image/png": picture, "text/html": tag}

    def described(self) -> str:
        """Return the figure's titles, which state the findings."""
        titles = [panel.get_title(loc=where) for panel in self.axes for where in ("left", "center")]
        return "; ".join(title for title in [self.get_suptitle(), *titles] if title) or "a figure without a title"


def figure(n_columns: int = 1, n_rows: int = 1, width: float = 6.4, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """Make a figure of n_rows × n_columns axes in the house style.

    Width and height are those of one axes, in inches. Returns the figure and its axes, row by row.
    """
    fig = HouseFigure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    axes = fig.subplots(n_rows, n_columns, squeeze=False).flatten().tolist()
    for panel in axes:
        style(panel)
    return fig, axes


def style(axes: Axes) -> Axes:
    """Apply the house style to axes: no frame above and to the right, a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.title.set_fontsize(11)
    return axes


def label(axes: Axes, title: str, x: str = "", y: str = "") -> Axes:
    """Set the finding as the title, and the labels of the axes with units."""
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return axes


def log_scale(axes: Axes, which: str) -> Axes:
    """Make the x or y axis logarithmic, with plain numbers at 1, 2 and 5 of every decade."""
    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    return axes


def line_style(index: int) -> dict:
    """Return colour, marker and dash of the index-th line."""
    cycles = {"color": COLOURS, "marker": MARKERS, "linestyle": DASHES}
    return {name: values[index % len(values)] for name, values in cycles.items()}
