"""Attend with delta-coded keys: `with delta_attention(model, theta=0.5, spread=key_spread(model, windows)) as watch:`

Our own variant of DeltaLLM; code.py cites the sources. Keys are computed and stored in full precision, and we compute
both products, q·K and q·K̂. So this measures the error of the approximation and counts the multiplications that an
implementation would save; it saves no time itself.

Dimension key: B sequences, L layers, H key-value heads, heads = H * G query heads, Q new tokens, T tokens so far,
D head dimension.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.checks import check_finite
from course_lib.attention.delta.code import DeltaCode, check_window, delta_code, delta_logits, n_products
from course_lib.attention.delta.spread import Spread
from course_lib.attention.registered import Pass, attending
from course_lib.models import blocks, heads


class Watch:
    """Counts over all passes since the start of the `with` block, summed over layers; padding is not counted."""

    def __init__(self, sums_carry_over: bool) -> None:
        self.n_done = self.n_causal = self.n_sent = self.n_values = 0
        self._sums_carry_over = sums_carry_over

    def count(self, sent: Bool[Tensor, "B H T D"], seen: Pass, window: int) -> None:
        """Add one forward pass of one layer, in which the Q newest of T tokens are new."""
        n_new, first = seen.query.shape[2], seen.first_real[:, None]
        n_done, n_causal = n_products(sent, window, n_new, first)
        # The G query heads of a group multiply with the same keys. Without sums that carry over from key to key (codes
        # made before RoPE), no product can be skipped.
        group = seen.query.shape[1] // sent.shape[1]
        self.n_done += group * (n_done if self._sums_carry_over else n_causal)
        self.n_causal += group * n_causal
        newest_sent = sent[:, :, -n_new:] & seen.real[:, None, -n_new:, None]
        self.n_sent += int(newest_sent.sum())
        self.n_values += int(seen.real[:, -n_new:].sum()) * sent.shape[1] * sent.shape[3]

    @property
    def zeros(self) -> float:
        """Fraction of key channels (one value per token, head and channel) not sent; NaN before the first pass."""
        return 1 - self.n_sent / self.n_values if self.n_values else math.nan

    @property
    def sparsity(self) -> float:
        """Fraction of the causal multiply-adds of QKᵀ that are skipped; 0 for codes made before RoPE (see Spread)."""
        return 1 - self.n_done / self.n_causal if self.n_causal else math.nan


@contextmanager
def delta_attention(
    model: PreTrainedModel, theta: float, spread: Spread, window: int = 64, sinks: int = 0
) -> Iterator[Watch]:
    """Inside the `with` block, queries multiply with K inside their window and with K̂ outside; then all is as before.

    Works with any forward call, including `generate()` and left-padded batches. A text that is decoded token by token
    gets the same code as the same text in a single pass.

    Args:
        theta: threshold of each channel, in standard deviations of that channel.
        window: number of newest tokens, including the query's own, whose keys are exact.
        sinks: number of first tokens of which all channels are sent. The very first token always is.

    Raises:
        ValueError: theta is below 0, the window below 1, or sinks below 0; the spread is of another model; or the model
            is already inside such a `with` block.
    """
    _check(model, theta, spread, window, sinks)
    thresholds = theta * spread.deviation.to(model.device, model.dtype)  # θ in the unit of the keys, (L, H, D)
    codes = [_Coder(threshold, spread, sinks) for threshold in thresholds]
    watch = Watch(sums_carry_over=spread.side == "after")

    def attend(seen: Pass) -> Tensor:
        code = codes[seen.layer].of(seen)
        watch.count(code.sent, seen, window)
        group = seen.query.shape[1] // seen.keys.shape[1]
        # Exact and approximate keys, repeated for the query heads of each group: (B, heads, T, D).
        pairs = (keys.repeat_interleave(group, dim=1) for keys in (seen.keys, spread.as_read(code.keys, seen)))
        return seen.read(delta_logits(seen.query * seen.scaling, *pairs, window))

    with attending(model, "course_delta", attend):
        yield watch


def _check(model: PreTrainedModel, theta: object, spread: object, window: object, sinks: object) -> None:
    if isinstance(theta, bool) or not isinstance(theta, (int, float)) or not 0 <= theta < math.inf:
        raise ValueError(f"got theta={theta!r}; expected 0 (every channel is sent) or more standard deviations.")
    check_window(window)
    if isinstance(sinks, bool) or not isinstance(sinks, int) or sinks < 0:
        raise ValueError(f"got sinks={sinks!r}; expected the number of first tokens to send in full, 0 or more.")
    expected = len(blocks(model)), heads(model).n_key_value, heads(model).size
    if not isinstance(spread, Spread) or tuple(spread.deviation.shape) != expected:
        description = tuple(spread.deviation.shape) if isinstance(spread, Spread) else type(spread).__name__
        raise ValueError(
            f"got a spread {description}; expected that of this model's keys, {expected}: key_spread(model, windows)."
        )
    check_finite("a spread", spread.deviation)


@dataclass
class _Coder:
    """Encode the keys of one layer, continuing from the code of earlier passes.

    The code is a function of the keys alone, so the stored code only saves time. If the stored keys are no prefix of
    the present ones (the cache was cropped, reordered or cleared), we code all keys from scratch.
    """

    threshold: Float[Tensor, "H D"]
    spread: Spread
    sinks: int
    coded: tuple[Tensor, Tensor, DeltaCode] | None = None  # keys as received, first real token of each row, their code

    def of(self, seen: Pass) -> DeltaCode:
        code = self._held(seen)
        n_held = code.keys.shape[2] if code else 0
        token_index = torch.arange(seen.keys.shape[2], device=seen.keys.device)
        # (B, T): sinks are sent in full, and so is padding, which no query reads.
        is_whole = token_index < seen.first_real[:, None] + max(self.sinks, 1)
        if n_held < len(token_index):
            keys = self.spread.keys_of(seen)[:, :, n_held:]
            code = delta_code(keys, self.threshold, is_whole[:, None, n_held:], code)
        self.coded = seen.keys, seen.first_real, code
        return code

    def _held(self, seen: Pass) -> DeltaCode | None:
        """Return the code of earlier passes if its keys are a prefix of the present ones, otherwise None."""
        if self.coded is None:
            return None
        keys, first, code = self.coded
        n = keys.shape[2]
        if n > seen.keys.shape[2] or keys.shape[:2] != seen.keys.shape[:2] or not torch.equal(first, seen.first_real):
            return None
        return code if torch.equal(keys, seen.keys[:, :, :n]) else None
