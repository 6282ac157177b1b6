"""How little a block changes the residual: why a choice of neurons can be made one block early.

Liu, Wang, Dao and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157, section 4.3.

Dimension key: n windows of N tokens, T tokens of a pass in one row.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from course_lib.contextual.residual.passing import first, given, hooked
from course_lib.contextual.sizes import refuse_mixture, run_through
from course_lib.models import architecture, blocks


@dataclass(frozen=True)
class Change:
    """What one block does to the residual X, medians over tokens."""

    cosine: float  # between X before and behind the block
    attention: float  # ‖attention(X)‖ / ‖X‖, X as it reaches the block
    mlp: float  # ‖MLP(X)‖ / ‖X‖, X as it reaches the MLP


def changes_of(model: PreTrainedModel, windows: Int[Tensor, "n N"]) -> list[Change]:
    """Block by block, over all tokens of the windows.

    Raises:
        ValueError: without windows, for a model of no known family, or with experts.
    """
    refuse_mixture(model)
    measured: list[list[Tensor]] = [[] for _ in blocks(model)]
    pairs = zip(blocks(model), measured, strict=True)
    with hooked([handle for block, numbers in pairs for handle in _measuring(block, numbers)]):
        run_through(model, windows)
    return [Change(*torch.cat(numbers, dim=1).median(dim=1).values.tolist()) for numbers in measured]


def _measuring(block: nn.Module, numbers: list[Tensor]) -> list[RemovableHandle]:
    """Hooks that append a cosine and two ratios for each token, (3, T), in each pass."""
    family, added = architecture(block), {}

    def note(name: str, output: Tensor) -> None:
        added[name] = _rows(output)

    def compare(_: nn.Module, args: tuple, kwargs: dict, output: Tensor | tuple) -> None:
        before, behind = _rows(given(args, kwargs)), _rows(first(output))
        between = before + added["attention"]
        ratios = added["attention"].norm(dim=1) / before.norm(dim=1), added["mlp"].norm(dim=1) / between.norm(dim=1)
        numbers.append(torch.stack([cosine_similarity(before, behind, dim=1), *ratios]))

    attention, mlp = (block.get_submodule(part[-1]) for part in (family.attention, family.mlp))
    return [
        attention.register_forward_hook(lambda _, __, output: note("attention", output)),
        mlp.register_forward_hook(lambda _, __, output: note("mlp", output)),
        block.register_forward_hook(compare, with_kwargs=True),
    ]


def _rows(hidden: Tensor) -> Float[Tensor, "T D"]:
    return hidden.reshape(-1, hidden.shape[-1]).float()
