"""Statistics of attention against the weights themselves, on a tiny model."""

import pytest
import torch

from course_lib.kv import attend
from course_lib.kv.analysis.attention_statistics import KINDS, AttentionStatistics, attention_statistics, kinds_of
from course_lib.kv.analysis.power_law import PowerLaw
from course_lib.models import blocks, tiny_model, weight_of

IDS = torch.randint(3, 97, (41,), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def both():
    """A model whose attention is uneven, its statistics, and all its weights (L, A, Q, T)."""
    model = tiny_model()
    for block in blocks(model):
        for name in ("self_attn.q_proj", "self_attn.k_proj"):
            weight_of(block.get_submodule(name)).mul_(14)
    before = attend.CHUNK
    attend.CHUNK = 6 * 41 * 9  # nine queries at a time
    try:
        found = attention_statistics(model, IDS, near=5)
    finally:
        attend.CHUNK = before
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = torch.stack(model(IDS[None], output_attentions=True).attentions)[:, 0]
    return found, weights


def test_sparsity_is_the_share_below_a_hundredth_of_the_largest(both):
    found, weights = both
    small = (weights < 0.01 * weights.amax(dim=3, keepdim=True)) & torch.ones(41, 41).tril().bool()
    expected = small.sum(dim=(1, 2, 3)) / (6 * 41 * 42 / 2)
    torch.testing.assert_close(found.sparsity, expected)
    assert (expected > 0.1).all()


def test_mass_and_kinds(both):
    found, weights = both
    mass = weights.sum(dim=(1, 2))
    torch.testing.assert_close(found.mass, mass / mass.sum(dim=1, keepdim=True), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.mass.sum(dim=1), torch.ones(2))
    torch.testing.assert_close(found.top(0.1), found.mass.sort(dim=1, descending=True).values[:, :4].sum(dim=1))
    kinds = ["newline" if i % 3 else "word" for i in range(41)]
    shares = found.by_kind(kinds)
    distance = torch.arange(41)[:, None] - torch.arange(41)
    near = (weights * (distance < 5))[..., 1:].sum(dim=(1, 2, 3)) / (6 * 41)
    torch.testing.assert_close(shares["near"], near, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shares["first token"], weights[..., 0].sum(dim=(1, 2)) / (6 * 41), rtol=1e-4, atol=1e-5)
    far = (weights * (distance >= 5))[..., 3::3].sum(dim=(1, 2, 3)) / (6 * 41)
    torch.testing.assert_close(shares["word"], far, rtol=1e-4, atol=1e-5)
    assert shares.keys() == set(KINDS)
    torch.testing.assert_close(sum(shares.values()), torch.ones(2))


@pytest.mark.parametrize("by", ["any", "mean"])
def test_persistence(both, by):
    found, weights = both
    early, late = weights[:, :, :20, :20], weights[:, :, 20:, :20]
    if by == "any":
        was, is_now = (early > 1 / 20).any(dim=2), (late > 1 / 20).any(dim=2)
    else:
        was = early.sum(dim=2) / (20 - torch.arange(20)) > 1 / 20
        is_now = late.mean(dim=2) > 1 / 20
    ratio = torch.stack(
        [
            torch.tensor([w[n].float().mean() for w, n in zip(*pair, strict=True)]).nanmean()
            for pair in zip(was, is_now, strict=True)
        ]
    )
    persistence = found.persistence(by)
    torch.testing.assert_close(persistence.ratio, ratio)
    torch.testing.assert_close(persistence.early, was.float().mean(dim=(1, 2)))
    torch.testing.assert_close(persistence.late, is_now.float().mean(dim=(1, 2)))
    assert (persistence.ratio < 1).all()


def test_a_power_law_is_told_from_an_exponential():
    rank = torch.arange(1, 101).double()
    power = PowerLaw.fit(rank[torch.randperm(100)] ** -1.5, 2, 50)
    assert power.slope == pytest.approx(-1.5)
    assert power.r_squared == pytest.approx(1)
    assert power.exponential_r_squared < 0.9
    exponential = PowerLaw.fit((-rank / 10).exp(), 2, 50)
    assert exponential.exponential_r_squared == pytest.approx(1)
    assert exponential.r_squared < 0.95


def test_the_law_is_fitted_to_half_of_the_ranks():
    made = AttentionStatistics({"mass": torch.rand(2, 3, 40)}, 20)
    assert [(law.first, law.last) for law in made.power_law()] == [(2, 20)] * 2


@pytest.mark.real
def test_kinds_of_tokens(real_model):
    tokenizer = real_model[1]
    ids = torch.tensor(tokenizer("<|im_start|>One, two.\n\nThree").input_ids)
    assert [tokenizer.decode([i]) for i in ids] == ["<|im_start|>", "One", ",", " two", ".", "\n", "\n", "Three"]
    kinds = ["special", "word", "punctuation", "word", "punctuation", "newline", "newline", "word"]
    assert kinds_of(ids, tokenizer) == kinds


def test_a_text_of_three_tokens_is_refused():
    with pytest.raises(ValueError, match="one row of 4 tokens or more"):
        attention_statistics(tiny_model(), IDS[:3])
