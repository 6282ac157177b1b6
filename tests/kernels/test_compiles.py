"""Every kernel compiles for GPUs that are not here, with every setting, as its launcher would launch it."""

import pytest
import torch
from course_lib.kernels.cache import attention_mass, block_sparse_prefill
from course_lib.kernels.weights import sparsegpt_columns
from test_every_kernel import CASES

from course_lib.kernels import runtime

pytestmark = pytest.mark.skipif(
    runtime.triton is None or runtime.INTERPRETED, reason="there is no compiler here, or the interpreter replaces it"
)
SHARED_MEMORY = 99 * 1024  # bytes that one block may use on consumer cards, where the first setting has to run
MOST_SHARED_MEMORY = 227 * 1024  # on an H100; the tuner passes over a setting that a smaller card has no room for


def _launches_something(case):
    """Where no neuron is chosen, the launcher returns zeros without a kernel."""
    _, settings = case.values
    return settings.get("n_chosen") != 0


@pytest.mark.parametrize(("module", "case"), [case for case in CASES if _launches_something(case)][::2])
def test_compiles_for_hopper_with_every_setting(module, case, generator, monkeypatch):
    from kernel_offline import recorded

    launches = recorded(module, module.example(generator, torch.bfloat16, "cpu", **case), monkeypatch)
    assert launches
    for launch in launches:
        for setting in range(len(launch.settings)):
            compiled = launch.compile(setting, capability=90)
            assert len(compiled.asm["cubin"]) > 1000
            assert compiled.metadata.shared <= (MOST_SHARED_MEMORY if setting else SHARED_MEMORY)


@pytest.mark.parametrize(
    ("module", "case"),
    [
        (attention_mass, {"shape": (1, 1, 1, 64, 64, 64)}),
        (block_sparse_prefill, {"shape": (1, 1, 64, 64), "block_size": 64}),
        (sparsegpt_columns, {"shape": (8, 128), "n": 2, "m": 4}),
    ],
    ids=lambda value: value.__name__ if hasattr(value, "__name__") else "",
)
def test_products_in_float32_and_whole_blocks_stay_in_registers(module, case, generator, monkeypatch):
    """What a compiler says nothing of: it spills kilobytes a thread, takes a minute for it, and the result is right."""
    from kernel_offline import recorded, spilled_bytes

    launch, *_ = recorded(module, module.example(generator, torch.float32, "cpu", **case), monkeypatch)
    for setting in range(min(2, len(launch.settings))):
        assert spilled_bytes(launch.compile(setting, capability=90)) <= 512


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("module", "case"), [case for case in CASES if _launches_something(case)][::3])
def test_compiles_for_ampere(module, case, dtype, generator, monkeypatch):
    from kernel_offline import recorded

    for launch in recorded(module, module.example(generator, dtype, "cpu", **case), monkeypatch):
        assert launch.compile(0, capability=80).metadata.shared <= SHARED_MEMORY
