"""The exercise moe.dispatch, "Each expert runs once": its cases and its named mistakes.

Dimension key: T tokens, k experts for each, E experts, D width, F neurons of an expert, P = T k pairs of a token and an
expert, sorted by expert.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from course_lib.checking.compare import as_tensor, close, short, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


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


def _dispatch(
    tokens: Tensor, chosen: Tensor, weights: Tensor, into: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    order = chosen.flatten().argsort(stable=True)
    expert = chosen.flatten()[order]
    ends = torch.searchsorted(expert.contiguous(), torch.arange(len(out)), right=True)
    token = order.div(chosen.shape[1], rounding_mode="floor")
    weight = weights.flatten()[order].unsqueeze(1)
    rows = tokens[token]
    act = _swiglu
    made = torch.cat([_network(rows[expert == e], into[e], out[e], act) for e in range(len(out))])
    output = _home(tokens, token, made * weight)
    return token, ends, output


def _swiglu(hidden: Tensor) -> Tensor:
    return silu(hidden[..., 0, :]) * hidden[..., 1, :]


def _network(rows: Tensor, into: Tensor, out: Tensor, act: Callable[[Tensor], Tensor] = _swiglu) -> Tensor:
    hidden = rows @ into.mT
    return act(hidden.unflatten(-1, (2, hidden.shape[-1] // 2))) @ out.mT


def _home(tokens: Tensor, token: Tensor, weighted: Tensor) -> Tensor:
    """Rows added to the tokens that they belong to."""
    return torch.zeros_like(tokens).index_put((token,), weighted, accumulate=True)


def _pairs_back(tokens: Tensor, rows: Tensor) -> Tensor:
    """The sum over the choices of each token, of (P, D) in the order of the pairs as given."""
    return rows.unflatten(0, (len(tokens), -1)).sum(dim=1)


def _dense(tokens: Tensor, chosen: Tensor, weights: Tensor, into: Tensor, out: Tensor) -> Tensor:
    """Every expert for every token, and a sum in which most weights are zero."""
    full = torch.zeros(len(tokens), len(out), dtype=weights.dtype).scatter(1, chosen, weights)
    return sum(full[:, e, None] * _network(tokens, into[e], out[e]) for e in range(len(out)))


def _dispatch_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, k: int, n_experts: int, width: int, neurons: int, idle: tuple[int, ...] = ()) -> tuple:
        """Tokens with experts of all loads; no token chooses the idle ones."""
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
        Case("one expert per token, the first and the last ones idle", drawn(14, 1, 7, 6, 3, idle=(0, 5, 6))),
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
    title="Each expert runs once",
    difficulty=4,
    minutes=12,
    points=4,
    reference=_dispatch,
    cases=_dispatch_cases,
    agree=_agree_on_rows,
    picture=_outputs,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_dispatch),
    also_right=(
        Variant("rows reordered by the inverse", lambda *given: _by_inverse(*given)),
        Variant("a loop over pairs", lambda *given: _by_pairs(*given)),
        Variant(
            "as one mask read by columns",
            lambda *given: (_columns(given[1], len(given[4]))[0], *_dispatch(*given)[1:]),
        ),
        Variant("inside an expert in any order", lambda *given: _in_any_order(*given)),
        Variant("each pair with a copy of its expert's matrices", lambda *given: _gathered(*given)),
    ),
    hints=(
        "chosen.flatten() is (T k,): pair number p is choice p % k of token p // k. What does a stable sort return in "
        "addition to the sorted experts?",
        "bincount(minlength=E) of the experts counts the rows of each, cumsum gives the ends, and tensor_split "
        "splits there.",
        "output.index_add_(0, token_of_rows, rows) adds each row to its token, also if several belong to the same one.",
    ),
)


def _by_inverse(tokens: Tensor, chosen: Tensor, weights: Tensor, into: Tensor, out: Tensor) -> tuple:
    token, ends, _ = _dispatch(tokens, chosen, weights, into, out)
    parts = tokens[token].tensor_split(ends[:-1])
    made = torch.cat([_network(part, into[e], out[e]) for e, part in enumerate(parts)])
    rows = made[chosen.flatten().argsort(stable=True).argsort()].reshape(*chosen.shape, -1)
    return token.int(), ends.tolist(), torch.einsum("tk,tkd->td", weights, rows)


def _in_any_order(*given: Tensor) -> tuple:
    token, ends, output = _dispatch(*given)
    return torch.cat([part.flip(0) for part in token.tensor_split(ends[:-1])]), ends, output


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


def _gathered(tokens: Tensor, chosen: Tensor, weights: Tensor, into: Tensor, out: Tensor) -> tuple:
    token, ends, _ = _dispatch(tokens, chosen, weights, into, out)
    order = chosen.flatten().argsort(stable=True)
    expert = chosen.flatten()[order]
    rows = _network(tokens[token][:, None], into[expert], out[expert])
    return token, ends, _home(tokens, token, rows[:, 0] * weights.flatten()[order].unsqueeze(1))
