"""The bench of decoding with a whole model: what each side computes and reads, and sides that are timed alone."""

from contextlib import contextmanager, nullcontext

import pytest
import torch
from course_lib.kernels.bench.end_to_end import decoding
from course_lib.kernels.timing.contest import Clock, Contest, DoesNotFit, Place, Side, relative_error
from course_lib.kernels.timing.filled_caches import (
    FULL,
    FULL_STEP,
    H2O_KEPT,
    LOW_BITS,
    METHODS,
    RECYCLED,
    STATIC,
    WINDOW,
    FilledCache,
)
from course_lib.kernels.timing.graphs import WARM_UPS, captured
from course_lib.kernels.timing.random_llama import LLAMA3_8B, TINY, fused_norms, random_llama
from course_lib.kernels.timing.rows import measure, measured, verdict

from course_lib.kernels import runtime
from course_lib.measure.roofline import Device, Work

pytestmark = pytest.mark.skipif(runtime.INTERPRETED, reason="a bench refuses the interpreter")
LIMIT = Device("a machine", 2e9, 1e9, "made up")
CPU = torch.device("cpu")


@pytest.fixture
def place():
    return Place(CPU, torch.float32, True, torch.Generator().manual_seed(0))


def rows_of(place, contests):
    clock = Clock(place, 1e9)
    return [row for contest in contests for row in measure(contest, clock, LIMIT, 1e-4)]


def test_every_side_is_right_and_says_tokens_and_bytes(place):
    rows = rows_of(place, decoding.contests(place))
    assert [row["side"] for row in rows] == [*METHODS, FULL, H2O_KEPT]
    assert {row["contest"] for row in rows} == {
        "batch 2, 60 tokens",
        "batch 1, 60 tokens, no CUDA graph, fused norms",
    }
    for row in rows:
        assert row["right"]
        assert row["alone"]
        assert row["anchor"] == FULL
        assert row["numbers"]["cache_bytes"] > 0
    first = {row["side"]: row for row in rows[: len(METHODS)]}
    h2o = first[H2O_KEPT]
    assert h2o["numbers"]["tokens_per_second"] == pytest.approx(2 / h2o["median_seconds"])
    full, recycled = first[FULL_STEP]["median_seconds"], first[RECYCLED]
    assert recycled["numbers"]["tokens_per_second"] == pytest.approx(
        2 / ((49 * recycled["median_seconds"] + full) / 50)
    )
    assert "20 % of the slots decodes" in decoding.summary(rows)
    assert decoding.summary([]) == ""


def test_a_step_reads_every_matrix_and_what_attention_needs():
    """At 32,768 tokens and batch 8: 15 GB of matrices, and 34.4 GB of keys and values or a fifth of that."""
    assert LLAMA3_8B.n_weights == 8_030_261_248
    caches = {method: FilledCache(method, 32768, 8) for method in METHODS}
    n_bytes = {
        method: cache.work(LLAMA3_8B, 2).bytes - 2 * LLAMA3_8B.matrix_weights for method, cache in caches.items()
    }
    new_tokens = 8 * 2 * 32 * 8 * 128 * 2
    kept = 8 * 6553 * 131072
    assert n_bytes[FULL] - new_tokens == 34_359_738_368
    assert n_bytes[H2O_KEPT] - new_tokens == n_bytes[RECYCLED] - new_tokens == kept
    assert n_bytes[LOW_BITS] - new_tokens == kept * 5 / 16  # 4 bits, and 1 for the scales
    recycled = caches[RECYCLED]
    assert recycled.vector_bytes(LLAMA3_8B, 2, recycled.n_held) == 34_359_738_368 + kept


def test_a_cache_that_does_not_fit_is_absent_with_its_bytes(place, monkeypatch):
    """With room for a fifth of the slots only, the first side that fits is the anchor."""
    kept = 2 * 12 * 2 * 2 * 2 * 8 * 4
    monkeypatch.setattr(decoding.Decoder, "free_bytes", lambda self: 2.0 * kept)
    contest = next(decoding.contests(place))
    rows = measure(contest, Clock(place, 1e9), LIMIT, 1e-4)
    assert set(contest.absent) == {FULL, STATIC, FULL_STEP, RECYCLED}
    assert "does not fit: keys and values take 0.0 GB" in contest.absent[FULL]
    assert {row["anchor"] for row in rows} == {WINDOW}
    assert decoding.summary(rows) == ""


