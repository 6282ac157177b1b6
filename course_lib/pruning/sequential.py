"""Prune a language model block by block: the driver that SparseGPT, Wanda and their successors share.

Dimension key: B windows in a batch, T tokens in a window, D hidden size, O outputs and I inputs of a linear layer.

For each block: run the calibration windows through it while it is still dense, collecting one Gram for every input
that some linears share; prune those linears; run the windows again, so that the next block sees what the pruned one
really gives it.

Memory: the hidden states of all windows, and the Grams of one block, of which each is let go once its layers are
pruned. Collecting one Gram at a time would not lower the peak, only repeat the forward pass: a block's last Gram, that
of the MLP's hidden neurons, is by far the largest, and the peak comes when it is factorised, alone.
"""

import copy
from collections.abc import Iterable, Iterator

import torch
from rich.progress import track
from torch import Tensor, nn

from course_lib.models import blocks, input_groups, linears, weight_of
from course_lib.pruning import offload
from course_lib.pruning.allocation.base import UNIFORM, Allocation, Scan, Scores
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.block_inputs import Batch, advance, first_inputs, n_bytes
from course_lib.pruning.checks import PruningError, check_ready
from course_lib.pruning.layerwise.gram import Gram, Needs
from course_lib.pruning.report import PruneReport
from course_lib.sparsity.patterns import sparsity_of

__all__ = ["Batch", "PruneReport", "advance", "collect", "first_inputs", "prune_block", "prune_model"]


@torch.inference_mode()
def prune_model(
    model: nn.Module,
    pruner: LayerPruner,
    calibration: Tensor,
    progress: bool = True,
    allocation: Allocation = UNIFORM,
) -> PruneReport:
    """Prune every linear of every block in place; embeddings, norms and head stay as they are.

    Args:
        calibration: token ids (n, T), one window a row, as `corpora.windows` gives them.
        allocation: how much each layer loses; each the same when left out.

    Raises:
        ValueError: before any weight is changed, when the model, pattern or calibration cannot work together.
        PruningError: when something fails in the middle; it says which layer it reached. No hook is left behind.
    """
    check_ready(model, pruner, calibration, allocation)
    report, model_blocks = PruneReport(calibration.numel()), blocks(model)
    shares = allocation.sparsities(pruner, _scan(model, calibration, report))
    batches = _start(model, calibration, pruner.needs, report)
    for index, block in enumerate(track(model_blocks, "pruning", disable=not progress, transient=True)):
        last = index + 1 == len(model_blocks)
        try:
            prune_block(f"blocks.{index}", block, pruners(pruner, allocation, shares, index, block), batches, report)
            if not last:  # nobody reads what the last block gives
                with report.timed("forward"):
                    advance(block, batches)
        except Exception as error:
            raise PruningError(report.reached, len(report.sparsity), error) from error
    return report


def prune_block(
    name: str, block: nn.Module, pruner_of: dict[str, LayerPruner], batches: list[Batch], report: PruneReport
) -> None:
    """Prune the linears of one block; it changes whole or not at all."""
    report.reached = name
    report.held("activations", n_bytes(batches))
    grams = collect(block, batches, next(iter(pruner_of.values())).needs, report)
    modules, pruned = linears(block), {}
    for group in input_groups(block):
        report.reached = f"{name}.{group[0]}"
        with report.timed("factorise"):
            pruner_of[group[0]].prepare(grams[group[0]])
        _hold(grams, report)
        for layer in group:
            report.reached = f"{name}.{layer}"
            gram = grams.pop(layer)  # the last layer of the group lets it go
            with report.timed("solve"):
                pruned[layer] = pruner_of[layer].prune(offload.read(modules[layer]), gram)
            if notes := getattr(gram, "notes", ()):
                report.notes[report.reached] = "; ".join(notes)
        del gram
    for layer, weight in pruned.items():
        offload.put(modules[layer], weight)
        report.sparsity[f"{name}.{layer}"] = sparsity_of(weight)
        report.n_weights += weight.numel()
        report.n_zero += weight.numel() - int(torch.count_nonzero(weight))


def pruners(
    pruner: LayerPruner, allocation: Allocation, shares: dict[str, float], index: int, block: nn.Module
) -> dict[str, LayerPruner]:
    """The pruner of each layer of a block: the same, but for the sparsity that the allocation gives the layer."""
    found = dict.fromkeys(linears(block), pruner)
    for layer in found:
        if (share := shares.get(f"blocks.{index}.{layer}")) is not None:
            found[layer] = copy.copy(pruner)
            found[layer].pattern = allocation.pattern(pruner.pattern, share)
    return found


def collect(block: nn.Module, batches: list[Batch], needs: Needs, report: PruneReport) -> dict[str, Gram]:
    """One forward pass of a block over all batches; the Gram of each linear's input, one object per shared input."""
    grams, handles, gram_seconds = {}, [], report.seconds["gram"]
    modules = linears(block)
    for group in input_groups(block):
        first = modules[group[0]]
        gram = Gram(weight_of(first).shape[1], needs, offload.device_of(first))
        grams |= dict.fromkeys(group, gram)
        handles.append(modules[group[0]].register_forward_pre_hook(_adder(gram, report)))
    before = report.seconds["forward"]
    try:
        with report.timed("forward"):
            for batch in batches:
                batch.through(block)
    finally:
        for handle in handles:
            handle.remove()
    report.seconds["forward"] = max(before, report.seconds["forward"] - (report.seconds["gram"] - gram_seconds))
    _hold(grams, report)
    return grams


def scan_blocks(
    model_blocks: Iterable[nn.Module], batches: list[Batch], scorer: LayerPruner, report: PruneReport
) -> Iterator[Scores]:
    """The scores of each block's layers in the dense model, which stays as it is."""
    for index, block in enumerate(model_blocks):
        grams = collect(block, batches, scorer.needs, report)
        layers = linears(block).items()
        yield {f"blocks.{index}.{layer}": scorer.score(offload.read(module), grams[layer]) for layer, module in layers}
        del grams
        with report.timed("forward"):
            advance(block, batches)


def _scan(model: nn.Module, calibration: Tensor, report: PruneReport) -> Scan:
    def scan(scorer: LayerPruner) -> Iterator[Scores]:
        return scan_blocks(blocks(model), _start(model, calibration, scorer.needs, report), scorer, report)

    return scan


def _start(model: nn.Module, calibration: Tensor, needs: Needs, report: PruneReport) -> list[Batch]:
    """A method that reads no inputs needs no forward pass."""
    with report.timed("forward"):
        return [] if needs == "nothing" else first_inputs(model, calibration)


def _adder(gram: Gram, report: PruneReport):
    def add(_, args):
        with report.timed("gram"):
            gram.add(args[0])

    return add


def _hold(grams: dict[str, Gram], report: PruneReport) -> None:
    report.held("grams", sum(gram.n_bytes for gram in {id(gram): gram for gram in grams.values()}.values()))
