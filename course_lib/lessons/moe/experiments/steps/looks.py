"""Rows of what a model of bytes is: its losses, the loads of its experts, the size of its logits, who gets which byte.

Dimension key: N windows, L bytes in a window.
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.measure.paired import mean_and_error
from course_lib.moe.routed import Routing
from course_lib.moe.small_models.byte_mixture import n_weights
from course_lib.moe.small_models.specialisation import by_chance, counted, known_share
from course_lib.moe.small_models.training import Reading

Row = dict[str, Any]


def held_out_row(found: Reading) -> Row:
    """The mean loss in nats a byte, and its standard error over windows."""
    loss, error = mean_and_error(found.losses)
    return {"loss": round(loss, 5), "standard_error": round(error, 5)}


def load_rows(routings: Sequence[Routing]) -> list[Row]:
    """Of each block: the share of choices of each expert, log Σ exp of the gate's logits, and the largest of them."""
    rows = []
    for block, its in enumerate(routings):
        logits = its.logits.detach()
        rows.append(
            {
                "block": block,
                "load": [round(share, 4) for share in its.load.tolist()],
                "log_sum_exp": round(logits.logsumexp(dim=1).mean().item(), 4),
                "largest_logit": round(logits.abs().max().item(), 3),
            }
        )
    return rows


def specialisation_rows(routings: Sequence[Routing], ids: Int[Tensor, "N L"]) -> list[Row]:
    """Of each block: how much of the expert the byte decides, and how much shuffled bytes seem to."""
    read, rows = ids[:, :-1].flatten(), []
    for block, its in enumerate(routings):
        known, chance = known_share(counted(read, its.chosen)), by_chance(read, its.chosen)
        rows.append({"block": block, "known": round(known, 4), "by_chance": round(chance, 4)})
    return rows


def model_row(model: PreTrainedModel, found: Reading, ids: Int[Tensor, "N L"]) -> Row:
    """What it is in the end: sizes, FLOP a byte of learning, loss with that of every window, loads and what they know.

    FLOP: 6 for each weight that a byte meets, 2 forward and 4 backward. Attention's own products are left out; they
    are the same in all models. Embedding and head are one matrix, and only the head multiplies.
    """
    total, met = n_weights(model)
    row = {"parameters": total, "met": met, "flops_a_byte": 6 * met}
    row |= held_out_row(found) | {"losses": [round(loss, 4) for loss in found.losses.tolist()]}
    loads, known = load_rows(found.routings), specialisation_rows(found.routings, ids)
    return row | {"blocks": [one | other for one, other in zip(loads, known, strict=True)]}
