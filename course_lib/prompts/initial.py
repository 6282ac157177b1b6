"""Initialise a soft prompt: from the embeddings of tokens, or from noise.

Dimension key: P vectors of a prompt, D width of the embeddings.
"""

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.prompts.soft import SoftPrompt, fingerprint, most_positions, table_of


def from_ids(model: PreTrainedModel, ids: Int[Tensor, "P"], origin: str = "") -> SoftPrompt:
    """p_i = E(ids_i): copies of embedding rows, so that training a prompt does not change the table.

    A hard prompt is p for the ids of its tokens. The paper's public code initialises with the first ids,
    `torch.arange(n)`.
    """
    n_words = len(table_of(model))
    if len(ids) < 1 or int(ids.min()) < 0 or int(ids.max()) >= n_words:
        raise ValueError(f"got ids {ids.tolist()[:8]}…; expected at least one, each from 0 to {n_words - 1}.")
    with torch.no_grad():
        # Call the embedding instead of indexing its table: some families scale the embeddings.
        vectors = model.get_input_embeddings()(ids.to(model.device)).float()
    return SoftPrompt(vectors=vectors, table=fingerprint(model), origin=origin)


def from_vocabulary(model: PreTrainedModel, n: int, generator: torch.Generator, origin: str = "") -> SoftPrompt:
    """p_i = E(w_i) of n different random tokens from the vocabulary."""
    n_words = len(table_of(model))
    _check_count(n, n_words)
    return from_ids(model, torch.randperm(n_words, generator=generator)[:n], origin)


def from_normal(
    model: PreTrainedModel, n: int, generator: torch.Generator, scale: float = 1.0, origin: str = ""
) -> SoftPrompt:
    """p_i ~ N(0, scale²). The embeddings of the course's model have deviation 0.14, far from the usual scale of 1."""
    _check_count(n, most_positions(model))
    if not scale > 0:
        raise ValueError(f"got scale {scale!r}; expected a positive number, such as the spread of the embeddings.")
    vectors = scale * torch.randn(n, table_of(model).shape[1], generator=generator)
    return SoftPrompt(vectors=vectors.to(model.device), table=fingerprint(model), origin=origin)


def _check_count(n: object, most: int) -> None:
    if not isinstance(n, int) or not 1 <= n <= most:
        raise ValueError(f"got n={n!r} vectors; expected a whole number from 1 to {most}.")
