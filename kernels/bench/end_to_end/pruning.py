"""Pruning all layers of a model of Llama-3-8B's shape, with the library's kernels and without.

Dimension key: O outputs (rows), I inputs (columns).

Random weights in bfloat16. As in the published times (Wanda, table 4: 0.54 s for Wanda's score and 203 s for
SparseGPT's on LLaMA-7B), no forward pass is timed: the Gram matrices of inputs of both widths are made before. But each
Gram of a block is factorised, as in a real model, where the inputs of two layers differ.
"""

from collections.abc import Callable, Iterator

import torch
from course_lib.kernels.dispatch import kernels
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor

from course_lib.measure.roofline import Work
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.sparsity.patterns import NofM, Unstructured

GPU_SECONDS = 90  # of which the two whole models take most
# Width, key-value width, neurons, blocks. The interpreter takes minutes for thousands of rows.
SIZES, QUICK = (4096, 1024, 14336, 32), (8, 4, 12, 1)
TOKENS = 2  # per input: enough for a Gram matrix of full rank
# Of losses, which do not depend on the few weights that nearly tie and that rounding decides. Or a wrong mask: about 1.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-2}

Block = list[list[Tensor]]  # weights of the layers that share an input, for each input of a block
TWO_FOUR, HALF = NofM(2, 4), Unstructured(0.5, per="layer")


def contests(place: Place) -> Iterator[Contest]:
    width, kv_width, neurons, n_blocks = QUICK if place.quick else SIZES
    shapes = [[(width, width), (kv_width, width), (kv_width, width)], [(width, width)]]
    shapes += [[(neurons, width), (neurons, width)], [(width, neurons)]]
    blocks = [[[place.randn(*shape) for shape in group] for group in shapes] for _ in range(n_blocks)]
    grams = {n: _gram(place, n) for n in (width, neurons)}
    yield _wanda(f"{n_blocks} blocks, Wanda", blocks, grams)
    for name, pruner in (("50 % of each row", Wanda()), ("2:4", Wanda(TWO_FOUR))):
        yield _wanda_on_and_off(f"one block, Wanda, {name}", blocks[0], grams, pruner)
    for name, pattern in (("50 %", HALF), ("2:4", TWO_FOUR)):
        yield _sparsegpt_on_and_off(f"one block, SparseGPT, {name}", blocks[0], grams, SparseGPT(pattern))
    for name, pattern in (("50 %", HALF), ("2:4", TWO_FOUR)):
        yield _sparsegpt(f"{n_blocks} blocks, SparseGPT, {name}", blocks, grams, SparseGPT(pattern))


