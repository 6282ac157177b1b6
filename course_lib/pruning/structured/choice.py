"""From scores to the kept parts: those with the highest scores of each kind, equally many in every block.

Dimension key: L blocks, F neurons, H query heads, G key-value groups, D width channels.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.pruning.structured.shape import Shape


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores:
    """Importance scores of a model's groups; None for a kind that a method does not score. High scores are kept."""

    neurons: Float[Tensor, "L F"] | None = None
    heads: Float[Tensor, "L H"] | None = None
    groups: Float[Tensor, "L G"] | None = None
    width: Float[Tensor, "D"] | None = None
    blocks: Float[Tensor, "L"] | None = None

    def __or__(self, other: "Scores") -> "Scores":
        """Return these scores, with the scores of another method for the kinds that are None."""
        names = [field.name for field in fields(self)]
        return Scores(**{name: other.of(name) if self.of(name) is None else self.of(name) for name in names})

    def of(self, kind: str) -> Tensor | None:
        """Return the scores of "neurons", "heads", "groups", "width" or "blocks"."""
        return getattr(self, kind)


@dataclass(frozen=True, eq=False, kw_only=True)
class Kept:
    """Indices of the kept parts, in ascending order.

    Neurons, heads and groups have indices for every block of the unpruned model, including removed blocks.
    """

    blocks: Int[Tensor, "l"]
    width: Int[Tensor, "d"]
    neurons: Int[Tensor, "L f"]
    heads: Int[Tensor, "L h"]
    groups: Int[Tensor, "L g"]

    @property
    def shape(self) -> Shape:
        """The shape of the pruned model."""
        sizes = {field.name: getattr(self, field.name).shape[-1] for field in fields(self)}
        return Shape(**sizes)


def everything(shape: Shape) -> Kept:
    """Return the indices of all parts: nothing is pruned."""
    every = {
        name: torch.arange(getattr(shape, name)).repeat(shape.blocks, 1) for name in ("neurons", "heads", "groups")
    }
    return Kept(blocks=torch.arange(shape.blocks), width=torch.arange(shape.width), **every)


def choose(scores: Scores, now: Shape, target: Shape) -> Kept:
    """Choose the parts with the highest scores in a model of the shape `now`, as many of each kind as in `target`.

    A query head needs the keys and values of its group. So heads are ranked within their group, and every group keeps
    the same number of heads.

    Raises:
        ValueError: the target is larger than the model in some kind; or the scores of a kind that has to shrink are
            missing, do not fit or are not finite.
    """
    kept = everything(now)
    for field in fields(target):
        _check(scores, now, target, field.name)
    groups = _best(scores.groups, target.groups) if target.groups < now.groups else kept.groups
    return Kept(
        blocks=_best(scores.blocks, target.blocks) if target.blocks < now.blocks else kept.blocks,
        width=_best(scores.width, target.width) if target.width < now.width else kept.width,
        neurons=_best(scores.neurons, target.neurons) if target.neurons < now.neurons else kept.neurons,
        heads=best_heads(_head_scores(scores, now, target), groups, now.groups, target.heads // target.groups),
        groups=groups,
    )


def best_heads(
    scores: Float[Tensor, "L H"], groups: Int[Tensor, "L g"], n_groups: int, n_each: int
) -> Int[Tensor, "L h"]:
    """Return the `n_each` best query heads of every kept group; head h belongs to group h // (H / n_groups)."""
    inside = scores.unflatten(1, (n_groups, -1))  # (L, G, H/G)
    size = inside.shape[2]
    stay = inside.gather(1, groups[..., None].expand(-1, -1, size))
    return (_best(stay, n_each) + size * groups[..., None]).flatten(1)


def _best(scores: Tensor, n: int) -> Tensor:
    """Return the indices of the n highest scores along the last axis, ascending; the first of equal scores are kept."""
    return scores.argsort(dim=-1, descending=True, stable=True)[..., :n].sort(dim=-1).values


def _head_scores(scores: Scores, now: Shape, target: Shape) -> Tensor:
    if target.heads // target.groups == now.heads // now.groups:
        return torch.zeros(now.blocks, now.heads)  # a head is kept if its group is
    return scores.heads


def _check(scores: Scores, now: Shape, target: Shape, kind: str) -> None:
    size, wanted, given = getattr(now, kind), getattr(target, kind), scores.of(kind)
    if wanted > size:
        raise ValueError(f"got {wanted} {kind} to keep; the model has {size}. Pruning cannot add any.")
    whole = target.heads // target.groups == now.heads // now.groups if kind == "heads" else wanted == size
    if kind == "heads" and target.heads // target.groups > now.heads // now.groups:
        raise ValueError(
            f"got {target.heads} heads for {target.groups} groups; the model has {now.heads // now.groups} heads in a "
            f"group. Keep at most {target.groups * (now.heads // now.groups)} heads, or more groups."
        )
    if whole:
        return
    expected = {"width": (size,), "blocks": (size,)}.get(kind, (now.blocks, size))
    if given is not None and given.is_meta:
        raise ValueError(
            f"got scores of {kind} on the meta device, which hold no numbers; load the model's weights first."
        )
    if given is None or tuple(given.shape) != expected or not given.isfinite().all():
        got = (
            "no scores"
            if given is None
            else f"scores of shape {tuple(given.shape)}, {int((~given.isfinite()).sum())} not finite,"
        )
        raise ValueError(
            f"got {got} of {kind}; to keep {wanted} of {size}, finite scores of shape {expected} are needed. "
            "Use a method that scores them, or join the scores of two with |."
        )
