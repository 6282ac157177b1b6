"""The exercise moe.dispatch, "Each expert once": its cases and its named mistakes.

Dimension key: T tokens, k experts for each, E experts, D width, F neurons of an expert, P = T k pairs of a token and an
expert, sorted by expert.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from course_lib.checking.compare import as_tensor, close, short, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

Answer = tuple[Tensor, Tensor, Tensor]
Part = Callable[[SimpleNamespace], Any]


def _agree_on_rows(got: Any, expected: Any, case: Case) -> str | None:
    """Which token is in each row (inside an expert in any order), where experts end, and the output."""
    if not isinstance(expected, tuple):
        return close(got, expected)
    if not isinstance(got, tuple) or len(got) != len(expected):
        return f"got {short(got)}, expected {len(expected)} values: tokens of the rows, ends of the experts, output"
    chosen, n_experts = case.arguments[1], len(case.arguments[4])
    counts = chosen.flatten().bincount(minlength=n_experts).tolist()
    for name, mine, right in zip(("token", "ends", "output"), got, expected, strict=True):
        problem = close(mine, right)
        if problem and name == "token" and not tensor_like(mine, right)[1]:
            problem = close(*(_sorted_inside(as_tensor(rows), counts) for rows in (mine, right)))
        if problem:
            return f"{name}: {problem}"
    return None


def _sorted_inside(token: Tensor, counts: list[int]) -> Tensor:
    """The rows of each expert in rising order, where they are as many as there are pairs."""
    if token.ndim != 1 or len(token) != sum(counts):
        return token
    return torch.cat([rows.sort().values for rows in token.split(counts)])


def _outputs(case: Case, got: Any, expected: tuple) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars, compare_matrices

    if close(got[2], expected[2]) is None:
        fig = compare_bars(as_tensor(got[1]), expected[1], tuple(map(str, range(len(expected[1])))), "rows end at")
        fig.axes[0].set_xlabel("expert")
        return fig
    fig = compare_matrices(torch.as_tensor(got[2])[:12], expected[2][:12], "token", "channel of the output")
    fig.suptitle("the output", fontsize=10)
    return fig


def _network(rows: Tensor, into: Tensor, out: Tensor, into_act: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    hidden = rows @ into.mT
    neurons = hidden.shape[-1] // 2
    return (into_act or _swiglu)(hidden.unflatten(-1, (2, neurons))) @ out.mT


def _swiglu(hidden: Tensor) -> Tensor:
    return silu(hidden[..., 0, :]) * hidden[..., 1, :]


def _sorted(tokens: Tensor, chosen: Tensor, weights: Tensor, into: Tensor, out: Tensor) -> SimpleNamespace:
    """What is given, and what the sort says: for each pair its number, expert, token and weight."""
    order = chosen.flatten().argsort(stable=True)
    expert = chosen.flatten()[order]
    ends = torch.searchsorted(expert.contiguous(), torch.arange(len(out)), right=True)
    given = {"tokens": tokens, "chosen": chosen, "weights": weights, "into": into, "out": out}
    token = order.div(chosen.shape[1], rounding_mode="floor")
    weight = weights.flatten()[order].unsqueeze(1)
    return SimpleNamespace(**given, order=order, expert=expert, ends=ends, token=token, weight=weight)


def _made(g: SimpleNamespace, rows: Tensor | None = None, act: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """What the experts make of their rows, (P, D)."""
    rows = g.tokens[g.token] if rows is None else rows
    parts = [_network(rows[g.expert == e], g.into[e], g.out[e], act) for e in range(len(g.out))]
    return torch.cat(parts)


def _home(g: SimpleNamespace, weighted: Tensor, token: Tensor | None = None) -> Tensor:
    """Rows added to the tokens that they belong to."""
    return torch.zeros_like(g.tokens).index_put((g.token if token is None else token,), weighted, accumulate=True)


def _answer(**parts: Part) -> Callable[..., Answer]:
    """The answer with another token, ends or output, each from what is given and sorted."""
    right = {"token": lambda g: g.token, "ends": lambda g: g.ends, "output": lambda g: _home(g, _made(g) * g.weight)}

    def answer(*given: Tensor) -> Answer:
        pairs = _sorted(*given)
        return tuple((right | parts)[name](pairs) for name in right)

    return answer


_right = _answer()


def _pairs_back(g: SimpleNamespace, rows: Tensor) -> Tensor:
    """The sum over the choices of each token, of (P, D) in the order of the pairs as given."""
    return rows.unflatten(0, (len(g.tokens), -1)).sum(dim=1)


def _last_wins(g: SimpleNamespace) -> Tensor:
    """Each expert's rows written over what is there."""
    output, weighted = torch.zeros_like(g.tokens), _made(g) * g.weight
    for e in range(len(g.out)):
        output[g.token[g.expert == e]] = weighted[g.expert == e]
    return output


