"""The exercise start.cache_bytes, "The key-value cache": its cases and its named mistakes."""

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _cache_bytes(n_blocks, n_query, n_key_value, head_size, n_tokens, batch, value_bytes):
    return 2 * n_blocks * n_key_value * head_size * n_tokens * batch * value_bytes


def _library(
    n_blocks: int, n_query: int, n_key_value: int, head_size: int, n_tokens: int, batch: int, value_bytes: int
) -> int:
    from course_lib.measure.roofline import Transformer

    sizes = Transformer(n_blocks, n_query * head_size, n_query, n_key_value, head_size, n_neurons=1, vocabulary=1)
    return sizes.cache_bytes(n_tokens, batch, value_bytes)


def _cache_cases(generator: torch.Generator) -> list[Case]:
    random_sizes = torch.randint(2, 50, (2, 5), generator=generator).tolist()
    return [
        Case("one token of a very small model", (2, 6, 3, 4, 1, 1, 2)),
        Case("SmolLM2-135M, its full context, float32", (30, 9, 3, 64, 8192, 1, 4)),
        Case("Llama-2-70B, 4096 tokens, 128 sequences, float16", (80, 64, 8, 128, 4096, 128, 2)),
        *(Case("random sizes", (n, 4 * h, h, d, t, b, 2)) for n, h, d, t, b in random_sizes),
    ]


CACHE_BYTES = Exercise(
    id="start.cache_bytes",
    title="The key-value cache",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_cache_bytes,
    cases=_cache_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("float", lambda n, q, h, d, t, b, v: float(2 * n * h * d * t * b * v)),
        Variant("keys plus values", lambda n, q, h, d, t, b, v: n * (h * d * t * b * v + h * d * t * b * v)),
    ),
    hints=(
        "Take one token in one block: which of its vectors do later tokens need in attention?",
        "A key and a value per key-value head, head_size numbers each. Then: blocks, tokens, sequences, bytes.",
    ),
)
