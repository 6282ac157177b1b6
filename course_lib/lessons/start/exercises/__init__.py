"""Lesson 00: the first exercises, their cases and their named mistakes.

Dimension key: O outputs of a layer, I its inputs, N tokens, B sequences, L blocks, H key-value heads, D their size.
"""

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.start.figures import two_times

LESSON = "00 Start here"


# start.sparsity --------------------------------------------------------------------------------------------------


def _sparsity_cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[0.0, 2.0, 0.0, -1.0], [3.0, 0.0, -0.0, 5.0], [1.0, 1.0, 1.0, 1.0]])
    tiny = torch.tensor([[1e-30, 0.0], [-1e-6, 1.0]])
    drawn = torch.rand(7, 11, generator=generator)
    return [
        Case("3 × 4, four zeros, one of them negative", (by_hand,)),
        Case("numbers that are tiny but not zero", (tiny,)),
        Case("three axes", (torch.rand(2, 3, 5, generator=generator).round(),)),
        Case("nothing but zeros", (torch.zeros(4, 2),)),
        Case("random, a third of it zero", (drawn * (drawn > 1 / 3),)),
    ]


SPARSITY = Exercise(
    id="start.sparsity",
    title="The sparsity of a tensor",
    difficulty=1,
    minutes=3,
    points=1,
    reference=lambda tensor: (tensor == 0).double().mean().item(),
    cases=_sparsity_cases,
    mistakes=(
        Mistake(
            "density",
            "This is the share of entries that are not zero, called density. Sparsity is one minus it.",
            lambda tensor: (tensor != 0).double().mean().item(),
        ),
        Mistake(
            "a count",
            "This is the number of zeros. Divide it by the number of entries.",
            lambda tensor: (tensor == 0).sum().item(),
        ),
        Mistake(
            "small counts as zero",
            "Entries close to zero were counted. Only exact zeros can be left out without changing the result.",
            lambda tensor: (tensor.abs() < 1e-3).double().mean().item(),
            also=(
                lambda tensor: (tensor.abs() <= 1e-6).double().mean().item(),
                lambda tensor: torch.isclose(tensor, torch.zeros(())).double().mean().item(),
            ),
        ),
        Mistake(
            "divided by the rows",
            "len(tensor) is the number of rows. All entries together are tensor.numel().",
            lambda tensor: (tensor == 0).sum().item() / len(tensor),
        ),
    ),
    also_right=(
        Variant("count of what is not zero", lambda tensor: 1 - torch.count_nonzero(tensor).item() / tensor.numel()),
        Variant("a tensor with one entry", lambda tensor: (tensor == 0).float().mean()),
        Variant("a loop", lambda tensor: sum(x == 0 for x in tensor.flatten().tolist()) / tensor.numel()),
    ),
    hints=(
        "Comparing a tensor with 0 gives True and False for every entry.",
        "True counts as 1, so the mean of the comparison is the share of zeros. mean() wants a floating dtype.",
    ),
)


# start.intensity -------------------------------------------------------------------------------------------------


def _intensity(n_outputs: int, n_inputs: int, n_tokens: int, value_bytes: int | float) -> float:
    flops = 2 * n_outputs * n_inputs * n_tokens
    values = n_outputs * n_inputs + n_tokens * (n_outputs + n_inputs)
    return flops / (value_bytes * values)


def _intensity_cases(generator: torch.Generator) -> list[Case]:
    drawn = torch.randint(1, 2000, (2, 3), generator=generator).tolist()
    return [
        Case("2 × 2, one token: 8 FLOPs, 8 numbers of 4 bytes", (2, 2, 1, 4)),
        Case("one token through a layer of SmolLM2's MLP", (1536, 576, 1, 4)),
        Case("512 tokens through the same layer, two bytes a number", (1536, 576, 512, 2)),
        *(Case("random sizes", (*sizes, width)) for sizes, width in zip(drawn, (4, 2), strict=True)),
    ]


