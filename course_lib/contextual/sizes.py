"""How large a model is where selectors care, which models they refuse, and how calibration text goes through one.

Dimension key: n windows of N tokens.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.models import MIXTRAL, architecture, blocks, check_is_model, check_tokens, n_neurons, weight_of


class Sizes(NamedTuple):
    """The sizes that a selector, once fitted to a model, must find again."""

    n_blocks: int
    width: int
    n_neurons: int


def sizes_of(model: PreTrainedModel) -> Sizes:
    """How many blocks there are, how wide they are, and how many neurons each has."""
    first = blocks(model)[0]
    down = weight_of(first.get_submodule(architecture(first).mlp[-1]))
    return Sizes(len(blocks(model)), down.shape[0], n_neurons(first))


def refuse_mixture(model: object) -> None:
    """Raises ValueError for a model some of whose blocks have experts in place of an MLP, or what is no model."""
    check_is_model(model)
    mixed = [name for name, _ in model.named_parameters() if name.endswith(f".{MIXTRAL.gate}")]
    if mixed:
        raise ValueError(
            f"got a {type(model).__name__} with experts in {len(mixed)} of its blocks ({mixed[0]}), whose router "
            "chooses among neurons already; expected blocks with one MLP each. For routers see course_lib/moe."
        )


@torch.no_grad()
def run_through(model: PreTrainedModel, windows: Int[Tensor, "n N"]) -> None:
    """Run the model over windows of token ids, one at a time; what is learnt is learnt by hooks.

    Raises:
        ValueError: without windows, or for tokens that this model does not have.
    """
    if windows.ndim != 2 or windows.numel() == 0:
        raise ValueError(f"got windows of shape {tuple(windows.shape)}; expected (n, tokens), at least one of each.")
    check_tokens(model, windows)
    for ids in windows.to(model.device):
        model.base_model(ids[None], use_cache=False)
