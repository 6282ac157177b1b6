"""The exercise capstone.speculate, "A whole drafted block": its cases and its named mistakes.

Dimension key: k drafted tokens, V words of the vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close
from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Trivial, Variant
from course_lib.checking.short import short

Answer = Callable[[Tensor, Tensor, Tensor, Tensor, int], Any]
Stays = Callable[[float, float, float], bool]  # (p(x), q(x), luck)
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


def _pick(weights: Tensor, luck: Tensor) -> int:
    """The first word at which the sum so far is above luck."""
    return int((weights.double().cumsum(dim=0) <= luck).sum().clamp(max=len(weights) - 1))


def _likeliest(weights: Tensor, luck: Tensor) -> int:
    return int(weights.argmax())


def _with(
    stays: Stays = lambda p, q, luck: luck < p / q,
    fallen: Change = _residual,
    pick: Callable[[Tensor, Tensor], int] = _pick,
    behind: Callable[[Tensor, Tensor], Tensor | None] = lambda p, q: p[len(q)],
    last_luck: Callable[[Tensor, int], Tensor] = lambda luck, n: luck[-1],
    end: Callable[[list[int], int], list[int]] = lambda tokens, stop: _until(tokens, stop),
    go_on: bool = False,
) -> Answer:
    """go_on: tokens behind a fallen one are tried too."""

    def answer(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, stop: int) -> tuple[int, ...]:
        tokens, fell = [], False
        for i, x in enumerate(drafted.tolist()):
            if stays(float(p[i, x]), float(q[i, x]), float(luck[i])):
                tokens.append(x)
                continue
            fell = True
            tokens.append(pick(fallen(p[i], q[i]), last_luck(luck, i)))
            if not go_on:
                break
        weights = None if fell else behind(p, q)
        if weights is not None:
            tokens.append(pick(weights, last_luck(luck, len(drafted))))
        return tuple(end(tokens, stop))

    return answer


def _until(tokens: list[int], stop: int) -> list[int]:
    return tokens[: tokens.index(stop) + 1] if stop in tokens else tokens


def _fallen(change: Change) -> Answer:
    return _with(fallen=change)


def _draft_kept(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, stop: int) -> tuple[int, ...]:
    """The token that fell is put in its place all the same."""
    n = _n_stay(drafted, q, p, luck)
    tokens = [*drafted[: n + 1].tolist()] if n < len(drafted) else [*drafted.tolist(), _pick(p[n], luck[-1])]
    return tuple(_until(tokens, stop))


def _draft_kept_and_one(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, stop: int) -> tuple[int, ...]:
    """It stays, and another is drawn behind it."""
    n = _n_stay(drafted, q, p, luck)
    weights = _residual(p[n], q[n]) if n < len(drafted) else p[n]
    return tuple(_until([*drafted[: n + 1].tolist(), _pick(weights, luck[-1])], stop))


def _n_stay(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> int:
    at = torch.arange(len(drafted))
    return int((luck[:-1] < p[at, drafted] / q[at, drafted]).long().cumprod(dim=0).sum())


def _not_drawn_again(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, stop: int) -> tuple[int, ...]:
    """The tokens that stay, and nothing in the place of the one that fell."""
    n = _n_stay(drafted, q, p, luck)
    more = [_pick(p[n], luck[-1])] if n == len(drafted) else []
    return tuple(_until([*drafted[:n].tolist(), *more], stop))


def _speculate_cases(generator: torch.Generator) -> list[Case]:
    def drawn(k: int, n_words: int, falls_at: int | None, last: float | None = None) -> tuple[Any, ...]:
        """Tokens that the draft likes too much, of which one falls and those behind it would stay."""
        logits = 0.8 * randn(generator, k + 1, n_words)
        p = logits.softmax(dim=1)
        q = (logits[:k] + 0.9 * randn(generator, k, n_words)).softmax(dim=1)
        drafted = (q - p[:k]).argmax(dim=1)
        ratio = (p[torch.arange(k), drafted] / q[torch.arange(k), drafted]).clamp(max=1)
        luck = torch.cat([ratio * (0.1 + 0.8 * torch.rand(k, generator=generator)), torch.rand(1, generator=generator)])
        if falls_at is not None:
            luck[falls_at] = ratio[falls_at] + (1 - ratio[falls_at]) * 0.6
        if last is not None:
            luck[-1] = last
        return drafted, q, p, luck, n_words + 7  # a number that ends no text here

    q = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
    p = torch.tensor([[0.25, 0.5, 0.25], [0.125, 0.5, 0.375], [0.25, 0.25, 0.5]])
    stay = torch.tensor([0, 1]), q, p, torch.tensor([0.0625, 0.875, 0.25]), 9
    second = torch.cat([torch.tensor([[0.125, 0.375, 0.5]]), p[1:]])  # word 1 is not its likeliest, and stays
    fall = torch.tensor([1, 0]), q, second, torch.tensor([0.9, 0.25, 0.8]), 9
    all_stay = _telling(*drawn(5, 30, None))
    ends = drawn(5, 20, None, 0.4)
    ended = (*ends[:4], int(ends[0][2]))
    falls = drawn(4, 40, 2)
    return [
        Case("2 tokens by hand, both stay, and 1 is drawn behind them", stay),
        Case("2 tokens by hand, the second falls: 2 is drawn from (0, ⅔, ⅓)", fall),
        Case("5 tokens, all stay", all_stay),
        Case("4 tokens, the third falls", falls),
        Case("6 tokens, the first falls, later ones would stay", drawn(6, 40, 0)),
        Case("3 tokens, the last falls, little luck", drawn(3, 30, 2, 0.05)),
        Case("all stay, much luck", drawn(2, 20, None, 0.97)),
        Case("a single drafted token falls", drawn(1, 50, 0, 0.6)),
        Case("the third of five that stay ends the text", ended),
        Case("the token that is drawn in place of one ends the text", (*falls[:4], _with()(*falls)[-1])),
    ]


def _telling(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, stop: int) -> tuple[Any, ...]:
    """With a last number of luck by which the last row of p gives another word than any row that may be taken for "
    "it."""
    others = p[0], p[-2], q[-1], _residual(p[-2], q[-1])
    for last in torch.arange(19, 0, -1) / 20:
        if _pick(p[-1], last) not in [_pick(row, last) for row in others]:
            break
    return drafted, q, p, torch.cat([luck[:-1], last[None]]), stop


