"""The live view of lesson 09: a text goes by, and which neurons of a block count for each of its tokens.

Every token has a grid, a cell for each neuron. Neurons that count most on other text stand first, so a choice that is
the same for all tokens would fill each grid from the top to the dashed line. Without a browser one place in the text
stays.

Dimension key: F neurons.
"""

import html
from collections.abc import Sequence

import ipywidgets as widgets
from IPython.display import HTML
from jaxtyping import Bool
from torch import Tensor

from course_lib.lessons.common.views import player, show_view
from course_lib.lessons.dejavu.live.chosen import Chosen, caption

SHOWN = 4  # tokens side by side
AGAIN, NEW, LINE = "#16324f", "#e9b44c", "#c8553d"  # dark and light, also in greyscale
TEXT = "max-width:62em;background:#ffffff;color:#16324f;"
TOKEN = "display:inline-block;margin:0 0.7em 0.4em 0;text-align:center;font-family:monospace;"


def as_html(seen: Chosen, block: int, token: int, density: float, name: str = "") -> str:
    """Some tokens from `token` on, each above its neurons: dark if the token before chose them too, light if new."""
    n_blocks, n_tokens, _ = seen.importance.shape
    if not (0 <= block < n_blocks and 1 <= token <= n_tokens - SHOWN):
        raise ValueError(f"got block {block}, token {token}; expected 0 to {n_blocks - 1} and 1 to {n_tokens - SHOWN}.")
    keep, order = seen.keep(block, density), seen.usual[block].argsort(descending=True)
    grids = []
    for place in range(token, token + SHOWN):
        now, before = keep[place][order], keep[place - 1][order]
        picture = _grid(now & before, now & ~before, seen.n_kept(density))
        grids.append(f'<span style="{TOKEN}">{html.escape(seen.tokens[place])}<br>{picture}</span>')
    said = html.escape(caption(seen, block, density, name))
    text = html.escape("".join(seen.tokens[max(0, token - 24) : token]))
    return f'<div style="{TEXT}"><b>{said}</b><br>… {text}<br>{"".join(grids)}</div>'


def _grid(again: Bool[Tensor, "F"], new: Bool[Tensor, "F"], n_kept: int) -> str:
    """A drawing with a cell a neuron, row by row; the dashed line is where the first `n_kept` end."""
    wide = max(8, round((2 * len(again)) ** 0.5))
    high = -(-len(again) // wide)
    cells = [
        f'<path fill="{colour}" d="{"".join(f"M{i % wide} {i // wide}h1v1h-1z" for i in chosen)}"/>'
        for colour, chosen in ((AGAIN, again.nonzero().flatten().tolist()), (NEW, new.nonzero().flatten().tolist()))
    ]
    edge = n_kept / wide
    said = f"{int(again.sum())} neurons chosen again, {int(new.sum())} new"
    line = f'<path stroke="{LINE}" stroke-width="0.5" stroke-dasharray="2 1" d="M0 {edge:.2f}h{wide}"/>'
    return (
        f'<svg width="190" viewBox="-0.5 -0.5 {wide + 1} {high + 1}" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{said}">'
        f'<rect width="{wide}" height="{high}" fill="#f2f2f2"/>{"".join(cells)}{line}</svg>'
    )


def explore(
    seen: Chosen, density: float = 0.3, block: int = 0, token: int = 1, names: Sequence[str] = ()
) -> widgets.VBox:
    """Show the controls and, below them, the tokens; choose a block, a place in the text, and how many neurons stay.

    Args:
        names: of the blocks that `seen` holds; their numbers when there are none.
    """
    names = tuple(names) or tuple(f"block {number}" for number in range(len(seen.importance)))
    last = len(seen.tokens) - SHOWN
    place = widgets.IntSlider(token, 1, last, description="token")
    choice = {
        "block": widgets.Dropdown(
            options=[(each, i) for i, each in enumerate(names)], value=block, description="block"
        ),
        "token": place,
        "density": widgets.FloatSlider(density, min=0.05, max=0.9, step=0.05, description="share kept"),
    }
    controls = widgets.VBox([widgets.HBox([player(place, 900), *choice.values()])])
    return show_view(lambda block, **chosen: HTML(as_html(seen, block, **chosen, name=names[block])), choice, controls)
