"""Attention of kept heads: by hand, against attention of all, bytes by group, slots of a larger cache, refusals."""

import pytest
import torch
from course_lib.kernels.per_token import head_sparse_decode
from course_lib.kernels.per_token.head_sparse_decode import bytes_moved, example
from kernel_device import on_device
from torch.nn.functional import scaled_dot_product_attention

launch = on_device(head_sparse_decode.launch)


def test_two_heads_of_a_group_by_hand():
    """Logits 0 and ln 4 in head 1, hence weights 1 : 4; head 0 is not kept."""
    query = torch.tensor([[[5.0, 5.0], [1.0, 0.0]]])
    keys = torch.tensor([[[[0.0, 2.0], [3.0, 0.0]]]]).log1p()  # (0, ln 3) and (ln 4, 0)
    values = torch.tensor([[[[4.0, 0.0], [0.0, 8.0]]]])
    keep = torch.tensor([[False, True]])
    torch.testing.assert_close(launch(query, keys, values, keep, 1.0), torch.tensor([[[0.0, 0.0], [0.8, 6.4]]]))
    # With a scaling of ½, 2 : 1.
    expected = torch.tensor([[[0.0, 0.0], [4 / 3, 16 / 3]]])
    torch.testing.assert_close(launch(query, keys, values, keep, 0.5), expected)


@pytest.mark.parametrize("n_kept", [0, 1, 3, 5, 6])
@pytest.mark.parametrize("n_slots", [1, 64, 67])
def test_kept_heads_read_what_they_read_among_all(n_kept, n_slots, generator):
    """Each sequence keeps heads of its own; what is not kept gives exact zeros."""
    query, keys, values, keep, scaling = example(generator, torch.float32, "cpu", (3, 2, 3, n_slots, 24), n_kept)
    assert keep.sum(dim=1).tolist() == [n_kept] * 3
    everything = scaled_dot_product_attention(query[:, :, None], keys, values, scale=scaling, enable_gqa=True)[:, :, 0]
    got = launch(query, keys, values, keep, scaling)
    torch.testing.assert_close(got[keep], everything[keep], rtol=1e-4, atol=1e-5)  # sums in another order
    assert not got[~keep].any()


def test_nothing_is_read_of_groups_that_are_left_out(generator):
    query, keys, values, keep, scaling = example(generator, torch.float32, "cpu", (2, 3, 2, 40, 16), 6)
    keep[0, 2:4], keep[1, :2], keep[1, 4] = False, False, False
    expected = launch(query, keys, values, keep, scaling)
    query[~keep] = torch.nan
    for tensor in (keys, values):
        tensor[0, 1], tensor[1, 0] = torch.nan, torch.nan
    assert torch.equal(launch(query, keys, values, keep, scaling), expected)


def test_the_first_slots_of_a_cache_with_room_for_more(generator):
    query, keys, values, keep, scaling = example(generator, torch.float32, "cpu", (2, 2, 3, 20, 16), 4)
    room = [torch.full((2, 2, 50, 16), torch.nan) for _ in range(2)]
    for larger, tensor in zip(room, (keys, values), strict=True):
        larger[:, :, :20] = tensor
    got = launch(query, room[0][:, :, :20], room[1][:, :, :20], keep, scaling)
    assert torch.equal(got, launch(query, keys, values, keep, scaling))


def test_logits_that_exp_cannot_hold(generator):
    query, keys, values, keep, _ = example(generator, torch.float32, "cpu", (1, 1, 2, 70, 8), 2)
    got = launch(query, keys, values, keep, 300.0)
    best = (query[0] @ keys[0, 0].T).argmax(dim=1)
    assert got.isfinite().all()
    torch.testing.assert_close(got[0], values[0, 0, best], rtol=1e-3, atol=1e-3)  # the best slot takes nearly all


@pytest.mark.parametrize("shape", [(1, 1, 2, 300, 8), (3, 3, 1, 150, 8)], ids=["many parts", "many tiles in a part"])
@pytest.mark.parametrize("rising", [True, False])
def test_the_largest_logits_come_last_or_first(shape, rising, generator):
    """What was read before a larger logit fades by e to their difference, within a part and between parts."""
    query, keys, values, keep, _ = example(generator, torch.float32, "cpu", shape, shape[1] * shape[2])
    ramp = torch.linspace(0, 12, shape[3]) if rising else torch.linspace(12, 0, shape[3])
    query[:], keys[:] = 0, 0
    query[..., 0], keys[..., 0] = 1, ramp
    got = launch(query, keys, values, keep, 1.0)
    expected = torch.einsum("n,bhnd->bhd", ramp.softmax(0), values).repeat_interleave(shape[2], 1)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)  # sums in another order


def kept(*heads, of=6):
    keep = torch.zeros(1, of, dtype=torch.bool)
    keep[0, list(heads)] = True
    return keep


def test_bytes_fall_only_where_a_whole_group_is_left_out(generator):
    """Two groups of three heads, 40 slots of 16 numbers of 2 bytes: 2560 bytes of keys and values to a group, and its
    three queries.
    """
    query, keys, values, _, scaling = example(generator, torch.float16, "cpu", (1, 2, 3, 40, 16), 6)
    group, others = (2 * 40 + 3) * 16 * 2, 6 + 6 * 16 * 2  # the choice, and the outputs of all heads

    def moved(keep):
        return bytes_moved(query, keys, values, keep, scaling)

    assert moved(kept(0, 1, 2, 3, 4, 5)) == 2 * group + others
    assert moved(kept(0, 5)) == 2 * group + others  # a third of the heads, all keys and values
    assert moved(kept(0, 1)) == group + others  # as many heads, half of the keys and values
    assert moved(kept(3)) == group + others
    assert moved(kept()) == others


def test_without_groups_every_head_saves_its_share(generator):
    query, keys, values, _, scaling = example(generator, torch.float16, "cpu", (1, 6, 1, 400, 16), 6)
    all_heads = bytes_moved(query, keys, values, kept(0, 1, 2, 3, 4, 5), scaling)
    assert bytes_moved(query, keys, values, kept(0, 5), scaling) / all_heads == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({0: torch.ones(2, 5, 16)}, r"query has shape \(2, 5, 16\) .*: expected .* with a multiple of heads; take one"),
        ({0: torch.ones(2, 6, 8)}, r"query has shape \(2, 6, 8\): expected \(2, 6, 16\)"),
        ({1: torch.ones(2, 2, 0, 16)}, "keys have no slots: expected one at least"),
        ({2: torch.ones(2, 2, 9, 16)}, r"values has shape \(2, 2, 9, 16\): expected \(2, 2, 10, 16\)"),
        ({3: torch.ones(2, 2, dtype=torch.bool)}, r"keep has shape \(2, 2\): expected \(2, 6\)"),
        ({3: torch.ones(2, 6)}, r"keep is torch.float32: expected bool; convert"),
    ],
    ids=["groups", "size", "empty", "values", "key-value heads", "scores"],
)
def test_what_does_not_fit_is_refused(spoil, message, generator):
    given = dict(enumerate(example(generator, torch.float32, "cpu", (2, 2, 3, 10, 16), 4)))
    with pytest.raises(ValueError, match=message):
        launch(*(given | spoil).values())
