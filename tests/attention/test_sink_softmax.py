"""Softmax with a sink: by hand, against an extra column, against gpt-oss, and its properties."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, eager_attention_forward

from course_lib.attention.sink_softmax import log_sum_exp, sink_attention, sink_softmax, with_sink

INF = math.inf
rows = st.lists(st.floats(-80.0, 80.0), min_size=1, max_size=6)
sinks = st.floats(-80.0, 80.0)


def extra_column(logits, sink):
    """gpt-oss as it is described: one column more, softmax, the column dropped. sink: a number a head."""
    column = sink.reshape(-1, 1, 1).expand(*logits.shape[:-1], 1)
    return torch.cat([logits, column], dim=-1).softmax(dim=-1)[..., :-1]


def test_by_hand():
    logits = torch.log(torch.tensor([1.0, 2.0, 5.0]))  # the exponentials are 1, 2 and 5
    torch.testing.assert_close(sink_softmax(logits), torch.tensor([1 / 8, 2 / 8, 5 / 8]))
    torch.testing.assert_close(sink_softmax(logits, 0), torch.tensor([1 / 9, 2 / 9, 5 / 9]))
    torch.testing.assert_close(sink_softmax(logits, math.log(8)), torch.tensor([1 / 16, 2 / 16, 5 / 16]))
    two_heads = logits.expand(2, 1, 3)
    torch.testing.assert_close(
        sink_softmax(two_heads, torch.log(torch.tensor([1.0, 2.0]))),
        torch.tensor([[[1 / 9, 2 / 9, 5 / 9]], [[1 / 10, 2 / 10, 5 / 10]]]),
    )


def test_an_extra_column_and_an_extra_key_are_the_same_thing(generator):
    logits, sink = torch.randn(2, 3, 5, 7, generator=generator), torch.randn(3, generator=generator)
    torch.testing.assert_close(sink_softmax(logits, sink), extra_column(logits, sink))
    query, keys, values = (torch.randn(2, 3, n, 8, generator=generator) for n in (5, 7, 7))
    with_zero = [torch.cat([torch.zeros(2, 3, 1, 8), each], dim=2) for each in (keys, values)]
    expected = torch.nn.functional.scaled_dot_product_attention(query, *with_zero)
    torch.testing.assert_close(sink_attention(query, keys, values, 0), expected)


def test_gpt_oss_reads_the_same(generator):
    config = GptOssConfig(hidden_size=24, num_attention_heads=6, num_key_value_heads=2, head_dim=8, num_hidden_layers=1)
    module = GptOssAttention(config, 0).eval()
    torch.nn.init.normal_(module.sinks, generator=generator)
    query, keys, values = (torch.randn(2, n, 5, 8, generator=generator) for n in (6, 2, 2))
    mask = torch.full((5, 5), -INF).triu(1)
    expected, weights = eager_attention_forward(module, query, keys, values, mask[None, None], 8**-0.5)
    expected, sink = expected.transpose(1, 2), module.sinks
    logits = query @ keys.repeat_interleave(3, dim=1).transpose(2, 3) * 8**-0.5 + mask
    torch.testing.assert_close(sink_softmax(logits, sink), weights)
    torch.testing.assert_close(sink_attention(query, keys, values, sink, is_causal=True), expected)


def test_a_backend_that_returns_its_log_sum_exp_needs_one_multiplication(generator):
    """torch's fused attention for the CPU returns it; no gradient flows through that one."""
    query, keys, values = (torch.randn(2, n, 9, 8, generator=generator) for n in (4, 2, 2))
    sink = torch.randn(4, generator=generator)
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, lse = fused(query, keys, values, 0.0, True, scale=8**-0.5)
    expected = sink_attention(query, keys, values, sink, is_causal=True)
    torch.testing.assert_close(with_sink(output, lse, sink), expected)
    torch.testing.assert_close(lse, log_sum_exp(query, keys, is_causal=True))
    assert not fused(query.requires_grad_(), keys, values, 0.0, True)[1].requires_grad


def test_many_queries_go_in_chunks(generator, monkeypatch):
    query, keys = torch.randn(1, 4, 11, 8, generator=generator), torch.randn(1, 2, 11, 8, generator=generator)
    whole = log_sum_exp(query, keys, is_causal=True)
    monkeypatch.setattr("course_lib.attention.sink_softmax.CHUNK", 4 * 11 * 3)
    torch.testing.assert_close(log_sum_exp(query, keys, is_causal=True), whole)


