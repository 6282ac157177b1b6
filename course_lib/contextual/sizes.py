"""Check the sizes of models for selectors, refuse unsupported models, and run calibration text through a model.

Dimension key: n windows of N tokens.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.models import MIXTRAL, architecture, blocks, check_is_model, check_tokens, n_neurons, weight_of


class Sizes(NamedTuple):
    """The sizes of a model that a fitted selector checks."""

    n_blocks: int
    width: int
    n_neurons: int


def sizes_of(model: PreTrainedModel) -> Sizes:
    """Return the number of blocks, their width, and the number of neurons of each block."""
    first = blocks(model)[0]
    down = weight_of(first.get_submodule(architecture(first).mlp[-1]))
    return Sizes(len(blocks(model)), down.shape[0], n_neurons(first))


def refuse_mixture(model: object) -> None:
    """Raise ValueError if `model` is not a model, or if some of its blocks have experts instead of an MLP."""
    check_is_model(model)
    mixed = [name for name, _ in model.named_parameters() if name.endswith(f".{MIXTRAL.gate}")]
    if mixed:
        raise ValueError(
            f"got a {type(model).__name__} with experts in {len(mixed)} of its blocks ({mixed[0]}), whose router "
            "chooses among neurons already; expected blocks with one MLP each. For routers see course_lib/moe."
        )


@torch.no_grad()
def run_through(model: PreTrainedModel, windows: Int[Tensor, "n N"]) -> None:
    """Run the model over windows of token ids, one at a time; hooks collect the data.

    Raises:
        ValueError: there are no windows, or the model does not have some of the tokens.
    """
    if windows.ndim != 2 or windows.numel() == 0:
        raise ValueError(f"got windows of shape {tuple(windows.shape)}; expected (n, tokens), at least one of each.")
    check_tokens(model, windows)
    for ids in windows.to(model.device):
        model.base_model(ids[None], use_cache=False)
