"""The live view of lesson 06: a text, and which experts every byte goes to; the bytes of one expert are marked.

Without a browser, as when a notebook is executed in a terminal, one block of one model stays.

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

HERE = "background:#16324f;color:#ffffff;"
ELSEWHERE = "background:#ffffff;color:#16324f;"
CELL = "display:inline-block;text-align:center;min-width:0.9em;border-radius:2px;margin:1px 0;line-height:1.25;"
TEXT = "font-family:monospace;max-width:62em;background:#ffffff;color:#16324f;"
SMALL = "font-size:0.65em;color:inherit;display:block;"


@dataclass(frozen=True)
class Watched:
    """A text, and of each block who computes which byte."""

    ids: Int[Tensor, "T"]
    chosen: tuple[Bool[Tensor, "T E"], ...]

    def busiest(self, block: int) -> int:
        """The expert with the most bytes of a block."""
        return int(self.chosen[block].sum(dim=0).argmax())

    def check(self, block: int, expert: int) -> None:
        """Raises ValueError for a block or an expert that is not there."""
        n_experts = self.chosen[0].shape[1]
        if not (0 <= block < len(self.chosen) and 0 <= expert < n_experts):
            raise ValueError(
                f"got block {block}, expert {expert}; expected 0 to {len(self.chosen) - 1} and 0 to {n_experts - 1}."
            )


def watched(ids: Int[Tensor, "T"], routings: Sequence[Routing]) -> Watched:
    """From the routings of a text's bytes, one a block.

    Raises:
        ValueError: for routings of another number of bytes.
    """
    for routing in routings:
        if len(routing.keep) != len(ids):
            raise ValueError(f"got {len(ids)} bytes and a routing of {len(routing.keep)}; expected as many.")
    return Watched(ids, tuple(routing.keep for routing in routings))


def as_html(seen: Watched, block: int, expert: int, name: str = "") -> str:
    """The text with the numbers of its experts below each byte; white on dark where one of them is `expert`."""
    seen.check(block, expert)
    chosen = seen.chosen[block]
    cells = []
    for byte, its in zip(seen.ids.tolist(), chosen, strict=True):
        look = HERE if its[expert] else ELSEWHERE
        numbers = "<br>".join(str(e) for e in its.nonzero().flatten().tolist()) or "–"
        cells.append(f'<span style="{CELL}{look}">{_visible(byte)}<span style="{SMALL}">{numbers}</span></span>')
    share = chosen[:, expert].sum() / chosen.sum()
    named = f"{html.escape(name)}: " if name else ""
    caption = f"{named}block {block}, expert {expert} has {100 * share:.0f} % of all choices (marked)"
    return f'<div style="{TEXT}"><b>{caption}</b><br>{"".join(cells)}</div>'


def _visible(byte: int) -> str:
    """A letter as it is; a space, an end of a line and bytes that are no letters by themselves as signs."""
    signs = {32: "␣", 10: "↵", 13: "↵", 9: "→"}
    return signs.get(byte) or (html.escape(chr(byte)) if 32 < byte < 127 else "·")


def explore(seen: Mapping[str, Watched], block: int = 0) -> widgets.VBox:
    """Show the controls and, below them, the text; choose a model, a block, and the expert that is marked.

    Args:
        seen: of one text under several models of equally many blocks and experts.
    """
    first = next(iter(seen.values()))
    expert = first.busiest(block)
    first.check(block, expert)
    choice = {
        "name": widgets.Dropdown(options=list(seen), description="model"),
        "block": widgets.IntSlider(block, 0, len(first.chosen) - 1, description="block"),
        "expert": widgets.IntSlider(expert, 0, first.chosen[0].shape[1] - 1, description="expert"),
    }
    return show_view(lambda name, **chosen: HTML(as_html(seen[name], **chosen, name=name)), choice)
