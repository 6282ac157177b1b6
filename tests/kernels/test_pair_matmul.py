"""Products by pair: by hand, against the tiles by expert, experts without tokens, no token spoils another, refusals."""

import pytest
import torch
from course_lib.kernels.experts import grouped_matmul, pair_matmul, router_topk
from course_lib.kernels.experts.pair_matmul import bytes_moved, example, takes
from kernel_device import on_device

launch, by_group = on_device(pair_matmul.launch), on_device(grouped_matmul.launch)
SIGMOID_2 = torch.sigmoid(torch.tensor(2.0)).item()


def test_two_experts_by_hand():
    """One hidden unit. Expert 0: silu(2x) · x, back to (h, −h); expert 1: silu(x) · 3x, back to (0, h)."""
    inputs = torch.tensor([[1.0, 0.0], [2.0, 9.0]])
    gate_up = torch.tensor([[[2.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [3.0, 0.0]]])
    down = torch.tensor([[[1.0], [-1.0]], [[0.0], [1.0]]])
    weight, expert = torch.tensor([[1.0, 0.0], [0.5, 0.0]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    first, second = 2 * SIGMOID_2, 0.5 * 2 * SIGMOID_2 * 6
    torch.testing.assert_close(
        launch(inputs, gate_up, down, weight, expert), torch.tensor([[first, -first], [0, second]])
    )


@pytest.mark.parametrize(("n_tokens", "n_experts", "k"), [(3, 7, 1), (2, 3, 3), (4, 13, 2)])
def test_the_same_as_tiles_by_expert(n_tokens, n_experts, k, generator):
    inputs, gate_up, down, *_ = example(generator, torch.float32, "cpu", (n_tokens, n_experts, 40, 24), 1)
    routed = router_topk.launch(torch.randn(n_tokens, n_experts, generator=generator), k)
    expected = by_group(inputs, gate_up, down, routed.weight, routed.order, routed.offsets)
    got = launch(inputs, gate_up, down, routed.weight, routed.expert)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)  # sums in another order


def test_nothing_is_read_of_experts_without_tokens(generator):
    inputs, gate_up, down, weight, expert = example(generator, torch.float32, "cpu", (3, 5, 24, 16), 2)
    expert = expert % 3
    expected = launch(inputs, gate_up, down, weight, expert)
    gate_up[3:], down[3:] = torch.nan, torch.nan
    assert torch.equal(launch(inputs, gate_up, down, weight, expert), expected)


def test_one_token_spoils_no_other(generator):
    arguments = example(generator, torch.float32, "cpu", (4, 3, 24, 16), 2)
    expected = launch(*arguments)
    arguments[0][2] = torch.nan
    got, others = launch(*arguments), torch.tensor([0, 1, 3])
    assert got[2].isnan().all()
    assert torch.equal(got[others], expected[others])


def test_no_tokens(generator):
    arguments = example(generator, torch.float32, "cpu", (4, 3, 24, 16), 2)
    none = (torch.empty(0, 24), *arguments[1:3], torch.empty(0, 2), torch.empty(0, 2, dtype=torch.int32))
    assert launch(*none).shape == (0, 24)


def test_takes_few_pairs_of_what_fits(generator):
    inputs, gate_up, down, *_ = example(generator, torch.float32, "cpu", (4, 3, 24, 16), 2)
    assert takes(inputs, gate_up, down, k=2)
    assert not takes(inputs.repeat(pair_matmul.MOST_PAIRS, 1), gate_up, down, k=1)
    assert not takes(inputs, gate_up.half(), down, k=2)
    assert not takes(inputs, gate_up[:, :16], down, k=2)
    assert not takes(inputs, gate_up, down.mT.contiguous().mT, k=2)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({0: torch.ones(4)}, r"inputs have shape \(4,\), .*: expected \(tokens, size\).*; flatten"),
        ({1: torch.ones(3, 16, 24)}, r"gate_up has shape \(3, 16, 24\): expected \(3, 32, 24\)"),
        ({4: torch.zeros(4, 1, dtype=torch.int32)}, r"expert has shape \(4, 1\): expected \(4, 2\)"),
        ({4: torch.zeros(4, 2, dtype=torch.int64)}, r"expert is torch.int64: expected int32; convert"),
    ],
    ids=["axes", "gate without up", "pairs", "index type"],
)
def test_what_does_not_fit_is_refused(spoil, message, generator):
    arguments = dict(enumerate(example(generator, torch.float32, "cpu", (4, 3, 24, 16), 2)))
    with pytest.raises(ValueError, match=message):
        launch(*(arguments | spoil).values())


def test_bytes_by_hand(generator):
    """Two of three experts: 3 × 24 × 16 numbers of 2 bytes each. 2 tokens of 24 read and written; 2 pairs of a weight
    and an expert of 4 bytes.
    """
    inputs, gate_up, down, weight, expert = example(generator, torch.float16, "cpu", (2, 3, 24, 16), 1)
    expert[:, 0] = torch.tensor([2, 0])
    assert bytes_moved(inputs, gate_up, down, weight, expert) == 2 * 3 * 24 * 16 * 2 + 2 * 2 * 24 * 2 + 2 * 8
