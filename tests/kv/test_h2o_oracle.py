"""The oracle that no cache can have."""

import math

import pytest
import torch

from course_lib.kv.h2o_oracle import attend_with_oracle, h2o_oracle, heavy_hitters
from course_lib.models import tiny_model

IDS = torch.randint(3, 97, (2, 20), generator=torch.Generator().manual_seed(3))


def test_a_hand_made_head():
    """Columns collect 1 + 0.5 + 0.1, 0.5 + 0.1 and 0.8: the second goes, though the causal H2O would keep it."""
    weights = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.1, 0.1, 0.8]]).view(1, 1, 1, 3, 3)
    assert heavy_hitters(weights, 2).tolist() == [[[True, False, True]]]
    assert heavy_hitters(weights, 1).tolist() == [[[True, False, False]]]


@pytest.mark.parametrize(("heavy", "recent"), [(0.2, 0.1), (0.0, 0.3), (0.4, 0.0)])
def test_it_equals_a_loop(heavy, recent):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 6, 11, 4, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, 1, 2, 11, 4, generator=generator, dtype=torch.float64)
    found = attend_with_oracle(query, key, value, 0.5, heavy, recent)
    for h in range(2):
        rows = [
            [torch.softmax(key[0, h, : i + 1] @ query[0, 3 * h + g, i] * 0.5, 0).tolist() for i in range(11)]
            for g in range(3)
        ]
        received = [sum(rows[g][i][j] for g in range(3) for i in range(j, 11)) for j in range(11)]
        best = sorted(range(11), key=lambda j: -received[j])[: int(heavy * 11)]
        for g in range(3):
            for i in range(11):
                read = [j for j in range(i + 1) if j in best or j > i - max(1, int(recent * 11))]
                weights = [math.exp(float(key[0, h, j] @ query[0, 3 * h + g, i]) * 0.5) for j in read]
                expected = sum(w * value[0, h, j] for w, j in zip(weights, read, strict=True)) / sum(weights)
                torch.testing.assert_close(found[0, 3 * h + g, i], expected, rtol=1e-5, atol=1e-6)  # float32 softmax


@torch.no_grad()
def test_everything_heavy_is_the_dense_model_and_the_model_is_restored():
    model = tiny_model()
    expected = model(IDS, use_cache=False).logits
    with h2o_oracle(model, 1.0, 0.0):
        torch.testing.assert_close(model(IDS, use_cache=False).logits, expected, rtol=1e-4, atol=1e-5)
        with pytest.raises(ValueError, match="the oracle reads the future"):
            model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=3)
        with pytest.raises(ValueError, match="got padding"):
            model(IDS, attention_mask=(torch.arange(20) > 2).long().expand(2, -1), use_cache=False)
    with h2o_oracle(model, 0.1, 0.1):
        assert (model(IDS, use_cache=False).logits - expected).abs().max() > 1e-3
    assert torch.equal(model(IDS, use_cache=False).logits, expected)


@pytest.mark.parametrize(("heavy", "recent"), [(0.0, 0.0), (1.5, 0.1), (-0.1, 0.5), (float("nan"), 0.1)])
def test_shares_that_are_none(heavy, recent):
    with pytest.raises(ValueError, match="expected numbers from 0 to 1"), h2o_oracle(tiny_model(), heavy, recent):
        pytest.fail("must not get here")
