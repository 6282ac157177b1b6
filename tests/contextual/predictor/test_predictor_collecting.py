"""Labels by hand, and a buffer of fixed size with the same tokens for all blocks."""

import pytest
import torch

from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.predictor.collect import collect
from course_lib.contextual.predictor.labels import fires, largest, matters
from course_lib.models import tiny_model

# ‖w_i‖ = 1, 2, 10, 1: down of one row
MLP = Neurons(gate=None, up=torch.zeros(4, 1), down=torch.tensor([[1.0, -2.0, 10.0, 1.0]]), activation="relu")
HIDDEN = torch.tensor([[3.0, 2.0, 0.5, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])


def test_what_fires_by_hand():
    expected = [[True, True, True, False], [False, True, False, False], [False] * 4]
    assert fires(HIDDEN, MLP).tolist() == expected


def test_what_matters_by_hand():
    # lengths 3, 4, 5, 0: the two longest; then 2 alone, since a zero is never active; then none
    expected = [[False, True, True, False], [False, True, False, False], [False] * 4]
    assert matters(0.5)(HIDDEN, MLP).tolist() == expected
    signed = torch.tensor([[-9.0, 2.0, 0.5, 1.0]])  # the sign does not matter
    assert largest(signed, MLP, 0.5).tolist() == [[True, False, True, False]]
    assert largest(signed, MLP, 0.01).sum() == 1


def test_labels_that_cannot_be():
    silu = Neurons(gate=None, up=torch.zeros(4, 1), down=torch.ones(1, 4), activation="silu")
    with pytest.raises(ValueError, match="expected 'relu'"):
        fires(HIDDEN, silu)
    with pytest.raises(ValueError, match="density"):
        matters(0.0)


@pytest.fixture
def windows(generator):
    return torch.randint(97, (3, 7), generator=generator)


def test_all_tokens_are_collected_at_every_block(windows):
    model = tiny_model(architecture="llama")
    held, read = collect(model, windows, matters(0.3)), []
    hook = model.model.layers[1].mlp.register_forward_pre_hook(lambda _, args: read.append(args[0].flatten(0, 1)))
    with torch.no_grad():
        model(windows)
    hook.remove()
    torch.testing.assert_close(held.inputs(1), read[0])  # windows one by one, and all at once
    assert (held.n_blocks, held.n_tokens) == (2, 21)
    for block, neurons in enumerate(neurons_of(model)):
        x, labels = held.inputs(block), held.labels(block)
        assert (x.shape, labels.shape, labels.dtype) == ((21, 48), (21, 100), torch.bool)
        assert labels.sum(dim=1).eq(30).all()
        torch.testing.assert_close(labels, largest(neurons.values(x), neurons, 0.3))


def test_a_small_buffer_holds_the_same_tokens_of_all_windows_for_every_block(windows):
    model = tiny_model(architecture="opt")
    whole, part = collect(model, windows, fires), collect(model, windows, fires, most=9, seed=1)
    assert part.n_tokens == 9
    rows = [(whole.inputs(0) == x).all(dim=1).nonzero().item() for x in part.inputs(0)]
    assert rows == sorted(set(rows))
    assert {row // 7 for row in rows} == {0, 1, 2}
    torch.testing.assert_close(part.inputs(1), whole.inputs(1)[rows])
    assert torch.equal(part.labels(1), whole.labels(1)[rows])
    assert collect(model, windows, fires, most=1).n_tokens == 1  # windows without a token of theirs are left out


def test_lookahead_reads_an_earlier_block(windows):
    model = tiny_model(architecture="opt")
    now, ahead = collect(model, windows, fires), collect(model, windows, fires, lookahead=1)
    assert torch.equal(ahead.inputs(1), now.inputs(0))
    assert torch.equal(ahead.inputs(0), now.inputs(0))  # there is nothing before block 0
    assert torch.equal(ahead.labels(1), now.labels(1))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"windows": torch.zeros(3, 1, dtype=torch.long)}, "at least two tokens"),
        ({"windows": torch.zeros(0, 4, dtype=torch.long)}, "at least two tokens"),
        ({"most": 0}, "room for most=0"),
        ({"lookahead": 2}, "expected 0 to 1"),
        ({"lookahead": -1}, "expected 0 to 1"),
    ],
)
def test_bad_input(windows, asked, words):
    settings = {"windows": windows} | asked
    with pytest.raises(ValueError, match=words):
        collect(tiny_model(), settings.pop("windows"), matters(), **settings)
