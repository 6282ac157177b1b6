"""A sliding window two ways: keep keys and values and add one token, or read the whole window afresh for each.

Dimension key: T tokens of a text.
"""

from collections.abc import Sequence
from time import perf_counter

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.kv.cache import evicting
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.measure.machine import synchronise
from course_lib.models import blocks, heads, linears, weight_of


@torch.no_grad()
def race(
    model: PreTrainedModel, ids: Int[Tensor, "T"], windows: Sequence[int], tokens: int = 3
) -> dict[str, list[float]]:
    """Seconds for one more token, by window, the fastest of `tokens` tries; the two take turns.

    Raises:
        ValueError: for a text that does not fill the largest window and the tokens after it.
    """
    if len(ids) < max(windows) + tokens:
        raise ValueError(f"got {len(ids)} tokens; expected at least {max(windows) + tokens}, window and tries.")
    timings: dict[str, list[float]] = {"streaming": [], "recomputing": []}
    for window in windows:
        seconds = _one(model, ids.to(model.device)[None], window, tokens)
        for name, values in timings.items():
            values.append(seconds[name])
    return timings


def _one(model: PreTrainedModel, ids: Int[Tensor, "1 T"], window: int, tokens: int) -> dict[str, float]:
    """Streaming goes on with a cache that is full; recomputing reads as many tokens, and only the last is predicted."""
    best = {"streaming": float("inf"), "recomputing": float("inf")}
    for end in range(window + 1, window + 1 + tokens):
        begun = perf_counter()
        model(ids[:, end - window : end], use_cache=False, logits_to_keep=1)
        synchronise(model.device)
        best["recomputing"] = min(best["recomputing"], perf_counter() - begun)
    with evicting(model, StreamingLLM(window, sinks=min(4, window - 1)), positions="rolling") as cache:
        model(ids[:, :window], past_key_values=cache, use_cache=True, logits_to_keep=1)
        for at in range(window, window + tokens):
            begun = perf_counter()
            model(ids[:, at : at + 1], past_key_values=cache, use_cache=True)
            synchronise(model.device)
            best["streaming"] = min(best["streaming"], perf_counter() - begun)
    return best


def counted(model: PreTrainedModel, windows: Sequence[int]) -> dict[str, list[float]]:
    """FLOPs for one more token: two a weight and token; four a layer, a number of the query and a token it reads."""
    weights = sum(weight_of(linear).numel() for block in blocks(model) for linear in linears(block).values())
    pair = 4 * len(blocks(model)) * heads(model).n_query * heads(model).size
    return {
        "streaming": [2.0 * weights + pair * window for window in windows],
        "recomputing": [2.0 * weights * window + pair * window * (window + 1) / 2 for window in windows],
    }
