"""A recipe in words, one sentence a part."""

from course_lib.compose.part import Part
from course_lib.compose.parts.attention import AttentionPart
from course_lib.compose.parts.cache import CachePart
from course_lib.compose.parts.embedding import EmbeddingPart
from course_lib.compose.parts.neurons import NeuronsPart
from course_lib.compose.parts.prompt import PromptPart
from course_lib.compose.parts.weights import Weights
from course_lib.compose.recipe import Recipe

ROUNDED = {"gptq": "by GPTQ to", "nearest": "to the nearest values of"}


def in_words(recipe: Recipe) -> list[str]:
    """Of each part in the order in which they are applied; of the dense model that it has none."""
    return [of_part(part) for part in recipe.parts] or ["No part at all: the dense model."]


def of_part(part: Part) -> str:
    """What it does, in a sentence; of a part that this page does not know, its name."""
    match part:
        case EmbeddingPart():
            return f"The embedding table is rounded to {_grid(part.bits, part.group)}."
        case Weights():
            return _weights(part)
        case NeuronsPart():
            shares = "a share of its own in each block" if part.by_block else _percent(part.density)
            return f"A token computes with {shares} of the neurons, chosen by {part.selector}."
        case AttentionPart():
            return f"A prompt is read sparsely, by {part.rule}."
        case CachePart():
            return _cache(part)
        case PromptPart():
            return "A learned prompt stands before the text."
    return f"The part {part.name}."


def _weights(part: Weights) -> str:
    pruned = ""
    if part.method is not None:
        share = f"{part.pattern} of them stay" if isinstance(part.pattern, str) else _percent(part.pattern) + " go"
        shares = "its own share for each block" if part.by_block else part.allocation
        over = "" if shares == "Uniform" else f", {shares}"
        pruned = f"pruned by {part.method} ({share}{over})"
    if part.bits is None:
        return f"The weights of the blocks are {pruned}."
    how = "in the same sweep to" if part.is_joint else ROUNDED[part.rounding]
    return (
        f"The weights of the blocks are {pruned}{' and ' * bool(pruned)}rounded {how} {_grid(part.bits, part.group)}."
    )


def _cache(part: CachePart) -> str:
    kept, budget = "keeps all tokens", part.eviction.budget
    if not part.eviction.keeps_all:
        kept = f"keeps {budget} slots a head" if isinstance(budget, int) else f"keeps {_percent(budget)} of the tokens"
        kept += f", chosen by {part.policy}"
    return f"The cache {kept}{'' if part.bits is None else f', on {part.bits} bits'}."


def _grid(bits: int, group: int | None) -> str:
    return f"{bits} bits, {f'a scale for every {group} columns' if group else 'a scale a row'}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
