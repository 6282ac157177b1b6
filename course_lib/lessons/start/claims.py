"""The claims of lesson 00 on sizes, counted from the models' shapes, so that there is no error.

A claim of a size holds where our count is within a tenth of it: slides round, and mix GB with GiB.
"""

import math
from functools import partial

from course_lib.lessons.common.claim import Claim, Unit
from course_lib.lessons.common.verdicts import Effect
from course_lib.measure.roofline import LLAMA2_7B, LLAMA2_70B, Transformer

WITHIN = 0.1
GB, GIB, MIB = 1e9, 2**30, 2**20
SINGLE, HALF = 4, 2  # bytes per number
TEXTS, LENGTH = 64, 8192  # of the batch in the talk on H2O


def about(counted: int | float, claimed: int | float) -> Effect:
    """By how much a count is nearer to a claimed size than a tenth of it."""
    return Effect(value=math.log1p(WITHIN) - abs(math.log(counted / claimed)), error=0.0)


def linear(sizes: Transformer) -> dict[str, Effect]:
    """Twice the text, and twice the texts: how near the cache is to twice as large."""
    one = sizes.cache_bytes(1000)
    twice = {"twice the text": sizes.cache_bytes(2000), "twice the batch": sizes.cache_bytes(1000, batch=2)}
    return {name: Effect(value=WITHIN - abs(each / one - 2), error=0.0) for name, each in twice.items()}


def batch_bytes(sizes: Transformer) -> int:
    """Bytes of the cache of the talk's batch in half precision."""
    return sizes.cache_bytes(LENGTH, TEXTS, HALF)


def _size(name: str, text: str, counted: int | float, published: int | float, unit: int | float, symbol: str) -> Claim:
    """A claim that something takes `published` units; our count in bytes."""
    return Claim(
        id=f"start-{name}",
        text=text,
        measure=lambda: about(counted, published * unit),
        shown=lambda: f"{counted / unit:.3g} {symbol}",
        quantity="the part of a tenth, the tolerance for a size, that our count leaves unused",
        refuted="a count that is more than a tenth away",
        published=f"{published} {symbol}",
    )


SEVEN_BILLION = _size(
    "seven-billion",
    "the weights of Llama-2-7B take 28 GiB in single precision",
    LLAMA2_7B.n_weights * SINGLE,
    28,
    GIB,
    "GiB",
)
HUNDRED_TOKENS = _size(
    "hundred-tokens",
    "100 tokens fill 100 MiB of Llama-2-7B's cache in single precision",
    LLAMA2_7B.cache_bytes(100, value_bytes=SINGLE),
    100,
    MIB,
    "MiB",
)
SEVENTY_BILLION = _size(
    "seventy-billion",
    "the weights of Llama-2-70B take 140 GB in half precision",
    LLAMA2_70B.n_weights * HALF,
    140,
    GB,
    "GB",
)
SEVENTY_CACHE = _size(
    "seventy-cache",
    f"{TEXTS} texts of {LENGTH} tokens fill 160 GB of Llama-2-70B's cache",
    batch_bytes(LLAMA2_70B),
    160,
    GB,
    "GB",
)
CACHE_LINEAR = Claim(
    id="start-cache-linear",
    text="the cache grows in proportion to the length of the text and to the batch size",
    measure=partial(linear, LLAMA2_7B),
    shown=lambda: f"{LLAMA2_7B.cache_bytes(2000) / LLAMA2_7B.cache_bytes(1000):.3g} times for twice the text or batch",
    quantity="the part of a tenth, the tolerance for twice as much, that is left, for the text and for the batch",
    refuted="a cache of twice the text, or of twice the texts, that is not twice as large",
)
CACHE_EXCEEDS = Claim(
    id="start-cache-exceeds",
    text=f"the cache of {TEXTS} texts of {LENGTH} tokens is larger than the weights of Llama-2-70B",
    measure=lambda: Effect(value=batch_bytes(LLAMA2_70B) / (LLAMA2_70B.n_weights * HALF) - 1, error=0.0),
    shown=lambda: f"{batch_bytes(LLAMA2_70B) / (LLAMA2_70B.n_weights * HALF):.2f} times the weights",
    quantity="bytes of the cache above those of the weights, as a fraction of the weights",
    refuted="a cache of 64 texts of 8192 tokens that is smaller than the weights",
    unit=Unit("times the weights"),
)
