"""Use another router for the experts of a model: its MLPs are replaced inside a `with` block and restored on exit.

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
    """Return only the output, as a block expects of its MLP; append the routing to a list. Random only in training."""

    def __init__(self, layer: MoE, seen: list[Routing], generator: torch.Generator | None) -> None:
        super().__init__()
        self.layer, self.seen, self.generator = layer, seen, generator

    def forward(self, x: Float[Tensor, "*b D"]) -> Float[Tensor, "*b D"]:
        output, routing = self.layer(x, generator=self.generator if self.training else None)
        self.seen.append(routing)
        return output


def layer_of(block: nn.Module, router: Router) -> MoE:
    """Return the course's layer with the weights of a Mixtral's block: the same tensors, not copies."""
    gate, into, out = (block.get_parameter(name) for name in (MIXTRAL.gate, MIXTRAL.into, MIXTRAL.out))
    layer = MoE(Experts(into.data, out.data), router, gate.data)
    layer.gate, layer.experts.into, layer.experts.out = gate, into, out  # gradients reach the model's own parameters
    return layer


@contextmanager
def routed_by(
    mixture: PreTrainedModel, router: Router, generator: torch.Generator | None = None
) -> Iterator[list[list[Routing]]]:
    """Use this router in every block of the model. Yield, for each block, the routings of the passes so far.

    Args:
        generator: for random choices of the router in training mode; in evaluation mode nothing is random.

    Raises:
        ValueError: the model has no experts.
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
    """Return the layer of each block, in order, inside `routed_by`; its router can be replaced between two passes."""
    return [module for module in mixture.modules() if isinstance(module, MoE)]
