"""The exercise minitron.count, "How many parameters": its cases and its named mistakes.

Dimension key, the arguments in their order: w width, n blocks, f neurons, h query heads, g key-value heads, s size of a
head, v words of the vocabulary.
"""

from collections.abc import Callable
from functools import partial

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _count(w, n, f, h, g, s, v):
    attention = 2 * w * s * (h + g)  # queries and output; keys and values
    return v * w + n * (attention + 3 * w * f + 2 * w) + w


def _off_by(difference: Callable[..., int]) -> Callable[..., int]:
    """The answer and what is counted too much, or too little where that is below zero."""
    return lambda *sizes: _count(*sizes) + difference(*sizes)


def _count_cases(generator: torch.Generator) -> list[Case]:
    drawn = partial(whole, generator)

    def sizes() -> tuple[int, ...]:
        of_a_group, groups = drawn(2, 5), drawn(6, 9)
        heads = of_a_group * groups
        # The size of a head is said, since it is not what is left of the width for each.
        return heads * drawn(20, 40), drawn(5, 40), drawn(300, 4000), heads, groups, drawn(5, 9) * 8, drawn(500, 9000)

    return [
        Case("small enough for fingers: 60 + 2 × 156 + 6", (6, 2, 4, 2, 1, 2, 10)),
        Case("SmolLM2-135M: 134,515,008", (576, 30, 1536, 9, 3, 64, 49_152)),
        Case("SmolLM2-135M with 6 query heads of 9 and 2 groups of 3", (576, 30, 1536, 6, 2, 64, 49_152)),
        Case("SmolLM2-135M with 540 channels and 1126 neurons", (540, 30, 1126, 9, 3, 64, 49_152)),
        *(Case(f"random sizes, {number}", sizes()) for number in (1, 2, 3)),
    ]


def _library(width: int, blocks: int, neurons: int, heads: int, groups: int, head_size: int, vocabulary: int) -> int:
    from course_lib.pruning.structured.shape import Shape, count

    shape = Shape(width=width, blocks=blocks, neurons=neurons, heads=heads, groups=groups)
    norms = (2 * blocks + 1) * width
    return sum(count(shape, vocabulary=vocabulary, head_size=head_size).values()) + norms


