"""Perplexity by how many neurons, or heads, stay, for several ways to choose them: window by window.

Dimension key: N windows.
"""

import math
import textwrap

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.results import listed
from course_lib.lessons.common.style import COLOURS, DASHES, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.dejavu.live.gaps import Curves, gap
from course_lib.measure.paired import mean_and_error

COLUMNS = 78  # of a title
WIDE = 3.0  # times dense: from there on a log scale shows more


def above(losses: Float[Tensor, "N"], dense: Float[Tensor, "N"]) -> tuple[float, float, float]:
    """How many times the dense perplexity, and the ends of two standard errors, window by window."""
    mean, error = mean_and_error(losses - dense)
    return tuple(math.exp(mean + side * ERRORS * error) for side in (0, -1, 1))


def density_curves(curves: Curves, dense: Float[Tensor, "N"], at: float, what: str = "neurons") -> Figure:
    """How many times the dense perplexity, by the share that stays.

    Raises:
        ValueError: for more curves than there are styles of lines.
    """
    if len(curves) > len(DASHES):
        raise ValueError(
            f"got {len(curves)} curves; expected at most {len(DASHES)}, since the next would look like the first. "
            "Draw them in two figures."
        )
    fig, (axes,) = figure(width=7.2, height=3.8)
    most = 1.0
    for index, (name, by_share) in enumerate(curves.items()):
        shares = sorted(by_share)
        times, low, high = map(torch.tensor, zip(*(above(by_share[share], dense) for share in shares), strict=True))
        reach = torch.stack([times - low, high - times]).tolist()
        places = [100 * share for share in shares]
        axes.errorbar(places, times.tolist(), yerr=reach, label=name, capsize=3, **line_style(index))
        most = max(most, float(times.max()))
    axes.axhline(1, color=COLOURS[4], linestyle=":", label="dense")
    shares = sorted({share for by_share in curves.values() for share in by_share})
    axes.set_xticks([100 * share for share in shares], [f"{100 * share:.0f}" for share in shares])
    scale = f"({ERROR_BARS})"
    if most > WIDE:
        log_scale(axes, "y")
        scale = f"(log scale; {ERROR_BARS})"
    axes.legend(frameon=False, fontsize=9)
    label(axes, finding(curves, at, what), f"{what} kept (%)", f"perplexity, times dense\n{scale}")
    return fig


def finding(curves: Curves, at: float, what: str = "neurons") -> str:
    """Who reads best at one share, where the windows tell, and how many times its perplexity the others have."""
    there = {name: by_share[at] for name, by_share in curves.items() if at in by_share}
    best = min(there, key=lambda name: float(there[name].mean()))
    gaps = {name: gap(there[best], losses) for name, losses in there.items() if name != best}
    behind = {name: _times(math.exp(effect.value)) for name, effect in gaps.items() if effect.holds}
    of = f"At {100 * at:.0f} % of the {what}"
    if not behind:
        return f"{of} the windows tell no order"
    undecided = [name for name in gaps if name not in behind]
    rest = f"; not told from {listed(undecided)}" if undecided else ""
    others = listed([f"{name} ({times})" for name, times in behind.items()])
    return textwrap.fill(f"{of} {best} is clearly better than {others}{rest}", COLUMNS)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}\N{NO-BREAK SPACE}×" if ratio < 10 else f"{ratio:,.0f}\N{NO-BREAK SPACE}×"
