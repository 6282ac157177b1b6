"""Lines of lesson 00: counted from the shapes of models."""

from functools import partial

from course_lib.lessons.start import claims
from course_lib.workbook.ledger.record import Rule

_size = partial(
    Rule,
    lesson="start",
    results=(),
    lines=claims.sizes_verdict,
    effect="what is left of the tenth that a size may be off",
    refuted="a count that is more than a tenth away",
)

SEVEN_BILLION = _size(line="the weights of Llama-2-7B take 28 GiB")
HUNDRED_TOKENS = _size(line="100 tokens fill 100 MiB")
SEVENTY_BILLION = _size(line="the weights of Llama-2-70B take 140 GB")
SEVENTY_CACHE = _size(line="64 texts of 8192 tokens fill 160 GB")
CACHE_LINEAR = _size(
    line="the cache grows in proportion to text and batch",
    effect="what is left of the tenth that twice as much may be off, for the text and for the batch",
    refuted="a cache of twice the text, or of twice the texts, that is not twice as large",
)
CACHE_EXCEEDS = _size(
    line="that cache is larger than the weights",
    effect="of the weights' bytes, above them",
    refuted="a cache of 64 texts of 8192 tokens that is smaller than the weights",
)