INTENSITY = Exercise(
    id="start.intensity",
    title="FLOPs a byte",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_intensity,
    cases=_intensity_cases,
    mistakes=(
        Mistake(
            "one FLOP a weight",
            "Each weight is multiplied and then added: two FLOPs a token, not one.",
            lambda o, i, n, b: o * i * n / (b * (o * i + n * (o + i))),
        ),
        Mistake(
            "weights only",
            "The inputs must be read and the outputs written too: N (I + O) more numbers cross the bus.",
            lambda o, i, n, b: 2 * o * i * n / (b * o * i),
        ),
        Mistake(
            "weights read for every token",
            "The weight is read once and used for all N tokens. That is why many tokens at once are cheap.",
            lambda o, i, n, b: 2 * o * i * n / (b * n * (o * i + o + i)),
        ),
        Mistake(
            "FLOPs a number",
            "This divides by the count of numbers. Each of them takes value_bytes bytes.",
            lambda o, i, n, b: 2 * o * i * n / (o * i + n * (o + i)),
        ),
    ),
    also_right=(
        Variant("harmonic form", lambda o, i, n, b: 2 / (b * (1 / n + 1 / o + 1 / i))),
        Variant("as Work", lambda o, i, n, b: torch.tensor(2.0 * o * i * n) / (b * (o * i + n * o + n * i))),
    ),
    hints=(
        "Count two things: what is computed, and what crosses the memory bus once.",
        "2 O I N FLOPs. Numbers moved: the weight O I, the inputs N I, the outputs N O.",
    ),
)


# start.step_seconds ----------------------------------------------------------------------------------------------


def _step_cases(generator: torch.Generator) -> list[Case]:
    drawn = torch.rand(2, 2, generator=generator, dtype=torch.float64).tolist()
    memory, arithmetic = ((10**-x, 10**-x * (1.5 + 8 * y)) for x, y in drawn)  # the shorter and the longer time
    return [
        Case("memory decides: 2 GFLOP and 4 GB at 100 GFLOP/s and 10 GB/s", (2e9, 4e9, 1e11, 1e10)),
        Case("arithmetic decides: 200 GFLOP and 1 GB", (2e11, 1e9, 1e11, 1e10)),
        Case("both take equally long", (1e11, 1e10, 1e11, 1e10)),
        Case("random, memory decides", (1e11 * memory[0], 1e10 * memory[1], 1e11, 1e10)),
        Case("random, arithmetic decides", (1e11 * arithmetic[1], 1e10 * arithmetic[0], 1e11, 1e10)),
    ]


def _step_picture(case: Case, got, expected):
    return two_times(*case.arguments, got=got, expected=expected)


STEP_SECONDS = Exercise(
    id="start.step_seconds",
    title="The roofline",
    difficulty=2,
    minutes=8,
    points=2,
    reference=lambda flops, n_bytes, flops_per_second, bytes_per_second: max(
        flops / flops_per_second, n_bytes / bytes_per_second
    ),
    cases=_step_cases,
    picture=_step_picture,
    mistakes=(
        Mistake(
            "sum of the two",
            "Reading and computing go on at the same time. The bound is the longer of the two, not their sum.",
            lambda f, b, fs, bs: f / fs + b / bs,
        ),
        Mistake(
            "the shorter of the two",
            "The step is not done before both are: take the longer time.",
            lambda f, b, fs, bs: min(f / fs, b / bs),
        ),
        Mistake(
            "arithmetic alone",
            "The bytes do not count here. When a token is made one at a time, they are all that counts.",
            lambda f, b, fs, bs: f / fs,
        ),
        Mistake(
            "memory alone",
            "The FLOPs do not count here. For a long prompt they decide.",
            lambda f, b, fs, bs: b / bs,
        ),
        Mistake(
            "rates and amounts swapped",
            "Seconds are an amount divided by a rate: FLOPs by FLOPs a second, bytes by bytes a second.",
            lambda f, b, fs, bs: max(fs / f, bs / b),
        ),
    ),
    also_right=(
        Variant("by comparing with the ridge", lambda f, b, fs, bs: f / fs if f / b > fs / bs else b / bs),
        Variant("a tensor", lambda f, b, fs, bs: torch.tensor([f / fs, b / bs]).max()),
    ),
    hints=(
        "How long would the arithmetic take alone? How long the reading alone?",
        "If the two overlap perfectly, the step takes as long as the slower one.",
    ),
)


# start.cache_bytes -----------------------------------------------------------------------------------------------


def _cache_bytes(n_blocks, n_query, n_key_value, head_size, n_tokens, batch, value_bytes):
    return 2 * n_blocks * n_key_value * head_size * n_tokens * batch * value_bytes


