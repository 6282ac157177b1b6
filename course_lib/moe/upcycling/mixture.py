"""Check which models fit into a Mixtral, return its blocks, and check that a copy has the same output.

The names are those of MIXTRAL in course_lib/models.py.
"""

import torch
from torch import nn
from transformers import PreTrainedModel

from course_lib.models import MIXTRAL, architecture, blocks
from course_lib.moe.dispatch import can_group
from course_lib.moe.experts import Experts
from course_lib.repetition import in_evaluation_mode

SAME = {torch.float32: 1e-3, torch.float64: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}  # rounding of many layers


def mixture_blocks(mixture: PreTrainedModel) -> list[nn.Module]:
    """Return the blocks of a Mixtral, in order.

    Raises:
        ValueError: the blocks of the model have no experts where Mixtral has them.
    """
    layers = getattr(getattr(mixture, "model", None), "layers", [])
    if not layers or not all(_has(layer, MIXTRAL.into) for layer in layers):
        raise ValueError(
            f"got a {type(mixture).__name__}, which has no {MIXTRAL.into} in each block; expected a Mixtral."
        )
    return list(layers)


def _has(block: nn.Module, name: str) -> bool:
    return name in dict(block.named_parameters())


def check_family(model: PreTrainedModel) -> None:
    kind = architecture(blocks(model)[0])  # raises ValueError for an unknown family, with its name
    if len(kind.mlp) != 3:
        raise ValueError(
            f"got a {type(model).__name__} of the family {kind.family}, whose MLP has no gate; expected one with "
            "SwiGLU, such as Llama. For ReLU see course_lib/moe/upcycling/moefication.py."
        )


def check_same(model: PreTrainedModel, mixture: PreTrainedModel) -> None:
    """Check that logits agree: some families have Llama's names but other formulas, such as norms of 1 + w."""
    ids = torch.arange(min(8, model.config.vocab_size), device=model.device)[None]
    with in_evaluation_mode(model):
        expected, found = (each(ids, use_cache=False).logits.float() for each in (model, mixture))
    error, limit = float((found - expected).abs().max() / expected.abs().max()), SAME[model.dtype]
    if not error <= limit:
        raise ValueError(
            f"got a {type(model).__name__}, whose copies in a Mixtral give logits that are off by {error:.1e} of their "
            f"size; expected at most {limit:.0e}. It has a Llama's names, and computes something else."
        )


def avoid_what_cannot_group(mixture: PreTrainedModel) -> None:
    """Turn off grouped products in transformers, which fail if rows are not a multiple of 16 bytes."""
    block = mixture_blocks(mixture)[0]
    experts = Experts(block.get_parameter(MIXTRAL.into).data, block.get_parameter(MIXTRAL.out).data)
    if not can_group(experts, experts.out.new_empty(0, experts.width)):
        mixture.set_experts_implementation("eager")
