"""What some cells of the notebook of lesson 11 start from: prompts as tokens, a canvas of the small visual model.

Dimension key: T tokens, P tokens of the prompt, V tokens of the vocabulary, N visual tokens of D channels, W windows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.attention.steering.auto import ANSWER_IT, as_prompt
from course_lib.attention.steering.sentences import highlighted
from course_lib.attention.visual.canvas import Canvases, draw
from course_lib.attention.visual.importance import look, looked_to
from course_lib.attention.visual.model import patches
from course_lib.attention.visual.recycle import cells
from course_lib.attention.visual.training import load
from course_lib.data.residents import Passage
from course_lib.lessons.sparse_attention.experiments import block_scores

SIDE = 3  # of a cell, in patches


def chat_tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the token ids of a user's message, up to where the model's answer begins."""
    return tokenizer(as_prompt(tokenizer, text), add_special_tokens=False).input_ids


def question(
    tokenizer: PreTrainedTokenizerBase, passage: Passage, sentence: str | None
) -> tuple[Int[Tensor, "1 T"], Bool[Tensor, "P"]]:
    """Return the prompt with the beginning of its answer, "NAME lives in", and where the sentence is in the prompt."""
    prompt = as_prompt(tokenizer, ANSWER_IT.format(context=passage.text, question=passage.question))
    given = highlighted(tokenizer, [prompt], [[sentence] if sentence else []])
    answer = f"{passage.key_sentence.split()[0]} lives in"
    new = torch.tensor([tokenizer(answer, add_special_tokens=False).input_ids])
    return torch.cat([given.ids, new], dim=1), given.columns[0]


def by_city(tokenizer: PreTrainedTokenizerBase, passage: Passage, logits: Float[Tensor, "V"]) -> dict[str, float]:
    """Return the probability of each city, by its first token; cities with the same first token share it equally."""
    first = [tokenizer(f" {city}", add_special_tokens=False).input_ids[0] for city in passage.choices]
    probability = logits[first].double().softmax(dim=0) / torch.tensor([first.count(token) for token in first])
    return dict(zip(passage.choices, (probability / probability.sum()).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Canvas:
    """One canvas, and what the encoder of the small visual model makes of it."""

    drawn: Canvases
    grey: Int[Tensor, "N P"]
    attention: Float[Tensor, "N"]  # from the patches that receive more than the mean
    tokens: Float[Tensor, "N D"]
    cell: Int[Tensor, "N"]


def canvas(seed: int) -> Canvas:
    """Draw a canvas that the model was not trained on."""
    model, drawn = load(), draw(1, "test", seed)
    evidence, grey = look(model, drawn.images), patches(drawn.images)[0].long()
    attention = (looked_to(evidence.attention, 1.0).float() @ evidence.attention)[0, 0]
    return Canvas(drawn, grey, attention, model.visual(drawn.images)[0].detach(), cells(SIDE))


def losses_with_scores(function: Callable, model: PreTrainedModel, windows: Int[Tensor, "W T"]) -> Float[Tensor, "W"]:
    """Return the loss of each window when every head reads the blocks with the highest scores."""
    return block_scores.measure(function, model, windows)
