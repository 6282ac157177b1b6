"""Claims of the decks on sizes: counted from the models' shapes, so that no error is left.

A claim of a size holds where the count is within a tenth of it: decks round, and mix GB with GiB.
"""

import math

from course_lib.lessons.common.verdicts import Effect, verdict
from course_lib.measure.roofline import LLAMA2_7B, LLAMA2_70B, Transformer

WITHIN = 0.1
GB, GIB, MIB = 1e9, 2**30, 2**20
SINGLE, HALF = 4, 2  # bytes a number
TEXTS, LENGTH = 64, 8192  # of the batch in the talk on H2O


def about(counted: int | float, claimed: int | float) -> Effect:
    """By how much a count is nearer to a claimed size than a tenth of it."""
    return Effect(value=math.log1p(WITHIN) - abs(math.log(counted / claimed)), error=0.0)


def linear(sizes: Transformer) -> list[Effect]:
    """Twice the text, and twice the texts: how near the cache is to twice as large."""
    one = sizes.cache_bytes(1000)
    twice = (sizes.cache_bytes(2000), sizes.cache_bytes(1000, batch=2))
    return [Effect(value=WITHIN - abs(each / one - 2), error=0.0) for each in twice]


def sizes_verdict(small: Transformer = LLAMA2_7B, large: Transformer = LLAMA2_70B) -> str:
    """Six sizes that the decks name."""
    hundred = small.cache_bytes(100, value_bytes=SINGLE)
    batch = large.cache_bytes(LENGTH, TEXTS, HALF)
    judged = {
        "the weights of Llama-2-7B take 28 GiB in single precision": about(small.n_weights * SINGLE, 28 * GIB),
        "100 tokens fill 100 MiB of its cache in single precision": about(hundred, 100 * MIB),
        "the weights of Llama-2-70B take 140 GB in half precision": about(large.n_weights * HALF, 140 * GB),
        f"{TEXTS} texts of {LENGTH} tokens fill 160 GB of its cache": about(batch, 160 * GB),
        "the cache grows in proportion to text and batch": linear(small),
        "that cache is larger than the weights": Effect(value=batch / (large.n_weights * HALF) - 1, error=0.0),
    }
    return "\n".join(f"Claim: {claim}: {verdict(effects)}" for claim, effects in judged.items())
