"""Activation statistics of a model's groups on some text: all that the scores need, from one forward pass.

Dimension key: N windows, T tokens, L blocks, F neurons, H query heads, D width channels.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.hooks import hooking
from course_lib.measure.likelihood import hidden_states
from course_lib.measure.progress import tracked
from course_lib.models import architecture, blocks, final_norm, heads
from course_lib.repetition import evaluated

Mean = Literal["mean", "l2"]
Pair = tuple[Mean, Mean]  # over the batch, over the sequence
PAIRS: tuple[Pair, ...] = (("l2", "mean"), ("l2", "l2"), ("mean", "mean"), ("mean", "l2"))


class Norms:
    """Magnitudes of features, aggregated over the tokens of each window and then over windows, in all four ways.

    "mean" is a mean, "l2" the root of the sum of squares (Minitron, section 2.2).
    """

    def __init__(self) -> None:
        self.n_windows = 0
        self._sums: dict[Pair, Tensor] = {}

    def add(self, sizes: Float[Tensor, "N T F"]) -> None:
        """Add windows of non-negative magnitudes, one per token and feature."""
        sizes = sizes.detach().float()
        inside = {"mean": sizes.mean(1), "l2": sizes.square().sum(1).sqrt()}  # (N, F)
        for batch, sequence in PAIRS:
            values = inside[sequence].square() if batch == "l2" else inside[sequence]
            self._sums[batch, sequence] = self._sums.get((batch, sequence), 0) + values.sum(0)
        self.n_windows += len(sizes)

    def of(self, batch: Mean = "l2", sequence: Mean = "mean") -> Float[Tensor, "F"]:
        """Return one number per feature (F,)."""
        total = self._sums[batch, sequence]
        return total.sqrt() if batch == "l2" else total / self.n_windows


@dataclass(frozen=True, eq=False, kw_only=True)
class Activations:
    """Statistics of a whole model; statistics of blocks are lists with one entry per block."""

    neurons: list[Norms]  # |x| of the inputs of the MLP's last linear
    heads: list[Norms]  # ‖output of a head‖₂, before the output projection
    width: list[Norms]  # |x| after every norm over the width
    influence: Float[Tensor, "L"]  # mean over tokens of 1 − cos(input of a block, its output)


@torch.no_grad()
@evaluated
def observe(model: PreTrainedModel, windows: Int[Tensor, "N T"], progress: bool = True) -> Activations:
    """Run the model once over the windows, one at a time, in evaluation mode.

    Raises:
        ValueError: without windows.
    """
    if windows.ndim != 2 or windows.numel() == 0:
        raise ValueError(f"got windows of shape {tuple(windows.shape)}; expected (n, tokens), at least one of each.")
    n_blocks = len(blocks(model))
    seen = Activations(
        neurons=[Norms() for _ in range(n_blocks)],
        heads=[Norms() for _ in range(n_blocks)],
        width=[Norms() for _ in _norms(model)],
        influence=torch.zeros(n_blocks, device=model.device),
    )
    with _watching(model, seen, windows.numel()):
        for ids in tracked(windows, "activations", progress):
            hidden_states(model, ids[None])  # no logits: the LM head is the largest matrix
    return seen


def turned(before: Float[Tensor, "*tokens D"], after: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens"]:
    """Compute 1 − cos(input, output) of a block for each token: 0 if the block does not change the direction."""
    return 1 - torch.cosine_similarity(before.float(), after.float(), dim=-1)


def _norms(model: nn.Module) -> list[nn.Module]:
    kind = architecture(blocks(model)[0])
    return [*(block.get_submodule(path) for block in blocks(model) for path in kind.norms), final_norm(model)]


@contextmanager
def _watching(model: PreTrainedModel, seen: Activations, n_tokens: int) -> Iterator[None]:
    n_query = heads(model).n_query
    with hooking() as handles:
        for index, block in enumerate(blocks(model)):
            kind = architecture(block)
            output, down = (block.get_submodule(path) for path in (kind.attention[-1], kind.mlp[-1]))
            handles.append(down.register_forward_pre_hook(_sizes(seen.neurons[index])))
            handles.append(output.register_forward_pre_hook(_head_norms(seen.heads[index], n_query)))
            handles.append(block.register_forward_hook(_turned(seen.influence, index, n_tokens), with_kwargs=True))
        for norm, sizes in zip(_norms(model), seen.width, strict=True):
            handles.append(norm.register_forward_hook(_given(sizes)))
        yield


def _sizes(norms: Norms):
    # One window at a time; the inputs of OPT's linears have no axis for windows.
    return lambda _, args: norms.add(args[0].reshape(1, -1, args[0].shape[-1]).abs())


def _given(norms: Norms):
    return lambda _, __, out: norms.add(out.reshape(1, -1, out.shape[-1]).abs())


def _head_norms(norms: Norms, n_query: int):
    def add(_, args):
        # Convert to float32 before squaring: half precision ends at 65,504.
        norms.add(args[0].reshape(1, -1, args[0].shape[-1]).float().unflatten(-1, (n_query, -1)).norm(dim=-1))

    return add


def _turned(influence: Float[Tensor, "L"], index: int, n_tokens: int):
    def add(_, args, kwargs, out):
        before = args[0] if args else kwargs["hidden_states"]
        after = out[0] if isinstance(out, tuple) else out
        influence[index] += turned(before, after).sum() / n_tokens

    return add
