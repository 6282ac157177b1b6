"""Width or depth, at equal parameters: the students that are cut, and in which way."""

from dataclasses import replace
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import BEST, calibration, evidence, scores
from course_lib.lessons.minitron.experiments.sizes import Sizes
from course_lib.pruning.structured.choice import Kept, Scores, choose
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.perplexity_drop import PerplexityDrop
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import take

WIDTH = "neurons"
DEPTH = {
    "blocks by influence": "influence",
    "blocks by perplexity drop": "perplexity drop",
    "the last blocks": "place",
    "blocks at even distances": "distance",
}
SHAPES = (WIDTH, *DEPTH)


@lru_cache(maxsize=8)  # the perplexity without each block takes a minute
def block_scores(sizes: Sizes, seed: int, by: str) -> Float[Tensor, "L"]:
    """High scores stay. By "place" the last blocks leave, by "distance" every fifth, beginning with the third."""
    if by == "influence":
        return BlockInfluence().score(evidence(sizes, seed)).blocks
    model, _ = loaded(sizes.model)
    if by == "perplexity drop":
        few = Evidence(model, calibration(sizes, seed)[: sizes.drops], progress=False)
        return PerplexityDrop().score(few).blocks
    n = shape_of(model).blocks
    n_out = n - sizes.blocks
    if by == "place":
        return -torch.arange(n).float()
    stays = torch.ones(n)
    stays[[n // (2 * n_out) + index * n // n_out for index in range(n_out)]] = 0
    return stays


def kept_of(sizes: Sizes, seed: int, name: str) -> Kept:
    """What stays in a student of that name."""
    now = shape_of(loaded(sizes.model)[0])
    if name == WIDTH:
        return choose(scores(sizes, seed, "activations", BEST), now, replace(now, neurons=sizes.neurons))
    return choose(Scores(blocks=block_scores(sizes, seed, DEPTH[name])), now, replace(now, blocks=sizes.blocks))


def student(sizes: Sizes, seed: int, name: str) -> PreTrainedModel:
    """A student as it is right after the cut, the same at every call."""
    return take(loaded(sizes.model)[0], kept_of(sizes, seed, name))
