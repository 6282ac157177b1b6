"""The exercise capstone.speculate, "A whole drafted block": its cases and its named mistakes.

Dimension key: k drafted tokens, V words of the vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close
from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.short import short

Answer = Callable[[Tensor, Tensor, Tensor, Tensor, int], Any]
Stays = Callable[[float, float, float], bool]  # (p(x), q(x), uniform)
Change = Callable[[Tensor, Tensor], Tensor]  # (p, q) of the place where a token fell -> weights to draw from


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    """The same tokens in the same order, however they are held."""
    if not isinstance(expected, tuple):
        return close(got, expected)
    tokens = tuple(got.flatten().tolist()) if isinstance(got, Tensor) and got.ndim == 1 else got
    if not isinstance(tokens, tuple):
        return f"got {short(got)}, expected the tokens of this pass, {len(expected)} of them"
    if len(tokens) != len(expected):
        return f"got {len(tokens)} tokens, {short(tokens)}; expected {len(expected)}, {short(expected)}"
    return close(tokens, expected)


def _residual(p: Tensor, q: Tensor) -> Tensor:
    missing = (p - q).clamp(min=0)
    return missing / missing.sum()


def _pick(weights: Tensor, uniform: Tensor) -> int:
    """The first word at which the sum so far is above uniform."""
    return int((weights.double().cumsum(dim=0) <= uniform).sum().clamp(max=len(weights) - 1))


def _likeliest(weights: Tensor, uniform: Tensor) -> int:
    return int(weights.argmax())


def _with(
    stays: Stays = lambda p, q, uniform: uniform < p / q,
    fallen: Change = _residual,
    pick: Callable[[Tensor, Tensor], int] = _pick,
    behind: Callable[[Tensor, Tensor], Tensor | None] = lambda p, q: p[len(q)],
    last_luck: Callable[[Tensor, int], Tensor] = lambda uniform, n: uniform[-1],
    end: Callable[[list[int], int], list[int]] = lambda tokens, stop: _until(tokens, stop),
    go_on: bool = False,
) -> Answer:
    """go_on: tokens after a rejected one are tried too."""

    def answer(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor, stop: int) -> tuple[int, ...]:
        tokens, fell = [], False
        for i, x in enumerate(drafted.tolist()):
            if stays(float(p[i, x]), float(q[i, x]), float(uniform[i])):
                tokens.append(x)
                continue
            fell = True
            tokens.append(pick(fallen(p[i], q[i]), last_luck(uniform, i)))
            if not go_on:
                break
        weights = None if fell else behind(p, q)
        if weights is not None:
            tokens.append(pick(weights, last_luck(uniform, len(drafted))))
        return tuple(end(tokens, stop))

    return answer


def _until(tokens: list[int], stop: int) -> list[int]:
    return tokens[: tokens.index(stop) + 1] if stop in tokens else tokens


def _fallen(change: Change) -> Answer:
    return _with(fallen=change)


def _draft_kept(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor, stop: int) -> tuple[int, ...]:
    """The rejected token is kept."""
    n = _n_stay(drafted, q, p, uniform)
    tokens = [*drafted[: n + 1].tolist()] if n < len(drafted) else [*drafted.tolist(), _pick(p[n], uniform[-1])]
    return tuple(_until(tokens, stop))


def _draft_kept_and_one(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor, stop: int) -> tuple[int, ...]:
    """The rejected token is kept, and another one is added after it."""
    n = _n_stay(drafted, q, p, uniform)
    weights = _residual(p[n], q[n]) if n < len(drafted) else p[n]
    return tuple(_until([*drafted[: n + 1].tolist(), _pick(weights, uniform[-1])], stop))


def _n_stay(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor) -> int:
    at = torch.arange(len(drafted))
    return int((uniform[:-1] < p[at, drafted] / q[at, drafted]).long().cumprod(dim=0).sum())


def _not_drawn_again(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor, stop: int) -> tuple[int, ...]:
    """The accepted tokens, and nothing in place of the rejected one."""
    n = _n_stay(drafted, q, p, uniform)
    more = [_pick(p[n], uniform[-1])] if n == len(drafted) else []
    return tuple(_until([*drafted[:n].tolist(), *more], stop))


def _speculate_cases(generator: torch.Generator) -> list[Case]:
    def drawn(k: int, n_words: int, falls_at: int | None, last: float | None = None) -> tuple[Any, ...]:
        """Tokens with too much probability in the draft; one is rejected, and those after it would be accepted."""
        logits = 0.8 * randn(generator, k + 1, n_words)
        p = logits.softmax(dim=1)
        q = (logits[:k] + 0.9 * randn(generator, k, n_words)).softmax(dim=1)
        drafted = (q - p[:k]).argmax(dim=1)
        ratio = (p[torch.arange(k), drafted] / q[torch.arange(k), drafted]).clamp(max=1)
        uniform = torch.cat(
            [ratio * (0.1 + 0.8 * torch.rand(k, generator=generator)), torch.rand(1, generator=generator)]
        )
        if falls_at is not None:
            uniform[falls_at] = ratio[falls_at] + (1 - ratio[falls_at]) * 0.6
        if last is not None:
            uniform[-1] = last
        return drafted, q, p, uniform, n_words + 7  # no token here ends the text

    q = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
    p = torch.tensor([[0.25, 0.5, 0.25], [0.125, 0.5, 0.375], [0.25, 0.25, 0.5]])
    stay = torch.tensor([0, 1]), q, p, torch.tensor([0.0625, 0.875, 0.25]), 9
    second = torch.cat([torch.tensor([[0.125, 0.375, 0.5]]), p[1:]])  # token 1 is not its likeliest, and is accepted
    fall = torch.tensor([1, 0]), q, second, torch.tensor([0.9, 0.25, 0.8]), 9
    all_stay = _telling(*drawn(5, 30, None))
    ends = drawn(5, 20, None, 0.4)
    ended = (*ends[:4], int(ends[0][2]))
    falls = drawn(4, 40, 2)
    return [
        Case("2 tokens by hand, both accepted, then token 1 is sampled", stay),
        Case("2 tokens by hand, the second is rejected: 2 is sampled from (0, ⅔, ⅓)", fall),
        Case("5 tokens, all accepted", all_stay),
        Case("4 tokens, the third is rejected", falls),
        Case("6 tokens, the first is rejected, later ones would be accepted", drawn(6, 40, 0)),
        Case("3 tokens, the last is rejected, a small random number", drawn(3, 30, 2, 0.05)),
        Case("all accepted, a large random number", drawn(2, 20, None, 0.97)),
        Case("a single drafted token is rejected", drawn(1, 50, 0, 0.6)),
        Case("the third of five accepted tokens ends the text", ended),
        Case("the replacement of a rejected token ends the text", (*falls[:4], _with()(*falls)[-1])),
    ]


def _telling(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor, stop: int) -> tuple[Any, ...]:
    """Choose a last random number with which the last row of p gives another token than other rows do."""
    others = p[0], p[-2], q[-1], _residual(p[-2], q[-1])
    for last in torch.arange(19, 0, -1) / 20:
        if _pick(p[-1], last) not in [_pick(row, last) for row in others]:
            break
    return drafted, q, p, torch.cat([uniform[:-1], last[None]]), stop


def _library(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor, stop: int) -> tuple[int, ...]:
    from course_lib.lessons.capstone.methods import tokens_of_a_pass

    return tokens_of_a_pass(drafted, q, p, uniform, stop)


SPECULATE = Exercise(
    id="capstone.speculate",
    title="A whole drafted block",
    difficulty=3,
    minutes=12,
    points=4,
    reference=_with(),
    cases=_speculate_cases,
    agree=_agree,
    library=_library,
    trivial=(
        Trivial("keeping the draft and sampling one more", lambda x, q, p, u, s: (*x.tolist(), _pick(p[-1], u[-1]))),
        Trivial("sampling a single token", lambda x, q, p, u, stop: (_pick(_residual(p[0], q[0]), u[-1]),)),
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("counting first", lambda *given: _counted(*given)),
        Variant("a tensor", lambda *given: torch.tensor(_with()(*given))),
        Variant(
            "searchsorted",
            _with(pick=lambda weights, uniform: int(torch.searchsorted(weights.cumsum(0), uniform, right=True))),
        ),
    ),
    hints=(
        "Go through the drafted tokens in order. Token x at place i is accepted if uniform[i] < p[i, x] / q[i, x]. In "
        "which two ways can this end?",
        "In both, one token is sampled with uniform[-1]: from (p[i] − q[i])₊, divided by its sum, if the one at i was "
        "rejected; from the last row of p if none was.",
        "To sample: the first token at which weights.cumsum(dim=0) is above uniform[-1]. Finally, end at `stop`.",
    ),
)


def _if_likeliest(
    drafted: Tensor,
    q: Tensor,
    p: Tensor,
    uniform: Tensor,
    stop: int,
    fallen: Change = _residual,
    pick: Callable[[Tensor, Tensor], int] = _pick,
) -> tuple[int, ...]:
    """Tokens are accepted as long as each is the model's likeliest."""
    n = int((p[: len(drafted)].argmax(dim=1) == drafted).long().cumprod(dim=0).sum())
    weights = fallen(p[n], q[n]) if n < len(drafted) else p[n]
    return tuple(_until([*drafted[:n].tolist(), pick(weights, uniform[-1])], stop))


