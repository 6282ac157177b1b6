"""AutoPASTA on the default model: does steering to a sentence help to answer from it, and does the model find it?

Zhang and others, 2024, https://arxiv.org/abs/2409.10790. Two sets of questions about a text: made-up residents, of
which one sentence of six answers, and SciQ with its supporting text. We keep only residents for which the model
answers correctly from the key sentence alone (the gate). Heads are chosen on other residents than those of the test.

Tables:

    gate      by part: questions that were tried and kept
    search    by what was steered on the development set: the mean log-probability of the right answers
    named     by data: for each question whether the sentence that the model named is the key, and its place
    answers   by data, heads, what is steered: the log-probability of each right answer, whether it is the likeliest
              choice ("1") or not ("0"), and how often it is

This experiment uses the residents; `course reproduce sparse_attention_further` uses SciQ and adds controls. Planned
minutes on one idle core: 4.
"""

from collections.abc import Iterable
from functools import partial

import torch

from course_lib.attention.steering.auto import ANSWER_IT, ANSWER_WITH_IT, pieces
from course_lib.attention.steering.steer import steering
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.sparse_attention.experiments import items as asked
from course_lib.lessons.sparse_attention.experiments.items import READING, RESIDENTS
from course_lib.lessons.sparse_attention.experiments.steering_sets import (
    QUICK,
    Sizes,
    best_layer,
    development,
    gated,
    named_of,
    nothing,
    searched,
    shape,
    test,
    whole_layer,
    worth,
)
from course_lib.measure.experiment import Experiment, Step, Tables

NOTHING, TRUE, NAMED, RANDOM, WHOLE = "nothing", "true", "named", "random", "whole context"
PROMPTED = "none, prompted"  # the prompt names the sentence, without steering
NO_HEADS, ALL, ALL_SINK, ALL_MILD, LAYER, CHOSEN = (
    "none", "all", "all, first token lowered too", "all, α = 0.3", "best layer", "chosen",
)  # fmt: skip


ON_BOTH = [(NO_HEADS, NOTHING), (PROMPTED, TRUE), (PROMPTED, NAMED), (ALL, TRUE)]
ON_BOTH += [(CHOSEN, what) for what in (TRUE, NAMED, RANDOM, WHOLE)]
CONTROLS = [(ALL_MILD, TRUE), (LAYER, TRUE)] + [(ALL, what) for what in (NAMED, RANDOM, WHOLE)]


def steps(sizes: Sizes) -> list[Step]:
    """List the steps on the residents."""
    plan = [Step("residents: gate", partial(gate, sizes))]
    plan += [Step(f"search: layers, part {part}", partial(half_of_layers, sizes, part)) for part in range(2)]
    return [*plan, Step("search", partial(search, sizes)), *asked_of(sizes, RESIDENTS, [*ON_BOTH, (ALL_SINK, TRUE)])]


def further(sizes: Sizes) -> list[Step]:
    """List the steps on SciQ, with the heads chosen on the residents, and the other controls on the residents."""
    plan = asked_of(sizes, READING, ON_BOTH)
    return plan + [_step(sizes, RESIDENTS, heads, what) for heads, what in CONTROLS]


def asked_of(sizes: Sizes, data: str, wanted: list[tuple[str, str]]) -> list[Step]:
    """List the steps: which sentence the model names, then the answers under each condition."""
    plan = [Step(f"{data}: key sentences", partial(named, sizes, data))]
    return plan + [_step(sizes, data, heads, what) for heads, what in wanted]


def _step(sizes: Sizes, data: str, heads: str, what: str) -> Step:
    return Step(f"{data}: {heads}, {what}", partial(answers, sizes, data, heads, what))


def gate(sizes: Sizes, seed: int) -> Tables:
    """Select the test and development set; no text is in both."""
    parts = {"test": test(sizes, RESIDENTS, seed), "development": development(sizes, seed)}
    tried = {"test": gated(sizes.tested, seed)[1], "development": gated(sizes.developed, seed + 1)[1]}
    return {"gate": [{"part": part, "tried": tried[part], "kept": len(items)} for part, items in parts.items()]}


def half_of_layers(sizes: Sizes, part: int, seed: int) -> Tables:
    """Compute a piece of the search in advance, so that no step takes long."""
    n_layers = shape()[0]
    for layer in range(n_layers)[part * n_layers // 2 : (part + 1) * n_layers // 2]:
        worth(sizes, whole_layer(layer), seed)
    return {}


def search(sizes: Sizes, seed: int) -> Tables:
    """Search for heads to steer: layers, heads of the best layers, sets of these."""
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


def named(sizes: Sizes, data: str, seed: int) -> Tables:
    items, found = test(sizes, data, seed), named_of(sizes, data, seed)
    row = {"data": data, "n": len(items), "sentences": [len(item.sentences) for item in items]}
    row["right"] = _bits(sentence == item.key for sentence, item in zip(found, items, strict=True))
    places = [item.sentences.index(sentence) for sentence, item in zip(found, items, strict=True)]
    return {"named": [row | {"place": places, "accuracy": row["right"].count("1") / len(items)}]}


def answers(sizes: Sizes, data: str, heads: str, what: str, seed: int) -> Tables:
    """Measure one condition on all questions of a test set."""
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
    """Return the context manager in which prompts are read, given their columns."""
    if heads in (NO_HEADS, PROMPTED):
        return nothing
    of = searched(sizes, seed).heads if heads == CHOSEN else best_layer(sizes, seed) if heads == LAYER else None
    alpha = sizes.mild if heads == ALL_MILD else sizes.alpha
    return partial(steering, loaded()[0], heads=of, alpha=alpha, spare_first=heads != ALL_SINK)


def _bits(right: Iterable[bool]) -> str:
    return "".join("01"[each] for each in right)


EXPERIMENT = Experiment("Steered attention", Sizes(), QUICK, steps)
