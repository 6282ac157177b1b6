"""The exercise compress.bytes, "Bytes of 50 % and 4 bits": its cases and its named mistakes.

Dimension key, of each layer: O outputs (rows), I inputs (columns), K weights that are not zero.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

Number = int | float


@dataclass(frozen=True)
class Sizes:
    """Bytes of what is stored, and of the model that it is compared with."""

    codes: Number
    bitmap: Number
    starts: Number
    scales: Number
    zeros: Number
    others: Number
    prompt: Number
    dense: Number

    @property
    def total(self) -> Number:
        return self.codes + self.bitmap + self.starts + self.scales + self.zeros + self.others + self.prompt

    @property
    def answer(self) -> tuple[Number, Number]:
        return self.total, self.dense / self.total


def _up(numerator: Number, denominator: Number) -> int:
    return int(-(-numerator // denominator))


def _sizes(layers: tuple, others: int, prompt: int, bits: int, group: int) -> Sizes:
    n_groups = [_up(columns, group) for _, columns, _ in layers]
    return Sizes(
        codes=sum(_up(kept * bits, 8) for _, _, kept in layers),
        bitmap=sum(rows * _up(columns, 8) for rows, columns, _ in layers),
        starts=sum(4 * (rows + 1) for rows, _, _ in layers),
        scales=sum(2 * rows * n for (rows, _, _), n in zip(layers, n_groups, strict=True)),
        zeros=sum(rows * _up(n * bits, 8) for (rows, _, _), n in zip(layers, n_groups, strict=True)),
        others=2 * others,
        prompt=2 * prompt,
        dense=2 * (sum(rows * columns for rows, columns, _ in layers) + others),
    )


def _bytes(*given: Any) -> tuple[Number, Number]:
    return _sizes(*given).answer


def _but(change: Callable[..., dict[str, Number]]) -> Callable[..., tuple[Number, Number]]:
    """The answer with other sizes of some parts: (sizes, layers, others, prompt, bits, group) -> what is other."""

    def answer(*given: Any) -> tuple[Number, Number]:
        sizes = _sizes(*given)
        return replace(sizes, **change(sizes, *given)).answer

    return answer


def _times(change: Callable[[Sizes], Number]) -> Callable[..., tuple[Number, Number]]:
    """The right bytes, and another number of times."""
    return lambda *given: (_sizes(*given).total, change(_sizes(*given)))


def _all_codes(layers: tuple, bits: int) -> int:
    return sum(_up(rows * columns * bits, 8) for rows, columns, _ in layers)


def _bytes_cases(generator: torch.Generator) -> list[Case]:
    between = partial(whole, generator)

    def drawn(n_layers: int, bits: int, group: int, share: float = 0.5) -> tuple[Any, ...]:
        """Layers of awkward sizes; what is left of them is not spread evenly."""
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
        Case("five layers, 2 bits, groups of 64, a quarter left", drawn(5, 2, 64, 0.25)),
        Case("two layers, 8 bits, groups of 20", drawn(2, 8, 20, 0.6)),
        Case("a single layer, 4 bits, a group larger than a row", drawn(1, 4, 512, 0.4)),
    ]


def _library(layers: tuple, others: int, prompt: int, bits: int, group: int) -> tuple[int, float]:
    from course_lib.lessons.compress.steps.sizes import stored

    return stored(layers, others, prompt, bits, group)


BYTES = Exercise(
    id="compress.bytes",
    title="Bytes of 50 % and 4 bits",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_bytes,
    cases=_bytes_cases,
    library=_library,
    mistakes=(
        Mistake(
            "bitmap forgotten",
            "Nothing says where the weights that are not zero stand. The bitmap takes one bit for every weight, zero "
            "or not: at 50 % and 4 bits half as much as the codes.",
            _but(lambda s, *g: {"bitmap": 0}),
            also=(_but(lambda s, *g: {"bitmap": 0, "starts": 0}),),
        ),
        Mistake(
            "scales forgotten",
            "Scales or zero points are missing. A code is a number of steps on a grid, and without the scale and the "
            "zero point of its group it does not say which weight it stands for.",
            _but(lambda s, *g: {"scales": 0, "zeros": 0}),
            also=(
                _but(lambda s, *g: {"scales": 0}),
                _but(lambda s, *g: {"zeros": 0}),
                _but(lambda s, *g: {"scales": 0, "zeros": 0, "starts": 0}),
            ),
        ),
        Mistake(
            "zeros paid twice",
            "Every weight has a code here, and the zeros are in the bitmap as well. With a bitmap only those that are "
            "not zero are stored.",
            _but(lambda s, layers, o, p, bits, g: {"codes": _all_codes(layers, bits)}),
            also=(_but(lambda s, layers, o, p, bits, g: {"codes": _all_codes(layers, bits), "starts": 0}),),
        ),
        Mistake(
            "nothing pruned",
            "This is the size without pruning: a code for each weight, zero or not, and no bitmap. Store codes of the "
            "weights that are not zero, and the bitmap.",
            _but(lambda s, layers, o, p, bits, g: {"codes": _all_codes(layers, bits), "bitmap": 0, "starts": 0}),
            also=(_but(lambda s, layers, o, p, bits, g: {"codes": _all_codes(layers, bits), "bitmap": 0}),),
        ),
        Mistake(
            "bits for bytes",
            "Bits were added to bytes. Eight bits are a byte; others, prompt and scales have two bytes each.",
            _but(lambda s, layers, o, p, bits, g: {"codes": sum(k * bits for *_, k in layers)}),
            also=(
                _but(lambda s, layers, *g: {"bitmap": sum(r * c for r, c, _ in layers)}),
                lambda *given: (8 * _sizes(*given).total, _sizes(*given).dense / (8 * _sizes(*given).total)),
                lambda *given: (8 * _sizes(*given).total, _bytes(*given)[1]),
                _but(lambda s, *g: {"others": 8 * s.others}),
                _but(lambda s, *g: {"others": 8 * s.others, "prompt": 8 * s.prompt}),
                _but(
                    lambda s, layers, o, p, bits, g: {
                        "codes": sum(k * bits for *_, k in layers),
                        "bitmap": 8 * s.bitmap,
                    }
                ),
                _but(
                    lambda s, layers, o, p, bits, g: {
                        "codes": sum(k * bits for *_, k in layers),
                        "bitmap": sum(r * c for r, c, _ in layers),
                    }
                ),
            ),
        ),
        Mistake(
            "codes not packed",
            "K codes of `bits` bits fill K · bits / 8 bytes. Here each code took a whole byte, or K was divided by the "
            "bits.",
            _but(lambda s, layers, o, p, bits, g: {"codes": sum(k for *_, k in layers)}),
            also=(_but(lambda s, layers, o, p, bits, g: {"codes": sum(_up(k, bits) for *_, k in layers)}),),
        ),
        Mistake(
            "embedding left out",
            "What is neither pruned nor rounded is missing: embedding and norms are read and stored as well, in 16 "
            "bits, on both sides of the ratio.",
            _but(lambda s, *g: {"others": 0, "dense": s.dense - s.others}),
            also=(
                _but(lambda s, *g: {"others": 0}),
                _but(lambda s, *g: {"dense": s.dense - s.others}),
                _times(lambda s: (s.dense - s.others) / (s.total - s.others)),
            ),
        ),
        Mistake(
            "prompt forgotten",
            "The prompt has to be stored too, P · D numbers of 16 bits.",
            _but(lambda s, *g: {"prompt": 0}),
            also=(
                _times(lambda s: s.dense / (s.total - s.prompt)),
                lambda *given: (_sizes(*given).total - _sizes(*given).prompt, _bytes(*given)[1]),
            ),
        ),
        Mistake(
            "prompt in the dense model",
            "The model that it is compared with has no prompt.",
            _but(lambda s, *g: {"dense": s.dense + s.prompt}),
        ),
        Mistake(
            "others rounded as well",
            "The others, or the prompt, were counted with the codes' bits. They stay in 16 bits.",
            _but(lambda s, given, others, p, bits, g: {"others": _up(others * bits, 8)}),
            also=(
                _but(lambda s, given, others, p, bits, g: {"others": others * bits / 8}),
                _but(lambda s, given, o, prompt, bits, g: {"prompt": prompt * bits / 8}),
                _but(lambda s, given, o, prompt, bits, g: {"prompt": _up(prompt * bits, 8)}),
            ),
        ),
        Mistake(
            "another number format",
            "Some numbers were counted with 4 bytes. Scales, others and the prompt have 16 bits, 2 bytes, and so have "
            "all numbers of the dense model.",
            _but(lambda s, *g: {"dense": 2 * s.dense}),
            also=(
                _but(lambda s, *g: {"others": 2 * s.others}),
                _but(lambda s, *g: {"others": 2 * s.others, "prompt": 2 * s.prompt}),
                _but(lambda s, *g: {"others": 2 * s.others, "prompt": 2 * s.prompt, "dense": 2 * s.dense}),
                _but(lambda s, *g: {"scales": 2 * s.scales}),
                _but(lambda s, *g: {"prompt": 2 * s.prompt}),
                _but(lambda s, *g: {name: 2 * getattr(s, name) for name in ("scales", "others", "prompt", "dense")}),
            ),
        ),
        Mistake(
            "by bits a weight alone",
            "This is 16 bits over bits times density, or without what the grid, the map, the others and the prompt "
            "take: the 8 times of a slide, which nothing stored comes to.",
            lambda layers, o, p, bits, g: (
                sum(k * bits / 8 for *_, k in layers),
                sum(r * c for r, c, _ in layers) * 16 / sum(k * bits for *_, k in layers),
            ),
            also=(
                _times(lambda s: s.dense / s.codes),
                _times(lambda s: 8.0),
                lambda layers, o, p, bits, g: (_bytes(layers, o, p, bits, g)[0], 32 / bits),
                lambda layers, o, p, bits, g: (
                    _bytes(layers, o, p, bits, g)[0],
                    sum(r * c for r, c, _ in layers) * 16 / sum(k * bits for *_, k in layers),
                ),
                _but(lambda s, *g: {"bitmap": 0, "starts": 0, "scales": 0, "zeros": 0}),
                _but(lambda s, *g: {"bitmap": 0, "starts": 0, "scales": 0, "zeros": 0, "others": 0, "prompt": 0}),
                _but(lambda s, *g: {"bitmap": 0, "starts": 0, "scales": 0, "zeros": 0, "prompt": 0}),
            ),
        ),
        Mistake(
            "not those groups",
            "The groups are runs of columns, zeros included: every row has ⌈I / group⌉ of them, and the last may be "
            "shorter.",
            _but(
                lambda s, layers, o, p, bits, group: _grids(
                    [_up(k, group) for *_, k in layers], layers, bits, whole=True
                )
            ),
            also=(
                _but(lambda s, layers, o, p, bits, group: _grids([c // group for _, c, _ in layers], layers, bits)),
                _but(
                    lambda s, layers, o, p, bits, group: _grids(
                        [_up(r * c, group) for r, c, _ in layers], layers, bits, whole=True
                    )
                ),
                _but(
                    lambda s, layers, o, p, bits, group: _grids(
                        [r * c // group for r, c, _ in layers], layers, bits, whole=True
                    )
                ),
                _but(lambda s, layers, o, p, bits, group: _grids([1 for _ in layers], layers, bits)),
                _but(
                    lambda s, layers, o, p, bits, group: _grids(
                        [c / group for _, c, _ in layers], layers, bits, exact=True
                    )
                ),
            ),
        ),
        Mistake(
            "zero points not packed",
            "A zero point is a code, of `bits` bits, packed in whole bytes for each row. Only the scale has 16 bits.",
            _but(lambda s, *g: {"zeros": s.scales}),
            also=(_but(lambda s, *g: {"zeros": s.scales / 2}),),
        ),
        Mistake(
            "row starts forgotten",
            "Starts of rows are missing: each layer has O + 1 of them, of 4 bytes each. Without them row i is found "
            "only by counting the bits of all rows before.",
            _but(lambda s, *g: {"starts": 0}),
            also=(
                _but(lambda s, layers, *g: {"starts": sum(4 * r for r, _, _ in layers)}),
                _but(lambda s, layers, *g: {"starts": 4 * (sum(r for r, _, _ in layers) + 1)}),
            ),
        ),
        Mistake(
            "parts of bytes",
            "A row of the bitmap, the codes of a layer and the zero points of a row end with a whole byte: round each "
            "of them up.",
            _but(
                lambda s, layers, o, p, bits, group: {
                    "codes": sum(k * bits for *_, k in layers) / 8,
                    "bitmap": sum(r * c for r, c, _ in layers) / 8,
                    "zeros": sum(r * _up(c, group) * bits for r, c, _ in layers) / 8,
                }
            ),
            also=(
                _but(lambda s, layers, *g: {"bitmap": sum(r * c for r, c, _ in layers) / 8}),
                _but(lambda s, layers, *g: {"bitmap": sum(r * (c // 8) for r, c, _ in layers)}),
                _but(lambda s, layers, *g: {"bitmap": sum(r * c // 8 for r, c, _ in layers)}),
                _but(lambda s, layers, *g: {"bitmap": sum(_up(r * c, 8) for r, c, _ in layers)}),
                _but(
                    lambda s, layers, o, p, bits, group: {
                        "zeros": sum(r * _up(c, group) * bits for r, c, _ in layers) / 8
                    }
                ),
                _but(
                    lambda s, layers, o, p, bits, group: {
                        "bitmap": sum(r * c for r, c, _ in layers) / 8,
                        "zeros": sum(r * _up(c, group) * bits for r, c, _ in layers) / 8,
                    }
                ),
                _but(
                    lambda s, layers, o, p, bits, group: {
                        "zeros": sum(_up(r * _up(c, group) * bits, 8) for r, c, _ in layers)
                    }
                ),
                _but(
                    lambda s, layers, o, p, bits, group: {
                        "codes": sum(k * bits // 8 for *_, k in layers),
                        "bitmap": sum(r * c // 8 for r, c, _ in layers),
                        "zeros": sum(r * (_up(c, group) * bits // 8) for r, c, _ in layers),
                    }
                ),
            ),
        ),
        Mistake(
            "the zeros stored instead",
            "The third number of a layer is how many weights are not zero, and these are stored. Here it was the "
            "others.",
            _but(lambda s, layers, o, p, bits, g: {"codes": sum(_up((r * c - k) * bits, 8) for r, c, k in layers)}),
        ),
        Mistake(
            "a map of some weights",
            "The bitmap has one bit for every weight, zero or not, rows · columns in all: that is how it says which "
            "are zero. Here only some of the weights had a bit.",
            _but(lambda s, layers, o, p, bits, g: {"bitmap": sum(_up(k, 8) for r, c, k in layers)}),
            also=(
                _but(lambda s, layers, o, p, bits, g: {"bitmap": sum(_up(r * c - k, 8) for r, c, k in layers)}),
                _but(lambda s, layers, o, p, bits, g: {"bitmap": sum(k / 8 for r, c, k in layers)}),
            ),
        ),
        Mistake(
            "column numbers for the map",
            "A number was stored for each weight that is left, as sparse formats for few weights do. A bitmap takes "
            "one bit for each weight, zero or not, and at half of the weights far less than numbers of 16 or 32 bits.",
            _but(lambda s, layers, *g: {"bitmap": sum(4 * k for *_, k in layers)}),
            also=(
                _but(lambda s, layers, *g: {"bitmap": sum(2 * k for *_, k in layers)}),
                _but(lambda s, layers, *g: {"bitmap": sum(4 * k for *_, k in layers), "starts": 0}),
                _but(lambda s, layers, *g: {"bitmap": sum(2 * k for *_, k in layers), "starts": 0}),
                _but(lambda s, layers, *g: {"bitmap": sum(8 * k for *_, k in layers)}),
            ),
        ),
        Mistake(
            "another unit",
            "Bytes are asked for. These are kilobytes, megabytes, or bits a weight.",
            lambda *given: (_sizes(*given).total / 1e6, _bytes(*given)[1]),
            also=(
                lambda *given: (_sizes(*given).total / 1e3, _bytes(*given)[1]),
                lambda *given: (_sizes(*given).total / 2**20, _bytes(*given)[1]),
                lambda *given: (_sizes(*given).total / 2**10, _bytes(*given)[1]),
                lambda layers, *rest: (
                    8 * _sizes(layers, *rest).total / sum(r * c for r, c, _ in layers),
                    _bytes(layers, *rest)[1],
                ),
            ),
        ),
        Mistake(
            "upside down",
            "This is the share that is left, or what is saved. How many times smaller is dense divided by stored.",
            _times(lambda s: s.total / s.dense),
            also=(_times(lambda s: 1 - s.total / s.dense), _times(lambda s: s.dense / s.total - 1)),
        ),
        Mistake(
            "not these two numbers",
            "Two numbers are asked for: first the bytes, then how many times fewer these are than in the dense model.",
            lambda *given: _bytes(*given)[0],
            also=(lambda *given: _bytes(*given)[::-1], lambda *given: (_sizes(*given).total, _sizes(*given).dense)),
        ),
    ),
    also_right=(
        Variant("layer by layer", lambda *given: _by_layers(*given)),
        Variant("in bits, at last divided by 8", lambda *given: _in_bits(*given)),
        Variant("a tensor", lambda *given: torch.tensor(_bytes(*given), dtype=torch.float64)),
    ),
    hints=(
        "Five things are stored of a layer: codes, bitmap, row starts, scales and zero points. Write down the bytes of "
        "each for the case by hand.",
        "A row has ⌈I / group⌉ groups. Its scales are 2 bytes each, its zero points together ⌈groups · bits / 8⌉, "
        "its part of the bitmap ⌈I / 8⌉.",
        "The dense model is 2 · (Σ rows · columns + others). Divide it by all that is stored, prompt included.",
    ),
)


def _grids(
    groups: list[Number], layers: tuple, bits: int, whole: bool = False, exact: bool = False
) -> dict[str, Number]:
    """Scales and zero points for so many groups a row, or, where `whole`, a layer."""
    n_rows = [1 if whole else rows for rows, _, _ in layers]
    zeros = [n * bits / 8 if exact else _up(n * bits, 8) for n in groups]
    return {
        "scales": sum(2 * rows * n for rows, n in zip(n_rows, groups, strict=True)),
        "zeros": sum(rows * n for rows, n in zip(n_rows, zeros, strict=True)),
    }


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