def _dropped(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor, stop: int) -> tuple[int, ...]:
    """All that would be accepted, at any place, and one more in place of the first rejected one."""
    at = torch.arange(len(drafted))
    stays = uniform[:-1] < p[at, drafted] / q[at, drafted]
    n = _n_stay(drafted, q, p, uniform)
    weights = p[n] if n == len(drafted) else _residual(p[n], q[n])
    return tuple(_until([*drafted[stays].tolist(), _pick(weights, uniform[-1])], stop))


def _each_and_one_more(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor, stop: int) -> tuple[int, ...]:
    """Every token, rejected or not, and one more."""
    tokens = _with(go_on=True, behind=lambda p, q: None, end=lambda tokens, stop: tokens)(drafted, q, p, uniform, stop)
    return tuple(_until([*tokens, _pick(p[-1], uniform[-1])], stop))


def _counted(drafted: Tensor, q: Tensor, p: Tensor, uniform: Tensor, stop: int) -> list[int]:
    n = _n_stay(drafted, q, p, uniform)
    before = torch.cat([q, torch.zeros_like(p[:1])])
    missing = (p[n] - before[n]).clamp(min=0)
    tokens = [*drafted[:n].tolist(), _pick(missing / missing.sum(), uniform[-1])]
    return _until(tokens, stop)
