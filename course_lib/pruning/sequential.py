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
    """Prune every linear of every block in place; embeddings, norms and head stay as they are.

    Args:
        calibration: token ids (n, T), one window a row, as `corpora.windows` gives them.
        allocation: how much each layer loses; each the same when left out.
        ignore: layers that stay dense, by patterns such as "blocks.0.*" or "*.mlp.down_proj".

    Raises:
        ValueError: before any weight is changed, when the model, pattern or calibration cannot work together.
        PruningError: when something fails in the middle; it says which layer it reached. No hook is left behind.
    """
    all_layers = checked_layers(model)
    layers_in = layers_to_prune(all_layers, ignore)
    layers = [layer for block_layers in layers_in.values() for layer in block_layers]
    check_ready(model, layers, pruner, calibration, allocation)
    report = PruneReport(calibration.numel(), n_ignored=len(all_layers) - len(layers))
    model_blocks = list(layers_in)
    last = [block for block, block_layers in layers_in.items() if block_layers][-1]
    up_to_last = model_blocks[: model_blocks.index(last) + 1]
    start = partial(_start, model, model_blocks, calibration, report)

    def scan(scorer: LayerPruner) -> Iterator[Scores]:
        return scan_blocks(layers_in.items(), start(scorer.needs), scorer, report)

    shares = allocation.sparsities(pruner, scan)
    batches = start(pruner.needs)
    for block in tracked(up_to_last, "pruning", progress):
        block_layers = layers_in[block]
        try:
            prune_block(block_layers, pruners(pruner, allocation, shares, block_layers), batches, report)
            if block is not last:  # no layer that is pruned reads the output of the last block
                with report.timed("forward"):
                    advance(block, batches)
        except Exception as error:
            raise PruningError(report.reached, len(report.sparsity), error) from error
    return report


def prune_block(
    layers: list[Layer], pruner_of: dict[str, LayerPruner], batches: list[Batch], report: PruneReport
) -> None:
    """Prune the layers of one block; it changes whole or not at all. Pruners are given by the layer's name."""
    if not layers:
        return
    report.reached = layers[0].block_name
    report.held("activations", n_bytes(batches))
    grams = collect(layers, batches, pruner_of[layers[0].name].needs, report)
    pruned = {}
    for layer in layers:
        report.reached = layer.name
        if layer.is_first:
            with report.timed("factorise"):
                pruner_of[layer.name].prepare(grams[layer.name])
            _hold(grams, report)
        gram = grams.pop(layer.name)
        with report.timed("solve"):
            pruned[layer.name] = pruner_of[layer.name].prune(offload.read(layer.module), gram)
        if notes := getattr(gram, "notes", ()):
            report.notes[layer.name] = "; ".join(notes)
        del gram  # the last layer of a group lets it go
    for layer in layers:
        weight = pruned[layer.name]
        offload.put(layer.module, weight)
        report.sparsity[layer.name] = sparsity_of(weight)
        report.n_weights += weight.numel()
        report.n_zero += weight.numel() - int(torch.count_nonzero(weight))


def pruners(
    pruner: LayerPruner, allocation: Allocation, shares: dict[str, float], layers: list[Layer]
) -> dict[str, LayerPruner]:
    """The pruner of each layer by name: the same, but for the sparsity that the allocation gives the layer."""
    pruner_of = dict.fromkeys((layer.name for layer in layers), pruner)
    for name in pruner_of:
        if (share := shares.get(name)) is not None:
            pruner_of[name] = copy.copy(pruner)
            pruner_of[name].pattern = allocation.pattern(pruner.pattern, share)
    return pruner_of


def collect(layers: list[Layer], batches: list[Batch], needs: Needs, report: PruneReport) -> dict[str, Gram]:
    """One forward pass of a block over all batches; the Gram of each layer's input by the layer's name.

    Layers that read the same input have the same Gram. The batches stay what they are: they come once more, when the
    layers are pruned.
    """
    with _adding(layers, needs, report) as grams:
        for batch in batches:
            batch.through(layers[0].block)
    return grams


def collect_and_advance(
    layers: list[Layer], batches: list[Batch], needs: Needs, report: PruneReport
) -> dict[str, Gram]:
    """The same of a block that stays as it is, so that one forward pass is enough: the batches go on behind it."""
    with _adding(layers, needs, report) as grams:
        advance(layers[0].block, batches)
    return grams


@contextmanager
def _adding(layers: list[Layer], needs: Needs, report: PruneReport) -> Iterator[dict[str, Gram]]:
    """Inside, what layers read in a forward pass is added to their Grams; no hook is left behind."""
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
    """The scores of each block's layers in the dense model, which stays as it is; none where no layer is given."""
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
    """A method that reads no inputs needs no forward pass."""
    with report.timed("forward"):
        return [] if needs == "nothing" else first_inputs(model, calibration, model_blocks)


def _adder(gram: Gram, report: PruneReport):
    def add(_, args):
        with report.timed("gram"):  # within "forward", whose clock stops meanwhile
            gram.add(args[0])

    return add


def _hold(grams: dict[str, Gram], report: PruneReport) -> None:
    report.held("grams", sum(gram.n_bytes for gram in {id(gram): gram for gram in grams.values()}.values()))
