"""Keys as deltas: by hand, against a loop that does what the count says, and the invariants on any keys."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention.delta.code import delta_code, delta_logits, n_products, summed_logits


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def walk(n_tokens=23, size=5, heads=2, seed=0):
    """Keys that drift, as those of neighbouring tokens do."""
    return drawn(heads, n_tokens, size, seed=seed).cumsum(dim=-2) / 3


def counted_by_hand(query, keys, code, window):
    """Every product done one by one, as a machine that skips zeros would, and how many there were."""
    logits, n_done, n_all = torch.zeros(query.shape[0], keys.shape[0], dtype=keys.dtype), 0, 0
    first_query = keys.shape[0] - query.shape[0]
    for i, q in enumerate(query):
        at, total = first_query + i, 0.0
        for j in range(at + 1):
            n_all += keys.shape[1]
            if at - j < window:
                logits[i, j] = sum(q[c] * keys[j, c] for c in range(len(q)))
                n_done += len(q)
            else:
                for c in range(len(q)):
                    if code.sent[j, c]:
                        total += q[c] * code.deltas[j, c]
                        n_done += 1
                logits[i, j] = total
    return logits, n_done, n_all


def test_by_hand():
    keys = torch.tensor([[0.0, 4.0], [0.4, 4.0], [0.9, 3.0], [1.1, 2.9], [2.0, 3.5]])
    code = delta_code(keys, threshold=torch.tensor([1.0, 0.5]))
    # The first channel: .4 and .9 are within 1 of the 0 that was sent; 1.1 is not; 2.0 is within 1 of that.
    assert code.sent.tolist() == [[True, True], [False, False], [False, True], [True, False], [False, True]]
    torch.testing.assert_close(code.keys, torch.tensor([[0, 4], [0, 4], [0, 3], [1.1, 3], [1.1, 3.5]]))
    torch.testing.assert_close(code.deltas, torch.tensor([[0, 4], [0, 0], [0, -1], [1.1, 0], [0, 0.5]]))


def test_errors_do_not_add_up():
    """A slow ramp: compared with the token before, which differs by little, nothing would ever be sent."""
    ramp = torch.arange(50.0)[:, None] * 0.4
    assert (delta_code(ramp, 1.0).keys - ramp).abs().max() < 1
    against_the_token_before = torch.where(ramp.diff(dim=0).abs() >= 1.0, ramp.diff(dim=0), 0).cumsum(dim=0)
    assert (against_the_token_before - ramp[1:]).abs().max() > 19


@given(theta=st.floats(0.01, 3), seed=st.integers(0, 99), n_tokens=st.integers(1, 30))
def test_what_is_read_is_within_the_threshold(theta, seed, n_tokens):
    keys = walk(n_tokens, seed=seed)
    spread = drawn(2, 5, seed=seed).abs()
    code = delta_code(keys, theta * spread)
    assert bool(((code.keys - keys).abs() < theta * spread[:, None]).all())
    assert bool((code.deltas[~code.sent] == 0).all())


def test_threshold_zero_sends_all():
    keys = walk()
    code = delta_code(torch.cat([keys, keys[:, -1:]], dim=1), 0.0)  # the last token repeats the one before
    assert torch.equal(code.keys[:, :-1], keys)
    assert bool(code.sent.all())


def test_tokens_sent_whole_are_exact():
    keys, whole = walk(), torch.arange(23) < 4
    code = delta_code(keys, 100.0, whole)
    assert torch.equal(code.keys[:, :4], keys[:, :4])
    assert torch.equal(code.keys[:, 4:], keys[:, 3:4].expand(-1, 19, -1))


@given(cut=st.integers(1, 22), seed=st.integers(0, 20))
def test_a_text_in_two_parts_is_coded_as_one(cut, seed):
    keys = walk(seed=seed)
    at_once = delta_code(keys, 0.7)
    in_parts = delta_code(keys[:, cut:], 0.7, before=delta_code(keys[:, :cut], 0.7))
    assert torch.equal(in_parts.keys, at_once.keys)
    assert torch.equal(in_parts.sent, at_once.sent)


@given(theta=st.floats(0, 2), seed=st.integers(0, 20))
def test_sums_over_deltas_are_the_direct_product(theta, seed):
    code, query = delta_code(walk(seed=seed), theta), drawn(2, 7, 5, seed=seed + 100)
    # float64; the sum of up to 23 products of size 10 in another order
    torch.testing.assert_close(summed_logits(query, code), query @ code.keys.mT, atol=1e-12, rtol=0)


@pytest.mark.parametrize("window", [1, 4, 9, 30])
@pytest.mark.parametrize("n_new", [1, 6, 23])
def test_against_a_loop_that_skips_zeros(window, n_new):
    keys, query = walk(heads=1)[0], drawn(n_new, 5, seed=5)
    code = delta_code(keys, 0.6)
    logits, n_done, n_all = counted_by_hand(query, keys, code, window)
    causal = torch.ones(n_new, 23, dtype=torch.bool).tril(23 - n_new)
    mine = delta_logits(query, keys, code.keys, window)
    torch.testing.assert_close(mine[causal], logits[causal], atol=1e-12, rtol=0)  # float64
    assert n_products(code.sent, window, n_new) == (n_done, n_all)


def test_a_window_over_the_whole_text_is_exact():
    keys, query = walk(), drawn(2, 23, 5, seed=5)
    code = delta_code(keys, 2.0)
    assert torch.equal(delta_logits(query, keys, code.keys, 23), query @ keys.mT)
    done, causal = n_products(code.sent, 23, 23)
    assert done == causal == 2 * 5 * 23 * 24 // 2


def test_padding_is_not_counted():
    keys = walk(n_tokens=11)
    whole = torch.arange(11) < 4  # three of padding, and the first token
    padded, alone = delta_code(keys, 0.6, whole), delta_code(keys[:, 3:], 0.6)
    assert torch.equal(padded.keys[:, 3:], alone.keys)
    assert n_products(padded.sent, 2, 11, torch.tensor([3, 3])) == n_products(alone.sent, 2, 8)


@pytest.mark.parametrize("threshold", [-0.1, torch.tensor([1.0, -1.0, 1, 1, 1]), float("nan")])
def test_thresholds_below_zero_are_refused(threshold):
    with pytest.raises(ValueError, match="expected 0"):
        delta_code(walk(), threshold)


def test_no_tokens_are_refused():
    with pytest.raises(ValueError, match="at least one token"):
        delta_code(walk()[:, :0], 1.0)


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_without_the_own_token_is_refused(window):
    keys = walk()
    with pytest.raises(ValueError, match=f"window={window}"):
        delta_logits(keys, keys, keys, window)
    with pytest.raises(ValueError, match=f"window={window}"):
        n_products(delta_code(keys, 1.0).sent, window, 1)