def _one_choice(choice: int) -> Part:
    """Only the first, or the last, of each token's experts has a part in the output."""

    def output(g: SimpleNamespace) -> Tensor:
        is_it = g.order % g.chosen.shape[1] == choice % g.chosen.shape[1]
        return _home(g, _made(g) * g.weight * is_it[:, None])

    return output


def _dense(g: SimpleNamespace) -> Tensor:
    """Every expert for every token, and a sum in which most weights are zero."""
    full = torch.zeros(len(g.tokens), len(g.out), dtype=g.weights.dtype).scatter(1, g.chosen, g.weights)
    return sum(full[:, e, None] * _network(g.tokens, g.into[e], g.out[e]) for e in range(len(g.out)))


def _with_pairs(token: Part) -> Callable[..., Answer]:
    """The answer that takes other numbers for the tokens of the rows."""

    def answer(*given: Tensor) -> Answer:
        pairs = _sorted(*given)
        pairs.token = token(pairs)
        return pairs.token, pairs.ends, _home(pairs, _made(pairs) * pairs.weight)

    return answer


def _unsorted(*given: Tensor) -> Answer:
    """Pairs in the order of the tokens, cut where those of the experts would end."""
    g = _sorted(*given)
    token = torch.arange(len(g.tokens)).repeat_interleave(g.chosen.shape[1])
    return token, g.ends, _home(g, _made(g, g.tokens[token]) * g.weights.flatten()[:, None], token)


def _without_idle(*given: Tensor) -> Answer:
    """Experts without tokens are left out and the others counted through."""
    g = _sorted(*given)
    _, counts = g.expert.unique_consecutive(return_counts=True)
    parts = g.tokens[g.token].split(counts.tolist())
    made = torch.cat([_network(rows, g.into[e], g.out[e]) for e, rows in enumerate(parts)])
    return g.token, counts.cumsum(0), _home(g, made * g.weight)


def _dispatch_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, k: int, n_experts: int, width: int, neurons: int, idle: tuple[int, ...] = ()) -> tuple:
        """Tokens with experts of all sizes of load; nobody chooses the idle ones."""
        liked = torch.rand(n_experts, generator=generator) + 0.2
        liked[list(idle)] = 0
        chosen = torch.multinomial(liked.expand(n_tokens, -1), k, generator=generator)
        weights = 0.1 + torch.rand(n_tokens, k, generator=generator)
        tokens = torch.randn(n_tokens, width, generator=generator)
        into = torch.randn(n_experts, 2 * neurons, width, generator=generator) * 2 / width**0.5
        return tokens, chosen, weights, into, torch.randn(n_experts, width, neurons, generator=generator)

    one = torch.tensor([[100.0, 0.0], [0.01, 0.0]]).expand(4, 2, 2)
    sizes = torch.tensor([[[1.0], [0.0]], [[2.0], [0.0]], [[3.0], [0.0]], [[4.0], [0.0]]])
    chosen, weights = torch.tensor([[3, 0], [1, 3], [0, 3]]), torch.tensor([[0.5, 0.25], [0.5, 0.5], [0.75, 0.25]])
    by_hand = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), chosen, weights, one, sizes
    huge = drawn(16, 2, 6, 6, 8, idle=(1, 4))
    for matrices in huge[3:]:
        matrices[[1, 4]] *= 1e30
    t, c, w, *matrices = drawn(9, 3, 7, 10, 4)
    turned = t.T.contiguous().T, c.T.contiguous().T, w.T.contiguous().T, *(m.mT.contiguous().mT for m in matrices)
    return [
        Case("3 tokens, experts of x², 2 x², 3 x², 4 x², by hand: ends 2, 3, 3, 6", by_hand),
        Case("19 tokens, 2 of 6 experts", drawn(19, 2, 6, 7, 5)),
        Case("as many tokens as experts as channels, 3 of 8", drawn(8, 3, 8, 8, 4)),
        Case("one expert a token, the first and the last ones idle", drawn(14, 1, 7, 6, 3, idle=(0, 5, 6))),
        Case("idle experts with weights of 1e30", huge),
        Case("not contiguous, 3 of 7", turned),
    ]


