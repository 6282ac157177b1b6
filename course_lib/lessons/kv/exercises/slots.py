"""The exercise kv.slots, "How many tokens fit": its cases and its named mistakes."""

import math

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _slots(n_bytes, n_blocks, n_query, n_key_value, head_size, batch, value_bytes):
    return n_bytes // (2 * n_blocks * n_key_value * head_size * value_bytes * batch)


def _slots_cases(generator: torch.Generator) -> list[Case]:
    random_sizes = torch.randint(2, 9, (3, 5), generator=generator).tolist()
    return [
        Case("1050 bytes, a tiny model: 10 slots of 96", (1050, 2, 6, 3, 4, 1, 2)),
        Case("SmolLM2-135M, 8 sequences, 100 MB, float32", (100_000_000, 30, 9, 3, 64, 8, 4)),
        Case("Llama-2-70B, 64 sequences, 400 GB, float16", (400 * 10**9, 80, 64, 8, 128, 64, 2)),
        Case("it fits exactly", (5 * 96, 2, 6, 3, 4, 1, 2)),
        Case("5 tokens, 3 sequences: one slot each, two bytes per number", (5 * 96, 2, 6, 3, 4, 3, 2)),
        Case("not enough for one token: no slot", (20, 2, 6, 3, 4, 1, 2)),
        *(
            Case(f"random sizes, {i + 1}", (10**6 * g + 12_345, n, (g + 1) * h, h, 16 * d, b, 2 + 2 * (i % 2)))
            for i, (n, h, d, b, g) in enumerate(random_sizes)
        ),
    ]


SLOTS = Exercise(
    id="kv.slots",
    title="How many tokens fit",
    difficulty=2,
    minutes=6,
    points=2,
    reference=_slots,
    cases=_slots_cases,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("floor of a quotient", lambda m, n, q, h, d, b, v: math.floor(m / (2 * n * h * d * v * b))),
        Variant("step by step", lambda m, n, q, h, d, b, v: m // v // d // h // n // b // 2),
    ),
    hints=(
        "How many bytes does a token take: in one head, in all heads of a block, in all blocks?",
        "2 · blocks · key-value heads · head size · bytes per number, for each sequence. Then divide, and round down.",
    ),
)