def _library(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, stop: int) -> tuple[int, ...]:
    from course_lib.lessons.capstone.steps.drafted import tokens_of_a_pass

    return tokens_of_a_pass(drafted, q, p, luck, stop)


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
        Trivial(
            "keeping the draft and drawing one behind it", lambda x, q, p, u, s: (*x.tolist(), _pick(p[-1], u[-1]))
        ),
        Trivial("drawing one anew", lambda x, q, p, u, stop: (_pick(_residual(p[0], q[0]), u[-1]),)),
    ),
    mistakes=(
        Mistake(
            "p/q upside down",
            "A token stays where luck is below q/p here. Where the draft gave a token more than the model does, p/q is "
            "below one, and it is those that have to fall now and then.",
            _with(lambda p, q, luck: luck < q / p),
        ),
        Mistake(
            "p alone",
            "luck was compared with p alone, with p · q or with the smaller of p and q. The draft has drawn the token "
            "with q already: only the ratio p/q makes the two together p.",
            _with(lambda p, q, luck: luck < p),
            also=(
                _with(lambda p, q, luck: luck < p * q),
                _with(lambda p, q, luck: luck < min(p, q)),
            ),
        ),
        Mistake(
            "q alone",
            "luck was compared with q, the draft's own probability. A token stays with probability p/q.",
            _with(lambda p, q, luck: luck < q),
        ),
        Mistake(
            "luck left out",
            "luck was left out: p was compared with q, or p/q with a fixed number. A token stays with probability p/q, "
            "which is where luck is below p/q.",
            _with(lambda p, q, luck: p >= q),
        ),
        Mistake(
            "above the ratio",
            "A token stays here where luck is above p/q. It stays where luck is below it, which happens with "
            "probability p/q.",
            _with(lambda p, q, luck: luck >= p / q),
            also=(_with(lambda p, q, luck: luck > p / q),),
        ),
        Mistake(
            "only the likeliest word",
            "A token stays if it is the word that the model finds likeliest. To keep the model's distribution, it "
            "stays with probability p/q.",
            lambda *given: _if_likeliest(*given),
            also=(lambda *given: _if_likeliest(*given, fallen=lambda p, q: p, pick=_likeliest),),
        ),
        Mistake(
            "residual not normalised",
            "(p − q)₊ sums to less than one. Its sums never come to so much luck, and a later word is taken than "
            "should be. Divide by its sum first.",
            _fallen(lambda p, q: (p - q).clamp(min=0)),
        ),
        Mistake(
            "draft's sample kept",
            "The token that fell is in the text. Another takes its place, of what the draft gave too little of.",
            _draft_kept,
            also=(_draft_kept_and_one,),
        ),
        Mistake(
            "one token lost at the end",
            "All drafted tokens stayed, and nothing was drawn behind them. The same pass gave the model's distribution "
            "there too, the last row of p: that token is free.",
            _with(behind=lambda p, q: None),
        ),
        Mistake(
            "one token lost where one fell",
            "A token fell and none was drawn in its place. A pass always gives one token more than stay.",
            _not_drawn_again,
            also=(
                lambda *given: tuple(_until(given[0][: _n_stay(*given[:4])].tolist(), given[4])),
                lambda x, q, p, u, stop: tuple(x[: _n_stay(x, q, p, u)].tolist()),
            ),
        ),
        Mistake(
            "p instead of the residual",
            "In place of a token that fell one is drawn from p. What the draft likes would then come too often: once "
            "as what stays, and once more here. Draw from (p − q)₊.",
            _fallen(lambda p, q: p),
        ),
        Mistake(
            "q instead of the residual",
            "In place of a token that fell one is drawn from the draft. It is drawn from (p − q)₊.",
            _fallen(lambda p, q: q),
        ),
        Mistake(
            "residual upside down",
            "(q − p)₊ is what the draft gave too much of. What is missing is (p − q)₊.",
            _fallen(lambda p, q: _residual(q, p)),
        ),
        Mistake(
            "absolute difference",
            "|p − q| also counts the words of which the draft gave too much. Those get nothing: (p − q)₊.",
            _fallen(lambda p, q: (p - q).abs() / (p - q).abs().sum()),
        ),
        Mistake(
            "softmax of the difference",
            "The differences went through a softmax. They are no logits: set negative ones to 0 and divide by their "
            "sum.",
            _fallen(lambda p, q: (p - q).softmax(dim=0)),
            also=(_fallen(lambda p, q: (p - q).clamp(min=0).softmax(dim=0)),),
        ),
        Mistake(
            "behind one that fell",
            "Tokens behind the first that fell are in the text. They were drafted for a text that is not there: at the "
            "first fall the pass is over.",
            _with(go_on=True),
            also=(lambda *given: _dropped(*given), lambda *given: _each_and_one_more(*given)),
        ),
        Mistake(
            "the wrong row behind all",
            "What comes behind all drafted tokens has the last row of p, the one that no drafted token has.",
            _with(behind=lambda p, q: p[len(q) - 1]),
            also=(
                _with(behind=lambda p, q: q[-1]),
                _with(behind=lambda p, q: _residual(p[-2], q[-1])),
                _with(behind=lambda p, q: p[0]),
            ),
        ),
        Mistake(
            "another number of luck",
            "The last number of luck draws the token that the pass adds, wherever the pass ends. The others say which "
            "drafted tokens stay.",
            _with(last_luck=lambda luck, n: luck[n]),
            also=(_with(last_luck=lambda luck, n: luck[min(n + 1, len(luck) - 1)]), _with(last_luck=lambda u, n: u[0])),
        ),
        Mistake(
            "the likeliest word",
            "The likeliest word was taken. A text that is distributed as the model's own has to be drawn.",
            _with(pick=_likeliest),
        ),
        Mistake(
            "one word off",
            "The word drawn is the first at which the sum of probabilities, its own among them, is above luck.",
            _with(pick=lambda weights, luck: max(_pick(weights, luck) - 1, 0)),
            also=(
                _with(pick=lambda weights, luck: min(_pick(weights, luck) + 1, len(weights) - 1)),
                _with(pick=lambda weights, luck: int((weights.cumsum(0) < luck).sum().clamp(max=len(weights) - 1))),
            ),
        ),
        Mistake(
            "exactly the ratio",
            "A token stays where luck is below p/q. At the ratio itself it falls.",
            _with(lambda p, q, luck: luck <= p / q),
        ),
        Mistake(
            "stop not heeded",
            "A text ends with its first `stop`. What a pass gives behind that is not part of it.",
            _with(end=lambda tokens, stop: tokens),
        ),
        Mistake(
            "stop left out",
            "The token that ends a text is its last one, and belongs to it.",
            _with(end=lambda tokens, stop: tokens[: tokens.index(stop)] if stop in tokens else tokens),
            also=(_with(end=lambda tokens, stop: [token for token in tokens if token != stop]),),
        ),
        Mistake(
            "not the tokens",
            "Asked for are the tokens of this pass in their order, those that stay and the one that is drawn.",
            lambda *given: len(_with()(*given)),
            also=(
                lambda *given: (len(_with()(*given)) - 1, _with()(*given)[-1]),
                lambda *given: _with()(*given)[-1],
                lambda x, q, p, u, stop: (len(_with()(x, q, p, u, stop)), *_with()(x, q, p, u, stop)),
            ),
        ),
    ),
    also_right=(
        Variant("counting first", lambda *given: _counted(*given)),
        Variant("a tensor", lambda *given: torch.tensor(_with()(*given))),
        Variant(
            "searchsorted",
            _with(pick=lambda weights, luck: int(torch.searchsorted(weights.cumsum(0), luck, right=True))),
        ),
    ),
    hints=(
        "Go through the drafted tokens in order. Token x at place i stays if luck[i] < p[i, x] / q[i, x]. What are the "
        "two ways in which this ends?",
        "Either way one token is drawn with luck[-1]: from (p[i] − q[i])₊, divided by its sum, if the one at i fell; "
        "from the last row of p if none did.",
        "To draw: the first word at which weights.cumsum(dim=0) is above luck[-1]. At last cut the list behind `stop`.",
    ),
)


