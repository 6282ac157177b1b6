"""The exercise sparsegpt.bits, "Bits a weight": its cases and its named mistakes."""

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _bits(sparsity: float, value_bits: int, group_size: int, grid_bits: int) -> float:
    return (1 if sparsity else 0) + (1 - sparsity) * value_bits + grid_bits / group_size


BITS = Exercise(
    id="sparsegpt.bits",
    title="Bits a weight",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_bits,
    cases=lambda generator: [
        Case("half of the weights, 4 bits: 1 + 2 + 32/128", (0.5, 4, 128, 32)),
        Case("dense, 3 bits, the same grid", (0.0, 3, 128, 32)),
        Case("three quarters gone, 8 bits, groups of 64", (0.75, 8, 64, 32)),
        Case("a quarter gone, 4 bits, a grid of 40 bits for 16 weights", (0.25, 4, 16, 40)),
        Case("a drawn share below one half", (float(0.1 + 0.3 * torch.rand((), generator=generator)), 5, 32, 24)),
    ],
    mistakes=(
        Mistake(
            "the map forgotten",
            "Someone must say which weights are stored: a bitmap takes one bit for every weight, stored or not.",
            lambda s, v, g, q: (1 - s) * v + q / g,
        ),
        Mistake(
            "a map for a dense layer",
            "Where all weights are stored, no map is needed.",
            lambda s, v, g, q: 1 + (1 - s) * v + q / g,
        ),
        Mistake(
            "a map from one half on",
            "Whatever the share that leaves, something must say which weights these are: one bit a weight if s > 0.",
            lambda s, v, g, q: (1 if s >= 0.5 else 0) + (1 - s) * v + q / g,
            also=(lambda s, v, g, q: (1 if s > 0.5 else 0) + (1 - s) * v + q / g,),
        ),
        Mistake(
            "a map of the zeros alone",
            "The map has a bit for every weight, and not only for the share s that leaves.",
            lambda s, v, g, q: s + (1 - s) * v + q / g,
        ),
        Mistake(
            "rounded",
            "Bits a weight are a mean and need not be whole: divide with /, and round nothing.",
            lambda s, v, g, q: (1 if s else 0) + (1 - s) * v + q // g,
            also=(lambda s, v, g, q: round(_bits(s, v, g, q)), lambda s, v, g, q: int(_bits(s, v, g, q))),
        ),
        Mistake(
            "for another unit",
            "Asked for are bits a weight, counting all weights: not bytes, not the bits of a group, and not shared by "
            "the weights that are stored alone.",
            lambda s, v, g, q: _bits(s, v, g, q) / 8,
            also=(lambda s, v, g, q: g * _bits(s, v, g, q), lambda s, v, g, q: _bits(s, v, g, q) / (1 - s)),
        ),
        Mistake(
            "group size over grid bits",
            "The fraction is upside down: grid_bits are shared by group_size weights.",
            lambda s, v, g, q: (1 if s else 0) + (1 - s) * v + g / q,
        ),
        Mistake(
            "zeros stored too",
            "Only the share 1 − s of the values is stored.",
            lambda s, v, g, q: (1 if s else 0) + v + q / g,
        ),
        Mistake(
            "the zeros stored instead",
            "s is the share that leaves; 1 − s is stored.",
            lambda s, v, g, q: (1 if s else 0) + s * v + q / g,
        ),
        Mistake(
            "the grid forgotten",
            "Each group of weights needs its scale and zero point: grid_bits for group_size weights.",
            lambda s, v, g, q: (1 if s else 0) + (1 - s) * v,
        ),
        Mistake(
            "a grid for each weight",
            "One grid serves group_size weights: divide.",
            lambda s, v, g, q: (1 if s else 0) + (1 - s) * v + q,
        ),
        Mistake(
            "a grid for what is stored only",
            "The groups run over all weights of the layer, pruned ones included: grid_bits / group_size a weight.",
            lambda s, v, g, q: (1 if s else 0) + (1 - s) * (v + q / g),
        ),
        Mistake(
            "a map for what is stored only",
            "The map has a bit for every weight, stored or not.",
            lambda s, v, g, q: (1 - s) * (v + (1 if s else 0)) + q / g,
        ),
    ),
    also_right=(
        Variant(
            "for one group, then divided",
            lambda s, v, g, q: (g * (s > 0) + g * (1 - s) * v + q) / g,
        ),
        Variant("a tensor", lambda s, v, g, q: torch.tensor(_bits(s, v, g, q), dtype=torch.float64)),
    ),
    hints=(
        "Count for one group of group_size weights: its values, its map, its grid. Then divide.",
        "Values: (1 − s) · value_bits a weight. Map: 1 bit a weight, if s > 0. Grid: grid_bits / group_size a weight.",
    ),
)
