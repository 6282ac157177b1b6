"""Measurements of the notebook of lesson 12 on the real model: a recipe, parts on grids of three sizes, a drafted text.

Dimension key: P parts, L levels, n windows of N tokens, k drafted tokens.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.attention.speculative.accept import Drawn, Sampling
from course_lib.attention.speculative.cached import CachedModel
from course_lib.attention.speculative.draft import Draft, Lookup
from course_lib.attention.steering.auto import as_prompt
from course_lib.compose.build import Built
from course_lib.compose.counting.account import LENGTH, account
from course_lib.compose.evaluate import continued_losses
from course_lib.data.corpora import windows
from course_lib.data.residents import passages
from course_lib.lessons.capstone.experiments.ground import DOMAINS, Sizes
from course_lib.measure.perplexity import window_losses
from course_lib.models import blocks, linears
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import dense_bytes

N_WINDOWS, SEED = 2, 0  # the first of those on which all recipes were measured
LEVELS = {"3 bits, 64": Quantization(3, 64), "4 bits, rows": Quantization(4), "4 bits, 64": Quantization(4, 64)}
N_BLOCKS = 5  # in a part of the model
Block = Callable[[Tensor, Tensor, Tensor, Tensor, int], tuple[int, ...]]


def measure(name: str, built: Built, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Measure a recipe like the stored ones: bytes after a text of LENGTH tokens, losses of a few windows.

    Returns a row with the keys of `estimates.recipes()`, and `by_part`, the bytes of each part.
    """
    (text,) = windows("wikipedia", 1, LENGTH, tokenizer, "evaluation", SEED + 1)
    found, length = account(built, text), Sizes().length
    losses = {
        domain: continued_losses(built, windows(domain, N_WINDOWS, length, tokenizer, "evaluation", SEED)).tolist()
        for domain in DOMAINS
    }
    sizes = {"stored": found.stored, "cache": found.cache, "read": found.read, "multiply_adds": found.multiply_adds}
    return {"name": name} | sizes | {"by_part": found.by_part} | losses


# Parts of the model on quantization grids.


@dataclass(frozen=True)
class Curves:
    """Of each part at each level: bytes, and the loss in nats per token with only that part rounded."""

    names: tuple[str, ...]
    sizes: Int[Tensor, "P L"]
    losses: Float[Tensor, "P L"]


def model_parts(model: PreTrainedModel) -> dict[str, list[nn.Parameter]]:
    """Return the weights of the embedding, which is the LM head as well, of the first blocks and of the last ones."""
    every, found = list(blocks(model)), {"embedding": [model.get_input_embeddings().weight]}
    n = min(N_BLOCKS, len(every) // 2)
    for start in (0, len(every) - n):
        weights = [linear.weight for block in every[start : start + n] for linear in linears(block).values()]
        found[f"blocks {start + 1} to {start + n}"] = weights
    return found


@contextmanager
def rounded(model: PreTrainedModel, levels: Mapping[str, int]) -> Iterator[None]:
    """Round parts of the model to the grids of their levels; their weights are restored at the end."""
    grids = list(LEVELS.values())
    weights = [(weight, grids[level]) for part, level in levels.items() for weight in model_parts(model)[part]]
    before = [weight.detach().clone() for weight, _ in weights]
    try:
        with torch.no_grad():
            for weight, quantization in weights:
                weight.copy_(quantization.grid(weight).round(weight))
        yield
    finally:
        with torch.no_grad():
            for (weight, _), original in zip(weights, before, strict=True):
                weight.copy_(original)


def level_curves(model: PreTrainedModel, windows: Int[Tensor, "n N"]) -> Curves:
    """Measure bytes and loss of one part at a time."""
    sizes, losses = [], []
    for part, weights in model_parts(model).items():
        sizes.append([sum(dense_bytes(*w.shape, each.bits, each.group) for w in weights) for each in LEVELS.values()])
        losses.append([float(losses_at(model, windows, {part: level}).mean()) for level in range(len(LEVELS))])
    return Curves(tuple(model_parts(model)), torch.tensor(sizes), torch.tensor(losses))


def losses_at(model: PreTrainedModel, windows: Int[Tensor, "n N"], levels: Mapping[str, int]) -> Float[Tensor, "n"]:
    """Measure the loss of each window with parts at these levels."""
    with rounded(model, levels):
        return window_losses(model, windows, progress=False)


# Speculative decoding.


def repetition_task(tokenizer: PreTrainedTokenizerBase) -> Int[Tensor, "N"]:
    """Return the token ids of a prompt that asks the model to repeat a short text."""
    prompt = as_prompt(tokenizer, f"Repeat this text word for word:\n\n{passages(1, seed=3)[0].text}")
    return torch.tensor(tokenizer(prompt, add_special_tokens=False).input_ids)


def prompt_lookup(model: PreTrainedModel) -> Draft:
    """Return prompt-lookup drafting: it copies what followed the newest tokens earlier in the text."""
    return Lookup(model.config.vocab_size)


@torch.no_grad()
def write(
    model: PreTrainedModel,
    ids: Int[Tensor, "N"],
    n_new: int,
    draft: Draft,
    block: Block,
    k: int = 4,
    temperature: float = 1.0,
    stop: int = -1,
    seed: int = 0,
) -> tuple[Int[Tensor, "_"], list[int]]:
    """Write n_new tokens or a few more after a text, fewer where `stop` ends it.

    Returns the new tokens, and how many of them each pass of the model added.
    """
    generator = torch.Generator().manual_seed(seed)
    sampling, logits, n_prompt, passes = Sampling(temperature, Drawn(generator)), CachedModel(model), len(ids), []
    while len(ids) < n_prompt + n_new and (not passes or int(ids[-1]) != stop):
        proposal = draft.propose(ids, k, sampling)
        drafted = torch.tensor(proposal.tokens, dtype=ids.dtype)
        p = sampling.distribution(logits(torch.cat([ids, drafted]), len(drafted) + 1))
        uniform = torch.rand(len(drafted) + 1, generator=generator, dtype=torch.float64)
        tokens = block(drafted, proposal.q.double(), p, uniform, stop)
        ids = torch.cat([ids, torch.tensor(tokens, dtype=ids.dtype)])
        passes.append(len(tokens))
    return ids[n_prompt:], passes
