"""The live view of lesson 10: which words the vectors of a prompt are near to, step by step.

Without a browser the whole strip of steps stays, with the last one marked.

Dimension key: P vectors of the prompt, S steps.
"""

import html
from collections.abc import Sequence

import ipywidgets as widgets
from IPython.display import HTML

from course_lib.lessons.common.views import player, show_view
from course_lib.lessons.compress.live.learning import Learned

Words = Sequence[Sequence[tuple[str, float]]]  # for each moment the nearest word of each vector and its cosine

MARKED, PLAIN = "background:#16324f;color:#ffffff;", "background:#ffffff;color:#16324f;"
CELL = "padding:2px 6px;text-align:left;white-space:nowrap;"
TEXT = "max-width:62em;overflow-x:auto;background:#ffffff;color:#16324f;"
MOST = 7  # columns side by side


def as_html(learned: Learned, words: Words, step: int) -> str:
    """A row a vector, a column a moment; the moment after `step` steps is marked, and said in the caption.

    Raises:
        ValueError: for a step that was not taken, or words of another number of moments.
    """
    last = len(learned.losses)
    if not 0 <= step <= last or len(words) != last + 1:
        raise ValueError(f"got step {step} and words at {len(words)} moments; expected 0 to {last}, and {last + 1}.")
    shown = columns(last, step)
    head = "".join(_cell("th", str(moment), moment == step) for moment in shown)
    rows = ""
    for vector in range(len(words[0])):
        cells = (_cell("td", _said(*words[moment][vector]), moment == step) for moment in shown)
        rows += f'<tr><th style="{CELL}">e<sub>{vector + 1}</sub></th>{"".join(cells)}</tr>'
    look = "font-family:monospace;font-size:0.9em"
    table = f'<table style="{look}"><tr><th style="{CELL}">steps</th>{head}</tr>{rows}</table>'
    return f'<div style="{TEXT}" tabindex="0"><b>{html.escape(caption(learned, step))}</b>{table}</div>'


def columns(last: int, step: int) -> list[int]:
    """At most MOST moments, spread over all of them, and the one in question."""
    gaps = min(last, MOST - 1)
    spread = {round(place * last / gaps) for place in range(gaps + 1)} if gaps else {0}
    if step not in spread:
        spread.remove(min(spread, key=lambda moment: abs(moment - step)))
    return sorted(spread | {step})


def caption(learned: Learned, step: int) -> str:
    """How far the vectors are from where they began, beside their length, and what the batch of this step cost."""
    begun, now = learned.path[0], learned.path[step]
    moved = ((now - begun).norm(dim=1) / begun.norm(dim=1)).mean()
    cost = f"; the last batch cost {learned.losses[step - 1]:.2f} nats a token" if step else ""
    return f"After {step} of {len(learned.losses)} steps: {moved:.2f} lengths away from where they began{cost}"


def explore(learned: Learned, words: Words) -> widgets.VBox:
    """Show the slider and, below it, the strip."""
    last = len(learned.losses)
    step = widgets.IntSlider(last, 0, last, description="steps")
    controls = widgets.VBox([widgets.HBox([player(step, 700), step])])
    return show_view(lambda step: HTML(as_html(learned, words, step)), {"step": step}, controls)


def _cell(kind: str, text: str, marked: bool) -> str:
    return f'<{kind} style="{CELL}{MARKED if marked else PLAIN}">{text}</{kind}>'


def _said(token: str, cosine: float) -> str:
    """A word with its spaces as signs; what is no letter by itself as a dot."""
    signs = token.replace(" ", "␣").replace("\n", "↵")
    visible = "".join(sign if sign.isprintable() and sign != "\ufffd" else "·" for sign in signs)
    return f"{html.escape(visible)} <small>{cosine:.2f}</small>"
