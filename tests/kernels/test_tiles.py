"""The sum of partial results, in one order, of more parts and numbers than a program has at a time."""

import pytest
import torch
from course_lib.kernels.tiles import MANY_NUMBERS, MOST_JOINED, join_blocks, join_kernel
from kernel_device import DEVICE

from course_lib.kernels import runtime

pytestmark = pytest.mark.skipif(runtime.mode() == "reference", reason="only kernels have partial results")


@pytest.mark.parametrize(
    ("n_parts", "n_numbers"), [(1, 1), (32, 128), (71, 130), (MOST_JOINED + 9, 21), (3, MANY_NUMBERS + 5)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_all_parts_are_added_and_nothing_else(n_parts, n_numbers, dtype, generator):
    around = torch.full((n_parts + 2, n_numbers), torch.nan, device=DEVICE)
    around[1:-1] = torch.randn(n_parts, n_numbers, generator=generator).to(DEVICE)
    outputs = torch.full((n_numbers + 100,), torch.nan, dtype=dtype, device=DEVICE)
    blocks = join_blocks(n_parts, n_numbers)
    join_kernel[-(-n_numbers // blocks["BLOCK_N"]),](around[1:-1], outputs, P=n_parts, N=n_numbers, **blocks)
    expected = around[1:-1].double().sum(0)
    # A float32 sum in another order, of numbers of size one; then one rounding to the type of the output.
    allowed = n_parts * 2.0**-23 * 3 + torch.finfo(dtype).eps * expected.abs()
    assert ((outputs[:n_numbers].double() - expected).abs() <= allowed).all()
    assert outputs[n_numbers:].isnan().all()
