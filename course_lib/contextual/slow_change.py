"""Measure how little a token changes per block, so that a choice can be made a block earlier (Deja Vu, section 4.3).

Dimension key: L blocks, T tokens of all windows in one row, n windows of N tokens, D width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.attention.trials import differ
from course_lib.contextual.sizes import run_through
from course_lib.hooks import hooking
from course_lib.models import architecture, blocks


@dataclass(frozen=True, eq=False, kw_only=True)
class SlowChange:
    """Measurements for every token at every block, where X is the input residual and F(X) is what is added to it.

    Attributes:
        cosine: between the residuals before and after the block.
        attention, mlp: ‖F(X)‖ / ‖X‖ of the block's two halves; the second half reads the output of the first one.
    """

    cosine: Float[Tensor, "L T"]
    attention: Float[Tensor, "L T"]
    mlp: Float[Tensor, "L T"]


def slow_change(model: PreTrainedModel, windows: Int[Tensor, "n N"]) -> SlowChange:
    """Measure the dense model, for families that add the outputs of attention and MLP to the residual unchanged.

    Raises:
        ValueError: the model is of an unknown family or scales or normalises what it adds, or there are no windows.
    """
    measured = _Residuals(type(model).__name__)
    with hooking() as handles:
        for block in blocks(model):
            kind = architecture(block)
            output, down = (block.get_submodule(path) for path in (kind.attention[-1], kind.mlp[-1]))
            handles.append(block.register_forward_pre_hook(measured.begin, with_kwargs=True))
            handles.append(output.register_forward_hook(measured.add_attention))
            handles.append(down.register_forward_hook(measured.add_mlp))
            handles.append(block.register_forward_hook(measured.check))
        run_through(model, windows)
    n_blocks = len(blocks(model))
    by_block = [  # the passes follow each other, and each has all blocks in order
        torch.stack([torch.cat(values[block::n_blocks]) for block in range(n_blocks)])
        for values in (measured.cosine, measured.attention, measured.mlp)
    ]
    return SlowChange(cosine=by_block[0], attention=by_block[1], mlp=by_block[2])


class _Residuals:
    """State shared by the hooks of a block, and the measurements so far: one entry per block and pass."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.cosine, self.attention, self.mlp = ([] for _ in range(3))

    def begin(self, _: nn.Module, args: tuple, kwargs: dict) -> None:
        self.before = _tokens(args[0] if args else kwargs["hidden_states"])

    def add_attention(self, _: nn.Module, args: tuple, added: Tensor) -> None:
        added = _tokens(added)
        self.attention.append(added.norm(dim=1) / self.before.norm(dim=1))
        self.between = self.before + added

    def add_mlp(self, _: nn.Module, args: tuple, added: Tensor) -> None:
        added = _tokens(added)
        self.mlp.append(added.norm(dim=1) / self.between.norm(dim=1))
        self.after = self.between + added
        self.cosine.append(torch.cosine_similarity(self.before, self.after, dim=1))

    def check(self, _: nn.Module, args: tuple, output: Tensor | tuple) -> None:
        output = (output[0] if isinstance(output, tuple) else output).reshape(self.after.shape)
        if differ(self.after.to(output.dtype), output):
            raise ValueError(
                f"got a {self.family}, whose blocks scale or normalise what attention and MLP add; expected blocks "
                "that add it to the residual as it is, such as Llama's."
            )


def _tokens(hidden: Tensor) -> Float[Tensor, "T D"]:
    return hidden.detach().float().reshape(-1, hidden.shape[-1])
