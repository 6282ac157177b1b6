"""The interactive view of lesson 06: a text with the experts of every byte; the bytes of one expert are marked.

Without a browser, the first view is static.

Dimension key: T bytes, E experts, L blocks.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ipywidgets as widgets
from IPython.display import HTML
from jaxtyping import Bool, Int
from torch import Tensor

from course_lib.lessons.common.views import show_view
from course_lib.moe.routed import Routing

MARKED = "background:#16324f;color:#ffffff;"
PLAIN = "background:#ffffff;color:#16324f;"
CELL = "display:inline-block;text-align:center;min-width:0.9em;border-radius:2px;margin:1px 0;line-height:1.25;"
TEXT = "font-family:monospace;max-width:62em;background:#ffffff;color:#16324f;"
SMALL = "font-size:0.65em;color:inherit;display:block;"


@dataclass(frozen=True)
class RoutedText:
    """A text, and for each block the experts that compute each byte."""

    ids: Int[Tensor, "T"]
    chosen: tuple[Bool[Tensor, "T E"], ...]

    def busiest(self, block: int) -> int:
        """The expert with the most bytes in a block."""
        return int(self.chosen[block].sum(dim=0).argmax())

    def check(self, block: int, expert: int) -> None:
        """Raise ValueError for a block or an expert that does not exist."""
        n_experts = self.chosen[0].shape[1]
        if not (0 <= block < len(self.chosen) and 0 <= expert < n_experts):
            raise ValueError(
                f"got block {block}, expert {expert}; expected 0 to {len(self.chosen) - 1} and 0 to {n_experts - 1}."
            )


def route_text(ids: Int[Tensor, "T"], routings: Sequence[Routing]) -> RoutedText:
    """Combine a text with its routings, one per block.

    Raises:
        ValueError: a routing of another number of bytes.
    """
    for routing in routings:
        if len(routing.keep) != len(ids):
            raise ValueError(f"got {len(ids)} bytes and a routing of {len(routing.keep)}; expected the same number.")
    return RoutedText(ids, tuple(routing.keep for routing in routings))


def as_html(text: RoutedText, block: int, expert: int, name: str = "") -> str:
    """The text with the experts of each byte below it; white on dark where one of them is `expert`."""
    text.check(block, expert)
    chosen = text.chosen[block]
    cells = []
    for byte, byte_choice in zip(text.ids.tolist(), chosen, strict=True):
        look = MARKED if byte_choice[expert] else PLAIN
        numbers = "<br>".join(str(e) for e in byte_choice.nonzero().flatten().tolist()) or "–"
        cells.append(f'<span style="{CELL}{look}">{_visible(byte)}<span style="{SMALL}">{numbers}</span></span>')
    share = chosen[:, expert].sum() / chosen.sum()
    named = f"{html.escape(name)}: " if name else ""
    caption = f"{named}block {block}, expert {expert} has {100 * share:.0f} % of the choices (marked)"
    return f'<div style="{TEXT}"><b>{caption}</b><br>{"".join(cells)}</div>'


def _visible(byte: int) -> str:
    """A letter as it is; a space, a line end and other bytes as symbols."""
    signs = {32: "␣", 10: "↵", 13: "↵", 9: "→"}
    return signs.get(byte) or (html.escape(chr(byte)) if 32 < byte < 127 else "·")


def explore(texts: Mapping[str, RoutedText], block: int = 0) -> widgets.VBox:
    """Show a text below controls for the model, the block and the marked expert.

    Args:
        texts: one text routed by several models with the same number of blocks and experts.
    """
    first = next(iter(texts.values()))
    expert = first.busiest(block)
    first.check(block, expert)
    choice = {
        "name": widgets.Dropdown(options=list(texts), description="model"),
        "block": widgets.IntSlider(block, 0, len(first.chosen) - 1, description="block"),
        "expert": widgets.IntSlider(expert, 0, first.chosen[0].shape[1] - 1, description="expert"),
    }
    return show_view(lambda name, **chosen: HTML(as_html(texts[name], **chosen, name=name)), choice)
