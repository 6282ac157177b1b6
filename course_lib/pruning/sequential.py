"""Prune a language model block by block: the driver that SparseGPT, Wanda and their successors share.

Dimension key: B windows in a batch, T tokens in a window, D hidden size, O outputs and I inputs of a linear layer.

For each block: (1) run the calibration windows through the dense block and collect one Gram for each distinct input of
its linear layers; (2) prune these layers; (3) run the windows through the pruned block, so that the next block is
calibrated on the outputs of the pruned one.

Memory: the hidden states of all windows, and the Grams of one block. Each Gram is freed after its layers are pruned.
Collecting one Gram at a time would repeat the forward pass without lowering the peak: a block's last Gram, that of the
MLP's hidden neurons, is by far the largest, and the peak occurs when it alone is left and is factorised.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from course_lib.hooks import hooking
from course_lib.measure.progress import tracked
from course_lib.models import Layer, weight_of
from course_lib.pruning import offload
from course_lib.pruning.allocation.base import UNIFORM, Allocation, Scores
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.block_inputs import Batch, advance, first_inputs, n_bytes
from course_lib.pruning.checks import PruningError, check_ready, checked_layers, layers_to_prune
from course_lib.pruning.layerwise.gram import Gram, Needs
from course_lib.pruning.report import PruneReport
from course_lib.repetition import evaluated
from course_lib.sparsity.patterns import sparsity_of

__all__ = [
    "Batch",
    "PruneReport",
    "advance",
    "collect",
    "collect_and_advance",
    "first_inputs",
    "prune_block",
    "prune_model",
]


@torch.inference_mode()
@evaluated
def prune_model(
    model: nn.Module,
    pruner: LayerPruner,
    calibration: Tensor,
    progress: bool = True,
    allocation: Allocation = UNIFORM,
    ignore: Sequence[str] = (),
) -> PruneReport:
    """Prune every linear layer of every block in place. Embeddings, norms and LM head are unchanged.

    Args:
        calibration: token ids (n, T), one window per row, as `corpora.windows` returns them.
        allocation: chooses the sparsity of each layer. By default all layers have the pruner's sparsity.
        ignore: layers to leave dense, as patterns such as "blocks.0.*" or "*.mlp.down_proj".

    Raises:
        ValueError: when the model, pattern or calibration do not fit together; no weight is changed then.
        PruningError: when pruning fails later. It names the layer, and all hooks are removed.
    """
    all_layers = checked_layers(model)
    layers_by_block = layers_to_prune(all_layers, ignore)
    layers = [layer for block_layers in layers_by_block.values() for layer in block_layers]
    check_ready(model, layers, pruner, calibration, allocation)
    report = PruneReport(calibration.numel(), n_ignored=len(all_layers) - len(layers))
    model_blocks = list(layers_by_block)
    last_block = [block for block, block_layers in layers_by_block.items() if block_layers][-1]
    blocks_to_run = model_blocks[: model_blocks.index(last_block) + 1]
    start = partial(_start, model, model_blocks, calibration, report)

    def scan(scorer: LayerPruner) -> Iterator[Scores]:
        return scan_blocks(layers_by_block.items(), start(scorer.needs), scorer, report)

    sparsities = allocation.sparsities(pruner, scan)
    batches = start(pruner.needs)
    for block in tracked(blocks_to_run, "pruning", progress):
        block_layers = layers_by_block[block]
        try:
            prune_block(block_layers, pruners(pruner, allocation, sparsities, block_layers), batches, report)
            if block is not last_block:  # no layer to prune follows the last block, so its output is not needed
                with report.timed("forward"):
                    advance(block, batches)
        except Exception as error:
            raise PruningError(report.reached, len(report.sparsity), error) from error
    return report


def prune_block(
    layers: list[Layer], pruner_of: dict[str, LayerPruner], batches: list[Batch], report: PruneReport
) -> None:
    """Prune the layers of one block. Weights change only after all layers have been solved.

    Args:
        layers: the block's layers to prune. Layers that share an input follow each other.
        pruner_of: the pruner of each layer, by layer name.
    """
    if not layers:
        return
    report.reached = layers[0].block_name
    report.held("activations", n_bytes(batches))
    grams = collect(layers, batches, pruner_of[layers[0].name].needs, report)
    pruned_weights = {}
    for layer in layers:
        report.reached = layer.name
        if layer.is_first:
            with report.timed("factorise"):
                pruner_of[layer.name].prepare(grams[layer.name])
            _hold(grams, report)
        gram = grams.pop(layer.name)
        with report.timed("solve"):
            pruned_weights[layer.name] = pruner_of[layer.name].prune(offload.read(layer.module), gram)
        if notes := getattr(gram, "notes", ()):
            report.notes[layer.name] = "; ".join(notes)
        del gram  # frees the memory after the last layer that shares this input
    for layer in layers:
        weight = pruned_weights[layer.name]
        offload.put(layer.module, weight)
        report.sparsity[layer.name] = sparsity_of(weight)
        report.n_weights += weight.numel()
        report.n_zero += weight.numel() - int(torch.count_nonzero(weight))


def pruners(
    pruner: LayerPruner, allocation: Allocation, shares: dict[str, float], layers: list[Layer]
) -> dict[str, LayerPruner]:
    """Return the pruner of each layer by name: copies of one pruner with the allocated sparsities.

    Args:
        shares: allocated sparsity by layer name. A layer without one keeps the pruner's own pattern.
    """
    pruner_of = dict.fromkeys((layer.name for layer in layers), pruner)
    for name in pruner_of:
        if (sparsity := shares.get(name)) is not None:
            pruner_of[name] = copy.copy(pruner)
            pruner_of[name].pattern = allocation.pattern(pruner.pattern, sparsity)
    return pruner_of


def collect(layers: list[Layer], batches: list[Batch], needs: Needs, report: PruneReport) -> dict[str, Gram]:
    """Run one forward pass of a block over all batches. Returns the Gram of each layer's input by layer name.

    Layers with the same input share one Gram object. The batches are unchanged, so that they can run through the pruned
    block afterwards.
    """
    with _adding(layers, needs, report) as grams:
        for batch in batches:
            batch.through(layers[0].block)
    return grams


def collect_and_advance(
    layers: list[Layer], batches: list[Batch], needs: Needs, report: PruneReport
) -> dict[str, Gram]:
    """Collect the Grams of a block that stays dense, and advance the batches to its output in the same forward pass."""
    with _adding(layers, needs, report) as grams:
        advance(layers[0].block, batches)
    return grams


@contextmanager
def _adding(layers: list[Layer], needs: Needs, report: PruneReport) -> Iterator[dict[str, Gram]]:
    """Inside, forward passes add the layers' inputs to their Grams. All hooks are removed on exit."""
    grams: dict[str, Gram] = {}
    with hooking() as handles:
        for layer in layers:
            if layer.is_first:
                gram = Gram(weight_of(layer.module).shape[1], needs, offload.device_of(layer.module))
                grams |= dict.fromkeys(layer.group, gram)
                handles.append(layer.module.register_forward_pre_hook(_adder(gram, report)))
        with report.timed("forward"):
            yield grams
    _hold(grams, report)


