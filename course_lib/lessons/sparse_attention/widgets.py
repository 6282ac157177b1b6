"""The interactive views of lesson 11. Without a browser a static view remains."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ipywidgets as widgets
from IPython.display import HTML
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.attention.steering.auto import key_sentence
from course_lib.data.residents import Passage
from course_lib.lessons.common.views import show_view
from course_lib.lessons.sparse_attention import plots
from course_lib.lessons.sparse_attention.heads import Chosen, Head

GAMMAS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
DARK, UNDERLINED = "background:#16324f;color:#ffffff;padding:1px 3px;", "border-bottom:3px solid #c8553d;"
TEXT = "max-width:62em;background:#ffffff;color:#16324f;"


def explore_masks(chosen: Mapping[Head, Chosen], gamma: float = 0.9) -> widgets.VBox:
    """Show controls for the head and γ and, below them, the mask.

    Raises:
        ValueError: no head, or a γ that the slider does not have.
    """
    if not chosen or gamma not in GAMMAS:
        raise ValueError(f"got {len(chosen)} heads and γ = {gamma}; expected at least one head, and γ one of {GAMMAS}.")
    heads = tuple(chosen)
    names = [(plots.named(each), each) for each in heads]
    choice = {
        "head": widgets.Dropdown(options=names, value=heads[0], description="head"),
        "gamma": widgets.SelectionSlider(options=GAMMAS, value=gamma, description="γ"),
    }
    return show_view(lambda head, gamma: plots.mask(chosen[head], gamma, head), choice)


@dataclass(frozen=True)
class Named:
    """A question about a passage, its key sentence, what the model wrote, and the sentence closest to that."""

    question: str
    key: str
    written: str
    sentence: str


def name_key_sentences(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, passage: Passage, n: int, n_new: int = 20
) -> list[Named]:
    """Let the model name, for the first n residents of a passage, the sentence with their city."""
    found = []
    for sentence in passage.sentences[:n]:
        question = f"In which city does {sentence.split()[0]} live?"
        written, nearest = key_sentence(model, tokenizer, passage.text, question, n_new)
        found.append(Named(question, sentence, written, nearest.sentence))
    return found


def as_html(passage: Passage, named: Named) -> str:
    """Format the passage: dark is the sentence that the model named, underlined the key sentence."""
    parts = []
    for sentence in passage.sentences:
        look = (DARK if sentence == named.sentence else "") + (UNDERLINED if sentence == named.key else "")
        parts.append(f'<span style="{look}">{html.escape(sentence)}</span>')
    verdict = "It names the key sentence." if named.sentence == named.key else "It names another sentence."
    answer = f"<b>{html.escape(named.question)}</b> The model writes: “{html.escape(named.written)}” <b>{verdict}</b>"
    return f'<div style="{TEXT}">{answer}<br>{" ".join(parts)}</div>'


def explore_passage(passage: Passage, named: Sequence[Named]) -> widgets.VBox:
    """Show a choice of questions and, below it, the passage."""
    choice = widgets.Dropdown(options=[(each.question, i) for i, each in enumerate(named)], description="question")
    return show_view(lambda n: HTML(as_html(passage, named[n])), {"n": choice}, widgets.VBox([choice]))
