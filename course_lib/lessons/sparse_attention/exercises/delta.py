"""The exercise sparse_attention.delta, "Send what has changed": its cases and its named mistakes.

Dimension key: T tokens, D channels.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near

Answer = Callable[[Tensor, Tensor], Any]
Moved = Callable[[Tensor, Tensor, Tensor], Tensor]  # (new key, what was sent last, theta) -> which channels to send


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    return all_near(got, expected, {"keys": 1e-6, "sent": 0.0})


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    return compare_matrices(torch.as_tensor(got[1]).float().T, expected[1].float().T, "channel", "token; light: sent")


def _far(key: Tensor, last: Tensor, theta: Tensor) -> Tensor:
    return (key - last).abs() >= theta


def _coded(
    moved: Moved = _far,
    first: bool = True,
    value: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda key, last, sent: torch.where(sent, key, last),
    remembered: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda key, now, sent: now,
) -> Answer:
    """Token by token: what moved, the value that is held then, and what the next token is compared with."""

    def answer(keys: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        held, compared, sent = torch.zeros_like(keys), torch.zeros_like(keys[0]), torch.zeros_like(keys).bool()
        for j, key in enumerate(keys):
            before = held[j - 1] if j else torch.zeros_like(key)
            sent[j] = torch.ones_like(sent[j]) if first and not j else moved(key, compared, theta)
            held[j] = value(key, before, sent[j])
            compared = remembered(key, held[j], sent[j])
        return held, sent

    return answer


def _neighbour(keys: Tensor) -> Tensor:
    """K_j − K_{j−1}, the first as it is."""
    return torch.cat([keys[:1], keys.diff(dim=0)])


def _by_neighbours(keys: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Deltas between neighbours, small ones left out and the others added up."""
    deltas = _neighbour(keys)
    sent = deltas.abs() >= theta
    sent[0] = True
    return (deltas * sent).cumsum(dim=0), sent


def _as_deltas(keys: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    held, sent = _coded()(keys, theta)
    return _neighbour(held), sent


def _from_the_first(keys: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Everything compared with the first key."""
    sent = (keys - keys[0]).abs() >= theta
    sent[0] = True
    return torch.where(sent, keys, keys[0]), sent


def _by_steps(keys: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """A channel that has moved is held at its last value and θ more or less."""
    held, sent = keys.clone(), torch.ones_like(keys, dtype=torch.bool)
    for j in range(1, len(keys)):
        delta = keys[j] - held[j - 1]
        sent[j] = delta.abs() >= theta
        held[j] = held[j - 1] + delta.sign() * theta * sent[j]
    return held, sent


def _first_alone(keys: Tensor) -> Tensor:
    return (torch.arange(len(keys)) == 0)[:, None].expand_as(keys)


def _delta_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_channels: int, step: float = 0.6) -> tuple[Tensor, Tensor]:
        """Walks that come back to zero, and a threshold of its own for each channel."""
        moves = torch.randn(n_tokens, n_channels, generator=generator)
        walk = [3 * torch.randn(n_channels, generator=generator)]
        for move in moves[1:]:
            walk.append(0.9 * walk[-1] + step * move)
        return torch.stack(walk), 0.4 + torch.rand(n_channels, generator=generator)

    keys = [[1.0, 8.0], [1.5, 6.0], [2.0, 7.0], [2.5, 5.0], [0.0, 5.5], [1.25, 0.0]]  # 0 is a value like any other
    by_hand = torch.tensor(keys), torch.tensor([1.0, 2.0])
    walk, theta = drawn(9, 4)
    slow = torch.linspace(0, 1, 20)[:, None] * torch.tensor([3.0, -2.0, 1.0]) + 0.25
    turned = drawn(8, 5)[0].T.contiguous().T, torch.full((5,), 0.5)
    return [
        Case("6 tokens, 2 channels by hand: 1, 1.5, 2, 2.5 with θ = 1 is held as 1, 1, 2, 2", by_hand),
        Case("9 tokens, 4 channels", (walk, theta)),
        Case("θ = 0: everything is sent", (walk, theta * 0)),
        Case("channels that creep: each step is below θ", (slow, torch.full((3,), 0.4))),
        Case("a θ so large that nothing but the first is sent", (walk, theta + 100)),
        Case("as many tokens as channels, one of which is never sent", _never(*drawn(7, 7))),
        Case("a single token", drawn(1, 6)),
        Case("not contiguous", turned),
    ]


def _never(walk: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    theta = theta.clone()
    theta[2] = 1e6
    return walk, theta


def _library(keys: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.attention.delta.code import delta_code

    code = delta_code(keys, theta)
    return code.keys, code.sent


DELTA = Exercise(
    id="sparse_attention.delta",
    title="Send what has changed",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_coded(),
    cases=_delta_cases,
    agree=_agree,
    picture=_picture,
    library=_library,
    trivial=(
        Trivial("sending the first token alone", lambda k, t: (k[:1].expand_as(k), _first_alone(k))),
        Trivial("sending everything", lambda k, t: (k, torch.ones_like(k, dtype=torch.bool))),
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("channel by channel", lambda k, t: _in_loops(k, t)),
        Variant("deltas added up", lambda k, t: _added_up(k, t)),
        Variant("zeros and ones", lambda k, t: (_coded()(k, t)[0], _coded()(k, t)[1].long())),
        Variant("an infinite value before the first", lambda k, t: _from_infinity(k, t)),
    ),
    hints=(
        "What does the receiver have before a token arrives? Keep that as one vector, and go through the tokens.",
        "Compare the key with what the receiver has, never with the token before. The first token is sent completely.",
        "Channels with |key − last| >= θ take the new value, the others keep the last one: torch.where.",
    ),
)


def _in_loops(keys: Tensor, theta: Tensor) -> tuple[list[list[float]], list[list[bool]]]:
    held, sent = [keys[0].tolist()], [[True] * keys.shape[1]]
    for row in keys[1:]:
        moved = [abs(float(x - h)) >= t for x, h, t in zip(row, keys.new_tensor(held[-1]), theta.tolist(), strict=True)]
        held.append([float(x) if m else h for x, h, m in zip(row, held[-1], moved, strict=True)])
        sent.append(moved)
    return held, sent


def _added_up(keys: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    held, rows, masks = torch.zeros_like(keys[0]), [], []
    for j, key in enumerate(keys):
        delta = key - held
        send = (delta.abs() >= theta) | (j == 0)
        held = held + delta * send
        rows.append(held)
        masks.append(send)
    return torch.stack(rows), torch.stack(masks)


def _from_infinity(keys: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    last, held, sent = torch.full_like(keys[0], torch.inf), torch.empty_like(keys), torch.empty_like(keys).bool()
    for j in range(len(keys)):
        sent[j] = (keys[j] - last).abs() >= theta
        held[j] = last = torch.where(sent[j], keys[j], last)
    return held, sent
