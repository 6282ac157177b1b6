"""SnapKV against sums over the rows of eager attention, and against a loop over what is still there in later passes."""

import pytest
import torch
from kv_naive import FirstLayer, kept_by, passes_of, run, sharp_model

from course_lib.kv.cache import evicting
from course_lib.kv.policies.snapkv import SnapKV
from course_lib.models import tiny_model

IDS = torch.randint(3, 97, (1, 60), generator=torch.Generator().manual_seed(3))


def pooled(received, kernel):
    """Means over `kernel` neighbours; beyond the ends lie zeros."""
    half = kernel // 2
    padded = [0.0] * half + received + [0.0] * half
    return [sum(padded[j : j + kernel]) / kernel for j in range(len(received))]


def chosen(received, prefix, window, policy):
    """The tokens of the prefix with the highest pooled scores, and the window. Li and others, Listing 1."""
    score = dict(zip(prefix, pooled(received, policy.kernel), strict=True))
    best = sorted(prefix, key=score.get, reverse=True)[: policy.budget - len(window)]
    return sorted(best) + window


@pytest.mark.parametrize("chunk", [2**21, 500])
@pytest.mark.parametrize(("recent", "kernel"), [(8, 5), (8, 1), (12, 7), (3, 3)])
def test_after_a_prompt_it_keeps_what_the_last_rows_ask_for(recent, kernel, chunk, monkeypatch):
    """In one chunk, and in chunks of few rows, of which the last sees its share of the window."""
    model, policy = sharp_model(), SnapKV(budget=20, recent=recent, kernel=kernel)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(IDS, output_attentions=True).attentions
    monkeypatch.setattr("course_lib.kv.attend.CHUNK", chunk)
    with evicting(model, policy) as cache:
        run(model, cache, IDS, range(60))
    for slots, weights in zip(cache.slots, layers, strict=True):
        for head, kept in enumerate(kept_by(slots)):
            rows = weights[0, 3 * head : 3 * head + 3, -recent:, :-recent].double()
            received = rows.mean(dim=(0, 1)).tolist()
            assert kept == chosen(received, list(range(60 - recent)), list(range(60 - recent, 60)), policy)


def naive(first, head, passes, policy):
    """Kept tokens of one key-value head after each pass; those of one token lose nothing and are not looked at."""
    kept = []
    for tokens in passes:
        kept += tokens
        if len(tokens) == 1 or len(kept) <= policy.budget:
            yield list(kept)
            continue
        last = kept[-1]
        prefix, window = ([j for j in kept if (j <= last - policy.recent) is old] for old in (True, False))
        received = [0.0] * len(prefix)
        for i in [i for i in tokens if i > last - policy.recent]:
            visible = [j for j in kept if j <= i]
            weights = first.rows(head, i, first.key[head, visible]).mean(dim=0).tolist()
            received = [old + weight for old, weight in zip(received, weights, strict=False)]  # the prefix is in front
        kept = chosen(received, prefix, window, policy)
        yield list(kept)


@pytest.mark.parametrize("sizes", [(30, 1, 1, 1, 9, 1, 5), (20, 20, 1, 19), (7,), (40, 2)], ids=str)
def test_later_passes_of_several_tokens_ask_anew_and_single_ones_stay(sizes):
    """Also a pass shorter than the window: what an earlier one asked for is over."""
    model, policy = sharp_model(), SnapKV(budget=16, recent=6, kernel=3)
    first, passes = FirstLayer(model, IDS[0]), passes_of(60, sizes)
    expected = [list(naive(first, head, passes, policy)) for head in range(2)]
    with evicting(model, policy) as cache:
        for tokens, *heads in zip(passes, *expected, strict=True):
            run(model, cache, IDS, tokens)
            assert kept_by(cache.slots[0]) == heads


def test_tokens_that_are_generated_stay_above_the_budget():
    model = tiny_model()
    with evicting(model, SnapKV(budget=16, recent=6)) as cache:
        run(model, cache, IDS, range(40))
        assert [slots.n for slots in cache.slots] == [16, 16]
        for i in range(40, 60):
            run(model, cache, IDS, range(i, i + 1))
    assert [slots.n for slots in cache.slots] == [36, 36]
    assert all(head[-26:] == list(range(34, 60)) for slots in cache.slots for head in kept_by(slots))


@pytest.mark.parametrize("settings", [{"kernel": 4}, {"kernel": 0}, {"recent": 0}], ids=str)
def test_settings_that_do_not_fit(settings):
    with pytest.raises(ValueError, match="expected an odd number of neighbours and an observation window"):
        SnapKV(**settings)
