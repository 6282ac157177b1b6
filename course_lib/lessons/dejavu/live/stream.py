"""The residual stream of a real model, from block to block.

Dimension key: L blocks, N windows, T tokens of all windows, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel

from course_lib.models import architecture, blocks


@torch.no_grad()
def stream_of(model: PreTrainedModel, windows: Int[Tensor, "N t"]) -> Float[Tensor, "S T D"]:
    """The stream in the order of time, S = 2 L + 1: the embedding, then behind attention and behind the MLP of each."""
    states: list[Tensor] = []
    handles = []
    for number, block in enumerate(blocks(model)):
        if number == 0:
            handles.append(block.register_forward_pre_hook(_read(states), with_kwargs=True))
        norm_before_mlp = block.get_submodule(architecture(block).norms[1])
        handles.append(norm_before_mlp.register_forward_pre_hook(_read(states), with_kwargs=True))
        handles.append(block.register_forward_hook(lambda _, __, out: states.append(_flat(_first(out)))))
    try:
        model.base_model(windows, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(states)


def _read(states: list[Tensor]) -> Callable[[nn.Module, tuple, dict], None]:
    return lambda _, args, kwargs: states.append(_flat(args[0] if args else kwargs["hidden_states"]))


def _first(output: Tensor | tuple) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _flat(hidden: Tensor) -> Float[Tensor, "T D"]:
    return hidden.reshape(-1, hidden.shape[-1])


@dataclass(frozen=True)
class Change:
    """Of each block, medians over tokens: the cosine of its input and output, and ‖F(X)‖ / ‖X‖ of its two parts."""

    cosine: Float[Tensor, "L"]
    attention: Float[Tensor, "L"]
    mlp: Float[Tensor, "L"]


def change(stream: Float[Tensor, "S T D"]) -> Change:
    """From the stream in the order of time."""
    at, between, behind = stream[:-1:2], stream[1::2], stream[2::2]
    return Change(
        cosine=cosine_similarity(at, behind, dim=2).median(dim=1).values,
        attention=((between - at).norm(dim=2) / at.norm(dim=2)).median(dim=1).values,
        mlp=((behind - between).norm(dim=2) / between.norm(dim=2)).median(dim=1).values,
    )
