"""The bench of decoding with a whole model: what each side computes and reads, and sides that are timed alone."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from course_lib.kernels.bench.end_to_end import decoding
from course_lib.kernels.timing.contest import Clock, Contest, DoesNotFit, Place, Side
from course_lib.kernels.timing.filled_caches import (
    D2O_KEPT,
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
from course_lib.kernels.timing.graphs import NotCapturable
from course_lib.kernels.timing.random_llama import LLAMA3_8B, TINY, random_llama
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
    assert [row["side"] for row in rows] == [*METHODS, FULL, H2O_KEPT, FULL, D2O_KEPT]
    assert {row["contest"] for row in rows} == {
        "batch 2, 60 tokens",
        "batch 1, 60 tokens, no CUDA graph, fused parts",
        "largest batch, 60 tokens: Full, D2O, 20 %, no CUDA graph",
    }
    for row in rows:
        assert row["right"]
        assert row["alone"]
        assert row["anchor"] == FULL
        assert row["numbers"]["cache_bytes"] > 0
    first = {row["side"]: row for row in rows[: len(METHODS)]}
    h2o = first[H2O_KEPT]
    assert h2o["numbers"]["tokens_per_second"] == pytest.approx(2 / h2o["median_seconds"])
    assert h2o["numbers"]["times_full"] == pytest.approx(first[FULL]["median_seconds"] / h2o["median_seconds"])
    assert (rows[-1]["numbers"]["largest_batch"], rows[-1]["shape"]) == (2, (decoding.LARGEST, 60))
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


def test_a_method_that_no_graph_can_hold_is_timed_as_it_is(place, monkeypatch):
    def refuse(step, device):
        step()
        raise NotCapturable("it waits")

    monkeypatch.setattr(decoding, "captured", refuse)
    rows = rows_of(place, [next(decoding.contests(place))])
    assert [(row["numbers"]["graph"], row["numbers"]["no_graph"]) for row in rows] == [(0.0, "it waits")] * len(METHODS)


def test_the_largest_batch_follows_from_what_a_sequence_took(monkeypatch):
    """On a GPU with 65 GiB free next to the model, of which 3 are kept in reserve; 2 GiB are the clock's."""
    gib = 2**30
    decoder = decoding.Decoder(torch.nn.Module(), TINY, SimpleNamespace(device=torch.device("cuda")), 2 * gib)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 * gib)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (65 * gib, 80 * gib))
    asked = []
    monkeypatch.setattr(torch, "empty", lambda n, dtype, device: asked.append(n))
    numbers = decoder._largest_batch(decoding.Cell(32768, 8), peak_bytes=32 * gib)
    assert numbers == {"bytes_per_sequence": 4 * gib, "largest_batch": 16, "was_allocated": 1.0}
    assert asked == [16 * 4 * gib - 2 * gib]


def test_the_largest_batch_is_what_fits_beside_the_reserve(place, monkeypatch):
    """H2O's and D2O's on a GPU with 128 GB free: five times as many sequences as with all slots, or fewer to merge."""
    decoder = decoding.Decoder(torch.nn.Module(), LLAMA3_8B, place, 0)
    assert decoder._as_many_as_fit(FULL, 32768) == 2
    monkeypatch.setattr(decoding.Decoder, "free_bytes", lambda self: 128e9 + decoding.RESERVE)
    decoder.place = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16)
    assert [decoder._as_many_as_fit(method, 32768) for method in (FULL, H2O_KEPT, D2O_KEPT)] == [29, 144, 122]


def test_every_cell_is_named_once():
    assert len({cell.name for cell in decoding.CELLS}) == len(decoding.CELLS)


def test_d2o_evicts_and_merges_in_each_layer_and_step(place):
    model = random_llama(TINY, place)
    filled = FilledCache(D2O_KEPT, 60, 2)
    with filled.opened(model, place) as cache:
        decoder = decoding.Decoder(model, TINY, place, 0)
        step = decoder.greedy(cache, filled)
        for n_steps in (1, 2):
            before = [slots.keys.clone() for slots in cache.slots]
            step()
            assert cache.n_evicted == n_steps * TINY.n_blocks
            assert {slots.n for slots in cache.slots} == {filled.n_kept}
            changed = [(slots.keys != old).any(dim=3).sum() for slots, old in zip(cache.slots, before, strict=True)]
            assert min(changed) > 4  # a new token in each head, and what was merged


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
