"""The claims of lesson 00: sizes, counted from the models' shapes and so without an error, and the cost of a batch.

A claim about a size holds if our count is within 10 % of it, because slides round, and mix GB and GiB.
"""

import math
from functools import partial

from torch import Tensor

from course_lib.lessons.common.claim import Claim, Unit
from course_lib.lessons.common.verdicts import Effect, verdict
from course_lib.measure.paired import mean_and_error
from course_lib.measure.roofline import LLAMA2_7B, LLAMA2_70B, Transformer

WITHIN = 0.1
GB, GIB, MIB = 1e9, 2.0**30, 2.0**20
UNITS = {"GiB": {"GiB": GIB, "GB": GB}, "GB": {"GB": GB, "GiB": GIB}, "MiB": {"MiB": MIB, "MB": 1e6}}
SINGLE, HALF = 4, 2  # bytes per number
SEQUENCES, LENGTH = 64, 8192  # the batch in B. Chen's lecture on long sequences


def about(counted: int | float, claimed: int | float, *units: float) -> Effect:
    """Return the tolerance minus the distance between a count and a claimed size, both as logarithms.

    Slides write GB where they count GiB and the other way round, so the unit in which they are closer counts.
    """
    return Effect(value=math.log1p(WITHIN) - min(abs(math.log(counted / (claimed * u))) for u in units), error=0.0)


def linear(sizes: Transformer) -> dict[str, Effect]:
    """Return the tolerance minus the distance from 2 for a text, and for a batch, twice as large."""
    one = sizes.cache_bytes(1000)
    twice = {"twice the text": sizes.cache_bytes(2000), "twice the batch": sizes.cache_bytes(1000, batch=2)}
    return {name: Effect(value=WITHIN - abs(each / one - 2), error=0.0) for name, each in twice.items()}


def batch_bytes(sizes: Transformer) -> int:
    """Return the bytes of the cache of the talk's batch in half precision."""
    return sizes.cache_bytes(LENGTH, SEQUENCES, HALF)


def _size(name: str, text: str, counted: int | float, published: int | float, symbol: str, note: str = "") -> Claim:
    """Return the claim that something takes `published` units; `counted` is our count in bytes, `note` explains it."""
    return Claim(
        id=f"start-{name}",
        text=text,
        measure=lambda: about(counted, published, *UNITS[symbol].values()),
        criterion=f"within 10 % of the published size, read as {' or '.join(UNITS[symbol])}: slides round and mix them",
        shown=lambda: " or ".join(f"{counted / unit:.3g} {name}" for name, unit in UNITS[symbol].items()) + note,
        quantity="the tolerance of 10 % minus the distance of our count from the published size (logarithms)",
        refuted="a count that is more than 10 % away",
        published=f"{published} {symbol}",
    )


SEVEN_BILLION = _size(
    "seven-billion",
    "the weights of Llama-2-7B take 28 GiB in single precision",
    LLAMA2_7B.n_weights * SINGLE,
    28,
    "GiB",
    f"; 7·10⁹ weights of 4 bytes are 28 GB or {7e9 * SINGLE / GIB:.1f} GiB",
)
HUNDRED_TOKENS = _size(
    "hundred-tokens",
    "100 tokens fill 100 MiB of Llama-2-7B's cache in single precision",
    LLAMA2_7B.cache_bytes(100, value_bytes=SINGLE),
    100,
    "MiB",
)
SEVENTY_BILLION = _size(
    "seventy-billion",
    "the weights of Llama-2-70B take 140 GB in half precision",
    LLAMA2_70B.n_weights * HALF,
    140,
    "GB",
)
SEVENTY_CACHE = _size(
    "seventy-cache",
    f"{SEQUENCES} sequences of {LENGTH} tokens fill 160 GB of Llama-2-70B's cache",
    batch_bytes(LLAMA2_70B),
    160,
    "GB",
)
CACHE_LINEAR = Claim(
    id="start-cache-linear",
    text="the cache grows in proportion to the length of the text and to the batch size",
    measure=partial(linear, LLAMA2_7B),
    shown=lambda: f"{LLAMA2_7B.cache_bytes(2000) / LLAMA2_7B.cache_bytes(1000):.3g} times for twice the text or batch",
    quantity="the tolerance of 10 % minus the distance from 2, for the text and for the batch",
    criterion="within 10 % of 2 times",
    refuted="a cache that is not twice as large for twice the text or twice the batch",
)
CACHE_EXCEEDS = Claim(
    id="start-cache-exceeds",
    text=f"the cache of {SEQUENCES} sequences of {LENGTH} tokens is larger than the weights of Llama-2-70B",
    measure=lambda: Effect(value=batch_bytes(LLAMA2_70B) / (LLAMA2_70B.n_weights * HALF), error=0.0),
    above=1,
    because="larger than the weights; with 64 sequences of 8,192 tokens",
    quantity="bytes of the cache over those of the weights",
    refuted="a cache that is smaller than the weights",
    unit=Unit("times the weights"),
)


def batching(one: Tensor, sixteen: Tensor) -> str:
    """Judge the claim that a decoding step with 16 sequences takes less than 8 times as long as with one.

    Args:
        one, sixteen: the seconds of several steps at each batch size.
    """
    (mean, error), (mean_one, error_one) = (mean_and_error(steps.double().log()) for steps in (sixteen, one))
    n = min(len(one), len(sixteen))
    effect = Effect(value=mean - mean_one, error=math.hypot(error, error_one), n=n).below(math.log(8))
    return f"claim: 16 sequences take less than 8 times as long as one: {verdict(effect)}"
