"""Prune a language model block by block: the driver that SparseGPT, Wanda and their successors share.

Dimension key: B windows in a batch, T tokens in a window, D hidden size, O outputs and I inputs of a linear layer.

For each block: run the calibration windows through it while it is still dense, collecting one Gram for every input
that some linears share; prune those linears; run the windows again, so that the next block sees what the pruned one
really gives it. Memory: the hidden states of all windows, one block's Grams.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from rich.progress import track
from torch import Tensor, nn

from course_lib.models import blocks, input_groups, linears, weight_of
from course_lib.pruning.base import Gram, LayerPruner, Needs
from course_lib.pruning.guard import PruningError, check_ready
from course_lib.sparsity.patterns import sparsity_of

BATCH_TOKENS = 4096  # large enough to keep the cores busy, small enough for the activations of one block


@dataclass
class PruneReport:
    """What was pruned, and where the seconds went."""

    n_tokens: int
    sparsity: dict[str, float] = field(default_factory=dict)  # by layer, such as "blocks.3.mlp.up_proj"
    seconds: dict[str, float] = field(default_factory=lambda: {"forward": 0.0, "gram": 0.0, "prune": 0.0})
    reached: str = ""  # the block or layer being worked on

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start


@dataclass
class Batch:
    """Hidden states on their way through the model, with the arguments that every block is called with."""

    hidden: Float[Tensor, "B T D"]
    arguments: dict


class _ReachedFirstBlock(Exception):
    """Stops a forward pass once the inputs of the first block are known."""


@torch.inference_mode()
def prune_model(model: nn.Module, pruner: LayerPruner, calibration: Tensor, progress: bool = True) -> PruneReport:
    """Prune every linear of every block in place; embeddings, norms and head stay as they are.

    Args:
        calibration: token ids (n, T), one window a row, as `corpora.windows` gives them.

    Raises:
        ValueError: before any weight is changed, when the model, pattern or calibration cannot work together.
        PruningError: when something fails in the middle; it says which layer it reached. No hook is left behind.
    """
    check_ready(model, pruner, calibration)
    report = PruneReport(calibration.numel())
    model_blocks = blocks(model)
    with report.timed("forward"):  # a method that reads no inputs needs no forward pass
        batches = [] if pruner.needs == "nothing" else first_inputs(model, calibration)
    for index, block in enumerate(track(model_blocks, "pruning", disable=not progress, transient=True)):
        report.reached = f"blocks.{index}"
        try:
            grams = collect(block, batches, pruner.needs, report)
            _prune_block(block, pruner, grams, report)
            if index + 1 < len(model_blocks):  # nobody reads what the last block gives
                with report.timed("forward"):
                    advance(block, batches)
        except Exception as error:
            raise PruningError(report.reached, len(report.sparsity), error) from error
    return report


def first_inputs(model: nn.Module, calibration: Int[Tensor, "n T"]) -> list[Batch]:
    """What the first block is called with, batch by batch."""
    batches = []

    def stop(_, args, kwargs):
        hidden = args[0] if args else kwargs.pop("hidden_states")
        batches.append(
            Batch(hidden, {k: v for k, v in kwargs.items() if k != "past_key_values"} | {"use_cache": False})
        )
        raise _ReachedFirstBlock

    handle = blocks(model)[0].register_forward_pre_hook(stop, with_kwargs=True)
    try:
        for ids in calibration.split(max(1, BATCH_TOKENS // calibration.shape[1])):
            try:
                model(ids.to(next(model.parameters()).device), use_cache=False)
            except _ReachedFirstBlock:
                continue
    finally:
        handle.remove()
    return batches


def collect(block: nn.Module, batches: list[Batch], needs: Needs, report: PruneReport) -> dict[str, Gram]:
    """One forward pass of a block over all batches; the Gram of each linear's input, one object per shared input."""
    grams, handles, gram_seconds = {}, [], report.seconds["gram"]
    modules = linears(block)
    for group in input_groups(block):
        weight = weight_of(modules[group[0]])
        gram = Gram(weight.shape[1], needs, weight.device)
        grams |= dict.fromkeys(group, gram)
        handles.append(modules[group[0]].register_forward_pre_hook(_adder(gram, report)))
    start = time.perf_counter()
    try:
        for batch in batches:
            block(batch.hidden, **batch.arguments)
    finally:
        for handle in handles:
            handle.remove()
    report.seconds["forward"] += time.perf_counter() - start - (report.seconds["gram"] - gram_seconds)
    return grams


def _adder(gram: Gram, report: PruneReport):
    def add(_, args):
        with report.timed("gram"):
            gram.add(args[0])

    return add


def advance(block: nn.Module, batches: list[Batch]) -> None:
    """Replace each batch's hidden states by what the block makes of them."""
    for batch in batches:
        output = block(batch.hidden, **batch.arguments)
        batch.hidden = output[0] if isinstance(output, tuple) else output


def _prune_block(block: nn.Module, pruner: LayerPruner, grams: dict[str, Gram], report: PruneReport) -> None:
    name, pruned = report.reached, {}
    with report.timed("prune"):
        for layer, module in linears(block).items():
            report.reached = f"{name}.{layer}"
            pruned[layer] = pruner.prune(weight_of(module), grams[layer])
        for layer, module in linears(block).items():  # a block changes whole or not at all
            weight_of(module).copy_(pruned[layer])
            report.sparsity[f"{name}.{layer}"] = sparsity_of(pruned[layer])
