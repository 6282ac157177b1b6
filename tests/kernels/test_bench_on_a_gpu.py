"""What the benches would run on a GPU computes the right thing: here by the interpreter, in small."""

import course_lib.kernels.bench
import pytest
import torch
from course_lib.kernels.timing.contest import Place, relative_error

from course_lib import discover
from course_lib.kernels import runtime

FOUND = discover.modules(course_lib.kernels.bench) + discover.nested(course_lib.kernels.bench)
BENCHES = {module.__name__.split(".")[-1]: module for module in FOUND if hasattr(module, "contests")}
CPU_ONLY = ("capstone", "contextual", "contextual_relu", "sparse_prefill")  # each has a test of its own on the CPU


@pytest.mark.parametrize("name", CPU_ONLY)
def test_a_bench_of_the_cpu_times_nothing_on_a_gpu(name, generator):
    place = Place(torch.device("cuda"), torch.float32, True, generator)
    assert list(BENCHES[name].contests(place)) == []


@pytest.mark.skipif(not runtime.INTERPRETED, reason="takes the GPU's branch without a GPU")
@pytest.mark.parametrize("name", sorted(BENCHES.keys() - set(CPU_ONLY)))
def test_every_side_of_the_gpu_contests_is_right(name, generator, monkeypatch):
    module = BENCHES[name]
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True))
    monkeypatch.setattr(module, "STEPS", 2, raising=False)  # of decoding; the first alone is compared
    place = Place(torch.device("cpu"), torch.float32, True, generator)
    for contest in module.contests(place):
        assert len(contest.sides) >= 2, contest.absent
        for side in contest.sides:
            expected = contest.expected if side.expected is None else side.expected
            tolerance = getattr(module, "TOLERANCE", {torch.float32: 1e-5})[torch.float32]
            assert relative_error(side.run(), expected) < tolerance, side.name
        assert set(contest.absent) <= {"torch semi-structured"}  # which no CPU has
