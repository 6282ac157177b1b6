"""Speculative decoding with models and their caches: the greedy text, passes counted, drafts, refusals."""

from contextlib import contextmanager

import pytest
import torch

from course_lib.attention.speculative.accept import Drawn, Sampling
from course_lib.attention.speculative.cached import CachedModel, first_blocks
from course_lib.attention.speculative.decode import Round, Speculated, speculate
from course_lib.attention.speculative.draft import Lookup, ModelDraft, model_draft
from course_lib.attention.steering.steer import steering
from course_lib.contextual.altered import skipping
from course_lib.contextual.apply import contextual
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.models import blocks, tiny_model


def text(length=11, seed=0):
    return torch.randint(3, 97, (length,), generator=torch.Generator().manual_seed(seed))


def greedy(model, ids, n_new):
    """One token at a time, without a cache."""
    with torch.no_grad():
        for _ in range(n_new):
            ids = torch.cat([ids, model(ids[None], use_cache=False).logits[0, -1].argmax()[None]])
    return ids


def nearly(model):
    """The same model, a little off: it agrees often."""
    other = tiny_model()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in other.parameters():
            weight += 0.1 * weight.std() * torch.randn(weight.shape, generator=generator)
    return other


DRAFTS = {
    "lookup": lambda model: Lookup(97),
    "itself": model_draft,
    "nearly the same": lambda model: model_draft(nearly(model)),
    "another": lambda model: model_draft(tiny_model(seed=5)),
    "first block": lambda model: model_draft(first_blocks(model, 1)),
    "some of its neurons": lambda model: model_draft(model, lambda: contextual(model, Oracle(density=0.5))),
}


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("draft", DRAFTS)
def test_greedy_drafts_give_the_greedy_text(draft, k):
    model, ids = tiny_model(), text()
    found = speculate(model, ids, 23, DRAFTS[draft](model), k)
    assert torch.equal(found.ids, greedy(model, ids, 23))
    assert len(found.rounds) <= 23
    assert sum(each.n_stayed + 1 for each in found.rounds) == 23


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2", "qwen3"])
def test_every_family(family):
    model, ids = tiny_model(0, family), text()
    found = speculate(model, ids, 12, model_draft(first_blocks(model, 1)), 3)
    assert torch.equal(found.ids, greedy(model, ids, 12))


def test_a_perfect_draft_needs_one_pass_for_k_and_one():
    model = tiny_model()
    found = speculate(model, text(), 20, model_draft(model), k=4)
    assert [each.n_stayed for each in found.rounds] == [4, 4, 4, 4]
    assert (found.tokens_per_pass, found.passes_per_100, found.stayed) == (5, 20, 1)
    assert found.acceptance == pytest.approx(1)


