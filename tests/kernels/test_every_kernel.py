"""What holds for every kernel. A file in kernels/ is found by being there; it needs a slow twin of the same name.

Run plainly, launchers take the reference (or the GPU, where there is one). test_interpreted.py runs this folder again
with TRITON_INTERPRET=1, where they take the kernels.
"""

import inspect

import kernel_twins
import pytest
import torch
from beartype import beartype
from jaxtyping import jaxtyped
from kernel_device import COMPILED, DEVICE, n_settings
from kernel_padding import changed, guarded_outputs, poisoned, tensors, watched_loads
from torch import Tensor

from course_lib import discover, kernels
from course_lib.kernels import runtime

KERNELS = [module for module in discover.nested(kernels, kernels.FOLDERS) if hasattr(module, "launch")]
CASES = [
    pytest.param(module, case, id=f"{module.__name__.split('.')[-1]}-{i}")
    for module in KERNELS
    for i, case in enumerate(module.CASES)
]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]

each_kernel = pytest.mark.parametrize("module", KERNELS, ids=lambda module: module.__name__.split(".")[-1])
each_case = pytest.mark.parametrize(("module", "case"), CASES)
# On a GPU every setting is run; the interpreter has the first alone.
RUNS = [
    pytest.param(
        *case.values, dtype, setting, id="-".join([case.id, str(dtype)[6:], *([str(setting)] if COMPILED else [])])
    )
    for case in CASES
    for dtype in DTYPES
    for setting in range(n_settings(case.values[0], dtype) if COMPILED else 1)
]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


def test_the_kernels_are_found():
    assert {"nm_matmul", "bitmap_matvec", "wanda_mask"} <= {module.__name__.split(".")[-1] for module in KERNELS}


@each_kernel
def test_says_what_it_is(module):
    assert "Dimension key:" in module.__doc__
    assert hasattr(kernel_twins, module.__name__.split(".")[-1]), "write a slow twin in kernel_twins.py"
    assert list(inspect.signature(module.launch).parameters) == list(inspect.signature(module.reference).parameters)


@each_kernel
def test_keeps_the_house_rules_that_only_reading_can_check(module):
    source = inspect.getsource(module)
    assert "make_block_ptr" not in source, "triton 3.9 has no block pointers"
    assert ".to(tl.int64)" in source, "a matrix of 2^31 entries overflows 32-bit offsets"


@pytest.mark.parametrize(("module", "case", "dtype", "setting"), RUNS)
def test_launch_agrees_with_a_slow_loop_and_stays_in_bounds(module, case, dtype, setting, generator, monkeypatch):
    arguments = module.example(generator, dtype, "cpu", **case)
    inside = changed(arguments, lambda name, tensor: poisoned(tensor.to(DEVICE)))
    with guarded_outputs(monkeypatch):
        got = jaxtyped(typechecker=beartype)(module.launch)(*inside)
    _assert_close(got, arguments, module, dtype)


@pytest.mark.skipif(not runtime.INTERPRETED, reason="only the interpreter lets every load be watched")
@each_case
def test_loads_from_its_arguments_alone(module, case, generator, monkeypatch):
    inside = changed(module.example(generator, torch.float16, "cpu", **case), lambda name, tensor: poisoned(tensor))
    with watched_loads(inside, monkeypatch):
        module.launch(*inside)


@pytest.mark.skipif(runtime.INTERPRETED, reason="the reference is the same without the interpreter")
@each_dtype
@each_case
def test_reference_agrees_with_a_slow_loop(module, case, dtype, generator):
    arguments = module.example(generator, dtype, "cpu", **case)
    _assert_close(jaxtyped(typechecker=beartype)(module.reference)(*arguments), arguments, module, dtype)


@each_case
def test_bytes_moved_are_the_bytes_of_arguments_and_results(module, case, generator):
    arguments = module.example(generator, torch.float16, "cpu", **case)
    moved = [*tensors(arguments).values(), *_outputs(module.reference(*arguments))]
    unread = kernel_twins.UNREAD.get(module.__name__.split(".")[-1], lambda *arguments: 0)
    assert module.bytes_moved(*arguments) == sum(tensor.nbytes for tensor in moved) - unread(*arguments)


@each_kernel
def test_cpu_tensors_take_the_reference_unless_interpreted(module, generator, monkeypatch):
    taken = []
    monkeypatch.setattr(module, "reference", lambda *arguments: taken.append("reference"))
    module.launch(*module.example(generator, torch.float32, "cpu", **module.CASES[0]))
    assert taken == ([] if runtime.INTERPRETED else ["reference"])


def _strided(tensor: Tensor) -> Tensor:
    return torch.stack([tensor, tensor], -1)[..., 0]


WRONG = {
    "strides": (_strided, "strides .* expected a contiguous tensor; call"),
    "dtype": (lambda tensor: tensor.to(torch.float64), "float64: expected .*; convert"),
    "last axis": (lambda tensor: tensor.narrow(-1, 0, tensor.shape[-1] - 1).contiguous(), "expected .*;"),
    "first axis": (lambda tensor: tensor.narrow(0, 0, tensor.shape[0] - 1).contiguous(), "expected .*;"),
    "device": (lambda tensor: tensor.to("meta"), "expected one device; move"),
}


@pytest.mark.parametrize("wrong", WRONG)
@each_kernel
def test_a_wrong_tensor_is_refused_with_the_remedy(module, wrong, generator):
    spoil, message = WRONG[wrong]
    arguments = module.example(generator, torch.float32, "cpu", **module.CASES[0])
    for culprit in tensors(arguments):
        if wrong == "first axis" and culprit == "0":
            continue  # the number of tokens or of rows, which is free
        if (module.__name__.split(".")[-1], culprit, wrong) in kernel_twins.FREE_AXES:
            continue
        bad = changed(arguments, lambda name, tensor, at=culprit: spoil(tensor) if name == at else tensor)
        with pytest.raises(ValueError, match=message):
            module.launch(*bad)


def _outputs(result: Tensor | tuple) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [tensor for tensor in result if tensor is not None]


def _assert_close(result, arguments, module, dtype):
    name = module.__name__.split(".")[-1]
    expected = getattr(kernel_twins, name)(*arguments)
    for i, (got, (exact, allowed)) in enumerate(zip(_outputs(result), expected, strict=True)):
        kind = torch.int32 if (name, i) in kernel_twins.INDICES else dtype
        assert got.dtype in (torch.float32 if (name, i) in kernel_twins.SUMS else kind, torch.bool)
        assert got.shape == exact.shape
        error = (got.cpu().double() - exact).abs()
        assert not error.isnan().any(), "NaN: memory outside an argument was read, or part of the output not written"
        assert (error <= allowed).all(), f"off by {float((error - allowed).max()):.2e} more than rounding explains"
