"""The exercise capstone.front, "Which models are on the front?": its cases and its named mistakes.

Dimension key: M models, N windows.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

Answer = Callable[[Tensor, Tensor], Any]
Beats = Callable[[Tensor, Tensor], Tensor]  # (cost, losses) -> (M, M): whether the row's model beats the column's
ERRORS = 2.0


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    """The same models; names the first about which there is disagreement."""
    mine, problem = tensor_like(got, expected)
    if problem or expected.dtype != torch.bool:
        return problem or close(got, expected)
    if not ((mine == 0) | (mine == 1)).all():
        return "expected True for a model that stays and False for the rest"
    wrong = (mine.bool() != expected).nonzero().flatten().tolist()
    if not wrong:
        return None
    cost, losses = case.arguments
    first = wrong[0]
    return (
        f"model {first}, cost {cost[first]:g} and mean loss {losses[first].double().mean():.3f}: you say it "
        f"{'stays' if mine[first] else 'leaves'}, expected that it {'stays' if expected[first] else 'leaves'}; "
        f"{len(wrong)} of {len(expected)} models differ"
    )


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    return compare_fronts(*case.arguments, torch.as_tensor(got).bool(), expected)


def compare_fronts(cost: Tensor, losses: Tensor, got: Tensor, expected: Tensor) -> "matplotlib.figure.Figure":
    """Plot both answers: filled markers are on the front, a ring marks the models about which the answers differ."""
    from course_lib.lessons.common.style import COLOURS, figure, label

    fig, axes = figure(2, width=3.8, height=3.0)
    mean, wrong = losses.double().mean(dim=1), got != expected
    for panel, keep, name in zip(axes, (got, expected), ("yours", "expected"), strict=True):
        panel.scatter(cost[keep], mean[keep], color=COLOURS[0], s=36, label="on the front")
        panel.scatter(cost[~keep], mean[~keep], facecolors="white", edgecolors=COLOURS[0], s=36, label="beaten")
        panel.scatter(cost[wrong], mean[wrong], facecolors="none", edgecolors=COLOURS[1], s=150, linewidths=1.5)
        title = f"{name}: {int(keep.sum())} of {len(keep)} on the front"
        label(panel, title, "cost", "mean loss" if panel is axes[0] else "")
    axes[1].legend(frameon=False)
    return fig


def _more(losses: Tensor) -> tuple[Tensor, Tensor]:
    """(M, M) each: by how much more the column's model loses than the row's, and the error of that."""
    apart = losses.double()[None, :] - losses.double()[:, None]
    return apart.mean(dim=2), apart.std(dim=2) / losses.shape[1] ** 0.5


def _clearly(cost: Tensor, losses: Tensor, n_errors: float = ERRORS) -> Tensor:
    more, error = _more(losses)
    return (cost[:, None] <= cost) & (more > n_errors * error)


def _beats(cost: Tensor, losses: Tensor) -> Tensor:
    same = (losses[:, None] == losses).all(dim=2)
    return _clearly(cost, losses) | (same & (cost[:, None] < cost))


def _means(cost: Tensor, losses: Tensor, either: bool = True) -> Tensor:
    """What dominates where nothing has an error: no worse in both, and better in one of them."""
    mean = losses.double().mean(dim=1)
    no_worse = (cost[:, None] <= cost) & (mean[:, None] <= mean)
    better = (cost[:, None] < cost) | (mean[:, None] < mean)
    return no_worse & better if either else no_worse


def _unpaired(cost: Tensor, losses: Tensor) -> Tensor:
    more, own = _more(losses)[0], losses.double().std(dim=1) / losses.shape[1] ** 0.5
    return (cost[:, None] <= cost) & (more > ERRORS * (own[:, None] ** 2 + own**2).sqrt())


def _added(cost: Tensor, losses: Tensor) -> Tensor:
    more, own = _more(losses)[0], losses.double().std(dim=1) / losses.shape[1] ** 0.5
    return (cost[:, None] <= cost) & (more > ERRORS * (own[:, None] + own))


def _spreads(cost: Tensor, losses: Tensor) -> Tensor:
    """Standard deviations for errors."""
    more, error = _more(losses)
    return (cost[:, None] <= cost) & (more > ERRORS * error * losses.shape[1] ** 0.5)


def _or_twins(beats: Callable[..., Tensor], *how: float) -> Beats:
    """Equal losses at a lower cost beat too."""

    def with_twins(cost: Tensor, losses: Tensor) -> Tensor:
        same = (losses[:, None] == losses).all(dim=2)
        return beats(cost, losses, *how) | (same & (cost[:, None] < cost))

    return with_twins


def _strictly(cost: Tensor, losses: Tensor) -> Tensor:
    more, error = _more(losses)
    return (cost[:, None] < cost) & (more > ERRORS * error)


def _alike_but_dearer(cost: Tensor, losses: Tensor, by: float = 1e-6) -> Tensor:
    """The row's model costs less, and loses the same up to a little."""
    alike = ((losses[:, None] - losses).abs() <= by).all(dim=2)
    return alike & (cost[:, None] < cost)