COUNT = Exercise(
    id="minitron.count",
    title="How many parameters",
    difficulty=2,
    minutes=7,
    points=2,
    reference=_count,
    cases=_count_cases,
    library=_library,
    mistakes=(
        Mistake(
            "tied head twice",
            "The head is the embedding once more: the same numbers, which the model has once.",
            _off_by(lambda w, n, f, h, g, s, v: v * w),
        ),
        Mistake(
            "keys and values as wide as queries",
            "Keys and values have only as many heads as there are groups.",
            _off_by(lambda w, n, f, h, g, s, v: n * 2 * w * s * (h - g)),
        ),
        Mistake(
            "size of a head from the width",
            "width / heads is the size of a head before heads leave. Afterwards there are fewer of the same size: take "
            "head_size.",
            lambda w, n, f, h, g, s, v: _count(w, n, f, h, g, w // h, v),
            also=(lambda w, n, f, h, g, s, v: _count(w, n, f, h, g, w / h, v),),
        ),
        Mistake(
            "queries and output square",
            "The query projection has heads · head_size outputs and the output projection as many inputs, which is the "
            "width only as long as no head has left.",
            _off_by(lambda w, n, f, h, g, s, v: n * 2 * w * (w - h * s)),
        ),
        Mistake(
            "four square matrices",
            "Attention is not four matrices of width × width: queries and output have heads · head_size on one side, "
            "keys and values groups · head_size.",
            _off_by(lambda w, n, f, h, g, s, v: n * (4 * w * w - 2 * w * s * (h + g))),
        ),
        Mistake(
            "queries or output as narrow as keys",
            "All query heads stay: queries and output have heads · head_size on one side, only keys and values have "
            "groups · head_size.",
            _off_by(lambda w, n, f, h, g, s, v: -n * w * s * (h - g)),
            also=(_off_by(lambda w, n, f, h, g, s, v: -2 * n * w * s * (h - g)),),
        ),
        Mistake(
            "size of a head forgotten",
            "Heads were counted as if each had one row. Each has head_size of them.",
            lambda w, n, f, h, g, s, v: _count(w, n, f, h, g, 1, v),
        ),
        Mistake(
            "two matrices in the MLP",
            "The MLP is gated: gate, up and down, three matrices.",
            _off_by(lambda w, n, f, h, g, s, v: -n * w * f),
        ),
        Mistake(
            "queries or output forgotten",
            "One of the two matrices between the width and heads · head_size is missing. The attention has four: "
            "queries, keys, values, and the output projection after the heads.",
            _off_by(lambda w, n, f, h, g, s, v: -n * w * h * s),
        ),
        Mistake(
            "keys or values, not both",
            "Each group has a key and a value matrix.",
            _off_by(lambda w, n, f, h, g, s, v: -n * w * g * s),
        ),
        Mistake(
            "groups taken for their size",
            "groups says how many key-value heads there are, not how many query heads share one.",
            lambda w, n, f, h, g, s, v: _count(w, n, f, h, h // g, s, v),
        ),
        Mistake(
            "norms forgotten",
            "Each RMSNorm has one weight a channel: two in each block, one behind the last.",
            _off_by(lambda w, n, f, h, g, s, v: -(2 * n + 1) * w),
        ),
        Mistake(
            "last norm forgotten",
            "There is one more norm, behind the last block.",
            _off_by(lambda w, n, f, h, g, s, v: -w),
        ),
        Mistake(
            "one norm a block",
            "A block has two norms: one before the attention, one before the MLP.",
            _off_by(lambda w, n, f, h, g, s, v: -n * w),
        ),
        Mistake(
            "one norm a block and none at the end",
            "Two kinds of norm are missing: a block has two, one before the attention and one before the MLP, and "
            "there is one more after the last block.",
            _off_by(lambda w, n, f, h, g, s, v: -(n + 1) * w),
        ),
        Mistake(
            "one weight a norm",
            "A norm has one weight for each channel, not one in all.",
            _off_by(lambda w, n, f, h, g, s, v: (2 * n + 1) * (1 - w)),
        ),
        Mistake(
            "embedding forgotten",
            "The embedding has a row of the width for every word, and counts as the rest does.",
            _off_by(lambda w, n, f, h, g, s, v: -v * w),
        ),
        Mistake(
            "one block",
            "Every block has matrices and norms of its own: multiply by the number of blocks.",
            lambda w, n, f, h, g, s, v: _count(w, 1, f, h, g, s, v),
        ),
        Mistake(
            "embedding in every block",
            "The embedding stands before the first block, once.",
            _off_by(lambda w, n, f, h, g, s, v: (n - 1) * v * w),
        ),
        Mistake(
            "everything times the blocks",
            "The embedding and the last norm were counted once per block. The model has each of them once.",
            _off_by(lambda w, n, f, h, g, s, v: (n - 1) * (v * w + w)),
        ),
        Mistake(
            "biases counted",
            "No linear has a bias here: outputs times inputs is all.",
            _off_by(lambda w, n, f, h, g, s, v: n * ((h + 2 * g) * s + 2 * w + 2 * f)),
        ),
        Mistake(
            "bytes, or millions",
            "The answer is a number of parameters, neither of bytes nor of millions.",
            lambda *sizes: 4 * _count(*sizes),
            also=(lambda *sizes: 2 * _count(*sizes), lambda *sizes: _count(*sizes) / 1e6),
        ),
    ),
    also_right=(
        Variant("matrix by matrix", lambda *sizes: _matrix_by_matrix(*sizes)),
        Variant("in floating point", lambda *sizes: float(_count(*sizes))),
        Variant("a tensor", lambda *sizes: torch.tensor(_count(*sizes))),
    ),
    hints=(
        "Write down the seven matrices of a block, each as outputs × inputs. Which sides are the width?",
        "Queries and output have heads · head_size on one side, keys and values groups · head_size; gate, up and down "
        "have the neurons. Of every matrix the other side is the width.",
        "Outside of the blocks there is the embedding, vocabulary · width, which is also the head, and one norm.",
    ),
)


def _matrix_by_matrix(w: int, n: int, f: int, h: int, g: int, s: int, v: int) -> int:
    shapes = [(h * s, w), (g * s, w), (g * s, w), (w, h * s), (f, w), (f, w), (w, f), (w, 1), (w, 1)] * n
    return sum(rows * columns for rows, columns in [*shapes, (v, w), (w, 1)])