def _gram(place: Place, n_inputs: int) -> Gram:
    """Of inputs that depend on each other, a few of them large."""
    inputs = place.randn(TOKENS * n_inputs, n_inputs) + 0.5 * place.randn(TOKENS * n_inputs, 1)
    inputs[:, :: max(1, n_inputs // 8)] *= 10
    gram = Gram(n_inputs, device=place.device)
    gram.add(inputs)
    return gram


def _layers(blocks: list[Block], grams: dict[int, Gram]) -> Iterator[tuple[Tensor, Gram]]:
    for block in blocks:
        for group in block:
            yield from ((weight, grams[weight.shape[1]]) for weight in group)


def _each(blocks: list[Block], grams: dict[int, Gram], run: Callable[[Tensor, Gram], Tensor]) -> Callable[[], Tensor]:
    """A side: every layer by itself; the result of the last is checked."""

    def every_layer() -> Tensor:
        for weight, gram in _layers(blocks, grams):
            result = run(weight, gram)
        return result

    return every_layer


def _wanda(name: str, blocks: list[Block], grams: dict[int, Gram]) -> Contest:
    """The score alone, as the paper timed it; and whole, where the score is never written."""
    weights = [weight for weight, _ in _layers(blocks, grams)]
    n = sum(weight.numel() for weight in weights)
    width, (last, gram) = weights[0].element_size(), list(_layers(blocks, grams))[-1]
    score = last.abs().float() * gram.diagonal.sqrt()
    sides = [Side("score", _each(blocks, grams, Wanda().score), Work(n, n * (width + 4)), score)]
    for label, pruner in (("50 % of each row", Wanda()), ("2:4", Wanda(TWO_FOUR))):
        expected = last.masked_fill(~pruner.pattern.keep(score), 0)
        sides.append(Side(label, _each(blocks, grams, pruner.prune), Work(n, 2 * n * width), expected))
    return Contest(name, tuple(last.shape), sides, score)


def _wanda_on_and_off(name: str, block: Block, grams: dict[int, Gram], pruner: Wanda) -> Contest:
    weights = [weight for group in block for weight in group]
    work = Work(sum(w.numel() for w in weights), sum(2 * w.nbytes for w in weights))
    prune = _each([block], grams, pruner.prune)
    sides = [Side(label, _switched(on, prune), work) for label, on in (("kernels off", False), ("kernels on", True))]
    return Contest(name, tuple(block[-1][0].shape), sides, sides[0].run())


def _switched(on: bool, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def switched() -> Tensor:
        with kernels(on):
            return run()

    return switched


def _sparsegpt_on_and_off(name: str, block: Block, grams: dict[int, Gram], pruner: SparseGPT) -> Contest:
    """Runs with kernels first, which compiles and tunes them for the longer contests, too."""

    def losses() -> Tensor:
        return torch.stack([pruner.solve(weight, gram).losses.sum() for weight, gram in _pruned(block, grams, pruner)])

    expected = _switched(True, losses)()
    work = _work([block], n_factorised=1)
    sides = [Side(label, _switched(on, losses), work) for label, on in (("kernels off", False), ("kernels on", True))]
    return Contest(name, tuple(block[-1][0].shape), sides, expected, once=True)


def _pruned(block: Block, grams: dict[int, Gram], pruner: LayerPruner) -> Iterator[tuple[Tensor, Gram]]:
    """The layers of a block, each with its Gram, factorised again for each input, as `prune_model` does it."""
    for group in block:
        gram = grams[group[0].shape[1]]
        gram.add(group[0][:0])  # without any token: what is known of the Gram so far is forgotten
        pruner.prepare(gram)
        yield from ((weight, gram) for weight in group)


def _sparsegpt(name: str, blocks: list[Block], grams: dict[int, Gram], pruner: SparseGPT) -> Contest:
    """All layers; and once more with the factors of the last block's Grams, so that the difference is factorising."""

    def fraction_of_zeros(layers: Iterator[tuple[Tensor, Gram]]) -> Tensor:
        return torch.stack([(pruner.prune(*layer) == 0).float().mean() for layer in layers])

    def whole() -> Tensor:
        return fraction_of_zeros(layer for block in blocks for layer in _pruned(block, grams, pruner))

    def factors_known() -> Tensor:
        return fraction_of_zeros(_layers(blocks, grams))

    n_layers = sum(len(group) for block in blocks for group in block)
    half = torch.full((n_layers,), pruner.pattern.sparsity, device=blocks[0][0][0].device)
    without = _work(blocks, n_factorised=0)
    sides = [Side("whole", whole, _work(blocks, len(blocks))), Side("factors known", factors_known, without)]
    return Contest(name, tuple(blocks[0][-1][0].shape), sides, half, once=True)


def _work(blocks: list[Block], n_factorised: int) -> Work:
    """Each column sends its error to those right of it: I / 2 products per weight. And the factors of some blocks:
    I³/3 for the Cholesky factor of each Gram, and as much for its inverse.
    """
    weights = [weight for block in blocks for group in block for weight in group]
    update = Work(sum(w.numel() * w.shape[1] for w in weights), sum(2 * w.nbytes for w in weights))
    widths = [group[0].shape[1] for block in blocks[:n_factorised] for group in block]
    return update + Work(sum(2 * n**3 / 3 for n in widths), sum(8 * n**2 for n in widths))
