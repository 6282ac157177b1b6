"""AutoPASTA: the model first copies the key sentence, then answers with attention steered to it. Zhang and others,
2024, https://arxiv.org/abs/2409.10790

Deviation: the wording of both prompts is ours, and we find the copied sentence in the context by its words, not by
embeddings (see sentences.py).

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
    """An answer, and the sentence that was highlighted to get it."""

    answer: str
    said: str  # the model's output for the prompt that requests the key sentence
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
    """Prompt for the key sentence, find it in the context, then prompt for the answer with it highlighted. Greedy."""
    model_output, key = key_sentence(model, tokenizer, context, question)
    prompt = as_prompt(tokenizer, ANSWER_IT.format(context=context, question=question))
    prompt_tokens = highlighted(tokenizer, [prompt], [[key.sentence]])
    with steering(model, prompt_tokens.columns, heads, alpha, spare_first):
        return Steered(written(model, tokenizer, prompt, n_new), model_output, key)


def key_sentence(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, context: str, question: str, n_new: int = 48
) -> tuple[str, Nearest]:
    """Return the model's output when prompted for the key sentence, and the sentence of the context nearest to it.

    Raises:
        ValueError: the context has no sentences.
    """
    sentences = split_sentences(context)
    if not sentences:
        raise ValueError(f"got the context {context[:40]!r}; expected at least one sentence.")
    output = written(model, tokenizer, as_prompt(tokenizer, NAME_IT.format(context=context, question=question)), n_new)
    return output, nearest_sentence(output, sentences)


def pieces(
    kind: str, context: str, named: str | None = None, true: str | None = None, generator: torch.Generator | None = None
) -> list[str]:
    """Return the sentences of a context to highlight: the one that the model named, the true one, or a baseline.

    The baselines are a random sentence other than the true one, and all sentences of the context. In the latter case,
    steering only separates the context from the question.

    Raises:
        ValueError: the kind is unknown, or its sentence or generator is missing.
    """
    if kind not in KINDS:
        raise ValueError(f"got kind {kind!r}; expected one of {', '.join(KINDS)}.")
    if kind == "whole context":
        return split_sentences(context)
    sentence_of_kind = named if kind == "named" else true
    if sentence_of_kind is None or (kind == "random" and generator is None):
        raise ValueError(f"got kind {kind!r} without its inputs; expected named=, true=, or true= and generator=.")
    if kind != "random":
        return [sentence_of_kind]
    other_sentences = [sentence for sentence in split_sentences(context) if sentence != sentence_of_kind]
    return [other_sentences[int(torch.randint(len(other_sentences), (1,), generator=generator))]]


def as_prompt(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """Format a user message with the model's chat template, or as plain text to continue if it has none."""
    if tokenizer.chat_template is None:
        return f"{text}\n\n"
    messages = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


@torch.no_grad()
def written(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str, n_new: int) -> str:
    """Return the model's greedy continuation of a prompt, up to its end token."""
    ids = torch.tensor([tokenizer(prompt, add_special_tokens=False).input_ids], device=model.device)
    pad = tokenizer.pad_token_id or tokenizer.eos_token_id
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=n_new, do_sample=False, pad_token_id=pad
    )
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True).strip()
