"""AutoPASTA on the default model: does steering to a sentence help to answer from it, and does the model find it?

Zhang and others, 2024, https://arxiv.org/abs/2409.10790. Two sets of questions about a text: made-up residents, of
which one sentence of six answers, and SciQ with its supporting text. Of the residents those stay which the model
answers rightly from the key sentence alone (the gate). Heads are chosen on other residents than those of the test.

Tables:

    gate      by part: questions that were tried and kept
    search    by what was steered on the development set: the mean log-probability of the right answers
    named     by data: for each question whether the sentence that the model named is the key, and its place
    answers   by data, heads, what is steered: the log-probability of each right answer, whether it is the likeliest
              choice ("1") or not ("0"), and how often it is

This asks of the residents; `course reproduce sparse_attention_further` asks of SciQ. Minutes planned on one idle core:
6.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean

import torch
from torch import Tensor

from course_lib.attention.steering.auto import ANSWER_IT, ANSWER_WITH_IT, NAME_IT, pieces
from course_lib.attention.steering.heads import HeadSearch, search_heads
from course_lib.attention.steering.sentences import nearest_sentence
from course_lib.attention.steering.steer import Head, steering
from course_lib.lessons.sparse_attention.measuring import items as asked
from course_lib.lessons.sparse_attention.measuring.ground import loaded
from course_lib.lessons.sparse_attention.measuring.items import READING, RESIDENTS, Item
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import blocks
from course_lib.models import heads as heads_of

NOTHING, TRUE, NAMED, RANDOM, WHOLE = "nothing", "true", "named", "random", "whole context"
PROMPTED = "none, prompted"  # the sentence is told in the prompt, and nothing is steered
NO_HEADS, ALL, ALL_SINK, ALL_MILD, LAYER, CHOSEN = (
    "none", "all", "all, first token lowered too", "all, α = 0.3", "best layer", "chosen",
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Questions of the test and of the development set, and how heads are searched."""

    tested: int = 32
    developed: int = 8
    alpha: float = 0.01
    mild: float = 0.3
    best_layers: int = 2
    per_layer: tuple[int, ...] = (4, 6)
    pooled: tuple[int, ...] = (8,)
    n_new: int = 32  # tokens of a named sentence


QUICK = Sizes(tested=3, developed=2, best_layers=1, per_layer=(2,), pooled=(), n_new=4)

ON_BOTH = [(NO_HEADS, NOTHING), (PROMPTED, TRUE), (PROMPTED, NAMED), (ALL, TRUE)]
ON_BOTH += [(CHOSEN, what) for what in (TRUE, NAMED, RANDOM, WHOLE)]
ON_RESIDENTS = [(heads, TRUE) for heads in (ALL_SINK, ALL_MILD, LAYER)]
ON_RESIDENTS += [(ALL, what) for what in (NAMED, RANDOM, WHOLE)]


def steps(sizes: Sizes) -> list[Step]:
    """On the residents."""
    plan = [Step("residents: gate", partial(gate, sizes))]
    plan += [Step(f"search: layers, part {part}", partial(half_of_layers, sizes, part)) for part in range(2)]
    return [*plan, Step("search", partial(search, sizes)), *asked_of(sizes, RESIDENTS, ON_BOTH + ON_RESIDENTS)]


def further(sizes: Sizes) -> list[Step]:
    """On SciQ, with the heads that the residents chose."""
    return asked_of(sizes, READING, ON_BOTH)


def asked_of(sizes: Sizes, data: str, wanted: list[tuple[str, str]]) -> list[Step]:
    """Which sentence the model names, then the answers under each condition."""
    plan = [Step(f"{data}: key sentences", partial(named, sizes, data))]
    for heads, what in wanted:
        plan.append(Step(f"{data}: {heads}, {what}", partial(answers, sizes, data, heads, what)))
    return plan


@cache
def gated(n: int, seed: int) -> tuple[tuple[Item, ...], int]:
    """n residents whom the model finds from the key sentence alone, and how many were tried for them."""
    kept, tried = [], 0
    everyone = asked.residents(seed)
    while len(kept) < n:
        some = everyone[tried : tried + asked.BATCH]
        if not some:
            raise ValueError(f"got {len(kept)} of {n} residents through the gate, of {tried}; expected a larger model.")
        alone = [Item((item.key,), item.question, item.key, item.choices) for item in some]
        right = asked.answered(
            asked.as_prompts(alone, ANSWER_IT), [item.choices for item in alone], [[]] * len(alone), nothing
        )
        kept += [item for item, answer in zip(some, right, strict=True) if answer.right]
        tried += len(some)
    return tuple(kept[:n]), tried


def gate(sizes: Sizes, seed: int) -> Tables:
    """Test and development set; no text is in both."""
    parts = {"test": test(sizes, RESIDENTS, seed), "development": development(sizes, seed)}
    tried = {"test": gated(sizes.tested, seed)[1], "development": gated(sizes.developed, seed + 1)[1]}
    return {"gate": [{"part": part, "tried": tried[part], "kept": len(items)} for part, items in parts.items()]}


def test(sizes: Sizes, data: str, seed: int) -> tuple[Item, ...]:
    return gated(sizes.tested, seed)[0] if data == RESIDENTS else tuple(asked.reading(seed)[: sizes.tested])