def _if_likeliest(
    drafted: Tensor,
    q: Tensor,
    p: Tensor,
    luck: Tensor,
    stop: int,
    fallen: Change = _residual,
    pick: Callable[[Tensor, Tensor], int] = _pick,
) -> tuple[int, ...]:
    """Tokens stay as long as each is the model's likeliest word."""
    n = int((p[: len(drafted)].argmax(dim=1) == drafted).long().cumprod(dim=0).sum())
    weights = fallen(p[n], q[n]) if n < len(drafted) else p[n]
    return tuple(_until([*drafted[:n].tolist(), pick(weights, luck[-1])], stop))


def _dropped(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, stop: int) -> tuple[int, ...]:
    """All that would stay, wherever they stand, and one more, in place of the first that fell."""
    at = torch.arange(len(drafted))
    stays = luck[:-1] < p[at, drafted] / q[at, drafted]
    n = _n_stay(drafted, q, p, luck)
    weights = p[n] if n == len(drafted) else _residual(p[n], q[n])
    return tuple(_until([*drafted[stays].tolist(), _pick(weights, luck[-1])], stop))


def _each_and_one_more(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, stop: int) -> tuple[int, ...]:
    """Whatever falls, one more behind all."""
    tokens = _with(go_on=True, behind=lambda p, q: None, end=lambda tokens, stop: tokens)(drafted, q, p, luck, stop)
    return tuple(_until([*tokens, _pick(p[-1], luck[-1])], stop))


def _counted(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, stop: int) -> list[int]:
    n = _n_stay(drafted, q, p, luck)
    before = torch.cat([q, torch.zeros_like(p[:1])])
    missing = (p[n] - before[n]).clamp(min=0)
    tokens = [*drafted[:n].tolist(), _pick(missing / missing.sum(), luck[-1])]
    return _until(tokens, stop)
