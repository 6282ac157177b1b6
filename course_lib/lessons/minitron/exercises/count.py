"""The exercise minitron.count, "Count the parameters": its cases and its named mistakes.

Dimension key, the arguments in their order: w width, n blocks, f neurons, h query heads, g key-value heads, s size of a
head, v words of the vocabulary.
"""

from collections.abc import Callable
from functools import partial

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _count(w, n, f, h, g, s, v):
    attention = 2 * w * s * (h + g)  # queries and output; keys and values
    return v * w + n * (attention + 3 * w * f + 2 * w) + w


def _off_by(difference: Callable[..., int]) -> Callable[..., int]:
    """Build the answer plus a number that is counted in excess, or missing if negative."""
    return lambda *sizes: _count(*sizes) + difference(*sizes)


def _count_cases(generator: torch.Generator) -> list[Case]:
    drawn = partial(whole, generator)

    def sizes() -> tuple[int, ...]:
        of_a_group, groups = drawn(2, 5), drawn(6, 9)
        heads = of_a_group * groups
        # The size of a head is said, since it is not what is left of the width for each.
        return heads * drawn(20, 40), drawn(5, 40), drawn(300, 4000), heads, groups, drawn(5, 9) * 8, drawn(500, 9000)

    return [
        Case("by hand: 60 + 2 × 156 + 6", (6, 2, 4, 2, 1, 2, 10)),
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
    title="Count the parameters",
    difficulty=2,
    minutes=7,
    points=2,
    reference=_count,
    cases=_count_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("matrix by matrix", lambda *sizes: _matrix_by_matrix(*sizes)),
        Variant("in floating point", lambda *sizes: float(_count(*sizes))),
        Variant("a tensor", lambda *sizes: torch.tensor(_count(*sizes))),
    ),
    hints=(
        "Write down the seven matrices of a block, each as outputs × inputs. Which sides are the width?",
        "Queries and output have heads · head_size on one side, keys and values groups · head_size; gate, up and down "
        "have the neurons. The other side of every matrix is the width.",
        "Outside of the blocks there is the embedding, vocabulary · width, which is also the LM head, and one norm.",
    ),
)


def _matrix_by_matrix(w: int, n: int, f: int, h: int, g: int, s: int, v: int) -> int:
    shapes = [(h * s, w), (g * s, w), (g * s, w), (w, h * s), (f, w), (f, w), (w, f), (w, 1), (w, 1)] * n
    return sum(rows * columns for rows, columns in [*shapes, (v, w), (w, 1)])