def development(sizes: Sizes, seed: int) -> tuple[Item, ...]:
    taken = {item.key for item in test(sizes, RESIDENTS, seed)}
    return tuple(item for item in gated(sizes.developed, seed + 1)[0] if item.key not in taken)


def half_of_layers(sizes: Sizes, part: int, seed: int) -> Tables:
    """Nothing but a piece of the search that is kept for it, so that no step takes long."""
    n_layers, n_heads = len(blocks(loaded()[0])), heads_of(loaded()[0]).n_query
    for layer in range(n_layers)[part * n_layers // 2 : (part + 1) * n_layers // 2]:
        worth(sizes, tuple((layer, head) for head in range(n_heads)), seed)
    return {}


def search(sizes: Sizes, seed: int) -> Tables:
    """Layers, heads of the best ones, sets of these."""
    found = searched(sizes, seed)
    rows = [{"what": "nothing", "log_probability": worth(sizes, (), seed)}]
    rows += [{"what": f"layer {layer}", "log_probability": value} for layer, value in enumerate(found.by_layer)]
    rows += [
        {"what": f"layer {layer}, head {head}", "log_probability": value}
        for (layer, head), value in found.by_head.items()
    ]
    rows += [
        {"what": name, "log_probability": value, "heads": [list(head) for head in heads], "chosen": name == found.name}
        for name, (heads, value) in found.candidates.items()
    ]
    return {"search": rows}


@cache
def searched(sizes: Sizes, seed: int) -> HeadSearch:
    n_layers, n_heads = len(blocks(loaded()[0])), heads_of(loaded()[0]).n_query
    settings = (sizes.best_layers, sizes.per_layer, sizes.pooled)
    return search_heads(lambda heads: worth(sizes, tuple(heads), seed), n_layers, n_heads, *settings)


@cache
def worth(sizes: Sizes, heads: tuple[Head, ...], seed: int) -> float:
    """The mean log-probability of the right answers of the development set, its key sentences steered."""
    items = development(sizes, seed)
    prompts, right = asked.as_prompts(items, ANSWER_IT), [item.choices[:1] for item in items]
    inside = partial(steering, loaded()[0], heads=heads, alpha=sizes.alpha) if heads else nothing
    answers = asked.answered(prompts, right, [[item.key] for item in items], inside)
    return fmean(answer.log_probability for answer in answers)


@cache
def named_of(sizes: Sizes, data: str, seed: int) -> tuple[str, ...]:
    """The sentence of each text that is nearest to what the model writes when it is asked for the key."""
    items = test(sizes, data, seed)
    said = asked.written(asked.as_prompts(items, NAME_IT), sizes.n_new)
    return tuple(nearest_sentence(text, item.sentences).sentence for text, item in zip(said, items, strict=True))


def named(sizes: Sizes, data: str, seed: int) -> Tables:
    items, found = test(sizes, data, seed), named_of(sizes, data, seed)
    row = {"data": data, "n": len(items), "sentences": [len(item.sentences) for item in items]}
    row["right"] = _bits(sentence == item.key for sentence, item in zip(found, items, strict=True))
    places = [item.sentences.index(sentence) for sentence, item in zip(found, items, strict=True)]
    return {"named": [row | {"place": places, "accuracy": row["right"].count("1") / len(items)}]}


def answers(sizes: Sizes, data: str, heads: str, what: str, seed: int) -> Tables:
    """One condition on all questions of a test set."""
    items = test(sizes, data, seed)
    keys = named_of(sizes, data, seed) if what == NAMED else [item.key for item in items]
    prompts = asked.as_prompts(items, ANSWER_WITH_IT if heads == PROMPTED else ANSWER_IT, keys)
    inside, steered = _inside(sizes, heads, seed), [[]] * len(items)
    if inside is not nothing:
        kind, chance = ("true" if what == NAMED else what), torch.Generator().manual_seed(seed)
        steered = [pieces(kind, i.context, true=key, generator=chance) for i, key in zip(items, keys, strict=True)]
    found = asked.answered(prompts, [item.choices for item in items], steered, inside)
    row = {"data": data, "heads": heads, "steered": what, "n": len(items)}
    row["right"] = _bits(answer.right for answer in found)
    row |= {"accuracy": row["right"].count("1") / len(items), "chance": 1 / len(items[0].choices)}
    return {"answers": [row | {"log_probability": [round(answer.log_probability, 4) for answer in found]}]}


def _inside(sizes: Sizes, heads: str, seed: int) -> asked.Inside:
    """The block in which prompts are read, given their columns."""
    if heads in (NO_HEADS, PROMPTED):
        return nothing
    of, alpha, spared = None, sizes.mild if heads == ALL_MILD else sizes.alpha, heads != ALL_SINK
    if heads == CHOSEN:
        of = searched(sizes, seed).heads
    if heads == LAYER:
        best = searched(sizes, seed).by_layer
        of = [(best.index(max(best)), head) for head in range(heads_of(loaded()[0]).n_query)]
    return partial(steering, loaded()[0], heads=of, alpha=alpha, spare_first=spared)


def nothing(columns: Tensor) -> AbstractContextManager:
    """The model as it is."""
    return nullcontext()


def _bits(right: Iterable[bool]) -> str:
    return "".join("01"[each] for each in right)


EXPERIMENT = Experiment("Steered attention", Sizes(), QUICK, steps)