def _itself(cost: Tensor, losses: Tensor) -> Tensor:
    """Equal is enough to beat: every model would beat itself, which is left out, and its equals."""
    more, error = _more(losses)
    found = (cost[:, None] <= cost) & (more >= ERRORS * error)
    return found & ~torch.eye(len(cost), dtype=torch.bool)


def _with(beats: Beats = _beats) -> Answer:
    return lambda cost, losses: ~beats(cost, losses).any(dim=0)


def _in_order(beats: Beats, key: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """One pass over the models in some order, each compared with those that stayed before it."""

    def answer(cost: Tensor, losses: Tensor) -> Tensor:
        matrix, stays = beats(cost, losses), []
        for at in key(cost, losses).tolist():
            if not any(matrix[other, at] for other in stays):
                stays.append(at)
        keep = torch.zeros(len(cost), dtype=torch.bool)
        keep[stays] = True
        return keep

    return answer


def _by_cost(cost: Tensor, losses: Tensor) -> Tensor:
    return cost.sort(stable=True).indices


def _by_cost_and_loss(cost: Tensor, losses: Tensor) -> Tensor:
    means = losses.double().mean(dim=1)
    return torch.tensor(sorted(range(len(cost)), key=lambda i: (float(cost[i]), float(means[i]))))


def _sweep(order: Callable[[Tensor, Tensor], Tensor], beats: Beats = _beats) -> Answer:
    """Sorted once: each compared with the one of least loss so far."""

    def answer(cost: Tensor, losses: Tensor) -> Tensor:
        matrix, mean = beats(cost, losses), losses.double().mean(dim=1)
        keep, best = torch.zeros(len(cost), dtype=torch.bool), None
        for at in order(cost, losses).tolist():
            keep[at] = best is None or not matrix[best, at]
            if best is None or mean[at] < mean[best]:
                best = at
        return keep

    return answer


def _new_best(order: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """Sorted once, by means: only what is better than all before it stays."""

    def answer(cost: Tensor, losses: Tensor) -> Tensor:
        mean, keep, best = losses.double().mean(dim=1), torch.zeros(len(cost), dtype=torch.bool), torch.inf
        for at in order(cost, losses).tolist():
            keep[at] = mean[at] < best
            best = min(best, float(mean[at]))
        return keep

    return answer


def _front_cases(generator: torch.Generator) -> list[Case]:
    def drawn(
        n: int, n_windows: int, spread: float = 0.1, costs: int = 1000, hard: float = 0.7
    ) -> tuple[Tensor, Tensor]:
        """Expensive models have a lower loss, up to noise of the same size; some windows are hard for all."""
        cost = torch.randint(1, costs, (n,), generator=generator).float()
        worse = 1.2 * (1 - cost / costs) ** 2 + 0.25 * torch.rand(n, generator=generator)
        text = 3 + hard * randn(generator, n_windows)
        noise = spread * (0.3 + 1.7 * torch.rand(n, 1, generator=generator)) * randn(generator, n, n_windows)
        return cost, text + worse[:, None] + noise

    by_hand = torch.tensor([[2.0, 4.0], [1.0, 3.0], [1.25, 5.25], [2.0, 4.25], [1.0, 3.0]])
    cost, losses = drawn(9, 6)
    twins = torch.cat([cost, cost[:4], cost[4:7] + 50]), torch.cat([losses, losses[:7]])
    # Against the first: the same mean from other losses; the same losses; the same except for 1/128 in one window
    first = torch.tensor([1.0, 2.0, 3.0, 2.0])
    # The last two cost the same, and the second of them is the better one in every window
    rows = first, first.roll(2), first, first + torch.eye(4)[3] / 128, first - 0.5, first - 1
    alike = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 5.0]), torch.stack(rows)
    return [
        Case("5 models by hand, 2 windows: the last two are beaten", (_COSTS, by_hand)),
        Case(
            "6 models by hand: only the third has the losses of a cheaper one in every window; the fifth is beaten",
            alike,
        ),
        Case("differences of 1.98 and of 2.02 standard errors", _near_two_errors(generator)),
        Case("12 models, 12 windows", drawn(12, 12)),
        Case("models that cost the same", drawn(14, 8, costs=5)),
        Case("some models twice, and some again at a higher cost", twins),
        Case("the best model beats fewer models than another one", _noisy_best(generator)),
        Case("40 models, 4 noisy windows", drawn(40, 4, 0.3)),
        Case("windows that are equally hard", drawn(15, 6, 0.04, hard=0.02)),
        Case("a single model", drawn(1, 5)),
    ]


