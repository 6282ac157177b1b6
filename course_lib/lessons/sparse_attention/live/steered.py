"""A passage, the sentence that the model names as the key to a question, and answers with attention steered to one.

Dimension key: H heads, T tokens, P tokens of the prompt, V words.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import ipywidgets as widgets
import torch
from IPython.display import HTML
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.attention.registered import Pass, attending
from course_lib.attention.steering.auto import ANSWER_IT, as_prompt, key_sentence
from course_lib.attention.steering.sentences import highlighted
from course_lib.data.residents import Passage
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.common.views import show_view

Steer = Callable[[Tensor, Tensor, Tensor, float], Tensor]
LATER = -1e4  # the logit of a key that comes later than the query
MARK, RIGHT = "background:#16324f;color:#ffffff;padding:1px 3px;", "border-bottom:3px solid #c8553d;"
TEXT = "max-width:62em;background:#ffffff;color:#16324f;"


@dataclass(frozen=True)
class Asked:
    """A question about a passage, the sentence that answers it, what the model said, and the sentence nearest to it."""

    question: str
    key: str
    said: str
    named: str


def ask(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, passage: Passage, n: int, n_new: int = 20
) -> list[Asked]:
    """For the first n residents of a passage: where does each live, and which sentence says so?"""
    found = []
    for sentence in passage.sentences[:n]:
        question = f"In which city does {sentence.split()[0]} live?"
        said, nearest = key_sentence(model, tokenizer, passage.text, question, n_new)
        found.append(Asked(question, sentence, said, nearest.sentence))
    return found


def as_html(passage: Passage, asked: Asked) -> str:
    """The passage: dark the sentence that the model named, underlined the one that answers."""
    parts = []
    for sentence in passage.sentences:
        look = (MARK if sentence == asked.named else "") + (RIGHT if sentence == asked.key else "")
        parts.append(f'<span style="{look}">{html.escape(sentence)}</span>')
    verdict = "It names the key sentence." if asked.named == asked.key else "It names another sentence."
    said = f"<b>{html.escape(asked.question)}</b> The model says: “{html.escape(asked.said)}” <b>{verdict}</b>"
    return f'<div style="{TEXT}">{said}<br>{" ".join(parts)}</div>'


def explore(passage: Passage, asked: Sequence[Asked]) -> widgets.VBox:
    """Show the questions to choose from and, below them, the passage."""
    choice = widgets.Dropdown(options=[(each.question, i) for i, each in enumerate(asked)], description="question")
    return show_view(lambda n: HTML(as_html(passage, asked[n])), {"n": choice}, widgets.VBox([choice]))


@torch.no_grad()
def probabilities(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    passage: Passage,
    sentence: str | None,
    steer: Steer,
    alpha: float = 0.01,
) -> dict[str, float]:
    """What the model shares among the cities, the first token behind "NAME lives in", with all heads steered to
    a sentence, or none.

    Cities that begin with the same token share its probability equally.
    """
    prompt = as_prompt(tokenizer, ANSWER_IT.format(context=passage.text, question=passage.question))
    given = highlighted(tokenizer, [prompt], [[sentence] if sentence else []])
    begun = f"{passage.key_sentence.split()[0]} lives in"
    new = torch.tensor([tokenizer(begun, add_special_tokens=False).input_ids])
    n_heads = model.config.num_attention_heads
    chosen = torch.full((n_heads,), sentence is not None)

    def attend(seen: Pass) -> Tensor:
        logits = seen.logits[0].masked_fill(~seen.allowed[0], LATER)
        weights = steer(logits, given.columns[0], chosen, alpha)
        return (weights @ seen.values[0].repeat_interleave(n_heads // seen.values.shape[1], dim=0))[None]

    with attending(model, "course_steering", attend):
        logits = model(torch.cat([given.ids, new], dim=1), use_cache=False, logits_to_keep=1).logits[0, -1]
    first = [tokenizer(f" {city}", add_special_tokens=False).input_ids[0] for city in passage.choices]
    probability = logits[first].double().softmax(dim=0) / torch.tensor([first.count(token) for token in first])
    return dict(zip(passage.choices, (probability / probability.sum()).tolist(), strict=True))


def shares(found: Mapping[str, Mapping[str, float]], answer: str) -> Figure:
    """The probability of the right city and of the likeliest wrong one, for each way to steer."""
    fig, (axes,) = figure(width=7.6, height=0.9 + 0.5 * len(found))
    for place, each in enumerate(reversed(found.values())):
        wrong = max(value for city, value in each.items() if city != answer)
        for shift, value, colour, hatch, who in (
            (0.18, each[answer], 0, "", "right"),
            (-0.18, wrong, 4, "//", "wrong"),
        ):
            name = f"the {who} city" if who == "right" else "the likeliest wrong one"
            axes.barh(
                place + shift, value, 0.34, color=COLOURS[colour], hatch=hatch, edgecolor="white",
                label=name if not place else None,
            )  # fmt: skip
            axes.text(value + 0.01, place + shift, f"{value:.2f}", va="center", fontsize=9)
    axes.set_yticks(range(len(found)), list(found)[::-1])
    axes.set_xlim(0, 1.1)
    axes.legend(frameon=False, fontsize=9.5)
    best = max(found, key=lambda name: found[name][answer])
    title = f"“{answer}” is right, and likeliest with {best}: {found[best][answer]:.2f}"
    label(axes, title, "share of the probability of all cities")
    return fig