def _cache_cases(generator: torch.Generator) -> list[Case]:
    drawn = torch.randint(2, 50, (2, 5), generator=generator).tolist()
    return [
        Case("one token of a model small enough for fingers", (2, 6, 3, 4, 1, 1, 2)),
        Case("SmolLM2-135M, its full context, float32", (30, 9, 3, 64, 8192, 1, 4)),
        Case("Llama-2-70B, 8192 tokens, 64 sequences, float16", (80, 64, 8, 128, 8192, 64, 2)),
        *(Case("random sizes", (n, 4 * h, h, d, t, b, 2)) for n, h, d, t, b in drawn),
    ]


CACHE_BYTES = Exercise(
    id="start.cache_bytes",
    title="The key-value cache",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_cache_bytes,
    cases=_cache_cases,
    mistakes=(
        Mistake(
            "keys or values, not both",
            "Keys and values are both kept: twice this.",
            lambda n, q, h, d, t, b, v: n * h * d * t * b * v,
        ),
        Mistake(
            "query heads counted",
            "Queries are not kept, and several query heads share one key-value head: count n_key_value heads.",
            lambda n, q, h, d, t, b, v: 2 * n * q * d * t * b * v,
        ),
        Mistake(
            "one block",
            "Every block has keys and values of its own: multiply by n_blocks.",
            lambda n, q, h, d, t, b, v: 2 * h * d * t * b * v,
        ),
        Mistake(
            "one sequence",
            "Nothing is shared between the sequences of a batch: multiply by batch.",
            lambda n, q, h, d, t, b, v: 2 * n * h * d * t * v,
        ),
        Mistake(
            "numbers, not bytes",
            "This counts numbers. Each takes value_bytes bytes.",
            lambda n, q, h, d, t, b, v: 2 * n * h * d * t * b,
        ),
    ),
    also_right=(
        Variant("float", lambda n, q, h, d, t, b, v: float(2 * n * h * d * t * b * v)),
        Variant("keys plus values", lambda n, q, h, d, t, b, v: n * (h * d * t * b * v + h * d * t * b * v)),
    ),
    hints=(
        "For one token in one block: what does attention need of it later?",
        "A key and a value for each key-value head, head_size numbers each. Then: blocks, tokens, sequences, bytes.",
    ),
)


# start.speedup ---------------------------------------------------------------------------------------------------


def _speedup_cases(generator: torch.Generator) -> list[Case]:
    drawn = (0.05 + 0.9 * torch.rand(2, 3, generator=generator, dtype=torch.float64)).tolist()
    return [
        Case("half of the time, twice as fast: 4/3", (0.5, 2.0)),
        Case("nothing is sped up", (0.0, 8.0)),
        Case("all of it, 4 times", (1.0, 4.0)),
        Case("80 % of the time, free", (0.8, float("inf"))),
        *(Case("random", (share, 1 + 9 * other)) for share, other in zip(*drawn, strict=True)),
    ]


SPEEDUP = Exercise(
    id="start.speedup",
    title="What is left when a part gets faster",
    difficulty=2,
    minutes=6,
    points=2,
    reference=lambda share, factor: 1 / (1 - share + share / factor),
    cases=_speedup_cases,
    mistakes=(
        Mistake(
            "the rest forgotten",
            "Only the part that got faster is counted. The other 1 - share of the time is still there.",
            lambda share, factor: factor / share if share else float("inf"),
            also=(lambda share, factor: factor / share,),
        ),
        Mistake(
            "speeds averaged",
            "Speeds do not average by time: add up the times that remain, then divide the old time by the new.",
            lambda share, factor: 1 - share + share * factor if share else 1.0,
        ),
        Mistake(
            "the time that is left",
            "This is the new time as a share of the old. The speed-up is its inverse.",
            lambda share, factor: 1 - share + share / factor,
        ),
        Mistake(
            "the whole sped up",
            "This is the speed-up of the part. The whole gains less, unless share is 1.",
            lambda share, factor: factor,
        ),
    ),
    also_right=(
        Variant("one fraction", lambda share, factor: 1 / (1 - share * (1 - 1 / factor))),
        Variant("old time over new time", lambda share, factor: 100 / (100 * (1 - share) + 100 * share / factor)),
    ),
    hints=(
        "Say the step took 1 second. How long does the untouched part take now, and how long the other?",
        "New time = (1 - share) + share / factor. The speed-up is the old time, 1, divided by it.",
    ),
)


EXERCISES = (SPARSITY, INTENSITY, STEP_SECONDS, SPEEDUP, CACHE_BYTES)
