"""The exercise moe.top1, "A weight that trains the router": its cases and its named mistakes.

Dimension key: T tokens, E experts.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near

Answer = tuple[Tensor, Tensor]
Gradient = Callable[[Tensor, Tensor, Tensor], Tensor]


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Weight and gradient up to rounding, that of float32 and of the largest slope: 1 - p cancels where p is near 1."""
    steepest = max(float(case.arguments[1].abs().max()), 1e-30)
    return all_near(got, expected, {"weight": 1e-6, "gradient": 1e-6 * steepest})


def _gradients(case: Case, got: Any, expected: tuple) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    fig = compare_matrices(torch.as_tensor(got[1])[:12], expected[1][:12], "token", "logit of expert")
    fig.suptitle("the gradient", fontsize=10)
    return fig


def _right(logits: Tensor, slope: Tensor) -> Answer:
    probs = logits.softmax(dim=1)
    best = probs.amax(dim=1)
    return best, -slope[:, None] * best[:, None] * (probs - _chosen(logits))


def _chosen(logits: Tensor) -> Tensor:
    return one_hot(logits.argmax(dim=1), logits.shape[1]).to(logits)


def _by_autograd(weigh: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Answer]:
    """The answer with another weight, logits (T, E) -> (T,), and the gradient of that."""

    def answer(logits: Tensor, slope: Tensor) -> Answer:
        with torch.enable_grad():
            logits = logits.detach().clone().requires_grad_()
            weight = weigh(logits)
            total = (weight * slope).sum() + 0 * logits.sum()  # so that no weight at all gives zeros and no error
            return weight.detach(), torch.autograd.grad(total, logits)[0]

    return answer


def _other_gradient(change: Gradient) -> Callable[[Tensor, Tensor], Answer]:
    """The right weight, and another gradient, from (chosen one-hot, probabilities, slope (T, 1))."""
    return lambda logits, slope: (
        _right(logits, slope)[0],
        change(_chosen(logits), logits.softmax(dim=1), slope[:, None]),
    )


def _best_of(values: Tensor, logits: Tensor) -> Tensor:
    return values.gather(1, logits.argmax(dim=1, keepdim=True))[:, 0]


def _exp_over_sum(logits: Tensor) -> Tensor:
    return _best_of(logits.exp() / logits.exp().sum(dim=1, keepdim=True), logits)


def _top1_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_experts: int, shift: float = 0.0) -> tuple[Tensor, Tensor]:
        size = 0.5 + torch.rand(n_tokens, 1, generator=generator)
        logits = size * torch.randn(n_tokens, n_experts, generator=generator) + shift
        return logits, 2 * torch.randn(n_tokens, generator=generator)

    by_hand = torch.tensor([[2.0, 1.0, 1.0], [1.0, 2.0, 5.0]]).log(), torch.tensor([4.0, -8.0])
    logits, slope = drawn(12, 7)
    sure = logits * torch.linspace(0, 30, 12)[torch.randperm(12, generator=generator)][:, None]
    sure[sure.std(dim=1) == 0, 0] = 1.0  # who is not sure at all is so of one: the choice is never open
    return [
        Case("2 tokens, 3 experts, by hand: 1/2 and (1, -1/2, -1/2), 5/8 and (5/8, 5/4, -15/8)", by_hand),
        Case("19 tokens, 6 experts", drawn(19, 6)),
        Case("as many tokens as experts", drawn(8, 8)),
        Case("large logits", drawn(11, 5, shift=300.0)),
        Case("tokens with a probability near 1, and one without", (sure, slope)),
        Case("not contiguous", (drawn(4, 9)[0].T, drawn(9, 2)[1])),
    ]


def _library(logits: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.moe.routers.switch import Switch

    with torch.enable_grad():
        logits = logits.detach().clone().requires_grad_()
        weight = Switch(capacity_factor=None, jitter=0.0).route(logits).weights.sum(dim=1)
        return weight.detach(), torch.autograd.grad(weight, logits, slope)[0]


TOP1 = Exercise(
    id="moe.top1",
    title="A weight that trains the router",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_right,
    cases=_top1_cases,
    agree=_agree_on_both,
    picture=_gradients,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("autograd", _by_autograd(lambda h: h.softmax(1).amax(1))),
        Variant("autograd through log_softmax", _by_autograd(lambda h: h.log_softmax(1).amax(1).exp())),
        Variant(
            "the whole matrix of derivatives",
            lambda logits, slope: (
                (p := logits.softmax(1)).amax(1),
                torch.einsum("t,tij,ti->tj", slope, p.diag_embed() - p[:, :, None] * p[:, None], _chosen(logits)),
            ),
        ),
        Variant(
            "in float64", lambda logits, slope: [part.double() for part in _right(logits.double(), slope.double())]
        ),
    ),
    hints=(
        "The weight is one probability of the softmax over all experts. You still need its derivative with respect to "
        "every logit, and the chain rule with `slope`.",
        "By autograd: logits.detach().clone().requires_grad_(), the weight of these, and "
        "torch.autograd.grad(weight, logits, slope).",
        "On paper: dp_i / dh_j is p_i (1 - p_i) for j = i, and -p_i p_j for every other j. Logits may be large: exp of "
        "them overflows, softmax does not.",
    ),
)
