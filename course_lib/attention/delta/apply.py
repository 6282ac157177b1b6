"""`with delta_attention(model, theta=0.5, spread=key_spread(model, windows)) as watch:` — far keys are delta-coded.

Ours, after DeltaLLM; see code.py. Keys are computed and held in full, and both products are made: this measures what is
lost and counts what would be saved; it saves no time.

Dimension key: B sequences, L layers, H key-value heads, heads = H * G query heads, Q new tokens, T tokens so far,
D size of a head.
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
    """What the passes since the beginning sent and computed, all layers together; padding is not counted."""

    def __init__(self, sums_carry_over: bool) -> None:
        self.n_done = self.n_causal = self.n_sent = self.n_values = 0
        self._sums_carry_over = sums_carry_over

    def count(self, sent: Bool[Tensor, "B H T D"], seen: Pass, window: int) -> None:
        """Add one pass of one layer, of whose T tokens the Q newest are new."""
        n_new, first = seen.query.shape[2], seen.first_real[:, None]
        done, causal = n_products(sent, window, n_new, first)
        group = seen.query.shape[1] // sent.shape[1]
        self.n_done += group * (done if self._sums_carry_over else causal)
        self.n_causal += group * causal
        new = sent[:, :, -n_new:] & seen.real[:, None, -n_new:, None]
        self.n_sent += int(new.sum())
        self.n_values += int(seen.real[:, -n_new:].sum()) * sent.shape[1] * sent.shape[3]

    @property
    def zeros(self) -> float:
        """The share of the keys' values that were not sent; NaN before the first pass."""
        return 1 - self.n_sent / self.n_values if self.n_values else math.nan

    @property
    def sparsity(self) -> float:
        """Multiply-adds of QKᵀ not done over all causal ones; 0 for codes made before RoPE (see Spread)."""
        return 1 - self.n_done / self.n_causal if self.n_causal else math.nan


@contextmanager
def delta_attention(
    model: PreTrainedModel, theta: float, spread: Spread, window: int = 64, sinks: int = 0
) -> Iterator[Watch]:
    """Inside, queries read K̂ in place of K outside of their window; on exit the model is as before.

    Works with any call, `generate()` and left-padded batches among them. A text that is decoded token by token is
    coded as one that is read at once.

    Args:
        theta: the threshold of each channel, in its standard deviations.
        window: the newest tokens, the query's own among them, which are read exactly.
        sinks: so many first tokens are sent whole. The very first always is.

    Raises:
        ValueError: a theta below 0, a window below 1, sinks below 0, the spread of another model, or a model that is
            inside such a block already.
    """
    _check(model, theta, spread, window, sinks)
    thresholds = theta * spread.deviation.to(model.device, model.dtype)
    codes = [_Coder(threshold, spread, sinks) for threshold in thresholds]
    watch = Watch(sums_carry_over=spread.side == "after")

    def attend(seen: Pass) -> Tensor:
        code = codes[seen.layer].of(seen)
        watch.count(code.sent, seen, window)
        group = seen.query.shape[1] // seen.keys.shape[1]
        pairs = (keys.repeat_interleave(group, dim=1) for keys in (seen.keys, spread.as_read(code.keys, seen)))
        return seen.read(delta_logits(seen.query * seen.scaling, *pairs, window))

    with attending(model, "course_delta", attend):
        yield watch


def _check(model: PreTrainedModel, theta: object, spread: object, window: object, sinks: object) -> None:
    if isinstance(theta, bool) or not isinstance(theta, (int, float)) or not 0 <= theta < math.inf:
        raise ValueError(f"got theta={theta!r}; expected 0 (nothing is left out) or more standard deviations.")
    check_window(window)
    if isinstance(sinks, bool) or not isinstance(sinks, int) or sinks < 0:
        raise ValueError(f"got sinks={sinks!r}; expected how many first tokens are sent whole, 0 or more.")
    expected = len(blocks(model)), heads(model).n_key_value, heads(model).size
    if not isinstance(spread, Spread) or tuple(spread.deviation.shape) != expected:
        what = tuple(spread.deviation.shape) if isinstance(spread, Spread) else type(spread).__name__
        raise ValueError(
            f"got a spread {what}; expected one of this model's keys {expected}: key_spread(model, windows)."
        )
    check_finite("a spread", spread.deviation)


@dataclass
class _Coder:
    """The code of one layer's keys. It follows from the keys alone, so what is held of earlier passes saves time only:
    where a cache was cropped, reordered or begun anew the keys are no longer those, and are coded from the start."""

    threshold: Float[Tensor, "H D"]
    spread: Spread
    sinks: int
    coded: tuple[Tensor, Tensor, DeltaCode] | None = None  # the keys as they came, the padding, and their code

    def of(self, seen: Pass) -> DeltaCode:
        before = self._held(seen)
        n_held = before.keys.shape[2] if before else 0
        at = torch.arange(seen.keys.shape[2], device=seen.keys.device)
        whole = at < seen.first_real[:, None] + max(self.sinks, 1)  # (B, T); padding is sent, and nobody reads it
        if n_held < len(at):
            keys = self.spread.keys_of(seen)[:, :, n_held:]
            before = delta_code(keys, self.threshold, whole[:, None, n_held:], before)
        self.coded = seen.keys, seen.first_real, before
        return before

    def _held(self, seen: Pass) -> DeltaCode | None:
        if self.coded is None:
            return None
        keys, first, code = self.coded
        n = keys.shape[2]
        if n > seen.keys.shape[2] or keys.shape[:2] != seen.keys.shape[:2] or not torch.equal(first, seen.first_real):
            return None
        return code if torch.equal(keys, seen.keys[:, :, :n]) else None