def _library(tokens: Tensor, chosen: Tensor, weights: Tensor, into: Tensor, out: Tensor) -> tuple:
    from course_lib.moe.choice import among
    from course_lib.moe.dispatch import grouped, pairs
    from course_lib.moe.experts import Experts

    with torch.no_grad():
        keep = among(chosen, len(out))
        full = torch.zeros(keep.shape, dtype=weights.dtype).scatter(1, chosen, weights)
        output = grouped(Experts(into, out), tokens, full, keep)
        return pairs(keep)[1], keep.sum(dim=0).cumsum(0), output


DISPATCH = Exercise(
    id="moe.dispatch",
    title="Each expert once",
    difficulty=4,
    minutes=12,
    points=4,
    reference=_right,
    cases=_dispatch_cases,
    agree=_agree_on_rows,
    picture=_outputs,
    library=_library,
    mistakes=(
        Mistake(
            "order lost",
            "The rows came out of the experts sorted by expert and were taken for the pairs in the order of the "
            "tokens. Every row has to go back to the token that it came from.",
            _answer(output=lambda g: _pairs_back(g, _made(g) * g.weight)),
            also=(_answer(output=lambda g: _pairs_back(g, _made(g) * g.weights.flatten()[:, None])),),
        ),
        Mistake(
            "sorted once more",
            "The rows were put into order with the permutation that sorted them. The way back is its inverse: "
            "order.argsort(), or an index_add_ to the tokens.",
            _answer(output=lambda g: _pairs_back(g, (_made(g) * g.weight)[g.order])),
            also=(_answer(output=lambda g: _pairs_back(g, _made(g)[g.order] * g.weights.flatten()[:, None])),),
        ),
        Mistake(
            "second choice overwrites the first",
            "A token's experts write over each other, and one of them is left. Add: output[rows] = ... keeps the last "
            "one, and output[token] += ... adds only one of the rows that go to the same token. index_add_ adds all.",
            _answer(output=_last_wins),
            also=(_answer(output=_one_choice(-1)), _answer(output=_one_choice(0))),
        ),
        Mistake(
            "weight on the input",
            "The token was multiplied by its weight before the expert saw it. An expert is not linear: the weight goes "
            "on what comes out.",
            _answer(output=lambda g: _home(g, _made(g, g.tokens[g.token] * g.weight))),
        ),
        Mistake(
            "weights of other pairs",
            "The rows are sorted by expert and the weights are not. Sort them in the same way.",
            _answer(output=lambda g: _home(g, _made(g) * g.weights.flatten()[:, None])),
        ),
        Mistake(
            "weights read by columns",
            "The weights were listed column by column and the pairs row by row, so a row meets the weight of another "
            "pair. chosen.flatten() and weights.flatten() have the same order.",
            _answer(output=lambda g: _home(g, _made(g) * g.weights.T.flatten()[g.order][:, None])),
        ),
        Mistake(
            "without weights",
            "The outputs of the experts were added, or averaged, without their weights.",
            _answer(output=lambda g: _home(g, _made(g))),
            also=(_answer(output=lambda g: _home(g, _made(g)) / g.chosen.shape[1]),),
        ),
        Mistake(
            "weights changed",
            "The weights were divided by their sum, or put through a softmax. They are to be taken as they are.",
            _answer(output=lambda g: _home(g, _made(g) * (g.weight / g.weights.sum(1)[g.token][:, None]))),
            also=(
                _answer(
                    output=lambda g: _home(g, _made(g) * g.weights.softmax(1).flatten()[g.order][:, None]),
                ),
            ),
        ),
        Mistake(
            "divided by k",
            "The output was divided by k. It is the weighted sum over a token's experts, not their mean: the weights "
            "are all that the outputs are multiplied by.",
            _answer(output=lambda g: _home(g, _made(g) * g.weight) / g.chosen.shape[1]),
        ),
        Mistake(
            "all experts for all tokens",
            "Every expert ran on every token, also those that nobody chose: whatever these hold is multiplied by "
            "zero, and zero times infinity is not a number. It also takes E / k times the work, which is what "
            "dispatch saves.",
            _answer(output=_dense),
        ),
        Mistake(
            "tokens by the remainder",
            "The token of a pair is its number divided by k, rounded down: each token has k neighbouring pairs. The "
            "remainder says which of its choices it is.",
            _with_pairs(lambda g: g.order % len(g.tokens)),
            also=(_with_pairs(lambda g: g.order % g.chosen.shape[1]),),
        ),
        Mistake(
            "pairs instead of tokens",
            "These are the numbers of the pairs, from 0 to T k - 1. Which token is in a row is that number divided by "
            "k, rounded down.",
            _answer(token=lambda g: g.order),
        ),
        Mistake(
            "inverse of the order",
            "These numbers are made of the inverse permutation, which says in which row each pair is. The question is "
            "the other way round: which token is in each row. That is order // k.",
            _answer(token=lambda g: g.order.argsort()),
            also=(_answer(token=lambda g: g.order.argsort() // g.chosen.shape[1]),),
        ),
        Mistake(
            "experts instead of tokens",
            "These are the experts of the rows. What is asked for first is which token is in each.",
            _answer(token=lambda g: g.expert),
        ),
        Mistake(
            "not sorted",
            "The pairs stand in the order of the tokens. So the rows of an expert do not lie side by side, and a slice "
            "gives it those of others.",
            _unsorted,
        ),
        Mistake(
            "tokens in their own order",
            "The output is right, but the tokens are listed in their own order, 0, 0, 1, 1, … The rows are sorted by "
            "expert: return the token of each row in that order.",
            _answer(token=lambda g: g.token.sort().values),
        ),
        Mistake(
            "last expert first",
            "The tokens, the ends or both are listed from the last expert to the first. Expert 0 comes first.",
            _answer(token=lambda g: g.token.flip(0)),
            also=(
                _answer(token=lambda g: g.token.flip(0), ends=lambda g: g.expert.flip(0).bincount().flip(0).cumsum(0)),
                _answer(ends=lambda g: g.expert.bincount(minlength=len(g.out)).flip(0).cumsum(0)),
            ),
        ),
        Mistake(
            "where experts begin",
            "These are the places where the rows of each expert begin. They end where the next one's begin.",
            _answer(ends=lambda g: torch.cat([torch.zeros(1, dtype=torch.long), g.ends[:-1]])),
        ),
        Mistake(
            "begin and end",
            "There is one number more than there are experts, the zero at which the first one begins.",
            _answer(ends=lambda g: torch.cat([torch.zeros(1, dtype=torch.long), g.ends])),
        ),
        Mistake(
            "how many, not where they end",
            "This is how many rows each expert has. They end at the sum of these up to it: cumsum.",
            _answer(ends=lambda g: g.expert.bincount(minlength=len(g.out))),
        ),
        Mistake(
            "last row instead of the end",
            "This is the last row of each expert. They end one place after it, as a slice does.",
            _answer(ends=lambda g: g.ends - 1),
        ),
        Mistake(
            "an expert without tokens",
            "Experts that nobody chose are missing in `ends`. bincount stops at the largest number that it sees unless "
            "minlength is given, and unique knows only what is there.",
            _without_idle,
            also=(
                _answer(ends=lambda g: g.expert.bincount().cumsum(0)),
                _answer(ends=lambda g: g.expert.unique_consecutive(return_counts=True)[1].cumsum(0)),
            ),
        ),
        Mistake(
            "halves exchanged",
            "silu was applied to the second half, u. It belongs to the first, g.",
            _answer(output=lambda g: _home(g, _made(g, act=lambda h: _swiglu(h.flip(-2))) * g.weight)),
        ),
        Mistake(
            "every other row for a half",
            "Rows 0, 2, 4, … were taken for one half of the first matrix. The first half of the rows makes g, the "
            "second u.",
            _answer(
                output=lambda g: _home(
                    g, _made(g, act=lambda h: _swiglu(h.flatten(-2).unflatten(-1, (-1, 2)).mT)) * g.weight
                )
            ),
        ),
        Mistake(
            "no gate",
            "The second half, u, is missing in the product. An expert computes silu(g) * u.",
            _answer(output=lambda g: _home(g, _made(g, act=lambda h: silu(h[..., 0, :])) * g.weight)),
        ),
        Mistake(
            "another activation",
            "The first half, g, goes through another function than silu, or through none. An expert computes "
            "silu(g) * u.",
            _answer(output=lambda g: _home(g, _made(g, act=lambda h: h[..., 0, :] * h[..., 1, :]) * g.weight)),
            also=(
                _answer(
                    output=lambda g: _home(g, _made(g, act=lambda h: h[..., 0, :].relu() * h[..., 1, :]) * g.weight)
                ),
                _answer(
                    output=lambda g: _home(g, _made(g, act=lambda h: h[..., 0, :].sigmoid() * h[..., 1, :]) * g.weight)
                ),
            ),
        ),
        Mistake(
            "residual added",
            "The tokens themselves were added. What is asked for is the layer's own output.",
            _answer(output=lambda g: g.tokens + _home(g, _made(g) * g.weight)),
        ),
        Mistake(
            "rows instead of their tokens",
            "The output still has a row for each pair. Add the rows of each token.",
            _answer(output=lambda g: _made(g) * g.weight),
            also=(
                _answer(output=lambda g: (_made(g) * g.weight)[g.order.argsort()]),
                _answer(output=lambda g: (_made(g) * g.weight)[g.order.argsort()].unflatten(0, (len(g.tokens), -1))),
            ),
        ),
        Mistake(
            "output alone",
            "Three values are asked for: the tokens of the rows, where each expert's rows end, and the output.",
            lambda *given: _right(*given)[2],
        ),
    ),
    also_right=(
        Variant("pairs sent home by the inverse", lambda *given: _by_inverse(*given)),
        Variant("a loop over pairs", lambda *given: _by_pairs(*given)),
        Variant(
            "as one mask read by columns",
            lambda *given: (_columns(given[1], len(given[4]))[0], *_right(*given)[1:]),
        ),
        Variant(
            "inside an expert in any order",
            _answer(token=lambda g: torch.cat([g.token[g.expert == e].flip(0) for e in range(len(g.out))])),
        ),
        Variant("each pair with a copy of its expert's matrices", _answer(output=lambda g: _gathered(g))),
    ),
    hints=(
        "chosen.flatten() is (T k,): pair number p is choice p % k of token p // k. What does sorting it, stably, give "
        "beside the sorted experts?",
        "bincount(minlength=E) of the experts says how many rows each has, cumsum where they end, and tensor_split "
        "cuts there.",
        "output.index_add_(0, token_of_rows, rows) adds each row to its token, however many go to one.",
    ),
)


def _by_inverse(tokens: Tensor, chosen: Tensor, weights: Tensor, into: Tensor, out: Tensor) -> tuple:
    g = _sorted(tokens, chosen, weights, into, out)
    rows = _made(g)[g.order.argsort()].reshape(*chosen.shape, -1)
    return g.token.int(), g.ends.tolist(), torch.einsum("tk,tkd->td", weights, rows)


def _by_pairs(tokens: Tensor, chosen: Tensor, weights: Tensor, into: Tensor, out: Tensor) -> tuple:
    rows = [(e, t, j) for e in range(len(out)) for t in range(len(chosen)) for j, x in enumerate(chosen[t]) if x == e]
    output = torch.zeros(tokens.shape, dtype=torch.float64)
    for e, t, j in rows:
        output[t] += weights[t, j] * _network(tokens[t], into[e], out[e])
    ends = [sum(other <= e for other, _, _ in rows) for e in range(len(out))]
    return torch.tensor([t for _, t, _ in rows]), ends, output


def _columns(chosen: Tensor, n_experts: int) -> tuple[Tensor, Tensor]:
    keep = (chosen[:, None] == torch.arange(n_experts)[:, None]).any(dim=2)  # (T, E)
    expert, token = keep.T.nonzero(as_tuple=True)
    return token, expert


def _gathered(g: SimpleNamespace) -> Tensor:
    rows = _network(g.tokens[g.token][:, None], g.into[g.expert], g.out[g.expert])
    return _home(g, rows[:, 0] * g.weight)
