"""The live view of lesson 10: the tokens nearest to the vectors of a prompt, step by step.

Without a browser the whole table of steps is shown, with the last step marked.

Dimension key: P vectors of the prompt, S steps.
"""

import html
from collections.abc import Sequence

import ipywidgets as widgets
from IPython.display import HTML
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.lessons.common.views import player, show_view
from course_lib.prompts.soft import SoftPrompt, fingerprint
from course_lib.prompts.words import nearest_words

Path = Float[Tensor, "moments P D"]  # a prompt before each step and after the last one
Words = Sequence[Sequence[tuple[str, float]]]  # for each moment the nearest token of each vector and its cosine

MARKED, PLAIN = "background:#16324f;color:#ffffff;", "background:#ffffff;color:#16324f;"
CELL = "padding:2px 6px;text-align:left;white-space:nowrap;"
TEXT = "max-width:62em;overflow-x:auto;background:#ffffff;color:#16324f;"
MOST = 7  # columns next to each other


def nearest_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path, losses: list[float]):
    """Show the vocabulary token nearest to every vector of a prompt, for each step of its training."""
    table = fingerprint(model)
    words = [
        [(near.token, near.value) for (near,) in nearest_words(model, tokenizer, SoftPrompt(vectors=v, table=table), 1)]
        for v in path
    ]
    return explore(path, losses, words)


def explore(path: Path, losses: Sequence[float], words: Words) -> widgets.VBox:
    """Show a slider over the steps and, below it, the table."""
    last = len(losses)
    step = widgets.IntSlider(last, 0, last, description="steps")
    controls = widgets.VBox([widgets.HBox([player(step, 700), step])])
    return show_view(lambda step: HTML(as_html(path, losses, words, step)), {"step": step}, controls)


def as_html(path: Path, losses: Sequence[float], words: Words, step: int) -> str:
    """A row per vector, a column per moment; the moment after `step` steps is marked and described in the caption.

    Raises:
        ValueError: for a step that was not taken, or words of another number of moments.
    """
    last = len(losses)
    if not 0 <= step <= last or len(words) != last + 1:
        raise ValueError(f"got step {step} and words at {len(words)} moments; expected 0 to {last}, and {last + 1}.")
    shown = columns(last, step)
    head = "".join(_cell("th", str(moment), moment == step) for moment in shown)
    rows = ""
    for vector in range(len(words[0])):
        cells = (_cell("td", _as_text(*words[moment][vector]), moment == step) for moment in shown)
        rows += f'<tr><th style="{CELL}">e<sub>{vector + 1}</sub></th>{"".join(cells)}</tr>'
    look = "font-family:monospace;font-size:0.9em"
    table = f'<table style="{look}"><tr><th style="{CELL}">steps</th>{head}</tr>{rows}</table>'
    return f'<div style="{TEXT}" tabindex="0"><b>{html.escape(caption(path, losses, step))}</b>{table}</div>'


def columns(last: int, step: int) -> list[int]:
    """At most MOST moments, spread over all of them, and the one in question."""
    gaps = min(last, MOST - 1)
    spread = {round(place * last / gaps) for place in range(gaps + 1)} if gaps else {0}
    if step not in spread:
        spread.remove(min(spread, key=lambda moment: abs(moment - step)))
    return sorted(spread | {step})


def caption(path: Path, losses: Sequence[float], step: int) -> str:
    """How far the vectors have moved, relative to their length, and the loss of the batch of this step."""
    moved = ((path[step] - path[0]).norm(dim=1) / path[0].norm(dim=1)).mean()
    loss = f"; loss of the last batch: {losses[step - 1]:.2f} nats per token" if step else ""
    return f"After {step} of {len(losses)} steps: vectors moved by {moved:.2f} of their initial length{loss}"


def _cell(kind: str, text: str, marked: bool) -> str:
    return f'<{kind} style="{CELL}{MARKED if marked else PLAIN}">{text}</{kind}>'


def _as_text(token: str, cosine: float) -> str:
    """A token with its spaces made visible, and a dot for every character that is no letter by itself."""
    signs = token.replace(" ", "␣").replace("\n", "↵")
    visible = "".join(sign if sign.isprintable() and sign != "\ufffd" else "·" for sign in signs)
    return f"{html.escape(visible)} <small>{cosine:.2f}</small>"
