"""Pruning all layers of a model of Llama-3-8B's shape, with the library's kernels and without.

Dimension key: O outputs (rows), I inputs (columns).

The weights are random, in bfloat16. As in the published times (Wanda, table 4: 0.54 s for Wanda's score and 203 s for
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

GPU_SECONDS = 45  # the two whole models take most of this time
CHECKED_ONCE = True  # other numbers would need another model, and each kernel has a bench that takes them
# Width, key-value width, neurons, blocks. The interpreter takes minutes for thousands of rows.
SIZES, QUICK = (4096, 1024, 14336, 32), (8, 4, 12, 1)
TOKENS = 2  # per input: enough for a Gram matrix of full rank
# Of losses, which do not depend on the few weights that nearly tie and that rounding decides. Or a wrong mask: about 1.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-2}

Block = list[list[Tensor]]  # weights of the layers that share an input, for each input of a block
TWO_FOUR, HALF = NofM(2, 4), Unstructured(0.5, per="layer")


def contests(place: Place) -> Iterator[Contest]:
    yield from _contests(place, QUICK if place.quick else SIZES)


def prepared(place: Place) -> Iterator[Contest]:
    """Run the same with a single block, so that other benches find free memory while they are prepared."""
    yield from _contests(place, (*(QUICK if place.quick else SIZES)[:3], 1))


def _contests(place: Place, sizes: tuple[int, int, int, int]) -> Iterator[Contest]:
    width, kv_width, neurons, n_blocks = sizes
    shapes = [[(width, width), (kv_width, width), (kv_width, width)], [(width, width)]]
    shapes += [[(neurons, width), (neurons, width)], [(width, neurons)]]
    blocks = [[[place.randn(*shape) for shape in group] for group in shapes] for _ in range(n_blocks)]
    grams = {n: _gram(place, n) for n in (width, neurons)}
    pruners = {"50 %": SparseGPT(HALF), "2:4": SparseGPT(TWO_FOUR)}
    yield _wanda(f"{n_blocks} blocks, Wanda", blocks, grams)
    yield _sparsegpt(f"{n_blocks} blocks, SparseGPT", blocks, grams, pruners)
    block = blocks[0]
    del blocks
    for name, pruner in (("50 % of each row", Wanda()), ("2:4", Wanda(TWO_FOUR))):
        yield _wanda_on_and_off(f"one block, Wanda, {name}", block, grams, pruner)
    for name, pruner in pruners.items():
        yield _sparsegpt_on_and_off(f"one block, SparseGPT, {name}", block, grams, pruner)


def _gram(place: Place, n_inputs: int) -> Gram:
    """Make a Gram matrix of correlated inputs, some of them large."""
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
    """Build a side that prunes every layer separately; the result of the last one is checked."""

    def every_layer() -> Tensor:
        for weight, gram in _layers(blocks, grams):
            result = run(weight, gram)
        return result

    return every_layer


def _wanda(name: str, blocks: list[Block], grams: dict[int, Gram]) -> Contest:
    """Time the score alone, as in the paper, and the whole pruning, which never stores the score."""
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
    """Also time the factorisation, which no kernel of the library computes."""

    def losses() -> Tensor:
        return torch.stack([pruner.solve(weight, gram).losses.sum() for weight, gram in _pruned(block, grams, pruner)])

    def factors() -> Tensor:
        layers = _pruned(block, grams, pruner)
        return torch.stack([gram.factor(pruner.damping).diagonal.sum() for _, gram in layers])

    expected, work = _switched(True, losses)(), _update([block]) + _factors([block])
    sides = [Side(label, _switched(on, losses), work) for label, on in (("kernels off", False), ("kernels on", True))]
    sides.append(Side("factors alone", factors, _factors([block]), factors()))
    return Contest(name, tuple(block[-1][0].shape), sides, expected, once=True)


def _pruned(block: Block, grams: dict[int, Gram], pruner: LayerPruner) -> Iterator[tuple[Tensor, Gram]]:
    """Prune the layers of a block, each with its Gram, factorised again for each input as in `prune_model`."""
    for group in block:
        gram = grams[group[0].shape[1]]
        gram.add(group[0][:0])  # adds no token, but clears the Gram's cached factors
        pruner.prepare(gram)
        yield from ((weight, gram) for weight in group)


def _sparsegpt(name: str, blocks: list[Block], grams: dict[int, Gram], pruners: dict[str, SparseGPT]) -> Contest:
    """Prune all layers. Half of each layer is then zero; contests on single blocks check that it is the right half."""
    n_layers = sum(len(group) for block in blocks for group in block)
    half = torch.full((n_layers,), 0.5, device=blocks[0][0][0].device)

    def side(label: str, pruner: SparseGPT) -> Side:
        def whole(blocks: list[Block] = blocks) -> Tensor:
            layers = (layer for block in blocks for layer in _pruned(block, grams, pruner))
            return torch.stack([(pruner.prune(*layer) == 0).float().mean() for layer in layers])

        whole(blocks[:1])  # compiles
        return Side(label, whole, _update(blocks) + _factors(blocks))

    sides = [side(label, pruner) for label, pruner in pruners.items()]
    return Contest(name, tuple(blocks[0][-1][0].shape), sides, half, once=True)


def _update(blocks: list[Block]) -> Work:
    """Count the work: each column sends its error to the columns right of it, I / 2 products per weight."""
    weights = [weight for block in blocks for group in block for weight in group]
    return Work(sum(w.numel() * w.shape[1] for w in weights), sum(2 * w.nbytes for w in weights))


def _factors(blocks: list[Block]) -> Work:
    """Count I³/3 for the Cholesky factor of each Gram, and as much for its inverse."""
    widths = [group[0].shape[1] for block in blocks for group in block]
    return Work(sum(2 * n**3 / 3 for n in widths), sum(8 * n**2 for n in widths))