def _near_two_errors(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Three more expensive models that lose more than the cheapest: by 1.98, 2.02 and 1.97 standard errors.

    Of the six numbers ±1 the mean is 0 and the standard error √(6/5) / √6 = 1/√5, so a mean of m/√5 is m of them.
    """
    signs = torch.tensor([[1.0, 1, 1, -1, -1, -1], [1, -1, -1, 1, 1, -1], [-1, 1, -1, 1, -1, 1]])
    signs = signs[:, torch.randperm(6, generator=generator)]  # no two rows alike, so none of the three beats another
    n_errors = torch.tensor([[1.98], [2.02], [1.97]])
    cheapest = 3 + 0.5 * randn(generator, 6)
    losses = torch.cat([cheapest[None], cheapest + 0.2 * (signs + n_errors / 5**0.5)])
    order = torch.randperm(4, generator=generator)
    order = order if order[-1] != 2 else order.flip(0)  # the beaten one is not the last: the first three are wrong
    return torch.tensor([1.0, 4.0, 3.0, 2.0])[order], losses[order]


_COSTS = torch.tensor([4.0, 5.0, 6.0, 7.0, 8.0])


def _noisy_best(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A model that loses least on average and swings from window to window; one before it does not, and beats more."""
    hard = 3 + 0.7 * randn(generator, 8)
    swing = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0])
    rows = [0.12 + 0 * swing, 0.5 * swing, 0.2 + 0 * swing, 0.3 + 0.05 * swing, 0.1 * swing - 0.4]
    losses = hard + torch.stack(rows) + 0.01 * randn(generator, 5, 8)
    order = torch.randperm(5, generator=generator)
    return torch.tensor([1.0, 2.0, 3.0, 4.0, 8.0])[order], losses[order]


def _library(cost: Tensor, losses: Tensor) -> Tensor:
    from course_lib.lessons.capstone.methods import pareto_front

    return pareto_front(cost, losses)


FRONT = Exercise(
    id="capstone.front",
    title="Which models are on the front?",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_with(),
    cases=_front_cases,
    agree=_agree,
    picture=_picture,
    library=_library,
    trivial=(
        Trivial("keeping the cheapest alone", lambda cost, losses: cost == cost.min()),
        Trivial("keeping the best alone", lambda cost, losses: losses.mean(1) == losses.mean(1).min()),
        Trivial(
            "keeping both ends", lambda cost, losses: (cost == cost.min()) | (losses.mean(1) == losses.mean(1).min())
        ),
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("pair by pair", lambda *given: _in_loops(*given)),
        Variant("as zeros and ones", lambda cost, losses: _with()(cost, losses).long()),
        Variant("cheapest first, against those that stay", _in_order(_beats, _by_cost_and_loss)),
    ),
    hints=(
        "Compare every pair: does i beat j? Then j is on the front if no i does.",
        "Make four (M, M) tables: i costs no more than j, i costs less than j, j is clearly worse than i, and both "
        "have equal losses everywhere. Which of them do you join by `and`, and which by `or`?",
        "losses[None, :] − losses[:, None] has shape (M, M, N): at [i, j] the loss of j minus that of i. Take mean and "
        "error along dim=2; any(dim=0) gives the models that are beaten.",
    ),
)


def _first_of_twins(cost: Tensor, losses: Tensor) -> Tensor:
    same = (losses[:, None] == losses).all(dim=2) & (cost[:, None] == cost)
    return _with()(cost, losses) & ~same.triu(1).any(dim=0)


def _in_loops(cost: Tensor, losses: Tensor) -> list[bool]:
    from math import sqrt
    from statistics import mean, stdev

    def beats(i: int, j: int) -> bool:
        more = [float(b) - float(a) for a, b in zip(losses[i], losses[j], strict=True)]
        if not any(more):
            return bool(cost[i] < cost[j])
        return bool(cost[i] <= cost[j]) and mean(more) > 2 * stdev(more) / sqrt(len(more))

    return [not any(beats(i, j) for i in range(len(cost)) if i != j) for j in range(len(cost))]
