"""The kernel for Hopper GPUs: its three parts as threads with real barriers, and against the general kernel."""

import pytest
import torch
from course_lib.kernels.cache import block_sparse_prefill, hopper_prefill
from gluon_on_threads import run
from kernel_device import COMPILED
from kernel_padding import poisoned

from course_lib.attention.prefill.baselines import RandomBlocks
from course_lib.kernels import runtime

on_hopper = pytest.mark.skipif(
    not COMPILED or torch.cuda.get_device_capability() != (9, 0), reason="there is no Hopper GPU here"
)


def arguments_of(generator, n_tokens, density, size=16):
    """Three heads to one, which the barriers see as many tiles of one program."""
    query = torch.randn(6, n_tokens, size, generator=generator)
    keys, values = torch.randn(2, 2, n_tokens, size, generator=generator)
    index = RandomBlocks(block_size=128, density=density).index(query, keys, 0.25)
    return query, keys, values, *index.lists(), 0.25, 128


@pytest.mark.skipif(COMPILED, reason="the GPU itself is there")
@pytest.mark.parametrize(("n_tokens", "density", "n_programs"), [(300, 1.0, 1), (1100, 0.6, 5), (90, 1.0, 6)])
def test_threads_with_barriers_agree_with_the_reference(n_tokens, density, n_programs, generator, monkeypatch):
    arguments = arguments_of(generator, n_tokens, density)
    expected = block_sparse_prefill.reference(*arguments)
    got = run(hopper_prefill, arguments, n_programs, monkeypatch)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)  # float32 sums of at most 1,100 terms


@on_hopper
@pytest.mark.parametrize(("n_tokens", "size"), [(1, 64), (129, 128), (1000, 128), (2048, 64)])
def test_agrees_with_the_general_kernel(n_tokens, size, generator):
    """Poisoned surroundings: what lies beyond a head's last token is not read as a number."""
    query, keys, values, *lists, _, _ = arguments_of(generator, n_tokens, 0.6, size)
    text = [poisoned(each.bfloat16().cuda()) for each in (query, keys, values)]
    arguments = (*text, *(each.cuda() for each in lists), size**-0.5, 128)
    assert hopper_prefill.fits(*text, 128)
    expected = block_sparse_prefill.reference(*(each.float() for each in text), *arguments[3:])
    got = hopper_prefill.attend(*arguments).float()
    assert ((got - expected).norm() / expected.norm()) < 5e-3  # weights and results rounded to bfloat16


@pytest.mark.skipif(
    hopper_prefill.gluon is None or runtime.INTERPRETED or COMPILED, reason="there is no compiler, or a GPU, here"
)
@pytest.mark.parametrize("size", hopper_prefill.SIZES)
def test_compiles_for_hopper_and_stays_in_registers(size):
    from kernel_offline import spilled_bytes
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon._runtime import GluonASTSource

    def described(rows):
        layout = gl.NVMMASharedLayout.get_default_for([1, rows, size], gl.bfloat16)
        return f"tensordesc<bf16[1, {rows}, {size}],{layout!r}>"

    kinds = {"query": described(64), "keys": described(128), "values": described(128)}
    kinds |= {"columns": "*i32", "counts": "*i32", "output": "*bf16", "scaling": "fp32"}
    kinds |= dict.fromkeys(("T", "N", "M", "n_tiles"), "i32")
    known = {"G": 4, "S": 128, "D": size, "STAGES": hopper_prefill.STAGES}
    kinds |= dict.fromkeys(known, "constexpr")
    source = GluonASTSource(hopper_prefill.hopper_kernel, kinds, known)
    compiled = triton_compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "maxnreg": 168})
    assert compiled.metadata.shared <= 227 * 1024
    assert spilled_bytes(compiled) == 0
    assert "wgmma" in compiled.asm["ptx"]
