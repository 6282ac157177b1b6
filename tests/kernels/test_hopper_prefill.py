"""The kernel for Hopper GPUs: its three parts as threads with real barriers, and against the general kernel."""

import pytest
import torch
from course_lib.kernels.cache import block_sparse_prefill, hopper_prefill
from gluon_on_threads import run

from course_lib.attention.prefill.baselines import RandomBlocks


def arguments_of(generator, n_tokens, density, size=16):
    """Three heads to one, which the barriers see as many tiles of one program."""
    query = torch.randn(6, n_tokens, size, generator=generator)
    keys, values = torch.randn(2, 2, n_tokens, size, generator=generator)
    index = RandomBlocks(block_size=128, density=density).index(query, keys, 0.25)
    return query, keys, values, *index.lists(), 0.25, 128


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize(("n_tokens", "density", "n_programs"), [(300, 1.0, 1), (1100, 0.6, 5), (90, 1.0, 6)])
def test_threads_with_barriers_agree_with_the_reference(n_tokens, density, n_programs, turns, generator, monkeypatch):
    arguments = arguments_of(generator, n_tokens, density)
    expected = block_sparse_prefill.reference(*arguments)
    got = run(hopper_prefill, arguments, n_programs, turns, monkeypatch)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)  # float32 sums of at most 1,100 terms
