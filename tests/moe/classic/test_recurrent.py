"""Experts between recurrent layers: by hand what the middle does, causal, learns, and obeys seed and penalty."""

import pytest
import torch
from torch import nn

from course_lib.attention.small_models.training import Schedule
from course_lib.moe.classic.recurrent import Dense, RecurrentLM, loss, train

SCHEDULE = Schedule(n_steps=25, batch=8, length=16, rate=2e-2, warm_up=3, decay=0.0)
TEXT = torch.tensor(list(b"abcdefgh" * 40))


class Gated(nn.Module):
    """Two experts that multiply, and a gate: as small as such a layer can be. The routing is the gate's shares."""

    def __init__(self, width, generator):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(2, width, generator=generator))
        self.scale = nn.Parameter(torch.randn(2, width, generator=generator))

    def forward(self, x, generator=None):
        shares = (x @ self.gate.T).softmax(dim=-1)
        return torch.einsum("bte,ew,btw->btw", shares, self.scale, x), shares


def model(middle, width=12, seed=0):
    return RecurrentLM(
        middle(width, torch.Generator().manual_seed(seed)), width, torch.Generator().manual_seed(seed + 1)
    )


def dense(width, generator):
    return Dense(width, 2 * width, generator)


def test_a_dense_layer_by_hand(generator):
    layer = Dense(1, 2, generator)
    layer.into.data, layer.out.data = torch.tensor([[1.0], [-1.0]]), torch.tensor([[2.0, 5.0]])
    output, routing = layer(torch.tensor([[[3.0], [-1.0]]]))
    assert output.tolist() == [[[6.0], [5.0]]]  # relu(3) · 2; relu(1) · 5
    assert routing is None


@pytest.mark.parametrize("middle", [dense, Gated])
def test_no_byte_sees_a_later_one(middle):
    ids = torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(0))
    later = ids.clone()
    later[:, 6:] = 255 - later[:, 6:]
    lm = model(middle)
    before, after = lm(ids)[0], lm(later)[0]
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6:], after[:, 6:])


def test_each_part_has_its_say():
    """Taken out of the sum, LSTM, experts and LSTM change the logits."""
    ids = torch.arange(10)[None]
    lm = model(dense)
    whole = lm(ids)[0]
    for weight in (lm.below.weight_hh_l0, lm.middle.out, lm.above.weight_hh_l0):
        kept = weight.data.clone()
        weight.data.zero_()
        assert (lm(ids)[0] - whole).abs().max() > 1e-4
        weight.data.copy_(kept)


def test_the_loss_is_of_the_next_byte():
    lm, ids = model(dense), torch.tensor([[7, 200, 7], [0, 255, 3]])
    logits = lm(ids)[0].double()
    nats = [-logits[b, t].log_softmax(dim=0)[ids[b, t + 1]] for b in range(2) for t in range(2)]
    torch.testing.assert_close(loss(lm, ids)[0].double(), sum(nats) / 4, rtol=1e-5, atol=0)  # float32


@pytest.mark.parametrize("middle", [dense, Gated])
def test_learns_a_text_that_repeats(middle):
    """From ln 256 = 5.5 nats to below 1 in 25 steps; the last of the loss is what `look` saw."""
    lm, nats = model(middle), []
    train(lm, TEXT, SCHEDULE, 0, look=lambda step, value, routing: nats.append(value))
    assert 5 < nats[0] < 7
    assert len(nats) == 25
    with torch.no_grad():
        assert loss(lm, TEXT[None, :17])[0] < 1 < nats[0]


def test_a_seed_is_a_run():
    def after(start, seed):
        lm = model(Gated, seed=start)
        train(lm, torch.arange(200) % 251, Schedule(n_steps=3, batch=2, length=8), seed)
        return torch.cat([weight.detach().flatten() for weight in lm.parameters()])

    assert torch.equal(after(0, 0), after(0, 0))
    assert not torch.equal(after(0, 0), after(0, 1))
    assert not torch.equal(after(0, 0), after(1, 0))


def test_a_penalty_reaches_the_gate():
    """One that asks for expert 1 gets it; without it the gate stays near where it was."""
    share = {}
    for name, penalty in (("free", None), ("asked", lambda shares: 10 * shares[..., 0].mean())):
        lm, seen = model(Gated), []
        train(lm, TEXT, SCHEDULE, 0, penalty, lambda step, value, shares, seen=seen: seen.append(shares[..., 0].mean()))
        share[name] = seen[-1].item()
    assert share["asked"] < 0.1 < share["free"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RecurrentLM(nn.Identity(), 0, torch.Generator()), "width=0: expected at least 1"),
        (lambda: train(model(dense), TEXT[:17], SCHEDULE, 0), "17 tokens .* more than the 17 of one sequence"),
        (lambda: train(model(dense), TEXT + 200, SCHEDULE, 0), "expected bytes, from 0 to 255"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
