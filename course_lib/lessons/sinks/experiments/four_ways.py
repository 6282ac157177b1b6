"""Four ways to read a text longer than the training length: dense, a window, the window recomputed, sinks.

StreamingLLM, figure 1: https://arxiv.org/abs/2309.17453

Dimension key: P predictions, C compared predictions, W tokens of a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.data.corpora import windows
from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.kv.policy import EvictionPolicy
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.sinks.experiments import dialogue
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.paired import block_means
from course_lib.models import blocks, heads, linears, weight_of

N_READ, SHOWN = (128, 256, 1024, 8192, 65536, 1048576), 256  # lengths in tokens and a window, for counting FLOPs
DENSE, WINDOW, AFRESH, STREAMING = WAYS = ("dense", "window", "window recomputed", "StreamingLLM")
SINKS, BLOCK, BATCH, EVERY = 4, 128, 8, 16
SLOW, FAST = 16, 64  # tokens per pass, where tokens are compared and before
POLICIES = {  # the policy with a budget, and how positions are counted
    DENSE: (lambda budget: Full(), "original"),
    WINDOW: (Window, "original"),
    STREAMING: (lambda budget: StreamingLLM(budget, sinks=SINKS), "rolling"),
}


def way(name: str, n_tokens: int, n_compared: int, budget: int, seed: int) -> Tables:
    """Read one text in one way: its losses by block, and those of the tokens at which all ways are compared."""
    model, tokenizer = loaded()
    ids = windows("wikipedia", 1, n_tokens, tokenizer, split="evaluation", seed=seed)[0]
    at = compared_at(n_tokens, n_compared, model.config.max_position_embeddings)
    row = {"way": name, "budget": budget, "trained": model.config.max_position_embeddings}
    if name == AFRESH:
        return {"ways": [row | {"blocks": [], "block": BLOCK, "losses": _rounded(read_afresh(model, ids, at, budget))}]}
    policy, positions = POLICIES[name]
    losses = streamed(model, ids, policy(budget), positions, at[0])
    blocks = _rounded(block_means(losses, min(BLOCK, len(losses))))
    return {"ways": [row | {"blocks": blocks, "block": BLOCK, "losses": _rounded(losses[at])}]}


def compared_at(n_tokens: int, n_compared: int, trained: int) -> list[int]:
    """Return every sixteenth prediction at the end of the text, beyond the trained length if the text is longer.

    These are the first tokens of passes, which can attend only to the budget of the cache.
    """
    last = (n_tokens - 2) // EVERY * EVERY
    first = last - EVERY * (n_compared - 1)
    if first < (trained if n_tokens > trained else n_tokens // 2):
        raise ValueError(f"got {n_compared} of {n_tokens} tokens; expected all of them beyond {trained} tokens.")
    return list(range(first, last + 1, EVERY))


@torch.no_grad()
def streamed(
    model: PreTrainedModel, ids: Int[Tensor, "T"], policy: EvictionPolicy, positions: str, slow_from: int
) -> Float[Tensor, "P"]:
    """Return the loss of each token except the first; passes are long before `slow_from`, and short after it."""
    starts = [*range(0, slow_from, FAST), *range(slow_from, len(ids) - 1, SLOW), len(ids) - 1]
    losses, place = [], torch.arange(len(ids))
    with evicting(model, policy, positions) as cache:
        for start, end in pairwise(starts):
            logits = model(
                ids[None, start:end], position_ids=place[None, start:end], past_key_values=cache, use_cache=True
            ).logits[0]
            losses.append(torch.nn.functional.cross_entropy(logits, ids[start + 1 : end + 1], reduction="none"))
    return torch.cat(losses)


@torch.no_grad()
def read_afresh(model: PreTrainedModel, ids: Int[Tensor, "T"], at: Sequence[int], budget: int) -> Float[Tensor, "C"]:
    """Return the loss of token i + 1 for each i, computed from the newest `budget` tokens up to i only."""
    losses = []
    for start in range(0, len(at), BATCH):
        ends = torch.tensor(at[start : start + BATCH])
        batch = ids[ends[:, None] + torch.arange(1 - budget, 1)]
        logits = model(batch, use_cache=False, logits_to_keep=1).logits[:, 0]
        losses.append(torch.nn.functional.cross_entropy(logits, ids[ends + 1], reduction="none"))
    return torch.cat(losses)


def flops_a_token(n_weights: int, n_layers: int, width: int, n_read: int, window: int) -> tuple[float, float, float]:
    """Count the FLOPs of one more token: dense, streaming, window recomputed."""
    seen, pair = min(n_read, window), 4.0 * n_layers * width
    afresh = sum(2.0 * n_weights + pair * query for query in range(1, seen + 1))
    return 2.0 * n_weights + pair * n_read, 2.0 * n_weights + pair * seen, afresh


def shape(model: PreTrainedModel) -> tuple[int, int, int]:
    """Return the arguments of `flops_a_token`: weights of the blocks, layers, and the width of all heads together."""
    n_weights = sum(weight_of(linear).numel() for block in blocks(model) for linear in linears(block).values())
    return n_weights, len(blocks(model)), heads(model).n_query * heads(model).size


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


@dataclass(frozen=True)
class Sizes:
    """Lengths in tokens, budgets in slots."""

    tokens: int = 9024
    compared: int = 48  # every sixteenth of the end, beyond the trained length
    budget: int = 128
    chats: int = 6
    answer: int = 80
    chat_budget: int = 64


def steps(sizes: Sizes) -> list[Step]:
    plan = []
    for cache in dialogue.CACHES:
        measure = partial(dialogue.chats, cache, sizes.chats, sizes.answer, sizes.chat_budget)
        plan.append(Step(f"chats: {cache}", measure))
    for name in WAYS:
        measure = partial(way, name, sizes.tokens, sizes.compared, sizes.budget)
        plan.append(Step(f"way: {name}", measure))
    return plan


EXPERIMENT = Experiment("Four ways to read on", Sizes(), Sizes(96, 2, 16, 2, 4, 16), steps)
