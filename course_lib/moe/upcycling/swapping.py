"""Another router over the experts of a model: its MLPs are replaced while inside, and its own ones are back after.

Dimension key: E experts, D width.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.models import MIXTRAL
from course_lib.moe.experts import Experts
from course_lib.moe.layer import MoE
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Router
from course_lib.moe.upcycling.mixture import mixture_blocks


class _OutputAlone(nn.Module):
    """As a block expects its MLP: one output. The routing goes to the list; routers draw while the model trains."""

    def __init__(self, layer: MoE, seen: list[Routing], generator: torch.Generator | None) -> None:
        super().__init__()
        self.layer, self.seen, self.generator = layer, seen, generator

    def forward(self, x: Float[Tensor, "*b D"]) -> Float[Tensor, "*b D"]:
        output, routing = self.layer(x, generator=self.generator if self.training else None)
        self.seen.append(routing)
        return output


def layer_of(block: nn.Module, router: Router) -> MoE:
    """The course's layer on the weights of a Mixtral's block: the same tensors, not copies."""
    gate, into, out = (block.get_parameter(name) for name in (MIXTRAL.gate, MIXTRAL.into, MIXTRAL.out))
    layer = MoE(Experts(into.data, out.data), router, gate.data)
    layer.gate, layer.experts.into, layer.experts.out = gate, into, out  # gradients reach the model's own parameters
    return layer


@contextmanager
def routed_by(
    mixture: PreTrainedModel, router: Router, generator: torch.Generator | None = None
) -> Iterator[list[list[Routing]]]:
    """The model with this router in every block. Yields, for each block, the routings of the passes since.

    Args:
        generator: of what a router draws, where the model is in training mode; in evaluation nothing is drawn.

    Raises:
        ValueError: for a model without experts.
    """
    layers, seen = mixture_blocks(mixture), []
    own = [layer.get_submodule(MIXTRAL.mlp) for layer in layers]
    try:
        for layer in layers:
            seen.append([])
            swapped = _OutputAlone(layer_of(layer, router), seen[-1], generator).train(mixture.training)
            layer.set_submodule(MIXTRAL.mlp, swapped)
        yield seen
    finally:
        for layer, mlp in zip(layers, own, strict=True):
            layer.set_submodule(MIXTRAL.mlp, mlp)


def layers_inside(mixture: PreTrainedModel) -> list[MoE]:
    """Inside `routed_by`, the layer of each block, in order: whose router may be exchanged between two passes."""
    return [module for module in mixture.modules() if isinstance(module, MoE)]
