"""Observe through hooks what each head adds to the output of attention.

Dimension key: T tokens of a pass in one row, H query heads, D width, d size of a head, L blocks, n windows of N tokens.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.sizes import run_through
from course_lib.hooks import hooking
from course_lib.models import architecture, blocks, heads, weight_of


@dataclass(frozen=True, eq=False, kw_only=True)
class SeenHeads:
    """The inputs and outputs of one block's attention for T tokens.

    Args:
        x: the inputs of the query, key and value projections, after the norm.
        earlier: x of as many earlier blocks as were requested, by block number.
        outputs: the output of each head before the output projection, for an oracle only; None before attention.
        gram: W_hᵀ W_h of each head, where W_h are the columns of the output projection that multiply its output.
    """

    x: Float[Tensor, "T D"]
    earlier: Mapping[int, Tensor]
    outputs: Float[Tensor, "T H d"] | None
    gram: Float[Tensor, "H d d"]

    @cached_property
    def part_norms(self) -> Float[Tensor, "T H"]:
        """‖W_h a_h‖₂ after the output projection, computed as √(aᵀ (WᵀW) a): d² products per head instead of d · D."""
        outputs = self.outputs.float()
        return (torch.einsum("thd,hde->the", outputs, self.gram) * outputs).sum(-1).clamp(min=0).sqrt()


LookAtHeads = Callable[[int, SeenHeads], Tensor | None]  # block, what is seen -> other outputs (T, H, d), or None


@contextmanager
def looking_at_heads(
    model: PreTrainedModel,
    look: LookAtHeads,
    lookahead: int = 0,
    before: Callable[[int, SeenHeads], None] | None = None,
) -> Iterator[None]:
    """Call `look` in every block of every pass before the output projection, inside the `with` block.

    Args:
        lookahead: the number of earlier blocks whose x is stored.
        before: if each sequence has one token, this is called before attention, when there are no outputs yet.
    """
    one_pass = _Pass(look, heads(model).n_query, lookahead, before)
    with hooking() as handles:
        for index, block in enumerate(blocks(model)):
            names = architecture(block).attention
            first, output = block.get_submodule(names[0]), block.get_submodule(names[-1])
            handles.append(first.register_forward_pre_hook(one_pass.read(index, output)))
            handles.append(output.register_forward_pre_hook(one_pass.looked(index)))
        yield


def look_through_heads(
    model: PreTrainedModel, windows: Int[Tensor, "n N"], look: LookAtHeads, lookahead: int = 0
) -> None:
    """Run the model over windows of token ids, one at a time and without gradients, and call `look` at each block."""
    with looking_at_heads(model, look, lookahead):
        run_through(model, windows)


def part_norms_of(model: PreTrainedModel, ids: Int[Tensor, "N"]) -> Float[Tensor, "L N H"]:
    """Return the norm of each head's contribution at every token of one text, in the dense model."""
    by_block: list[Tensor] = []
    look_through_heads(model, ids[None], lambda _, seen: by_block.append(seen.part_norms))
    return torch.stack(by_block)


def gram_of_heads(output: Float[Tensor, "D Hd"], n_heads: int) -> Float[Tensor, "H d d"]:
    """Return W_hᵀ W_h for the columns of each head, which are adjacent."""
    by_head = output.float().unflatten(1, (n_heads, -1))
    return torch.einsum("ohd,ohe->hde", by_head, by_head)


class _Pass:
    """State shared by the hooks of one pass. A matrix W_hᵀ W_h is computed when its block is first reached."""

    def __init__(self, look: LookAtHeads, n_heads: int, lookahead: int, before: Callable | None) -> None:
        self.look, self.n_heads, self.lookahead, self.before = look, n_heads, lookahead, before
        self.earlier: dict[int, Tensor] = {}
        self.grams: dict[int, Tensor] = {}
        self.x: Tensor | None = None

    def read(self, block: int, output: nn.Module) -> Callable:
        def hook(_: nn.Module, args: tuple) -> None:
            self.x = args[0].reshape(-1, args[0].shape[-1])
            if block == 0:
                self.earlier.clear()
            if self.before is not None and args[0].shape[-2] == 1:  # one token of each sequence
                self.before(block, self._seen(block, output, None))

        return hook

    def _seen(self, block: int, output: nn.Module, outputs: Float[Tensor, "T H d"] | None) -> SeenHeads:
        if block not in self.grams:
            self.grams[block] = gram_of_heads(weight_of(output), self.n_heads)
        return SeenHeads(x=self.x, earlier=self.earlier, outputs=outputs, gram=self.grams[block])

    def looked(self, block: int) -> Callable:
        def hook(output: nn.Module, args: tuple) -> tuple | None:
            outputs = args[0].reshape(len(self.x), self.n_heads, -1)
            seen = self._seen(block, output, outputs)
            found = self.look(block, seen)
            self.earlier[block] = self.x
            self.earlier.pop(block - self.lookahead, None)
            return None if found is None else (found.to(args[0].dtype).reshape(args[0].shape), *args[1:])

        return hook
