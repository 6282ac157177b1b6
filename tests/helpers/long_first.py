"""In which order workers run tests: long files first, dealt out, so that in the end nobody waits for a long one.

`--dist worksteal` gives each worker a run of as many tests, in their order; who is done takes half of what another one
has left, from its end. So each run begins with its share of the files that take long, and ends with tests that take a
moment. Tests of a file stay together, as they share what is made for them.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

import pytest

# CPU seconds, about, of the test files that take longest under Triton's interpreter.
INTERPRETED = {
    "test_every_kernel.py": 77,
    "test_bench_on_a_gpu.py": 70,
    "test_prefill_on_kernels.py": 27,
    "test_contextual_on_kernels.py": 15,
    "test_router_topk.py": 14,
    "test_weights.py": 13,
    "test_kv_on_kernels.py": 8,
    "test_head_sparse_decode.py": 8,
    "test_gathered_mlp.py": 6,
    "test_decode_attention.py": 5,
    "test_grouped_matmul.py": 5,
    "test_every_method_on_kernels.py": 5,
}


def dealt_out(items: Sequence[pytest.Item], n_workers: int, seconds: Mapping[str, int]) -> list[pytest.Item]:
    """The tests in the order of the runs, the first worker's before the second's.

    Args:
        seconds: what files take that take long, by their names.
    """
    files = [(path.name, list(group)) for path, group in groupby(items, key=lambda item: item.path)]
    shares, spent = [[] for _ in range(n_workers)], [0] * n_workers
    for name, group in sorted(files, key=lambda file: -seconds.get(file[0], 0)):
        if name in seconds:
            least = spent.index(min(spent))
            shares[least] += group
            spent[least] += seconds[name]
    short = [item for name, group in files if name not in seconds for item in group]
    ordered, left = [], len(items)
    for at, share in enumerate(shares):
        n_more = max(left // (n_workers - at) - len(share), 0)
        ordered += share + short[:n_more]
        left, short = len(items) - len(ordered), short[n_more:]
    return ordered + short
