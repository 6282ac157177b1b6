"""Perplexity of one long text that streams through an evicting cache with constant memory and time per token.

Dimension key: T tokens of the text, P predictions (all tokens but the first), C passes through the model.
"""

import math
import time
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.kv.cache import evicting
from course_lib.kv.layers import EvictingCache
from course_lib.kv.policy import EvictionPolicy
from course_lib.measure.machine import synchronise

BLOCK = 512  # tokens whose mean loss counts as one sample, because losses of neighbouring tokens are correlated


@dataclass(frozen=True)
class StreamingPerplexity:
    """The loss on a text per token. `losses[i]` is the negative log-likelihood of token i + 1, in nats.

    `value` excludes the first `skip` predictions, because nothing is evicted until the cache is full.
    """

    losses: Float[Tensor, "P"] = field(repr=False)
    seconds: Float[Tensor, "C"] = field(repr=False)  # of each pass, in which `chunk` tokens are read
    chunk: int
    skip: int
    peak_bytes: int  # keys and values held after a pass, at most
    peak_allocated: int  # all storage, also the slots of the chunk that is being read

    @property
    def n_tokens(self) -> int:
        """The number of predictions that count."""
        return len(self.losses) - self.skip

    @property
    def value(self) -> float:
        """The exponential of the mean loss."""
        return self.losses[self.skip :].mean().exp().item()

    @property
    def standard_error(self) -> float:
        """The standard error, from the spread of blocks of tokens, transformed by exp; NaN for fewer than 2 blocks."""
        means = _blocks(self.losses[self.skip :], BLOCK).mean(dim=1)
        return self.value * means.std().item() / math.sqrt(len(means)) if len(means) > 1 else math.nan

    def curve(self, block: int = BLOCK) -> list[float]:
        """Perplexity of each whole block of tokens, from the start of the text."""
        return _blocks(self.losses, block).mean(dim=1).exp().tolist()

    def seconds_per_token(self, n_parts: int = 8) -> list[float]:
        """Median time over the passes of each part of the text: constant if the cache is bounded.

        There are fewer parts if there are fewer passes. A shorter pass at the end does not count.
        """
        size = max(1, len(self.seconds) // n_parts)
        return (_blocks(self.seconds, size).median(dim=1).values / self.chunk).tolist()


@torch.no_grad()
def streaming_perplexity(
    model: PreTrainedModel,
    ids: Int[Tensor, "T"],
    policy: EvictionPolicy,
    positions: str = "original",
    chunk: int = 16,
    skip: int = 0,
    gap: int = 0,
    gap_after: int = 4,
) -> StreamingPerplexity:
    """Measure the perplexity of a text of any length, with memory limited by the policy's budget.

    Args:
        positions: "original" or "rolling", as in `evicting`.
        chunk: tokens read in one pass. 1 is the paper's protocol. Nothing is evicted within a chunk, so its last token
            attends to up to `chunk` − 1 tokens more than the budget. 16 takes a seventh of the time.
        skip: predictions at the start that do not count.
        gap: positions skipped after the first `gap_after` tokens, as if that many tokens had been read and evicted
            there. With a large gap, tokens kept from the start are farther away than any distance seen in training.

    Raises:
        ValueError: a text that is not one row of token ids of this model, invalid sizes, or settings that `evicting`
            refuses.
    """
    with evicting(model, policy, positions) as cache:
        return stream_through(model, ids, cache, chunk, skip, gap, gap_after)


@torch.no_grad()
def stream_through(
    model: PreTrainedModel,
    ids: Int[Tensor, "T"],
    cache: EvictingCache,
    chunk: int = 16,
    skip: int = 0,
    gap: int = 0,
    gap_after: int = 4,
) -> StreamingPerplexity:
    """Measure the perplexity as `streaming_perplexity` does, through a cache that is already open."""
    _check(model, ids, chunk, skip, gap, gap_after)
    ids = ids.to(model.device)
    position = torch.arange(len(ids), device=ids.device)
    position = position + gap * (position >= gap_after)
    losses, seconds, held, allocated = [], [], 0, 0
    for start in range(0, len(ids) - 1, chunk):
        end = min(start + chunk, len(ids) - 1)
        begun = time.perf_counter()
        logits = model(
            ids[None, start:end], position_ids=position[None, start:end], past_key_values=cache, use_cache=True
        ).logits[0]
        synchronise(model.device)
        seconds.append(time.perf_counter() - begun)
        losses.append(torch.nn.functional.cross_entropy(logits.float(), ids[start + 1 : end + 1], reduction="none"))
        held, allocated = max(held, cache.bytes_held), max(allocated, cache.bytes_allocated)
    whole = seconds[: (len(ids) - 1) // chunk]  # the last pass may be shorter
    return StreamingPerplexity(torch.cat(losses).double().cpu(), torch.tensor(whole), chunk, skip, held, allocated)


def _blocks(values: Float[Tensor, "P"], size: int) -> Float[Tensor, "blocks size"]:
    """Split into whole blocks; drop the rest at the end."""
    return values[: len(values) // size * size].view(-1, size)


def _check(model: PreTrainedModel, ids: object, chunk: int, skip: int, gap: int, gap_after: int) -> None:
    if not isinstance(ids, Tensor) or ids.ndim != 1 or ids.dtype not in (torch.int64, torch.int32) or len(ids) < 2:
        what = f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, Tensor) else type(ids).__name__
        raise ValueError(f"got ids {what}; expected one row of 2 token ids or more, such as windows(...)[0].")
    if int(ids.min()) < 0 or int(ids.max()) >= model.config.vocab_size:
        raise ValueError(
            f"got token ids {int(ids.min())} to {int(ids.max())}; expected 0 to {model.config.vocab_size - 1}. "
            "Make them with this model's tokenizer."
        )
    if chunk < 1 or not 0 <= skip < len(ids) - 1 or gap < 0 or gap_after < 0:
        raise ValueError(
            f"got chunk={chunk}, skip={skip}, gap={gap}, gap_after={gap_after}; expected a chunk of 1 or more, none of "
            f"them negative, and fewer skipped than the {len(ids) - 1} predictions of this text."
        )
