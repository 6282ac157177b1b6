"""Time functions in turns, and compute how much time sparse formats can save at most."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from course_lib.measure.roofline import Device, Work, linear_work
from course_lib.sparsity.sizes import bitmap_bytes, csr_bytes, nofm_bytes

Name = TypeVar("Name")


def rounds(contestants: Mapping[Name, Callable[[], object]], seconds: float) -> dict[Name, list[float]]:
    """Time each function once per round, and return the seconds of all rounds, so that times can be paired."""
    times: dict[Name, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    end, n_rounds = time.perf_counter() + seconds, 0
    while n_rounds < 5 or time.perf_counter() < end:
        n_rounds += 1
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def speed_limits(rows: int, columns: int, n_tokens: int, device: Device) -> dict[str, float]:
    """Compute the largest speedup from pruning half of a layer, per format in float16 on a GPU: dense over sparse time.

    Tensor cores multiply dense tiles, and 2:4 tiles at twice the rate; unstructured zeros save them no arithmetic.
    Without such support a format can only save bytes: it is expanded on the chip and multiplied densely.
    """
    dense = linear_work(rows, columns, n_tokens)
    half, moved = rows * columns // 2, dense.bytes - 2 * rows * columns
    works = {
        "half of the columns": linear_work(rows, columns // 2, n_tokens),
        "2:4": Work(dense.flops / 2, moved + nofm_bytes(rows, columns, 2)),
        "bitmap": Work(dense.flops, moved + bitmap_bytes(rows, columns, half, 2)),
        "CSR": Work(dense.flops, moved + csr_bytes(rows, half, 2)),
    }
    return {name: dense.seconds(device) / work.seconds(device) for name, work in works.items()}