def test_on_a_cpu_only_the_small_model_is_run():
    place = Place(CPU, torch.float32, False, torch.Generator())
    assert list(decoding.contests(place)) == []


def test_an_error_in_a_check_is_of_its_side_alone(place, monkeypatch):
    steps = decoding.Decoder._two_steps

    def two_steps(self, method):
        if method == LOW_BITS:
            raise ValueError("no such kernel")
        return steps(self, method)

    monkeypatch.setattr(decoding.Decoder, "_two_steps", two_steps)
    refused = {}
    rows = measure(next(decoding.contests(place)), Clock(place, 1e9), LIMIT, 1e-4, refused=refused)
    assert len(rows) == len(METHODS) - 1
    assert "no such kernel" in refused[LOW_BITS]


def test_random_weights_neither_overflow_nor_vanish_and_follow_the_seed(place):
    ids = torch.arange(12)[None]
    models = [random_llama(TINY, place) for _ in range(2)]
    logits = [model(ids).logits for model in models]
    assert torch.equal(*logits)
    assert 0.5 < logits[0].std() < 2
    assert not any(weight.requires_grad for weight in models[0].parameters())
    assert sum(weight.numel() for weight in models[0].parameters()) == TINY.n_weights
    before = [type(module) for module in models[0].modules()]
    with fused_norms(models[0]):
        assert sum(isinstance(module, torch.nn.RMSNorm) for module in models[0].modules()) == 2 * TINY.n_blocks + 1
        assert relative_error(models[0](ids).logits, logits[0]) < 1e-5
    assert [type(module) for module in models[0].modules()] == before


def test_without_a_gpu_a_step_is_called_as_it_is():
    ran = []
    step = lambda: ran.append(1)  # noqa: E731
    assert captured(step, CPU) is step
    assert len(ran) == WARM_UPS


class FakeClock:
    """Each repetition takes as long as the side says."""

    def seconds(self, run):
        return float(run())


def test_sides_that_are_timed_alone_are_open_one_at_a_time_and_wrong_ones_never(monkeypatch):
    monkeypatch.setattr("course_lib.kernels.timing.rows.REPETITIONS", (2, 3))
    log = []

    @contextmanager
    def opened(name, seconds):
        log.append(f"open {name}")
        yield lambda: torch.tensor(seconds)
        log.append(f"close {name}")

    @contextmanager
    def too_large():
        raise DoesNotFit("does not fit: 137.4 GB")
        yield

    def side(name, seconds, value=1.0, numbers=None):
        right = torch.full((1,), value)
        return Side(name, lambda: right, Work(1, 1), opened=lambda: opened(name, seconds), numbers=numbers)

    sides = [
        Side("all", lambda: torch.ones(1), Work(1, 1), opened=too_large),
        side("half", 4.0, numbers=lambda seconds: {"tokens_per_second": 1 / seconds}),
        side("wrong", 1.0, value=2.0),
        Side("refused", lambda: torch.ones(1), Work(1, 1), opened=lambda: nullcontext(lambda: 1 / 0)),
        side("fifth", 1.0),
    ]
    contest, refused = Contest("c", (1, 1), sides, torch.ones(1)), {}
    parts = list(measured(contest, FakeClock(), LIMIT, 1e-4, refused=refused))
    assert [[row["side"] for row in rows] for rows in parts] == [[], ["half"], ["wrong"], [], ["fifth"]]
    assert log == ["open half", "close half", "open fifth", "close fifth"]
    assert contest.absent == {"all": "does not fit: 137.4 GB"}
    assert refused == {"refused": "ZeroDivisionError: division by zero"}
    half, wrong, fifth = (rows[0] for rows in parts if rows)
    assert half["numbers"] == {"tokens_per_second": 0.25}
    assert (wrong["right"], wrong["repetitions"], verdict(wrong)) == (False, 0, "wrong")
    assert (fifth["anchor"], fifth["times_anchor"], verdict(fifth)) == ("half", 4.0, "wins")
    assert all(row["alone"] for row in (half, wrong, fifth))
