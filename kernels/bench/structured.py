"""Structurally pruned models against the original: pruned parts are not read or multiplied, without special kernels.

The choice of neurons and blocks does not change the time, so it is random. The bytes of a step are those of all weights
and of the keys and values; the FLOP of a prompt are those of its products. Every side is checked against its own model
without a cache.

Dimension key: B sequences, T tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from course_lib.kernels.timing.contest import Contest, Place, Side
from jaxtyping import Int
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from course_lib.measure.roofline import Work
from course_lib.models import blocks, head, heads, load_model, tiny_model
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.random_scores import Random
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import cut

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of logits, after all layers have rounded in another order
STEPS = 8  # of decoding in a run
SIZES = {"neurons": (1126, 768), "blocks": (24, 18), "decode": 128, "prefill": 512, "sequences": (1, 8)}
QUICK = {"neurons": (73, 50), "blocks": (1,), "decode": 12, "prefill": 24, "sequences": (1, 2)}
NEAR = 0.1  # a ratio counts as predicted within this fraction


def contests(place: Place) -> Iterator[Contest]:
    """Yield decoding steps of one sequence and of several, then a prompt."""
    whole = tiny_model() if place.quick else load_model(dtype=place.dtype, device=place.device)[0]
    sizes = QUICK if place.quick else SIZES
    models = {"dense": whole.to(place.device, place.dtype)}
    scores, now = Random().score(Evidence(whole, torch.zeros(1, 2, dtype=torch.long), progress=False)), shape_of(whole)
    for kind in ("neurons", "blocks"):
        models |= {f"{size} {kind}": cut(whole, replace(now, **{kind: size}), scores) for size in sizes[kind]}
    n_tokens = max(sizes["decode"] + STEPS, sizes["prefill"])
    ids = torch.randint(3, whole.config.vocab_size, (1, n_tokens), generator=place.generator).to(place.device)
    for n_sequences in sizes["sequences"]:
        yield _decode(models, ids[:, : sizes["decode"] + STEPS].expand(n_sequences, -1))
    yield _prefill(models, ids[:, : sizes["prefill"]])


@torch.no_grad()
def _decode(models: dict[str, PreTrainedModel], ids: Int[Tensor, "B T"]) -> Contest:
    """Decode the last tokens of a text one by one."""
    n_before = ids.shape[1] - STEPS
    sides = []
    for name, model in models.items():
        expected = model(ids, use_cache=False, logits_to_keep=1).logits[:, -1]
        work = decode_work(model, len(ids), n_before)
        sides.append(Side(name, _steps(model, ids, n_before), work, expected))
    return Contest(f"{STEPS} steps of {len(ids)} at {n_before} tokens", tuple(ids.shape), sides, sides[0].expected)


def _steps(model: PreTrainedModel, ids: Int[Tensor, "B T"], n_before: int) -> Callable[[], Tensor]:
    cache = DynamicCache(config=model.config)
    model(ids[:, :n_before], past_key_values=cache, use_cache=True, logits_to_keep=1)

    @torch.no_grad()
    def run() -> Tensor:
        for step in range(n_before, ids.shape[1]):
            logits = model(ids[:, step : step + 1], past_key_values=cache, use_cache=True).logits
        cache.crop(n_before - ids.shape[1])  # as it was, for the next run
        return logits[:, -1]

    return run


@torch.no_grad()
def _prefill(models: dict[str, PreTrainedModel], ids: Int[Tensor, "B T"]) -> Contest:
    """Prefill a whole prompt; only the last token's logits are computed."""

    def through(model: PreTrainedModel) -> Callable[[], Tensor]:
        @torch.no_grad()
        def run() -> Tensor:
            cache = DynamicCache(config=model.config)
            return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]

        return run

    sides = []
    for name, model in models.items():
        expected = model(ids, use_cache=False).logits[:, -1]
        sides.append(Side(name, through(model), prefill_work(model, ids.shape[1]), expected))
    return Contest("a prompt", tuple(ids.shape), sides, sides[0].expected)


def decode_work(model: PreTrainedModel, n_sequences: int, n_before: int) -> Work:
    """Count, per step, every weight once and each sequence's earlier keys and values, including half of the steps."""
    size, a_number = heads(model), next(model.parameters()).element_size()
    n_weights = sum(weight.numel() for weight in model.parameters())
    n_read = n_before + STEPS / 2
    kept = 2 * size.n_key_value * size.size * len(blocks(model)) * n_read
    products = n_weights + 2 * size.n_query * size.size * len(blocks(model)) * n_read
    return Work(STEPS * 2 * n_sequences * products, STEPS * a_number * (n_weights + n_sequences * kept))


def prefill_work(model: PreTrainedModel, n_tokens: int) -> Work:
    """Count every token through all blocks, the last one through the LM head; a query reads half of the keys on
    average.
    """
    size, a_number = heads(model), next(model.parameters()).element_size()
    n_weights, n_head = sum(weight.numel() for weight in model.parameters()), head(model).weight.numel()
    attention = 2 * size.n_query * size.size * len(blocks(model)) * n_tokens / 2
    return Work(2 * (n_tokens * (n_weights - n_head + attention) + n_head), a_number * n_weights)


def summary(rows: list[dict[str, Any]]) -> str:
    """Compare each side's speed with the prediction from its bytes (steps) or its FLOP (a prompt)."""
    sentences, n_near, n_all = [], 0, 0
    anchors = {row["contest"]: row for row in rows if row["side"] == row["anchor"]}
    for contest, anchor in anchors.items():
        key = "flops" if contest == "a prompt" else "bytes"
        parts = []
        for row in rows:
            if row["contest"] == contest and row is not anchor and row["repetitions"]:
                predicted = anchor[key] / row[key]
                parts.append(f"{row['side']} {row['times_anchor']:.2f}x of {predicted:.2f}x")
                n_near += abs(row["times_anchor"] / predicted - 1) <= NEAR
                n_all += 1
        sentences.append(f"{contest}, by {'FLOP' if key == 'flops' else key}: {', '.join(parts)}.")
    return "\n".join([*sentences, f"Within {NEAR:.0%} of the prediction: {n_near} of {n_all}."])
