"""Contextual head sparsity: `with contextual_heads(model, part_norms, keep=7) as watch:` keeps 7 query heads per token.

A skipped head contributes nothing to the output of attention, but its keys and values are still computed and cached
(see head_cache.py). On a GPU, decoding a token does not load the keys and values of skipped groups if the score needs
no attention outputs (on_kernels.py).

Dimension key: T tokens of a pass in one row, H query heads, G key-value groups, L transformer blocks, n windows of N
tokens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from weakref import WeakSet

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.attention.on_kernels import decoding
from course_lib.contextual.attention.parts import SeenHeads, look_through_heads, looking_at_heads
from course_lib.models import Heads, blocks, check_is_model, heads
from course_lib.settings import is_count
from course_lib.sparsity.ranking import keep_highest

HeadScore = Callable[[SeenHeads, int], Tensor]  # inputs and outputs of attention, block index -> (T, H); high = keep
_before: WeakSet = WeakSet()  # scores that need no outputs of attention
_inside: WeakSet = WeakSet()  # models inside a `with contextual_heads(...)` block


def before_attention(score: HeadScore) -> HeadScore:
    """Mark a score as independent of the outputs of attention, so that a kernel can skip heads."""
    _before.add(score)
    return score


def part_norms(seen: SeenHeads, block: int) -> Float[Tensor, "T H"]:
    """Oracle score: ‖W_h a_h‖₂, the norm of each head's contribution to the output (Deja Vu, section 3.1)."""
    return seen.part_norms


def static_heads(model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> HeadScore:
    """Return a static score: every token keeps the heads with the largest mean contribution on calibration text."""
    total = torch.zeros(len(blocks(model)), heads(model).n_query, device=model.device)

    def add(block: int, seen: SeenHeads) -> None:
        total[block] += seen.part_norms.sum(0)

    look_through_heads(model, calibration, add)
    return before_attention(lambda seen, block: total[block].expand(len(seen.x), -1))


class HeadWatch:
    """Counts of kept heads over all passes since the start of the `with` block; padding counts like any token."""

    def __init__(self, n_blocks: int, model_heads: Heads, device: torch.device) -> None:
        self.n_tokens, self._heads = 0, model_heads
        self._chosen = torch.zeros(n_blocks, model_heads.n_query, dtype=torch.long, device=device)
        self._groups = torch.zeros(n_blocks, model_heads.n_key_value, dtype=torch.long, device=device)

    def count(self, block: int, keep: Bool[Tensor, "T H"]) -> None:
        """Add the keep mask of one transformer block for one pass."""
        self.n_tokens += len(keep) if block == 0 else 0
        self._chosen[block] += keep.sum(0)
        # A group's keys and values are loaded if any of its H / G query heads is kept: (T, G, H / G) -> (T, G).
        self._groups[block] += keep.unflatten(1, (-1, self._heads.group)).any(2).sum(0)

    @property
    def share(self) -> Float[Tensor, "L H"]:
        """Fraction of tokens that kept each head."""
        return self._chosen.cpu() / self.n_tokens

    @property
    def group_share(self) -> Float[Tensor, "L G"]:
        """Fraction of tokens that kept any head of each group. The others do not need the group's keys and values."""
        return self._groups.cpu() / self.n_tokens


@contextmanager
def contextual_heads(model: PreTrainedModel, score: HeadScore, keep: int, lookahead: int = 0) -> Iterator[HeadWatch]:
    """Inside the `with` block, each token keeps exactly `keep` query heads in each layer; then all is as before.

    Works with any forward call, including `generate()`, and together with `contextual(...)`.

    Args:
        score: rates the heads of each token in each transformer block, such as `part_norms`.
        lookahead: for how many earlier transformer blocks the score needs x.

    Raises:
        ValueError: the model cannot keep this number of heads; the lookahead is beyond its transformer blocks; scores
            have a wrong shape or NaN; or the model is already inside such a `with` block.
    """
    _check(model, score, keep, lookahead)
    n_skipped = heads(model).n_query - keep
    watch = HeadWatch(len(blocks(model)), heads(model), model.device)

    def drop(block: int, seen: SeenHeads) -> Tensor | None:
        if on_gpu is not None and on_gpu.is_done:  # the kernel has skipped the other heads already
            on_gpu.is_done = False
            watch.count(block, on_gpu.keep)
            return None
        with torch.no_grad():
            keep_mask = keep_highest(_fitting(score(seen, block), seen, block), n_skipped)
        watch.count(block, keep_mask)
        return seen.outputs.masked_fill(~keep_mask[..., None], 0)

    def before(block: int, seen: SeenHeads) -> None:
        head_scores = score(seen, block)
        _check_shape(head_scores, (len(seen.x), heads(model).n_query), block)
        on_gpu.choose(head_scores, n_skipped)

    _inside.add(model)
    try:
        with (
            decoding(model) if score in _before else nullcontext() as on_gpu,
            looking_at_heads(model, drop, lookahead, on_gpu and before),
        ):
            yield watch
    finally:
        _inside.discard(model)


def _check(model: PreTrainedModel, score: object, keep: object, lookahead: object) -> None:
    check_is_model(model)
    n_query = heads(model).n_query
    if isinstance(keep, bool) or not isinstance(keep, int) or not 1 <= keep <= n_query:
        raise ValueError(f"got keep={keep!r}; expected a whole number of heads, 1 to {n_query}.")
    n_blocks = len(blocks(model))
    if not is_count(lookahead, least=0) or lookahead >= n_blocks:
        raise ValueError(f"got lookahead {lookahead!r}; expected 0 to {n_blocks - 1} earlier blocks.")
    if not callable(score):
        raise ValueError(f"got score {score!r}; expected a function of (seen, block), such as part_norms.")
    if model in _inside:
        raise ValueError(
            "got a model whose heads are chosen already; leave its `with contextual_heads(...)` block first."
        )


def _fitting(score: Tensor, seen: SeenHeads, block: int) -> Float[Tensor, "T H"]:
    """Return the score of all heads after checking that its shape is right and that it has no NaN."""
    _check_shape(score, tuple(seen.outputs.shape[:2]), block)
    if bool(score.isnan().any()):
        raise ValueError(_words(score, tuple(seen.outputs.shape[:2]), block))
    return score


def _check_shape(score: Tensor, expected: tuple[int, ...], block: int) -> None:
    if tuple(score.shape) != expected:
        raise ValueError(_words(score, expected, block))


def _words(score: Tensor, expected: tuple[int, ...], block: int) -> str:
    return (
        f"got scores {tuple(score.shape)}, {int(score.isnan().sum())} of them NaN, at block {block}; expected "
        f"numbers, (tokens, heads) = {expected}. Use a score that was made for this model."
    )
