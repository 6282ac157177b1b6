"""The exercise compress.bytes, "Bytes of 50 % and 4 bits": its cases and its named mistakes.

Dimension key, of each layer: O outputs (rows), I inputs (columns), K weights that are not zero.
"""

from functools import partial
from statistics import fmean, harmonic_mean
from typing import Any

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Number = int | float


def _up(numerator: Number, denominator: Number) -> int:
    return int(-(-numerator // denominator))


def _bytes(layers: tuple, others: int, prompt: int, bits: int, group: int) -> tuple[Number, Number]:
    codes = sum(_up(k * bits, 8) for *_, k in layers)
    bitmap = sum(r * _up(c, 8) for r, c, _ in layers)
    starts = sum(4 * (r + 1) for r, _, _ in layers)
    scales = sum(2 * r * _up(c, group) for r, c, _ in layers)
    zeros = sum(r * _up(_up(c, group) * bits, 8) for r, c, _ in layers)
    rest = 2 * others
    vectors = 2 * prompt
    dense = 2 * (sum(r * c for r, c, _ in layers) + others)
    total = codes + bitmap + starts + scales + zeros + rest + vectors
    times = dense / total
    return total, times


def _ratios(layers: tuple, bits: int, group: int) -> list[Number]:
    """How many times smaller each layer is, taken alone."""
    return [_bytes((layer,), 0, 0, bits, group)[1] for layer in layers]


def _bytes_cases(generator: torch.Generator) -> list[Case]:
    between = partial(whole, generator)

    def drawn(n_layers: int, bits: int, group: int, share: float = 0.5) -> tuple[Any, ...]:
        """Layers of awkward sizes with different numbers of non-zero weights."""
        layers = []
        for _ in range(n_layers):
            rows, columns = between(40, 200), 2 * between(30, 150) + 1
            layers.append((rows, columns, int(share * rows * columns) + between(1, 40)))
        return tuple(layers), between(3000, 20_000), between(50, 2000), bits, group

    block = tuple((*shape, shape[0] * shape[1] // 2) for shape in ((576, 576), (192, 576), (1536, 576), (576, 1536)))
    return [
        Case(
            "a layer of 2 × 16, by hand: 8 + 4 + 12 + 8 + 2 bytes, 20 others, a prompt of 3",
            (((2, 16, 16),), 20, 3, 4, 8),
        ),
        Case("four layers of SmolLM2 at 50 %, 4 bits, groups of 32", (block, 576 * 1000, 20 * 576, 4, 32)),
        Case("three layers of odd sizes, 4 bits, groups of 16", drawn(3, 4, 16)),
        Case("five layers, 2 bits, groups of 64, a quarter non-zero", drawn(5, 2, 64, 0.25)),
        Case("two layers, 8 bits, groups of 20", drawn(2, 8, 20, 0.6)),
        Case("a single layer, 4 bits, a group larger than a row", drawn(1, 4, 512, 0.4)),
    ]


def _library(layers: tuple, others: int, prompt: int, bits: int, group: int) -> tuple[int, float]:
    from course_lib.lessons.compress.steps import stored_bytes

    return stored_bytes(layers, others, prompt, bits, group)


BYTES = Exercise(
    id="compress.bytes",
    title="Bytes of 50 % and 4 bits",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_bytes,
    cases=_bytes_cases,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_bytes),
    also_right=(
        Variant("layer by layer", lambda *given: _by_layers(*given)),
        Variant("in bits, divided by 8 at the end", lambda *given: _in_bits(*given)),
        Variant("a tensor", lambda *given: torch.tensor(_bytes(*given), dtype=torch.float64)),
    ),
    hints=(
        "Five things are stored per layer: codes, bitmap, row starts, scales and zero points. Write down the bytes of "
        "each for the case by hand.",
        "A row has ⌈I / group⌉ groups. Its scales take 2 bytes each, its zero points together ⌈groups · bits / 8⌉ "
        "bytes, its part of the bitmap ⌈I / 8⌉ bytes.",
        "The dense model takes 2 · (Σ rows · columns + others) bytes. Divide it by all stored bytes, with the prompt.",
    ),
)


def _by_layers(layers: tuple, others: int, prompt: int, bits: int, group: int) -> tuple[int, float]:
    total, dense = 2 * (others + prompt), 2 * others
    for rows, columns, kept in layers:
        groups = (columns + group - 1) // group
        a_row = (columns + 7) // 8 + 4 + 2 * groups + (groups * bits + 7) // 8
        total += rows * a_row + 4 + (kept * bits + 7) // 8
        dense += 2 * rows * columns
    return total, dense / total


def _in_bits(layers: tuple, others: int, prompt: int, bits: int, group: int) -> list[float]:
    stored, whole = 16 * (others + prompt), 16 * others
    for rows, columns, kept in layers:
        n = len(range(0, columns, group))
        parts = (bits * kept, *[columns, bits * n, 16 * n] * rows)
        stored += sum(part + -part % 8 for part in parts) + 32 * (rows + 1)
        whole += 16 * rows * columns
    return [stored / 8, whole / stored]
