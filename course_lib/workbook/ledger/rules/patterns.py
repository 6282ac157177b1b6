"""Lines of lesson 01."""

from functools import partial

from course_lib.lessons.patterns import speed, tables
from course_lib.lessons.patterns.experiment import measured
from course_lib.workbook.ledger.record import Rule

_order = partial(
    Rule,
    lesson="patterns",
    results=("patterns/measured",),
    line="quality falls from unstructured over n:m and blocks",
    effect="nats a token that the stricter pattern costs more, step by step",
    refuted="a step to a stricter pattern that costs no more",
)
_formats = partial(Rule, lesson="patterns", results=("bench/cpu_bitmap_matvec",), lines=speed.formats_verdict)

ORDER_QUARTER = _order(lines=lambda: tables.order_verdict(measured()[0.25]))
ORDER_HALF = _order(lines=lambda: tables.order_verdict(measured()[0.5]))
BITMAP_SMALLER = _formats(
    line="half of the weights beside a bitmap are read in fewer bytes",
    effect="share of the bytes saved",
    refuted="a bitmap and half of the weights that take as many bytes as all weights",
)
CSR_NO_FASTER = _formats(
    line="at no density are weights in CSR faster",
    effect="log of the time over that of all weights, by density",
    refuted="a density at which a processor's sparse product is faster",
)
CSR_FASTER_WHEN_SMALLER = _formats(
    line="wherever CSR is over 5 % smaller it is faster",
    effect="log of the time of all weights over that in CSR, by density",
    refuted="a density at which fewer bytes take longer",
)
ON_A_GPU = _formats(
    results=("bench/gpu_h200",),
    lines=speed.gpu_verdict,
    line="on a GPU, torch's 2:4 product is faster than the dense one",
    effect="log of the dense time over its, by number of tokens",
    refuted="a number of tokens at which the dense product takes no longer",
)
PACKED_NO_FASTER = _formats(
    results=("bench/cpu_nm_matmul",),
    line="2:4 without hardware for it is no faster",
    effect="log of the time over that of all weights, by way to unpack",
    refuted="a way to compute with 2:4 weights on a plain processor that is faster",
)
