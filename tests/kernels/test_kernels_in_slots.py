"""Kernels that write into a cache: they compile for GPUs that are not here, and refuse what they cannot run.

What they compute is compared with the cache's PyTorch code in dispatched/test_kv_on_kernels.py.
"""

import pytest
import torch
from course_lib.kernels.cache import few_bits, slots_in_place

from course_lib.kernels import runtime

compiling = pytest.mark.skipif(
    runtime.triton is None or runtime.INTERPRETED, reason="there is no compiler here, or the interpreter replaces it"
)


def step(n=1638, size=128, rolling=True):
    """A token, what is known of it, the columns of storage, and a score."""
    shape = (1, 2, n + 64)
    slots = {name: torch.zeros(*shape, size, dtype=torch.bfloat16) for name in ("keys", "values")}
    names = ("position", *(("rotation", "lag") if rolling else ()))
    slots |= {name: torch.zeros(shape, dtype=torch.int32) for name in names} | {"mass": torch.zeros(shape)}
    new, one = torch.zeros(1, 1, 2, size, dtype=torch.bfloat16).transpose(1, 2), torch.zeros(1, 1, dtype=torch.int64)
    return new, (one, one, one[0]), slots, torch.zeros(1, 2, n + 1)


def calls():
    """Module, function and arguments."""
    codes, low = torch.zeros(1, 2, 100, 64, dtype=torch.uint8), torch.zeros(1, 2, 100, 4, dtype=torch.float16)
    vectors = torch.zeros(1, 2, 100, 128, dtype=torch.bfloat16)
    position = torch.zeros(1, 2, 100, dtype=torch.int32)
    yield few_bits, "pack", (vectors[:, :, :1], 4, 32)
    yield few_bits, "pack", (vectors[:, :, :1], 8, 32)
    yield few_bits, "unpack", (codes, low, low, 4, torch.bfloat16)
    yield few_bits, "restore_", (vectors, vectors[:, :, :32].contiguous(), position, position[0, 0, :1].long())
    for n, rolling in ((1638, False), (20000, True)):
        new, known, slots, score = step(n, rolling=rolling)
        yield slots_in_place, "append_", (new, new, known, slots, n, known[2])
        yield slots_in_place, "drop_lowest_", (score, slots, known[2], 32, 4)


@compiling
@pytest.mark.parametrize(
    ("module", "name", "arguments"), calls(), ids=lambda value: value if type(value) is str else ""
)
@pytest.mark.parametrize("capability", [80, 90])
def test_compiles_and_stays_in_registers(module, name, arguments, capability, monkeypatch):
    from kernel_offline import recorded, spilled_bytes

    (launch,) = recorded(module, arguments, monkeypatch, name)
    compiled = launch.compile(0, capability)
    assert compiled.metadata.shared <= 48 * 1024
    assert not spilled_bytes(compiled)


def test_wrong_tensors_are_refused_with_the_remedy():
    new, known, slots, score = step(20, 8)
    with pytest.raises(ValueError, match=r"key is torch\.bfloat16 of shape .* take one token of each sequence"):
        slots_in_place.append_(new.expand(-1, -1, 2, -1), new, known, slots, 20, known[2])
    with pytest.raises(ValueError, match=r"n is 84 in storage of 84 slots: expected room .* let the storage grow"):
        slots_in_place.append_(new, new, known, slots, 84, known[2])
    with pytest.raises(ValueError, match=r"parts has shape .* one number a slot; move it in torch"):
        slots_in_place.drop_lowest_(score, slots | {"parts": torch.zeros(1, 2, 84, 8)}, known[2])
    many = {f"number {i}": slots["mass"] for i in range(5)}
    with pytest.raises(ValueError, match="at most 4; move others in torch"):
        slots_in_place.drop_lowest_(score, slots | many, known[2])
    with pytest.raises(ValueError, match=r"mass has strides .* expected a contiguous tensor"):
        slots_in_place.drop_lowest_(score, slots | {"mass": torch.zeros(1, 84, 2).transpose(1, 2)}, known[2])
    with pytest.raises(ValueError, match=r"groups of 3 and the last axis contiguous; call \.contiguous"):
        few_bits.pack(new, 4, 3)
    codes, low = torch.zeros(1, 2, 9, 4, dtype=torch.uint8), torch.zeros(1, 2, 20, 2, dtype=torch.float16)
    with pytest.raises(ValueError, match="low has room for 20 slots: expected 9, as codes"):
        few_bits.unpack(codes, low[:, :, :9], low[:, :, :9], 4, torch.bfloat16)
