"""The exercise classic.scale, "What the inverse costs": its cases and its named mistakes.

Dimension key: d weights.
"""

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

SCALE = Exercise(
    id="classic.scale",
    title="What the inverse costs",
    difficulty=2,
    minutes=6,
    points=2,
    reference=lambda d, n, size: (size * d**2, 4 * n * d**2),
    cases=lambda generator: [
        Case("ten weights, three gradients, by hand", (10, 3, 4)),
        Case("a MONK's network, 58 weights, 124 patterns, float64", (58, 124, 8)),
        Case("a row of 576 weights and 2048 tokens", (576, 2048, 4)),
        Case("all weights in the blocks of the default model", (106_168_320, 1000, 2)),
        Case(
            "a drawn number of weights, and of gradients",
            (*torch.randint(100, 9000, (2,), generator=generator).tolist(), 4),
        ),
    ],
    mistakes=(
        Mistake(
            "one number a weight",
            "OBD keeps d numbers. The inverse Hessian is a matrix of d rows and d columns.",
            lambda d, n, size: (size * d, 4 * n * d),
            also=(lambda d, n, size: (size * d, 4 * n * d**2),),
        ),
        Mistake(
            "numbers instead of bytes",
            "d² counts numbers. Each takes bytes_per_number bytes.",
            lambda d, n, size: (d**2, 4 * n * d**2),
        ),
        Mistake(
            "half of the operations",
            "H⁻¹X takes d² multiplications and as many additions, the correction d² products and as many subtractions: "
            "four for each entry of the matrix.",
            lambda d, n, size: (size * d**2, 2 * n * d**2),
            also=(lambda d, n, size: (size * d**2, n * d**2),),
        ),
        Mistake(
            "the matrix divided instead of the vector",
            "Dividing d² entries costs d² operations more. Divide one of the two vectors: d, which is no leading term.",
            lambda d, n, size: (size * d**2, 5 * n * d**2),
        ),
        Mistake(
            "one gradient only",
            "Every gradient corrects the whole matrix once: multiply by their number.",
            lambda d, n, size: (size * d**2, 4 * d**2),
        ),
        Mistake(
            "half of a symmetric matrix",
            "The matrix is symmetric, and half of it would do. The exercise counts the whole, as the code stores it.",
            lambda d, n, size: (size * d * (d + 1) // 2, 4 * n * d**2),
            also=(
                lambda d, n, size: (size * d * (d + 1) // 2, 2 * n * d**2),
                lambda d, n, size: (size * d**2 // 2, 4 * n * d**2),
                lambda d, n, size: (size * d**2 // 2, 2 * n * d**2),
            ),
        ),
        Mistake(
            "the gradients stored, too",
            "The recursion reads one gradient at a time. What has to be held is the inverse, d².",
            lambda d, n, size: (size * (d**2 + n * d), 4 * n * d**2),
            also=(lambda d, n, size: (size * n * d, 4 * n * d**2), lambda d, n, size: (size * n * d**2, 4 * n * d**2)),
        ),
        Mistake(
            "product without its additions",
            "A dot product of d terms has about d additions beside its d multiplications: H⁻¹X costs 2d².",
            lambda d, n, size: (size * d**2, 3 * n * d**2),
        ),
        Mistake(
            "the other way round",
            "The bytes come first, then the FLOPs.",
            lambda d, n, size: (4 * n * d**2, size * d**2),
        ),
        Mistake(
            "in bits",
            "These are bits; a byte has eight.",
            lambda d, n, size: (8 * size * d**2, 4 * n * d**2),
        ),
        Mistake(
            "FLOPs times bytes",
            "An operation is one FLOP, however wide the number is.",
            lambda d, n, size: (size * d**2, 4 * n * d**2 * size),
        ),
        Mistake(
            "gradients squared",
            "Each gradient corrects the matrix once: n times d², not n² times.",
            lambda d, n, size: (size * d**2, 4 * n**2 * d**2),
            also=(lambda d, n, size: (size * d**2, 4 * n**2 * d),),
        ),
        Mistake(
            "cubed",
            "Direct inversion costs d³. The recursion multiplies a matrix with a vector, d², for every gradient.",
            lambda d, n, size: (size * d**2, d**3),
            also=(lambda d, n, size: (size * d**2, 4 * n * d**3), lambda d, n, size: (size * d**2, n * d**3)),
        ),
    ),
    also_right=(
        Variant("as a list of floats", lambda d, n, size: [float(size * d * d), 4.0 * n * d * d]),
        Variant(
            "with the lower-order terms",
            lambda d, n, size: (size * d * d, n * (4 * d * d)),
        ),
    ),
    hints=(
        "How many numbers are in a matrix of d rows and columns? How many does one rank-one correction touch?",
        "H⁻¹X: d² multiplications and about as many additions. The correction: as many again.",
    ),
)
