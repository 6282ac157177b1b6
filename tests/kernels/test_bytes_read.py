"""Kernels that leave out what a token does not need load the bytes that `bytes_moved` counts, and no others."""

import pytest
import torch
from kernel_padding import tensors
from test_every_kernel import CASES

from course_lib.kernels import runtime

pytestmark = pytest.mark.skipif(not runtime.INTERPRETED, reason="only the interpreter lets every load be watched")
PER_TOKEN = [case for case in CASES if ".per_token." in case.values[0].__name__]


def bytes_loaded(module, arguments, monkeypatch):
    """Of the arguments, each byte once, however often it is loaded."""
    from triton.runtime.interpreter import InterpreterBuilder

    load, addresses = InterpreterBuilder.create_masked_load, set()

    def watched(self, pointers, mask, *rest):
        addresses.update(pointers.data[mask.data.astype(bool)].astype("int64").tolist())
        return load(self, pointers, mask, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_masked_load", watched)
        module.launch(*arguments)
    found = 0
    for tensor in tensors(arguments).values():
        begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        found += tensor.element_size() * sum(begin <= address < end for address in addresses)
    return found


@pytest.mark.parametrize(("module", "case"), PER_TOKEN)
def test_what_is_loaded_is_what_is_counted(module, case, generator, monkeypatch):
    arguments = module.example(generator, torch.float16, "cpu", **case)
    written = module.reference(*arguments).nbytes
    expected = module.bytes_moved(*arguments) - written
    if not case.get("n_chosen", 1):
        expected = 0  # where nothing is chosen, no kernel is started, and the inputs are not read either
    assert bytes_loaded(module, arguments, monkeypatch) == expected


def test_a_group_of_heads_is_loaded_whole_or_not_at_all(generator, monkeypatch):
    """Two of six heads: in one group, half of the keys and values; one in each group, all of them."""
    from course_lib.kernels.per_token import head_sparse_decode as module

    query, keys, values, keep, scaling = module.example(generator, torch.float16, "cpu", (1, 2, 3, 40, 16), 6)
    one_group, both_groups = torch.zeros(2, 1, 6, dtype=torch.bool)
    one_group[0, [0, 1]], both_groups[0, [0, 5]] = True, True
    for chosen, n_groups in ((one_group, 1), (both_groups, 2), (keep, 2)):
        found = bytes_loaded(module, (query, keys, values, chosen, scaling), monkeypatch)
        assert found - 6 == n_groups * (2 * 40 + 3) * 16 * 2  # the choice; keys, values and three queries a group
