"""The distribution of what is written, by enumeration of every way that chance can go; the formulas against it."""

import math
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.attention.speculative.accept import (
    Drawn,
    Sampling,
    expected_speedup,
    expected_tokens,
    overlap,
    residual,
    verify,
)
from course_lib.attention.speculative.decode import speculate_from
from course_lib.attention.speculative.draft import Draft, Lookup, ModelDraft, Proposal

WORDS = 5
EXACT = 1e-12  # float64; sums of some thousand products of probabilities


@dataclass
class Scripted:
    """Chance that goes a given way, then always the first possible one; it notes the ways that it did not go."""

    script: tuple[int, ...]
    probability: float = 1.0
    gone: tuple[int, ...] = ()
    others: list[tuple[int, ...]] = field(default_factory=list)

    def pick(self, weights):
        assert abs(float(weights.sum()) - 1) < EXACT
        possible = [i for i, weight in enumerate(weights.tolist()) if weight > 0]
        if len(self.gone) < len(self.script):
            choice = self.script[len(self.gone)]
        else:
            choice = possible[0]
            self.others += [(*self.gone, other) for other in possible[1:]]
        self.gone = (*self.gone, choice)
        self.probability *= float(weights[choice])
        return choice


def every_way(run):
    """What comes out of run(chance), with its probability, over all ways of chance."""
    total, open_ = {}, [()]
    while open_:
        chance = Scripted(open_.pop())
        result = run(chance)
        open_ += chance.others
        total[result] = total.get(result, 0.0) + chance.probability
    return total


def table(seed, order=2):
    """A language of five words: the next depends on the last two, differently for every pair."""
    logits = 1.5 * torch.randn(WORDS**order, WORDS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    place = torch.tensor([WORDS**i for i in range(order)])

    def behind(ids, n):
        ends = [ids[max(0, end - order) : end] for end in range(len(ids) - n + 1, len(ids) + 1)]
        return torch.stack([logits[int((end * place[: len(end)]).sum())] for end in ends])

    return behind


def law(logits, ids, n_new):
    """p(text) of every text of n_new words, from the model alone."""
    texts = {(): 1.0}
    for _ in range(n_new):
        texts = {
            (*text, word): p * float(logits(torch.tensor([*ids, *text]), 1)[0].softmax(-1)[word])
            for text, p in texts.items()
            for word in range(WORDS)
        }
    return texts


class Certain(Draft):
    """Says the same word again and again, and is sure of it."""

    n_vocabulary = WORDS

    def propose(self, ids, k, sampling):
        return Proposal([3] * k, torch.eye(WORDS, dtype=torch.float64)[[3] * k])


class Silent(Draft):
    n_vocabulary = WORDS

    def propose(self, ids, k, sampling):
        return Proposal([], torch.zeros(0, WORDS, dtype=torch.float64))


DRAFTS = {
    "another model": ModelDraft(table(1), WORDS),
    "itself": ModelDraft(table(0), WORDS),
    "lookup": Lookup(WORDS),
    "certain": Certain(),
    "silent": Silent(),
}


def written(draft, k, n_new, ids=(1, 4, 1, 4)):
    def run(chance):
        return tuple(speculate_from(table(0), torch.tensor(ids), n_new, draft, k, Sampling(1.0, chance)).new.tolist())

    return every_way(run)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("draft", DRAFTS)
def test_the_text_is_distributed_as_the_models_own(draft, k):
    # Three words where few ways lead to them, two where a model draws the draft.
    n_new = 2 if isinstance(DRAFTS[draft], ModelDraft) else 3
    found, expected = written(DRAFTS[draft], k, n_new), law(table(0), (1, 4, 1, 4), n_new)
    assert set(found) == set(expected)
    assert max(abs(found[text] - p) for text, p in expected.items()) < EXACT


def test_three_words_from_another_model():
    found, expected = written(DRAFTS["another model"], 2, 3), law(table(0), (1, 4, 1, 4), 3)
    assert max(abs(found[text] - p) for text, p in expected.items()) < EXACT


def without_the_residual(drafted, q, p, chance):
    """The named mistake: where a token falls, another is drawn from p itself."""
    for i, token in enumerate(drafted):
        stays = min(1.0, float(p[i, token] / q[i, token]))
        if chance.pick(torch.tensor([stays, 1 - stays], dtype=torch.float64)) == 1:
            return [*drafted[:i], chance.pick(p[i])], i
    return [*drafted, chance.pick(p[len(drafted)])], len(drafted)


def test_the_enumeration_sees_a_wrong_rule(monkeypatch):
    monkeypatch.setattr("course_lib.attention.speculative.decode.verify", without_the_residual)
    found, expected = written(DRAFTS["another model"], 2, 2), law(table(0), (1, 4, 1, 4), 2)
    assert max(abs(found[text] - p) for text, p in expected.items()) > 0.02


def distributions(seed, rows):
    logits = 2 * torch.randn(rows, WORDS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return logits.softmax(-1)


@settings(deadline=None)
@given(seed=st.integers(0, 1000))
def test_one_token_by_formula(seed):
    """What stays and what is drawn anew add up to p, word by word."""
    p, q = distributions(seed, 2)
    stays = torch.minimum(p, q)
    torch.testing.assert_close(stays + (1 - overlap(p, q)) * residual(p, q), p, atol=EXACT, rtol=0)


def test_by_hand():
    p = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]], dtype=torch.float64)
    q = torch.tensor([[0.2, 0.6, 0.2]], dtype=torch.float64)
    assert float(overlap(p[0], q[0])) == pytest.approx(0.7)
    assert residual(p[0], q[0]).tolist() == pytest.approx([1, 0, 0])
    found = every_way(lambda chance: tuple(verify([1], q, p, chance)[0]))
    # The drafted word 1 stays with .3/.6; else word 0, of which alone q had too little.
    assert found == pytest.approx({(1, 0): 0.1, (1, 1): 0.1, (1, 2): 0.3, (0,): 0.5})


