"""The exercise dejavu.break_even, "When it pays": its cases and its named mistakes.

Dimension key, the arguments in their order: d width, f neurons, b blocks, r rank, o numbers of others, s density of the
neurons, g factor of gathering, p prompt, n tokens of the answer.
"""

from functools import partial

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Number = int | float


def _when(
    width: int,
    neurons: int,
    blocks: int,
    rank: int,
    others: Number,
    density: Number,
    gather: Number,
    prompt: Number,
    n_tokens: int,
) -> tuple[Number, Number, Number]:
    """All counts are numbers read, times the length of reading one of them in order."""
    mlp = 3 * width * neurons * blocks
    predictor = rank * (width + neurons) * blocks
    kept = gather * density * mlp
    dense = mlp + others
    sparse = kept + predictor + others
    token = dense / sparse
    whole = (prompt + n_tokens) * dense / (prompt * dense + n_tokens * sparse)
    even = max(0.0, (mlp - predictor) / (gather * mlp))
    return token, whole, even


def _whole(token: Number, prompt: Number, n_tokens: int) -> Number:
    """The answer as a whole, from how much faster a token is."""
    return (prompt + n_tokens) / (prompt + n_tokens / token)


def _break_even_cases(generator: torch.Generator) -> list[Case]:
    drawn = partial(whole, generator)

    def share(low: Number, high: Number) -> Number:
        return low + (high - low) * torch.rand((), generator=generator).item()

    def sizes() -> tuple[Number, ...]:
        """A predictor of some per cent of the MLP, and a prompt that is longer or shorter than the answer."""
        width, rank = drawn(200, 900), drawn(16, 80)
        neurons, blocks = width * drawn(3, 9) + 8, drawn(4, 40)
        others = drawn(1, 4) * blocks * width**2
        prompt = share(5.0, 120.0)
        return width, neurons, blocks, rank, others, share(0.05, 0.4), share(1.2, 2.5), prompt, drawn(20, 200)

    smollm2 = (576, 1536, 30, 64, 26_542_080 + 28_311_552)
    return [
        Case("one block by hand: 400 numbers per token, or 256; even at 0.45", (4, 20, 1, 1, 160, 0.15, 2.0, 5.0, 10)),
        Case("SmolLM2, rank 64, a fifth of the neurons", (*smollm2, 0.2, 2.0, 12.0, 100)),
        Case("SmolLM2, nine neurons of ten: slower than dense", (*smollm2, 0.9, 1.8, 30.0, 50)),
        Case("a predictor that is larger than the MLP", (64, 96, 6, 130, 150_000, 0.1, 1.5, 8.0, 40)),
        *(Case(f"random sizes, {number}", sizes()) for number in (1, 2, 3)),
    ]


def _library(*sizes: int | float) -> tuple[int | float, ...]:
    from course_lib.lessons.dejavu.steps import payoff

    return payoff(*sizes)


BREAK_EVEN = Exercise(
    id="dejavu.break_even",
    title="When it pays",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_when,
    cases=_break_even_cases,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_when),
    also_right=(
        Variant("in bytes", lambda *sizes: _in_bytes(*sizes)),
        Variant("a tensor", lambda *sizes: torch.tensor(_when(*sizes))),
        Variant("by Amdahl's law", lambda *sizes: _amdahl(*sizes)),
    ),
    hints=(
        "Write down what a dense token reads, mlp + others, and what a sparse one reads. Which of its parts are read "
        "in order, and which gathered?",
        "Times add up, speeds do not. The prompt takes as long as `prompt` dense tokens, before and after.",
        "At break-even gather · density · mlp + predictor = mlp: `others` has cancelled. Solve for the density, and "
        "take 0 where that is below zero.",
    ),
)


def _in_bytes(d, f, b, r, o, s, g, p, n):
    matrix, seconds = 4.0 * d * f, 1 / 9.7e9
    dense = seconds * (b * 3 * matrix + 4 * o)
    sparse = seconds * (b * (3 * matrix * s * g + 4 * r * d + 4 * f * r) + 4 * o)
    even = (1 - r * (d + f) / (3 * d * f)) / g
    return dense / sparse, (p * dense + n * dense) / (p * dense + n * sparse), even if even > 0 else 0


def _amdahl(d, f, b, r, o, s, g, p, n):
    share = 3 * d * f * b / (3 * d * f * b + o)
    shrunk = g * s + r / 3 * (1 / d + 1 / f)
    token = 1 / (1 - share + share * shrunk)
    decoding = n / (p + n)
    return token, 1 / (1 - decoding + decoding / token), max((1 - r / 3 * (1 / d + 1 / f)) / g, 0.0)
