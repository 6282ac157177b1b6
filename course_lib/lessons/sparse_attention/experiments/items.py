"""Questions about a text in which one sentence has the answer, and the probability that a model gives each answer.

Dimension key: B prompts, C choices of each, P tokens of the longest prompt, A tokens of the longest choice.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from course_lib.attention.steering.auto import as_prompt
from course_lib.attention.steering.sentences import Highlighted, highlighted, split_sentences
from course_lib.data.benchmarks import questions
from course_lib.data.residents import passages
from course_lib.lessons.common.subject import loaded

RESIDENTS, READING = "residents", "SciQ"
BATCH = 8

Inside = Callable[[Tensor], AbstractContextManager]  # the columns of a batch -> the context manager in which it is read


@dataclass(frozen=True)
class Item:
    """A text in sentences, a question, the sentence that answers it, and the choices; the first choice is correct."""

    sentences: tuple[str, ...]
    question: str
    key: str
    choices: tuple[str, ...]

    @property
    def context(self) -> str:
        return " ".join(self.sentences)


def residents(seed: int) -> Sequence[Item]:
    """Generate 400 synthetic residents of synthetic cities; another seed gives others."""
    return [
        Item(p.sentences, p.question, p.key_sentence, (p.answer, *(city for city in p.choices if city != p.answer)))
        for p in passages(400, seed=seed)
    ]


def reading(seed: int) -> Sequence[Item]:
    """Load SciQ questions whose supporting text has three to eight sentences, exactly one of which has the answer."""
    found = []
    for each in questions("sciq", None):
        text, _, asked = each.choices[0].context.partition("\nQuestion: ")
        choices = [choice.continuation.strip() for choice in each.choices]
        right, sentences = choices.pop(each.answer), split_sentences(text)
        keys = [sentence for sentence in sentences if right.lower() in sentence.lower()]
        if asked and 3 <= len(sentences) <= 8 and len(keys) == 1:
            found.append(Item(tuple(sentences), asked.removesuffix("\nAnswer:"), keys[0], (right, *choices)))
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed))
    return [found[i] for i in order.tolist()]


@dataclass(frozen=True)
class Answered:
    """For one item: the log-probability of its correct answer, and whether that is the likeliest choice per token."""

    log_probability: float
    right: bool


@torch.no_grad()
def answered(
    prompts: Sequence[str], choices: Sequence[Sequence[str]], pieces: Sequence[Sequence[str]], inside: Inside
) -> list[Answered]:
    """Compute how likely each prompt's choices are after it, with `pieces` of it highlighted; as many for each."""
    found = []
    for start in range(0, len(prompts), BATCH):
        some = slice(start, start + BATCH)
        given = highlighted(loaded()[1], prompts[some], pieces[some])
        found += _batch(given, [_ids(choice) for each in choices[some] for choice in each], inside)
    return found


def _batch(given: Highlighted, choices: list[Int[Tensor, "_"]], inside: Inside) -> list[Answered]:
    """Read the prompts once, then their choices with the cache of the prompts."""
    model, cache, n = loaded()[0], DynamicCache(), len(choices) // len(given.ids)
    real = given.attention_mask
    with inside(given.columns):
        first = model(
            given.ids, attention_mask=real, position_ids=_positions(real), past_key_values=cache, logits_to_keep=1
        ).logits  # fmt: skip
    cache.batch_repeat_interleave(n)
    # Padding comes after a choice, so that no real token attends to it.
    ids = pad_sequence(choices, batch_first=True)
    real = torch.cat([real.repeat_interleave(n, dim=0), torch.ones_like(ids)], dim=1)
    with inside(given.columns.repeat_interleave(n, dim=0)):
        rest = model(
            ids, attention_mask=real, position_ids=_positions(real)[:, -ids.shape[1] :], past_key_values=cache
        ).logits  # fmt: skip
    logits = torch.cat([first.repeat_interleave(n, dim=0), rest[:, :-1]], dim=1).double()
    by_token = logits.log_softmax(dim=-1).gather(2, ids[..., None])[..., 0]  # (B·C, A)
    sums = [float(row[: len(choice)].sum()) for row, choice in zip(by_token, choices, strict=True)]
    means = [total / len(choice) for total, choice in zip(sums, choices, strict=True)]
    return [Answered(sums[i], means[i] == max(means[i : i + n])) for i in range(0, len(sums), n)]


def _positions(real: Int[Tensor, "B P"]) -> Int[Tensor, "B P"]:
    return (real.cumsum(dim=1) - 1).clamp(min=0)


def _ids(text: str) -> Int[Tensor, "_"]:
    return torch.tensor(loaded()[1](text, add_special_tokens=False).input_ids)


@torch.no_grad()
def written(prompts: Sequence[str], n_new: int) -> list[str]:
    """Continue each prompt greedily."""
    (model, tokenizer), found = loaded(), []
    for start in range(0, len(prompts), BATCH):
        some = prompts[start : start + BATCH]
        given = highlighted(tokenizer, some, [[]] * len(some))
        out = model.generate(
            given.ids, attention_mask=given.attention_mask, max_new_tokens=n_new, do_sample=False,
            pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
        )  # fmt: skip
        found += tokenizer.batch_decode(out[:, given.ids.shape[1] :], skip_special_tokens=True)
    return found


def as_prompts(items: Sequence[Item], template: str, sentences: Sequence[str] = ()) -> list[str]:
    """Fill in the template of attention/steering/auto.py for each item, in the model's chat format."""
    keys = sentences or [""] * len(items)
    filled = [
        template.format(context=item.context, question=item.question, sentence=key)
        for item, key in zip(items, keys, strict=True)
    ]
    return [as_prompt(loaded()[1], text) for text in filled]
