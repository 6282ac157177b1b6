"""What lesson 07 runs on the real model in place of a student's functions, and with them.

Dimension key: B sequences, H key-value heads, G query heads to each, Q queries, N slots, P predictions, D numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.window import Window
from course_lib.kv.policy import EvictionPolicy, Observed
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import Columns

Mass = Callable[[Tensor, Tensor, int], Tensor]  # weights (B, H·G, Q, N), valid (B, Q), H -> (B, H, N)
Step = Callable[[Tensor, Tensor, Tensor, int, int], tuple[Tensor, Tensor]]  # as in the exercise kv.h2o_step


@dataclass(frozen=True)
class ByStep(H2O):
    """H2O of two functions: what a key receives from a chunk of queries, and the step that adds it and evicts.

    Of one sequence, as the step knows no batch.
    """

    mass: Mass | None = None
    step: Step | None = None

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "1 H N"]]:
        weights, n_heads = seen.weights.flatten(1, 2), seen.weights.shape[1]
        valid = torch.ones(seen.weights.shape[0], seen.weights.shape[3], dtype=torch.bool)
        return {"new": slots.memory("new") + self.mass(weights, valid, n_heads)}

    def shrink(self, slots: Slots, layer: int) -> Slots:
        sizes = self.sizes(slots, layer)
        if slots.n <= (budget := int(sizes.min())):  # what has come is added when the first has to leave
            return slots
        score, new, position = slots.memory("mass")[0], slots.memory("new")[0], slots.position[0].long()
        keep, score = self.step(score, new, position, budget, self.recent)
        slots.remember_({"mass": score[None], "new": torch.zeros_like(score)[None]})
        return slots.keep_best_(keep[None].float(), sizes)


@torch.no_grad()
def losses_after(
    model: PreTrainedModel, ids: Int[Tensor, "T"], n_prompt: int, rounded: Callable[[Tensor], Tensor] | None = None
) -> Float[Tensor, "P"]:
    """The loss of each token behind a prompt whose keys and values were rounded in the cache, or left for None.

    `rounded` gets those of a layer one after the other, a multiple of the size of a head, and returns as many.
    """
    cache = DynamicCache(config=model.config)
    model.base_model(ids[None, :n_prompt], past_key_values=cache, use_cache=True)
    for layer in cache.layers if rounded else ():
        for vectors in (layer.keys, layer.values):
            vectors.copy_(rounded(vectors.flatten()).reshape(vectors.shape))
    logits = model(ids[None, n_prompt:-1], past_key_values=cache, use_cache=True).logits[0]
    return torch.nn.functional.cross_entropy(logits, ids[n_prompt + 1 :], reduction="none")


def window_keep(position: Int[Tensor, "B H N"], budget: int) -> Bool[Tensor, "B H N"]:
    """What the library's window keeps."""
    return _stays(Window(budget), position)


def group_mass(
    weights: Float[Tensor, "B A Q N"], valid: Bool[Tensor, "B Q"], n_key_value: int
) -> Float[Tensor, "B H N"]:
    """What H2O of the library remembers of a chunk of queries; the weights of padding are zero for it."""
    seen = (weights * valid[:, None, :, None]).unflatten(1, (n_key_value, -1))
    slots = _slots(torch.arange(weights.shape[3]).expand(len(weights), n_key_value, -1))
    counted = torch.zeros(valid.shape, dtype=torch.int64)
    return H2O().remember(slots, Observed(seen, counted, counted[:, 0]))["mass"]


def h2o_step(
    score: Float[Tensor, "H N"], new: Float[Tensor, "H N"], position: Int[Tensor, "H N"], budget: int, recent: int
) -> tuple[Bool[Tensor, "H N"], Float[Tensor, "H N"]]:
    """What H2O of the library keeps when it remembers the sum."""
    return _stays(H2O(budget, recent=recent), position[None], mass=(score + new)[None])[0], score + new


def quantize_row(row: Float[Tensor, "D"], n_bits: int, group_size: int) -> Float[Tensor, "D"]:
    """The nearest of the marks that divide each group's range evenly; Quantized of the library stores which one."""
    groups = row.unflatten(0, (-1, group_size))
    ends = torch.stack(groups.aminmax(dim=1), dim=1)  # (groups, 2)
    marks = torch.nn.functional.interpolate(ends[:, None], 2**n_bits, mode="linear", align_corners=True)[:, 0]
    between = (marks[:, 1:] + marks[:, :-1]) / 2
    return marks.gather(1, torch.searchsorted(between, groups.contiguous())).flatten()


def _slots(position: Int[Tensor, "B H N"], **memory: Tensor) -> Slots:
    """Slots of these tokens, that hold no vectors."""
    n_seen = position.amax(dim=(1, 2)) + 1
    return Slots(Columns({"position": position.clone(), **memory}), n_seen=n_seen, n=position.shape[2])


def _stays(policy: EvictionPolicy, position: Int[Tensor, "B H N"], **memory: Tensor) -> Bool[Tensor, "B H N"]:
    """Which of these slots a policy keeps."""
    index = torch.arange(position.shape[2]).expand_as(position).clone()
    left = policy.shrink(_slots(position, index=index, **memory), layer=0)
    return torch.zeros_like(position, dtype=torch.bool).scatter(2, left.storage["index"][:, :, : left.n], True)