def test_sampled_text_is_that_of_the_model_where_it_drafts_for_itself():
    """Nothing falls at temperature 1 either; another generator gives another text."""
    model, ids = tiny_model(), text()
    texts = [
        speculate(model, ids, 20, model_draft(model), 3, 1.0, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    ]
    assert all(each.stayed == 1 for each in texts)
    assert torch.equal(texts[0].ids, texts[1].ids)
    assert not torch.equal(texts[0].ids, texts[2].ids)


@torch.no_grad()
def test_the_cache_goes_on_from_what_is_shared():
    model, ids = tiny_model(), text(20)
    cached, other = CachedModel(model), torch.cat([ids[:12], text(5, seed=3)])
    for wanted, n, n_read in ((ids, 1, 20), (ids, 4, 4), (other, 2, 5), (other[:9], 1, 1), (ids, 3, 11)):
        before = cached.n_read
        # float32; other shapes of the same products
        torch.testing.assert_close(cached(wanted, n), model(wanted[None]).logits[0, -n:], atol=1e-5, rtol=0)
        assert cached.n_read - before == n_read
    assert cached.n_passes == 5


def test_a_pass_that_fails_leaves_nothing_half_read():
    model, ids = tiny_model(), text(12)
    cached = CachedModel(model)
    cached(ids[:8], 1)

    def fail(*_):
        raise RuntimeError

    handle = blocks(model)[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError):
        cached(ids, 1)
    handle.remove()
    with torch.no_grad():
        torch.testing.assert_close(cached(ids, 2), model(ids[None]).logits[0, -2:], atol=1e-5, rtol=0)  # float32


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
def test_the_first_blocks_are_those_of_the_model_itself(family):
    model, ids = tiny_model(0, family), text()[None]
    early, dense = first_blocks(model, 1), model(ids).logits
    with skipping(model, [1]):
        expected = model(ids, use_cache=False).logits
    torch.testing.assert_close(early(ids).logits, expected, atol=1e-6, rtol=0)  # float32
    assert blocks(early)[0] is blocks(model)[0]
    assert (len(blocks(early)), len(blocks(model))) == (1, 2)
    with steering(early, ids > 50):  # whoever changes how it attends reaches its blocks
        assert (early(ids).logits - expected).abs().max() > 1e-4
    assert torch.equal(model(ids).logits, dense)


def found_by_lookup(ids, k=3, longest=3):
    return Lookup(97, longest).propose(torch.tensor(ids), k, Sampling(0.0, Drawn())).tokens


def test_lookup_by_hand():
    assert found_by_lookup([5, 6, 7, 8, 5, 6]) == [7, 8, 5]
    assert found_by_lookup([5, 6, 7, 9, 6, 8, 5, 6]) == [
        7,
        9,
        6,
    ]  # 5 6, not the later 6 alone
    assert found_by_lookup([5, 6, 7, 9, 6, 8, 5, 6], longest=1) == [8, 5, 6]
    assert found_by_lookup([6, 1, 6, 2, 6]) == [2, 6]  # the latest, and no more than there is
    assert found_by_lookup([4, 4]) == [4]
    assert found_by_lookup([5, 6, 7]) == found_by_lookup([5]) == []


def test_the_text_ends_where_it_is_told_to():
    model, ids = tiny_model(), text()
    whole = speculate(model, ids, 20, Lookup(97)).new
    stop = int(whole[6])
    end = whole.tolist().index(stop)
    for draft in (Lookup(97), model_draft(model)):
        found = speculate(model, ids, 20, draft, stop={stop})
        assert torch.equal(found.new, whole[: end + 1])


def test_numbers_of_a_text_by_hand():
    rounds = (Round(3, 3, 2.5), Round(3, 1, 0.9), Round(0, 0, 0.0))
    found = Speculated(torch.arange(10), 3, rounds)
    assert [each.n_tried for each in rounds] == [3, 2, 0]
    assert found.tokens_per_pass == pytest.approx(7 / 3)
    assert found.passes_per_100 == pytest.approx(300 / 7)
    assert found.stayed == pytest.approx(4 / 5)
    assert found.acceptance == pytest.approx(3.4 / 5)


def test_a_draft_runs_inside_its_block_and_nowhere_else():
    model, inside = tiny_model(), []

    @contextmanager
    def block():
        inside.append(1)
        yield
        inside.append(-1)

    handle = model.register_forward_pre_hook(lambda *_: inside.append(10 * sum(inside[-1:])))
    draft = model_draft(tiny_model(), block)
    speculate(model, text(), 4, draft, k=2)
    handle.remove()
    assert sum(each for each in inside if abs(each) == 1) == 0
    assert 10 not in inside  # no pass of the model between a 1 and its -1


BAD = [
    ({"k": 0}, "k=0"),
    ({"n_new": 0}, "n_new=0"),
    ({"temperature": -1.0}, "temperature -1.0"),
    ({"temperature": float("nan")}, "temperature nan"),
    ({"temperature": 1.0}, "generator None"),
    ({"draft": Lookup(96)}, "a draft of 96 tokens for a model of 97"),
    ({"draft": ModelDraft(lambda ids, n: ids, 5)}, "a draft of 5 tokens"),
    ({"ids": torch.empty(0, dtype=torch.long)}, r"\(0,\)"),
]


@pytest.mark.parametrize(("given", "said"), BAD)
def test_bad_input_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        speculate(**{"model": tiny_model(), "ids": text(), "n_new": 3, "draft": Lookup(97)} | given)


def test_other_refusals():
    with pytest.raises(ValueError, match="got longest 0"):
        Lookup(97, 0)
    for n in (0, 3):
        with pytest.raises(ValueError, match=f"n={n}"):
            first_blocks(tiny_model(), n)