@pytest.mark.parametrize("k", [1, 2, 3])
def test_expected_tokens_are_those_of_the_rule(k):
    """Exactly, where every place has the same p and q: the same probability of staying."""
    p, q = distributions(7, 2)
    draft = ModelDraft(lambda ids, n: q.log().expand(n, -1), WORDS)

    def run(chance):
        drafted = draft.propose(torch.tensor([0]), k, Sampling(1.0, chance))
        return len(verify(drafted.tokens, drafted.q, p.expand(k + 1, -1), chance)[0])

    mean = sum(n * probability for n, probability in every_way(run).items())
    assert mean == pytest.approx(expected_tokens(float(overlap(p, q)), k), abs=EXACT)


def test_expected_tokens_against_simulation():
    p, q = distributions(7, 2)
    draft, k = ModelDraft(lambda ids, n: q.log().expand(n, -1), WORDS), 4
    chance = Drawn(torch.Generator().manual_seed(0))
    found = speculate_from(
        lambda ids, n: p.log().expand(n, -1), torch.tensor([0]), 3000, draft, k, Sampling(1.0, chance)
    )
    alpha = float(overlap(p, q))
    lengths = torch.tensor([each.n_stayed + 1.0 for each in found.rounds[:-1]])
    error = float(lengths.std()) / math.sqrt(len(lengths))
    assert abs(float(lengths.mean()) - expected_tokens(alpha, k)) < 4 * error
    assert found.acceptance == pytest.approx(alpha, abs=1e-9)  # the same at every place
    assert abs(found.stayed - alpha) < 4 * math.sqrt(alpha * (1 - alpha) / 1500)
    assert len(found.new) == 3000
    assert found.passes_per_100 == pytest.approx(100 * len(found.rounds) / 3000)


def test_expected_numbers_by_hand():
    assert expected_tokens(0.5, 2) == 1.75
    assert expected_tokens(0.0, 3) == 1
    assert expected_tokens(1.0, 3) == 4
    assert expected_speedup(0.5, 2, 0.25) == pytest.approx(1.75 / 1.5)
    assert expected_speedup(0.1, 5, 0.5) < 1  # a bad draft costs more than it saves


@pytest.mark.parametrize("numbers", [(-0.1, 2), (1.1, 2), (0.5, 0), (float("nan"), 1)])
def test_numbers_that_are_none_are_refused(numbers):
    with pytest.raises(ValueError, match="got"):
        expected_tokens(*numbers)
    with pytest.raises(ValueError, match="cost"):
        expected_speedup(0.5, 2, -1.0)


def test_a_draft_that_says_what_it_excluded_is_refused():
    p = distributions(0, 2)
    with pytest.raises(ValueError, match="drafted token 2"):
        verify([2], torch.eye(WORDS, dtype=torch.float64)[:1], p, Drawn(torch.Generator()))


def test_equal_distributions_let_nothing_fall():
    p = distributions(3, 1)[0]
    assert torch.equal(residual(p, p), p)


def test_temperature_zero_is_certain():
    sampling = Sampling(0.0, Drawn())
    assert sampling.distribution(torch.tensor([[1.0, 3.0, 3.0]])).tolist() == [[0, 1, 0]]
    hot = Sampling(2.0, Drawn()).distribution(torch.tensor([0.0, 2 * math.log(3)]))
    torch.testing.assert_close(hot, torch.tensor([0.25, 0.75], dtype=torch.float64), atol=1e-6, rtol=0)  # float32 log
