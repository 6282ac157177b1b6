"""Hidden cases of lesson 03: inputs that are always zero, columns in the middle, last blocks that are narrower.

Dimension key: O outputs of a layer, I its inputs, N tokens, B columns of a block.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case


def _inputs(generator: torch.Generator, n_tokens: int, n_inputs: int) -> Tensor:
    """Inputs with one direction in common, some large and some small."""
    own, sizes = randn(generator, n_tokens, n_inputs), 0.2 + torch.rand(n_inputs, generator=generator)
    return (own + 0.7 * randn(generator, n_tokens, 1)) * sizes


def _damped(generator: torch.Generator, n_inputs: int) -> Tensor:
    x = _inputs(generator, 4 * n_inputs, n_inputs)
    return x.T @ x + 0.02 * x.square().sum(0).mean() * torch.eye(n_inputs)


def _inverse(hessian: Tensor) -> Tensor:
    return torch.linalg.inv(hessian.double()).float()


def _factor(hessian: Tensor) -> Tensor:
    return torch.linalg.cholesky(torch.linalg.inv(hessian.double())).T.float().contiguous()


def _layer_error(generator: torch.Generator) -> list[Case]:
    def random_case(rows: int, columns: int, n_tokens: int, kept: float) -> tuple[Tensor, Tensor, Tensor]:
        weight, x = randn(generator, rows, columns), _inputs(generator, n_tokens, columns)
        pruned = weight * (torch.rand(rows, columns, generator=generator) < kept)
        return weight, 1.1 * pruned, x.T @ x

    return [
        Case("a single input", random_case(5, 1, 20, 0.5)),
        Case("fewer tokens than inputs", random_case(6, 15, 4, 0.5)),
        Case("30 outputs, 50 inputs, a tenth is kept", random_case(30, 50, 80, 0.1)),
    ]


def _hessian(generator: torch.Generator) -> list[Case]:
    """Some inputs are zero in each case, and the others small, so that the 1 is a large number."""

    def small_inputs(n_tokens: int, n_inputs: int, zero: list[int]) -> Tensor:
        x = 0.1 * _inputs(generator, n_tokens, n_inputs)
        x[:, zero] = 0
        if n_tokens > 2:
            # Not always zero: it is nonzero on two tokens, which add up to zero.
            x[:, 1] = torch.tensor([0, 0.3, -0.3] + [0] * (n_tokens - 3))
        return x

    return [
        Case("three inputs are always zero, the others small", (small_inputs(20, 9, [0, 4, 8]), 0.2)),
        Case("one token, one zero input", (small_inputs(1, 5, [3]), 0.1)),
        Case("all inputs but one are always zero", (small_inputs(12, 4, [0, 2, 3]), 0.05)),
    ]


def _eliminate(generator: torch.Generator) -> list[Case]:
    """Several inputs are frozen, some before others, so that positions change."""
    pair = torch.tensor([[1.0, 0.8], [0.8, 2.0]]) * (0.5 + torch.rand((), generator=generator))

    def positions(*inputs: int) -> Tensor:
        return torch.tensor(inputs, dtype=torch.int64)

    return [
        Case("2 × 2, the last is frozen", (_inverse(pair), positions(1))),
        Case("5 × 5, all but the middle", (_inverse(_damped(generator, 5)), positions(0, 1, 3, 4))),
        Case("sixteen inputs, five frozen", (_inverse(_damped(generator, 16)), positions(3, 4, 11, 0, 7))),
        Case("seven inputs, none frozen", (_inverse(_damped(generator, 7)), positions())),
    ]


def _factors(generator: torch.Generator) -> list[Case]:
    shared = torch.full((6, 6), 0.9) + 0.1 * torch.eye(6)
    sizes = torch.tensor([1.0, 0.3, 10.0, 1.0, 0.1, 2.0, 1.0])
    return [
        Case("inputs that are nearly equal", (shared * (1 + torch.rand((), generator=generator)),)),
        Case("forty inputs", (_damped(generator, 40),)),
        Case("large inputs and small ones", (_damped(generator, 7) * sizes * sizes[:, None],)),
    ]


def _settle(generator: torch.Generator) -> list[Case]:
    """The column is inside, so that there are frozen columns to its left and others to its right."""

    def random_case(rows: int, columns: int, j: int, pruned: list[int], shrunk: list[int]) -> tuple:
        weight, factor = randn(generator, rows, columns), _factor(_damped(generator, columns))
        weight[::2, -1] = 0  # zeros to the right are updated as well
        values = weight[:, j].clone()
        values[pruned] = 0
        values[shrunk] *= 0.7
        return weight, values, factor, j

    return [
        Case("one output, and its weight becomes smaller", random_case(1, 9, 4, [], [0])),
        Case("the weight is pruned in all outputs but one", random_case(8, 14, 6, list(range(1, 8)), [])),
        Case("the last column but one, some pruned and some smaller", random_case(6, 11, 9, [0, 3], [1, 5])),
    ]


def _mask(generator: torch.Generator) -> list[Case]:
    """Counts that are rounded down from above one half, and a diagonal that decides; ties are ties in every formula."""
    three_equal = randn(generator, 7, 8).repeat(3, 1)
    levels = torch.tensor([1.0] * 9 + [2.0] * 12 + [8.0] * 21)[torch.randperm(42, generator=generator)].reshape(6, 7)
    pruned = randn(generator, 4, 12) * (torch.arange(48).reshape(4, 12) % 2)
    powers = 2.0 ** torch.tensor([-2, 1, 0, -1, 2, 0, -3])
    return [
        Case("rows that are equal, 58.8 are pruned: 58", (three_equal, torch.logspace(-1, 1, 8), 0.35)),
        Case("one output, 3.75 are pruned: 3", (randn(generator, 1, 15), torch.logspace(1, -1, 15), 0.25)),
        Case("powers of two, many ties, 12.6 are pruned: 12", (levels * powers, powers, 0.3)),
        Case("half of the block is zero already, 15.6 are pruned: 15", (pruned, torch.logspace(-1, 1, 12), 0.325)),
    ]


def _prune(generator: torch.Generator) -> list[Case]:
    """Several blocks; the last one is narrower."""

    def random_case(rows: int, columns: int, sparsity: float, block_size: int) -> tuple[Tensor, Tensor, float, int]:
        return randn(generator, rows, columns), _factor(_damped(generator, columns)), sparsity, block_size

    return [
        Case("12 × 30 in blocks of 8, 30 % pruned", random_case(12, 30, 0.3, 8)),
        Case("7 × 21 in blocks of 5: the last is one column", random_case(7, 21, 0.6, 5)),
        Case("17 × 17, two unequal blocks, 90 % pruned", random_case(17, 17, 0.9, 10)),
        Case("a block larger than the layer", random_case(5, 9, 0.5, 128)),
    ]


def _bits(generator: torch.Generator) -> list[Case]:
    value_bits, grid_bits = torch.randint(2, 12, (2,), generator=generator).tolist()
    return [
        Case("a tenth pruned, 8 bits, a grid for 32 weights", (0.1, 8, 32, 24)),
        Case("dense, 8 bits, a grid for 48 weights", (0.0, 8, 48, 40)),
        Case("dense, random bits", (0.0, value_bits, 16, 2 * grid_bits)),
        Case("dense, a grid for each weight", (0.0, 2, 1, 16)),
        Case("99 % pruned, 16 bits", (0.99, 16, 256, 32)),
        Case("30 % pruned, random bits", (0.3, value_bits, 8, grid_bits + 9)),
    ]


HIDDEN = {
    "sparsegpt.layer_error": _layer_error,
    "sparsegpt.hessian": _hessian,
    "sparsegpt.eliminate": _eliminate,
    "sparsegpt.factor": _factors,
    "sparsegpt.settle": _settle,
    "sparsegpt.mask": _mask,
    "sparsegpt.prune": _prune,
    "sparsegpt.bits": _bits,
}
