"""Delta-coded keys on the default model: the computation that is skipped and its cost in loss, by threshold.

Ours, after DeltaLLM (https://arxiv.org/abs/2507.19608), of which the abstract alone could be read; see
attention/delta/code.py. All conditions read the same windows, so that rows are compared window by window.

Tables:

    read      by condition: perplexity with the loss of every window, fraction of the keys' values not sent
              (`zeros`), fraction of the multiply-adds of QKᵀ that were left out (`sparsity`)
    decoded   the last tokens of some windows read one by one after the rest, compared with reading all in one pass:
              both mean losses, the largest difference of a window, and what the one-by-one passes alone left out
    moved     by window and layer: the distance of a key from the previous one, compared with that from any other

Minutes planned on one idle core: 2.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import DynamicCache

from course_lib.attention.delta.apply import Watch, delta_attention
from course_lib.attention.delta.spread import Spread, key_spread
from course_lib.lessons.common.losses import losses_row
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.perplexity import window_losses


@dataclass(frozen=True)
class Condition:
    """Settings of the code: see delta_attention."""

    theta: float
    window: int
    sinks: int
    side: str


@dataclass(frozen=True)
class Sizes:
    """The settings that vary, one at a time: the threshold, the window, the sinks, the side of RoPE."""

    windows: int = 8
    length: int = 512
    calibration: int = 4  # windows of the same length for measuring the spread of keys
    thetas: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0)
    varied: tuple[float, ...] = (1.0,)  # those at which the other conditions are measured
    window: int = 64
    sinks: int = 4
    decoded: int = 2  # windows
    n_decoded: int = 32  # last tokens of each
    decoded_theta: float = 1.0


QUICK = Sizes(windows=2, length=48, calibration=1, thetas=(1.0, 2.0), varied=(1.0,), window=8, decoded=1, n_decoded=4,
              decoded_theta=1.0)  # fmt: skip


def conditions(sizes: Sizes) -> list[Condition]:
    """List the conditions: the main series first; then without a window, without exact sinks, and coded before RoPE."""
    main = [Condition(theta, sizes.window, sizes.sinks, "after") for theta in sizes.thetas]
    for theta in sizes.varied:
        main.append(Condition(theta, 1, sizes.sinks, "after"))
        main.append(Condition(theta, sizes.window, 0, "after"))
        main.append(Condition(theta, sizes.window, sizes.sinks, "before"))
    return main


def steps(sizes: Sizes) -> list[Step]:
    plan = [Step("dense", partial(dense, sizes))]
    plan += [
        Step(f"θ {c.theta}, window {c.window}, {c.sinks} sinks, {c.side} RoPE", partial(read, sizes, c))
        for c in conditions(sizes)
    ]
    return [*plan, Step("decoded", partial(decoded, sizes)), Step("moved", partial(moved, sizes))]


def dense(sizes: Sizes, seed: int) -> Tables:
    """Evaluate the dense model."""
    windows = article_windows(sizes.windows, sizes.length, seed)
    losses = window_losses(loaded()[0], windows, 1, progress=False).tolist()
    row = losses_row(losses, windows[:, 1:].numel()) | {"zeros": 0.0, "sparsity": 0.0}
    return {"read": [{"theta": 0.0, "window": None, "sinks": None, "side": None} | row]}


def read(sizes: Sizes, condition: Condition, seed: int) -> Tables:
    """Evaluate all windows under one condition."""
    windows = article_windows(sizes.windows, sizes.length, seed)
    with coded(sizes, condition, seed) as watch:
        losses = window_losses(loaded()[0], windows, 1, progress=False).tolist()
    row = losses_row(losses, windows[:, 1:].numel())
    left_out = {"zeros": round(watch.zeros, 5), "sparsity": round(watch.sparsity, 5)}
    return {"read": [vars(condition) | row | left_out]}


def coded(sizes: Sizes, condition: Condition, seed: int) -> AbstractContextManager[Watch]:
    spread = spread_of(sizes, condition.side, seed)
    return delta_attention(loaded()[0], condition.theta, spread, condition.window, condition.sinks)


@lru_cache(maxsize=2)
def spread_of(sizes: Sizes, side: str, seed: int) -> Spread:
    return key_spread(loaded()[0], article_windows(sizes.calibration, sizes.length, seed, "calibration"), side)


@torch.no_grad()
def decoded(sizes: Sizes, seed: int) -> Tables:
    """Decode token by token; the code depends on the keys only, so that decoding should read the same as prefill."""
    condition = Condition(sizes.decoded_theta, sizes.window, sizes.sinks, "after")
    windows, n = article_windows(sizes.windows, sizes.length, seed)[: sizes.decoded], sizes.n_decoded
    with coded(sizes, condition, seed):
        logits = loaded()[0](windows, use_cache=False, logits_to_keep=n + 1).logits[:, :-1]
    cache = DynamicCache()
    with coded(sizes, condition, seed) as watch:
        one_by_one = [loaded()[0](windows[:, :-n], past_key_values=cache, logits_to_keep=1).logits]
        before = vars(watch).copy()
        for i in range(sizes.length - n, sizes.length - 1):
            one_by_one.append(loaded()[0](windows[:, i : i + 1], past_key_values=cache).logits)
    at_once, stepwise = _losses(logits, windows), _losses(torch.cat(one_by_one, dim=1), windows)
    done, causal = (vars(watch)[name] - before[name] for name in ("n_done", "n_causal"))
    row = {"read_at_once": at_once.mean().item(), "decoded": stepwise.mean().item()}
    row |= {"largest_difference": float((at_once - stepwise).abs().max()), "sparsity": round(1 - done / causal, 5)}
    return {"decoded": [vars(condition) | row | {"n_tokens": n * len(windows)}]}


@torch.no_grad()
def moved(sizes: Sizes, seed: int) -> Tables:
    """Return the squared distance of neighbouring keys, relative to that of two random keys of the same head."""
    rows = []
    for ids in article_windows(sizes.windows, sizes.length, seed):
        cache = DynamicCache()
        loaded()[0](ids[None], past_key_values=cache, logits_to_keep=1)
        shares = [float(moved_share(layer.keys[0, :, sizes.sinks :])) for layer in cache.layers]
        rows.append({"share": [round(share, 4) for share in shares]})
    return {"moved": rows}


def moved_share(keys: Float[Tensor, "H T D"]) -> Float[Tensor, ""]:
    """Return E|k_j − k_{j−1}|² / E|k_i − k_j|², the mean over heads; the divisor is twice the sum of variances."""
    neighbours = (keys[:, 1:] - keys[:, :-1]).square().sum(dim=2).mean(dim=1)
    return (neighbours / (2 * keys.var(dim=1, correction=0).sum(dim=1))).mean()


def _losses(logits: Float[Tensor, "B n V"], windows: Int[Tensor, "B N"]) -> Float[Tensor, "B"]:
    """Return the losses of the last n tokens of each window, predicted by these logits."""
    targets = windows[:, -logits.shape[1] :]
    return cross_entropy(logits.transpose(1, 2).double(), targets, reduction="none").mean(dim=1)


EXPERIMENT = Experiment("Delta-coded keys", Sizes(), QUICK, steps)
