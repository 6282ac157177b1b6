"""`with contextual_heads(model, part_norms, keep=7) as watch:` — each token attends with the heads that it needs.

A skipped head loses its part of the output of attention; its keys and values are made all the same (see head_cache.py).
On a GPU, one token's attention does not read the keys and values of groups that it skips, if the score says before
attention which these are (on_kernels.py).

Dimension key: T tokens of a pass in one row, H query heads, G key-value groups, L blocks, n windows of N tokens.
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

HeadScore = Callable[[SeenHeads, int], Tensor]  # what is seen, block -> (T, H); high = keep
_before: WeakSet = WeakSet()  # scores that read no outputs of attention
_inside: WeakSet = WeakSet()  # models in such a block now


def before_attention(score: HeadScore) -> HeadScore:
    """The same score, of which it is known that it reads no outputs, so that heads can be skipped."""
    _before.add(score)
    return score


def part_norms(seen: SeenHeads, block: int) -> Float[Tensor, "T H"]:
    """The oracle: the length of each head's part of the output, on the fly (Deja Vu, section 3.1)."""
    return seen.part_norms


def static_heads(model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> HeadScore:
    """The same heads for every token: those whose parts are longest on average over calibration text."""
    total = torch.zeros(len(blocks(model)), heads(model).n_query, device=model.device)

    def add(block: int, seen: SeenHeads) -> None:
        total[block] += seen.part_norms.sum(0)

    look_through_heads(model, calibration, add)
    return before_attention(lambda seen, block: total[block].expand(len(seen.x), -1))


class HeadWatch:
    """Which heads the passes since the beginning kept; padding counts as any token."""

    def __init__(self, n_blocks: int, model_heads: Heads, device: torch.device) -> None:
        self.n_tokens, self._heads = 0, model_heads
        self._chosen = torch.zeros(n_blocks, model_heads.n_query, dtype=torch.long, device=device)
        self._groups = torch.zeros(n_blocks, model_heads.n_key_value, dtype=torch.long, device=device)

    def count(self, block: int, keep: Bool[Tensor, "T H"]) -> None:
        """Add what one block kept in one pass."""
        self.n_tokens += len(keep) if block == 0 else 0
        self._chosen[block] += keep.sum(0)
        self._groups[block] += keep.unflatten(1, (-1, self._heads.group)).any(2).sum(0)

    @property
    def share(self) -> Float[Tensor, "L H"]:
        """The share of tokens that kept each head."""
        return self._chosen.cpu() / self.n_tokens

    @property
    def group_share(self) -> Float[Tensor, "L G"]:
        """The share of tokens that kept any head of each group: only where none is kept are no keys and values read."""
        return self._groups.cpu() / self.n_tokens


@contextmanager
def contextual_heads(model: PreTrainedModel, score: HeadScore, keep: int, lookahead: int = 0) -> Iterator[HeadWatch]:
    """Inside, each token keeps exactly `keep` query heads of every block; on exit the model is as before.

    Works with any call, `generate()` among them, and together with `contextual(...)`.

    Args:
        lookahead: of how many blocks below the score wants x.

    Raises:
        ValueError: a number of heads that the model cannot keep, a lookahead beyond its blocks, scores that do not fit,
            or a model that is inside such a block already.
    """
    _check(model, score, keep, lookahead)
    n_leaving = heads(model).n_query - keep
    watch = HeadWatch(len(blocks(model)), heads(model), model.device)

    def drop(block: int, seen: SeenHeads) -> Tensor | None:
        if on_gpu is not None and on_gpu.is_done:
            on_gpu.is_done = False
            watch.count(block, on_gpu.keep)
            return None
        with torch.no_grad():
            chosen = keep_highest(_fitting(score(seen, block), seen, block), n_leaving)
        watch.count(block, chosen)
        return seen.outputs.masked_fill(~chosen[..., None], 0)

    def before(block: int, seen: SeenHeads) -> None:
        found = score(seen, block)
        _check_shape(found, (len(seen.x), heads(model).n_query), block)
        on_gpu.choose(found, n_leaving)

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
        raise ValueError(f"got lookahead {lookahead!r}; expected 0 to {n_blocks - 1}, the number of blocks back.")
    if not callable(score):
        raise ValueError(f"got score {score!r}; expected a function of (seen, block), such as part_norms.")
    if model in _inside:
        raise ValueError("got a model whose heads are chosen already; leave its `with contextual_heads(...)` first.")


def _fitting(score: Tensor, seen: SeenHeads, block: int) -> Float[Tensor, "T H"]:
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
        f"numbers, (tokens, heads) = {expected}. Give a score that was made for this model."
    )
