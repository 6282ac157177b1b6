"""The exercise kv.slots, "How many tokens fit": its cases and its named mistakes."""

import math

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _slots(n_bytes, n_blocks, n_query, n_key_value, head_size, batch, value_bytes):
    return n_bytes // (2 * n_blocks * n_key_value * head_size * value_bytes * batch)


def _slots_cases(generator: torch.Generator) -> list[Case]:
    random_sizes = torch.randint(2, 9, (3, 5), generator=generator).tolist()
    return [
        Case("1050 bytes, a model small enough for fingers: 10 slots of 96", (1050, 2, 6, 3, 4, 1, 2)),
        Case("SmolLM2-135M, 8 sequences, 100 MB, float32", (100_000_000, 30, 9, 3, 64, 8, 4)),
        Case("Llama-2-70B, 64 sequences, 400 GB, float16", (400 * 10**9, 80, 64, 8, 128, 64, 2)),
        Case("it fits exactly", (5 * 96, 2, 6, 3, 4, 1, 2)),
        Case("5 tokens, 3 sequences: one slot each, two bytes a number", (5 * 96, 2, 6, 3, 4, 3, 2)),
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
    mistakes=(
        Mistake(
            "query heads counted",
            "Only key-value heads are cached. Query heads of a group read the same keys and values.",
            lambda m, n, q, h, d, b, v: m // (2 * n * q * d * v * b),
        ),
        Mistake(
            "keys or values, not both",
            "A token leaves a key and a value in every head: twice as many numbers.",
            lambda m, n, q, h, d, b, v: m // (n * h * d * v * b),
        ),
        Mistake(
            "one block",
            "Every block has a cache of its own: multiply by the number of blocks.",
            lambda m, n, q, h, d, b, v: m // (2 * h * d * v * b),
        ),
        Mistake(
            "one sequence",
            "Sequences of a batch share weights, not keys: each needs slots of its own. Divide the memory by `batch`; "
            "here the batch was left out, or multiplied.",
            lambda m, n, q, h, d, b, v: m // (2 * n * h * d * v),
            also=(lambda m, n, q, h, d, b, v: m * b // (2 * n * h * d * v),),
        ),
        Mistake(
            "numbers instead of bytes",
            "A number takes value_bytes bytes.",
            lambda m, n, q, h, d, b, v: m // (2 * n * h * d * b),
        ),
        Mistake(
            "all heads together",
            "This counts the slots of all heads. The budget is that of each head; a token takes a slot in every one.",
            lambda m, n, q, h, d, b, v: m // (2 * n * d * v * b),
        ),
        Mistake(
            "rounded up",
            "The last slot would not fit: round down.",
            lambda m, n, q, h, d, b, v: -(-m // (2 * n * h * d * v * b)),
            also=(
                lambda m, n, q, h, d, b, v: m // (2 * n * h * d * v * b) + 1,
                lambda m, n, q, h, d, b, v: round(m / (2 * n * h * d * v * b)),
            ),
        ),
        Mistake(
            "not rounded",
            "Slots are whole: round down.",
            lambda m, n, q, h, d, b, v: m / (2 * n * h * d * v * b),
        ),
        Mistake(
            "one at least",
            "Where not even one token fits, there is no slot: the answer is 0.",
            lambda m, n, q, h, d, b, v: max(1, _slots(m, n, q, h, d, b, v)),
        ),
    ),
    also_right=(
        Variant("floor of a quotient", lambda m, n, q, h, d, b, v: math.floor(m / (2 * n * h * d * v * b))),
        Variant("step by step", lambda m, n, q, h, d, b, v: m // v // d // h // n // b // 2),
    ),
    hints=(
        "How many bytes does one token take: in one head, in all heads of a block, in all blocks?",
        "2 · blocks · key-value heads · head size · bytes of a number, for each sequence. Then divide, and round down.",
    ),
)
