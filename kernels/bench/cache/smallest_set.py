"""The smallest sets of blocks that contain a fraction of each head's map, by bisection and by sorting.

Dimension key: N blocks of a text; a row has all pairs of blocks of queries and keys.
"""

from collections.abc import Iterator
from functools import partial

from course_lib.kernels.cache import smallest_set
from course_lib.kernels.timing.contest import Contest, Place, Side

from course_lib.attention.prefill.index import always_read, causal_blocks
from course_lib.measure.roofline import Work

HEADS, BLOCKS = {"cpu": 9, "cuda": 32}, {"cpu": (64,), "cuda": (64, 256)}  # 8,192 and 32,768 tokens in blocks of 128
QUICK = {"heads": 3, "blocks": (6,)}
SHARE = 0.95


def contests(place: Place) -> Iterator[Contest]:
    n_heads = QUICK["heads"] if place.quick else HEADS[place.device.type]
    for n in QUICK["blocks"] if place.quick else BLOCKS[place.device.type]:
        logits = 3 * place.rand(n_heads, n, n).masked_fill(~causal_blocks(n, place.device), float("-inf"))
        mass = logits.softmax(dim=-1).flatten(1)
        always = always_read(n, place.device).flatten().expand(mass.shape).contiguous()
        arguments = (mass, always, SHARE, 1)
        work = Work(mass.numel(), smallest_set.bytes_moved(*arguments))
        expected = smallest_set.reference(*arguments)
        sides = [
            Side("sorted, in torch", partial(smallest_set.reference, *arguments), work),
            Side("kernel" if mass.is_cuda else "reference", partial(smallest_set.launch, *arguments), work),
        ]
        yield Contest(f"blocks: {n}", tuple(mass.shape), sides, expected)
