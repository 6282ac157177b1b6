"""AutoPASTA: the model names the key sentence, and answers with its attention steered to it. Zhang and others, 2024,
https://arxiv.org/abs/2409.10790

Deviation: the wording of both prompts is ours, and the sentence is found by its words (see sentences.py).

Dimension key: B prompts, P tokens of the longest.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.attention.steering.sentences import Nearest, highlighted, nearest_sentence, split_sentences
from course_lib.attention.steering.steer import Head, steering

NAME_IT = (
    "{context}\n\nQuestion: {question}\n\nCopy the one sentence of the text above that answers this question. Write "
    "that sentence word for word and nothing else."
)
ANSWER_IT = "{context}\n\nQuestion: {question}\n\nAnswer with one or two words."
ANSWER_WITH_IT = "{context}\n\nThe key sentence is: {sentence}\n\nQuestion: {question}\n\nAnswer with one or two words."
KINDS = ("named", "true", "random", "whole context")


@dataclass(frozen=True)
class Steered:
    """An answer, and the sentence that was highlighted for it."""

    answer: str
    said: str  # when the model was asked for the key sentence
    key: Nearest


def auto_pasta(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    context: str,
    question: str,
    heads: Collection[Head] | None = None,
    alpha: float = 0.01,
    spare_first: bool = True,
    n_new: int = 12,
) -> Steered:
    """Ask for the key sentence, find it in the context, and ask the question with it highlighted. Greedy."""
    said, key = key_sentence(model, tokenizer, context, question)
    prompt = as_prompt(tokenizer, ANSWER_IT.format(context=context, question=question))
    found = highlighted(tokenizer, [prompt], [[key.sentence]])
    with steering(model, found.columns, heads, alpha, spare_first):
        return Steered(written(model, tokenizer, prompt, n_new), said, key)


def key_sentence(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, context: str, question: str, n_new: int = 48
) -> tuple[str, Nearest]:
    """What the model says the key sentence is, and the sentence of the context that is nearest to that.

    Raises:
        ValueError: for a context without sentences.
    """
    sentences = split_sentences(context)
    if not sentences:
        raise ValueError(f"got the context {context[:40]!r}; expected at least one sentence.")
    said = written(model, tokenizer, as_prompt(tokenizer, NAME_IT.format(context=context, question=question)), n_new)
    return said, nearest_sentence(said, sentences)


def pieces(
    kind: str, context: str, named: str | None = None, true: str | None = None, generator: torch.Generator | None = None
) -> list[str]:
    """What to highlight of a context: the sentence named by the model, the true one, or, to compare with, a random one
    of the others, or all of it (which tells the context from the question alone).

    Raises:
        ValueError: an unknown kind, or one whose sentence or generator was not given.
    """
    if kind not in KINDS:
        raise ValueError(f"got kind {kind!r}; expected one of {', '.join(KINDS)}.")
    if kind == "whole context":
        return split_sentences(context)
    given = named if kind == "named" else true
    if given is None or (kind == "random" and generator is None):
        raise ValueError(f"got kind {kind!r} without its sentence; expected named=, true=, or true= and generator=.")
    if kind != "random":
        return [given]
    others = [sentence for sentence in split_sentences(context) if sentence != given]
    return [others[int(torch.randint(len(others), (1,), generator=generator))]]


def as_prompt(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """As the model's chat template frames what a user says, or as text to go on from where it has none."""
    if tokenizer.chat_template is None:
        return f"{text}\n\n"
    said = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)


@torch.no_grad()
def written(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str, n_new: int) -> str:
    """What the model writes next, greedily, up to its end token."""
    ids = torch.tensor([tokenizer(prompt, add_special_tokens=False).input_ids], device=model.device)
    pad = tokenizer.pad_token_id or tokenizer.eos_token_id
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=n_new, do_sample=False, pad_token_id=pad
    )
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True).strip()
