"""The interactive view of lesson 09: which neurons of a block matter for each token of a text.

Every token has a grid with one cell per neuron. The neurons that matter most on other text come first, so a choice that
is the same for all tokens would fill each grid from the top to the dashed line. Without a browser one view is shown.

Dimension key: L blocks, T tokens, F neurons.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass

import ipywidgets as widgets
import torch
from IPython.display import HTML
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.lessons.common.views import player, show_view
from course_lib.sparsity.ranking import keep_highest

SHOWN = 4  # tokens next to each other
AGAIN, NEW, LINE = "#16324f", "#e9b44c", "#c8553d"  # dark and light, also in greyscale
TEXT = "max-width:62em;background:#ffffff;color:#16324f;"
TOKEN = "display:inline-block;margin:0 0.7em 0.4em 0;text-align:center;font-family:monospace;"


@dataclass(frozen=True)
class Choices:
    """The tokens of a text, the importance of each neuron of some blocks for each of them, and on other text."""

    tokens: tuple[str, ...]
    importance: Float[Tensor, "L T F"]
    usual: Float[Tensor, "L F"]

    def __post_init__(self) -> None:
        if len(self.tokens) != self.importance.shape[1] or self.usual.shape != self.importance[:, 0].shape:
            raise ValueError(
                f"got {len(self.tokens)} tokens, importance {tuple(self.importance.shape)} and usual importance "
                f"{tuple(self.usual.shape)}; expected (blocks, tokens, neurons) of these tokens, and (blocks, neurons)."
            )

    def keep(self, block: int, density: float) -> Bool[Tensor, "T F"]:
        """Keep each token's most important neurons, among them none that is zero."""
        importance = self.importance[block]
        return keep_highest(importance, importance.shape[1] - self.n_kept(density)) & (importance > 0)

    def static(self, block: int, density: float) -> Bool[Tensor, "F"]:
        """Keep as many neurons, chosen once on other text."""
        usual = self.usual[block][None]
        return keep_highest(usual, usual.shape[1] - self.n_kept(density))[0]

    def n_kept(self, density: float) -> int:
        """The number of neurons that one token keeps.

        Raises:
            ValueError: for a density outside (0, 1].
        """
        if not 0 < density <= 1:
            raise ValueError(f"got density {density}; expected a fraction of the neurons above 0, at most 1.")
        return max(1, round(density * self.importance.shape[2]))


def choices(tokens: Sequence[str], importance: Sequence[Tensor], elsewhere: Sequence[Tensor]) -> Choices:
    """Collect the importance of neurons in some blocks, (T, F) each, on a text and on other text."""
    usual = torch.stack([each.mean(dim=0) for each in elsewhere])
    return Choices(tuple(tokens), torch.stack(list(importance)), usual)


def caption(shown: Choices, block: int, density: float, name: str = "") -> str:
    """Say how many of a token's neurons the previous token has too, and how many of them are in the static set."""
    keep, static = shown.keep(block, density), shown.static(block, density)
    n_kept, n_again = keep[1:].sum(), (keep[1:] & keep[:-1]).sum()
    return (
        f"{name}{': ' if name else ''}{100 * keep.float().mean():.0f} % of the neurons are chosen. On average "
        f"{100 * n_again / n_kept:.0f} % of them were chosen for the previous token too, and "
        f"{100 * (keep & static).sum() / keep.sum():.0f} % are in the static set; at random it would be "
        f"{100 * static.float().mean():.0f} %"
    )


def as_html(shown: Choices, block: int, token: int, density: float, name: str = "") -> str:
    """Draw some tokens from `token` on, each above its neurons: dark if the previous token has them, light if new."""
    n_blocks, n_tokens, _ = shown.importance.shape
    if not (0 <= block < n_blocks and 1 <= token <= n_tokens - SHOWN):
        raise ValueError(f"got block {block}, token {token}; expected 0 to {n_blocks - 1} and 1 to {n_tokens - SHOWN}.")
    keep, order = shown.keep(block, density), shown.usual[block].argsort(descending=True)
    grids = []
    for place in range(token, token + SHOWN):
        now, before = keep[place][order], keep[place - 1][order]
        picture = _grid(now & before, now & ~before, shown.n_kept(density))
        grids.append(f'<span style="{TOKEN}">{html.escape(shown.tokens[place])}<br>{picture}</span>')
    heading = html.escape(caption(shown, block, density, name))
    text = html.escape("".join(shown.tokens[max(0, token - 24) : token]))
    return f'<div style="{TEXT}"><b>{heading}</b><br>… {text}<br>{"".join(grids)}</div>'


def _grid(again: Bool[Tensor, "F"], new: Bool[Tensor, "F"], n_kept: int) -> str:
    """Draw one cell per neuron, row by row; the dashed line is where the first `n_kept` end."""
    wide = max(8, round((2 * len(again)) ** 0.5))
    high = -(-len(again) // wide)
    cells = [
        f'<path fill="{colour}" d="{"".join(f"M{i % wide} {i // wide}h1v1h-1z" for i in chosen)}"/>'
        for colour, chosen in ((AGAIN, again.nonzero().flatten().tolist()), (NEW, new.nonzero().flatten().tolist()))
    ]
    edge = n_kept / wide
    description = f"{int(again.sum())} neurons chosen again, {int(new.sum())} new"
    line = f'<path stroke="{LINE}" stroke-width="0.5" stroke-dasharray="2 1" d="M0 {edge:.2f}h{wide}"/>'
    return (
        f'<svg width="190" viewBox="-0.5 -0.5 {wide + 1} {high + 1}" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{description}">'
        f'<rect width="{wide}" height="{high}" fill="#f2f2f2"/>{"".join(cells)}{line}</svg>'
    )


def show_choices(
    shown: Choices, density: float = 0.3, block: int = 0, token: int = 1, names: Sequence[str] = ()
) -> widgets.VBox:
    """Show controls for the block, the place in the text and the density, and below them the tokens.

    Args:
        names: the names of the blocks in `shown`; their numbers if there are none.
    """
    names = tuple(names) or tuple(f"block {number}" for number in range(len(shown.importance)))
    last = len(shown.tokens) - SHOWN
    place = widgets.IntSlider(token, 1, last, description="token")
    controls = {
        "block": widgets.Dropdown(
            options=[(each, i) for i, each in enumerate(names)], value=block, description="block"
        ),
        "token": place,
        "density": widgets.FloatSlider(density, min=0.05, max=0.9, step=0.05, description="density"),
    }
    row = widgets.VBox([widgets.HBox([player(place, 900), *controls.values()])])
    return show_view(lambda block, **chosen: HTML(as_html(shown, block, **chosen, name=names[block])), controls, row)
