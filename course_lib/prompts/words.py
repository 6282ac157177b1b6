"""Find the tokens whose embeddings are nearest to the vectors of a trained prompt.

Dimension key: P vectors of a prompt, D width of the embeddings, V words of the vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.prompts.soft import SoftPrompt, table_of


@dataclass(frozen=True)
class Near:
    """A token, and its cosine similarity with a vector or its distance from it."""

    token: str
    id: int
    value: float


def nearest_words(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: SoftPrompt,
    k: int = 3,
    measure: Literal["cosine", "distance"] = "cosine",
) -> list[list[Near]]:
    """Return for each vector the k tokens with the highest cosine or the smallest ‖p_i − E(w)‖, nearest first.

    Only tokens of the tokenizer count: the embedding table may be longer.

    Raises:
        ValueError: the prompt is of another model, k is larger than the vocabulary, or the measure is unknown.
    """
    prompt.check(model)
    table = table_of(model)[: len(tokenizer)].float()
    if not 1 <= k <= len(table):
        raise ValueError(f"got k={k} words of each vector; expected 1 to {len(table)}.")
    if measure not in NEARNESS:
        raise ValueError(f"got measure {measure!r}; expected one of {', '.join(NEARNESS)}.")
    nearness, sign = NEARNESS[measure]
    found = (sign * nearness(prompt.vectors.detach().to(table), table)).topk(k, dim=1)
    values, ids = (sign * found.values).tolist(), found.indices.tolist()
    return [[_near(tokenizer, *pair) for pair in zip(*row, strict=True)] for row in zip(ids, values, strict=True)]


def _near(tokenizer: PreTrainedTokenizerBase, token: int, value: float) -> Near:
    return Near(tokenizer.decode([token]), token, value)


def _cosine(vectors: Float[Tensor, "P D"], table: Float[Tensor, "V D"]) -> Float[Tensor, "P V"]:
    return normalize(vectors, dim=1) @ normalize(table, dim=1).T


def _distance(vectors: Float[Tensor, "P D"], table: Float[Tensor, "V D"]) -> Float[Tensor, "P V"]:
    # Do not use the product formula for distances: rounding errors would hide the small ones.
    return torch.cdist(vectors, table, compute_mode="donot_use_mm_for_euclid_dist")


NEARNESS = {"cosine": (_cosine, 1), "distance": (_distance, -1)}