def scan_blocks(
    layers_in: Iterable[tuple[nn.Module, list[Layer]]],
    batches: list[Batch],
    scorer: LayerPruner,
    report: PruneReport,
) -> Iterator[Scores]:
    """Yield the scores of each block's layers in the dense model. A block without layers yields an empty dictionary."""
    for block, layers in layers_in:
        if not layers:
            advance(block, batches)
            yield {}
            continue
        grams = collect_and_advance(layers, batches, scorer.needs, report)
        yield {layer.name: scorer.score(offload.read(layer.module), grams[layer.name]) for layer in layers}
        del grams


def _start(
    model: nn.Module, model_blocks: list[nn.Module], calibration: Tensor, report: PruneReport, needs: Needs
) -> list[Batch]:
    """Return the inputs of the first block, or no batches for a method that needs no inputs and so no forward pass."""
    with report.timed("forward"):
        return [] if needs == "nothing" else first_inputs(model, calibration, model_blocks)


def _adder(gram: Gram, report: PruneReport):
    def add(_, args):
        with report.timed("gram"):  # nested in "forward", whose timer pauses
            gram.add(args[0])

    return add


def _hold(grams: dict[str, Gram], report: PruneReport) -> None:
    report.held("grams", sum(gram.n_bytes for gram in {id(gram): gram for gram in grams.values()}.values()))