@settings(max_examples=100, deadline=None)
@given(rows, sinks)
def test_shares_add_up_with_that_of_the_sink(row, sink):
    logits = torch.tensor(row, dtype=torch.float64)
    weights = sink_softmax(logits, sink)
    of_the_sink = torch.sigmoid(sink - logits.logsumexp(dim=0))
    assert math.isclose(float(weights.sum() + of_the_sink), 1.0, rel_tol=1e-12)
    moved = sink_softmax(logits + 3.0, sink + 3.0)  # only differences count, that to the sink included
    torch.testing.assert_close(moved, weights)
    torch.testing.assert_close(with_sink(logits.softmax(0)[None], logits.logsumexp(0)[None], sink)[0], weights)


@settings(max_examples=50, deadline=None)
@given(rows)
def test_no_sink_is_softmax(row):
    logits = torch.tensor(row)
    for sink in (None, -INF, torch.tensor(-INF)):
        torch.testing.assert_close(sink_softmax(logits, sink), logits.softmax(dim=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_large_logits_neither_overflow_nor_lose_gradients(dtype):
    logits = torch.tensor([[[3e4, 2.9e4, -3e4]], [[-3e4, -3e4, -3e4]]], dtype=dtype, requires_grad=True)
    sink = torch.tensor([0.0, 3e4], dtype=dtype, requires_grad=True)
    weights = sink_softmax(logits, sink)
    assert weights.dtype == dtype
    torch.testing.assert_close(weights, torch.tensor([[[1.0, 0, 0]], [[0, 0, 0]]], dtype=dtype))
    weights.square().sum().backward()
    assert logits.grad.isfinite().all()
    assert sink.grad.isfinite().all()


def test_gradients_are_those_of_the_extra_column(generator):
    logits = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    sink = torch.randn(3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sink_softmax, (logits, sink))
    query, keys, values = (torch.randn(1, 3, 4, 5, generator=generator).double().requires_grad_() for _ in range(3))
    assert torch.autograd.gradcheck(
        lambda *inputs: sink_attention(*inputs, is_causal=True), (query, keys, values, sink)
    )


def test_nothing_to_read_is_zero_with_a_sink_and_nan_without():
    logits = torch.tensor([[-INF, -INF], [0.0, -INF]], requires_grad=True)
    weights = sink_softmax(logits, 0.0)
    torch.testing.assert_close(weights, torch.tensor([[0.0, 0.0], [0.5, 0.0]]))
    weights.sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[0.0, 0.0], [0.25, 0.0]]))
    assert sink_softmax(logits)[0].isnan().all()
    lse = torch.tensor([-INF, 0.0])
    output = torch.tensor([[math.nan], [4.0]])
    torch.testing.assert_close(with_sink(output, lse, 0.0), torch.tensor([[0.0], [2.0]]))
    torch.testing.assert_close(with_sink(output, lse), output, equal_nan=True)


def test_bad_input():
    logits = torch.zeros(2, 3, 4, 5)
    for bad in (INF, math.nan):
        with pytest.raises(ValueError, match="None or -inf for the ordinary softmax"):
            sink_softmax(logits, bad)
    for bad in (torch.zeros(4), torch.zeros(3, 1)):
        with pytest.raises(ValueError, match=r"sink of shape \(\d, ?1?\) for logits .* expected one number per query"):
            sink_softmax(logits, bad)
    with pytest.raises(ValueError, match="one number per query head"):
        sink_softmax(torch.zeros(4), torch.zeros(4))
    with pytest.raises(ValueError, match="for a log-sum-exp"):
        with_sink(torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4), torch.zeros(4))
    query = torch.zeros(1, 3, 2, 4)
    with pytest.raises(ValueError, match="as many queries as keys"):
        sink_attention(query, torch.zeros(1, 3, 5, 4), torch.zeros(1, 3, 5, 4), is_causal=True)
    with pytest.raises(ValueError, match="a whole number of query heads"):
        sink_attention(query, torch.zeros(1, 2, 2, 4), torch.zeros(1, 2, 2, 4))
