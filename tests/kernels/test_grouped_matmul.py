"""Products by group: by hand, against one dense layer, experts without tokens, every k, padding, refusals."""

import pytest
import torch
from course_lib.kernels.experts import grouped_matmul, router_topk
from course_lib.kernels.experts.grouped_matmul import bytes_moved, example
from kernel_device import on_device
from torch.nn.functional import silu

launch = on_device(grouped_matmul.launch)
SIGMOID_2 = torch.sigmoid(torch.tensor(2.0)).item()


def test_two_experts_by_hand():
    """One hidden unit. Expert 0: silu(2x) · x, back to (h, −h); expert 1: silu(x) · 3x, back to (0, h)."""
    inputs = torch.tensor([[1.0, 0.0], [2.0, 9.0]])
    gate_up = torch.tensor([[[2.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [3.0, 0.0]]])
    down = torch.tensor([[[1.0], [-1.0]], [[0.0], [1.0]]])
    # Token 0 goes to expert 0 alone (a weight of 0 for the other), token 1 to expert 1 with ½ and to 0 with nothing.
    weight = torch.tensor([[1.0, 0.0], [0.5, 0.0]])
    order, offsets = torch.tensor([0, 3, 1, 2], dtype=torch.int32), torch.tensor([0, 2, 4], dtype=torch.int32)
    first, second = 2 * SIGMOID_2, 0.5 * 2 * SIGMOID_2 * 6
    expected = torch.tensor([[first, -first], [0.0, second]])
    torch.testing.assert_close(launch(inputs, gate_up, down, weight, order, offsets), expected)


def test_equal_experts_are_one_dense_layer(generator):
    """Weights that add up to 1 change nothing then, whoever is chosen."""
    inputs = torch.randn(19, 24, generator=generator)
    gate_up, down = torch.randn(48, 24, generator=generator) / 5, torch.randn(24, 24, generator=generator) / 5
    routed = router_topk.launch(torch.randn(19, 5, generator=generator), 3)
    got = launch(
        inputs, gate_up.expand(5, -1, -1).contiguous(), down.expand(5, -1, -1).contiguous(), routed.weight,
        routed.order, routed.offsets,
    )  # fmt: skip
    gate, up = (inputs @ gate_up.T).chunk(2, dim=1)
    torch.testing.assert_close(got, (silu(gate) * up) @ down.T, rtol=1e-5, atol=1e-5)  # sums in another order


def by_token(inputs, gate_up, down, weight, expert):
    """Each token by itself, through the experts that it chose."""
    rows = []
    for x, shares, chosen in zip(inputs, weight, expert.tolist(), strict=True):
        row = torch.zeros_like(x)
        for share, e in zip(shares, chosen, strict=True):
            gate, up = (gate_up[e] @ x).chunk(2)
            row += share * (down[e] @ (silu(gate) * up))
        rows.append(row)
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("n_tokens", "n_experts", "k"), [(3, 7, 1), (3, 7, 7), (40, 2, 1), (17, 13, 4)], ids=lambda n: str(n)
)
def test_from_logits_to_outputs(n_tokens, n_experts, k, generator):
    """With the router's kernel, whose order it reads: k = 1 and E, prime E, fewer tokens than a tile and more."""
    inputs, gate_up, down, *_ = example(generator, torch.float32, "cpu", (n_tokens, n_experts, 40, 24), 1)
    routed = router_topk.launch(torch.randn(n_tokens, n_experts, generator=generator), k)
    got = launch(inputs, gate_up, down, routed.weight, routed.order, routed.offsets)
    expected = by_token(inputs, gate_up, down, routed.weight, routed.expert)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)  # sums in another order


def test_nothing_is_read_of_experts_without_tokens(generator):
    arguments = example(generator, torch.float32, "cpu", (9, 5, 24, 16), 2, used=3)
    expected = launch(*arguments)
    inputs, gate_up, down, weight, order, offsets = arguments
    assert offsets.diff().tolist()[3:] == [0, 0]
    gate_up[3:], down[3:] = torch.nan, torch.nan
    assert torch.equal(launch(inputs, gate_up, down, weight, order, offsets), expected)


def test_one_token_spoils_no_other(generator):
    """Tokens share tiles with others, and tiles share experts: NaN in one row stays in it."""
    arguments = example(generator, torch.float32, "cpu", (20, 3, 24, 16), 2)
    expected = launch(*arguments)
    arguments[0][7] = torch.nan
    got = launch(*arguments)
    assert got[7].isnan().all()
    others = torch.arange(20) != 7
    assert torch.equal(got[others], expected[others])


def test_the_same_every_time(generator):
    """Nothing is added in the order of arrival."""
    arguments = example(generator, torch.float32, "cpu", (40, 3, 24, 16), 3)
    assert torch.equal(launch(*arguments), launch(*arguments))


@pytest.mark.parametrize(
    ("n_experts", "n_pairs", "tiles"),
    [(8, 16, {16}), (128, 8, {16}), (8, 128, {16, 32}), (32, 1024, {16, 32, 64}), (4, 2**20, {64, 128})],
    ids=str,
)
def test_only_tiles_of_about_an_experts_rows_are_timed(n_experts, n_pairs, tiles):
    settings = ({"BLOCK_T": tile} for tile in (16, 32, 64, 128))
    found = {each["BLOCK_T"] for each in settings if grouped_matmul.promising(each, E=n_experts, P_CLASS=n_pairs, D=1)}
    assert found == tiles


def test_no_tokens(generator):
    arguments = example(generator, torch.float32, "cpu", (4, 3, 24, 16), 2)
    none = (torch.empty(0, 24), *arguments[1:3], torch.empty(0, 2), torch.empty(0, dtype=torch.int32))
    assert launch(*none, torch.zeros(4, dtype=torch.int32)).shape == (0, 24)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({0: torch.ones(4)}, r"inputs have shape \(4,\), .*: expected \(tokens, size\).*; flatten"),
        ({1: torch.ones(3, 16, 24)}, r"gate_up has shape \(3, 16, 24\): expected \(3, 32, 24\)"),
        ({2: torch.ones(3, 24, 15)}, r"gate_up has shape \(3, 32, 24\): expected \(3, 30, 24\)"),
        ({4: torch.zeros(7, dtype=torch.int32)}, r"order has shape \(7,\): expected \(8,\)"),
        ({4: torch.zeros(8, dtype=torch.int64)}, r"order is torch.int64: expected int32; convert"),
    ],
    ids=["axes", "gate without up", "hidden", "pairs", "index type"],
)
def test_what_does_not_fit_is_refused(spoil, message, generator):
    arguments = dict(enumerate(example(generator, torch.float32, "cpu", (4, 3, 24, 16), 2)))
    with pytest.raises(ValueError, match=message):
        launch(*(arguments | spoil).values())


def test_bytes_by_hand(generator):
    """Two of three experts awake: 3 × 24 × 16 numbers of 2 bytes each. 4 tokens of 24 read and written, 8 pairs of a
    weight and a place of 4 bytes, 4 offsets.
    """
    arguments = example(generator, torch.float16, "cpu", (4, 3, 24, 16), 2, used=2)
    assert bytes_moved(*arguments) == 2 * 3 * 24 * 16 * 2 + 2 * 4 * 24 * 2 + 8 * 8 + 4 * 4
