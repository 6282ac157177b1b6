"""The exercise moe.estimate, "A gradient from one expert": its cases and its named mistakes.

Dimension key: T tokens, E experts, V outputs of an expert.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _rows(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    return compare_matrices(torch.as_tensor(got), expected, "token", "expert")


def _one_hot(pi: Tensor, drawn: Tensor) -> Tensor:
    return torch.eye(pi.shape[1], dtype=pi.dtype)[drawn]


def _estimate(logits: Tensor, drawn: Tensor, halved: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    is_best = logits.max(dim=1).indices == drawn
    factor = 1 - 0.5 * (halved & ~is_best).to(logits)
    gain = 2.0
    pi = torch.softmax(logits, dim=1)
    chosen = _one_hot(pi, drawn)
    used = factor * (pi * chosen).sum(dim=1)
    slope = _of_multiplier(used, outputs, target)
    direction = (pi * chosen).sum(dim=1, keepdim=True) * (chosen - pi)
    return (gain * slope).unsqueeze(1) * direction


def _factor(logits: Tensor, drawn: Tensor, halved: Tensor) -> Tensor:
    """The factor of the sampled probability in the forward pass, (T,)."""
    return 1 - 0.5 * (halved & (logits.max(dim=1).indices != drawn)).to(logits)


def _of_multiplier(used: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    """dL/dm, with L = ½ ‖m o − target‖²."""
    return torch.einsum("tv,tv->t", used.unsqueeze(1) * outputs - target, outputs)


def _loss(used: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    return (used.unsqueeze(1) * outputs - target).square().sum(dim=1) / 2


def _by_autograd(logits: Tensor, drawn: Tensor, halved: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    """A multiplier whose value is halved and whose gradient is not."""
    with torch.enable_grad():
        tracked = logits.detach().clone().requires_grad_()
        whole = tracked.softmax(1).gather(1, drawn.unsqueeze(1)).squeeze(1)
        used = 2 * whole + (_factor(logits, drawn, halved) * whole - 2 * whole).detach()
        return torch.autograd.grad(_loss(used, outputs, target).sum(), tracked)[0]


def _token_by_token(logits: Tensor, drawn: Tensor, halved: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    gradient = torch.zeros_like(logits)
    for t, number in enumerate(drawn.tolist()):
        pi = torch.softmax(logits[t], 0)
        m = pi[number] / 2 if halved[t] and pi.argmax() != number else pi[number]
        slope = torch.dot(m * outputs[t] - target[t], outputs[t])
        gradient[t] = -2 * slope * pi[number] * pi
        gradient[t, number] = 2 * slope * pi[number] * (1 - pi[number])
    return gradient


def _expanded(logits: Tensor, drawn: Tensor, halved: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    """The slope as m ‖o‖² − o · target, the softmax's derivative as a matrix."""
    pi = torch.softmax(logits, 1)
    jacobian = torch.diag_embed(pi) - pi.unsqueeze(2) * pi.unsqueeze(1)  # (T, E, E)
    row = jacobian[torch.arange(len(logits)), drawn]
    m = pi[torch.arange(len(logits)), drawn] * _factor(logits, drawn, halved)
    slope = m * outputs.pow(2).sum(1) - (outputs * target).sum(1)
    return (slope + slope).unsqueeze(1) * row


def _estimate_cases(generator: torch.Generator) -> list[Case]:
    def drawn(tokens: int, experts: int, outputs: int, sharp: float = 1.0) -> tuple[Tensor, ...]:
        """Every third token samples its most likely expert, the others any expert; each has its own coin."""
        order = torch.stack([torch.randperm(experts, generator=generator) for _ in range(tokens)])
        logits = sharp * (order / experts * 3 + 0.1 * torch.rand(tokens, experts, generator=generator))
        any_of_them = torch.randint(0, experts, (tokens,), generator=generator)
        number = torch.where(torch.arange(tokens) % 3 == 0, logits.argmax(1), any_of_them)
        coin = torch.arange(tokens) % 2 == 0
        o, target = (torch.randn(tokens, outputs, generator=generator) for _ in range(2))
        return logits, number, coin, 2 * o, target

    third = torch.tensor([[2.0, 1.0, 1.0]]).log().expand(3, -1)  # probabilities ½, ¼, ¼
    by_hand = third, torch.tensor([1, 1, 0]), torch.tensor([True, False, True]), torch.tensor([[4.0]] * 3)
    turned = drawn(14, 6, 5)
    turned = tuple(tensor.movedim(0, -1).contiguous().movedim(-1, 0) for tensor in turned)
    return [
        Case("3 tokens, 3 experts, by hand: dL/dm is 6, 8 and 12", (*by_hand, torch.tensor([[-1.0]] * 3))),
        Case("15 tokens, 5 experts, 4 outputs", drawn(15, 5, 4)),
        Case("as many tokens as experts as outputs", drawn(6, 6, 6)),
        Case("two experts, one output", drawn(9, 2, 1)),
        Case("probabilities near 0 and 1", drawn(12, 7, 3, 4.0)),
        Case("not contiguous", turned),
    ]


def _library(logits: Tensor, drawn: Tensor, halved: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    from course_lib.moe.choice import scaled

    with torch.enable_grad():
        tracked = logits.detach().clone().requires_grad_()
        whole = tracked.softmax(dim=1).gather(1, drawn[:, None])
        factor = torch.where(drawn.eq(logits.argmax(1)).logical_or(~halved), 1.0, 0.5)
        multiplier = scaled(whole, factor.to(logits)[:, None], slope=2.0)
        loss = (multiplier * outputs - target).square().sum() / 2
        return torch.autograd.grad(loss, tracked)[0]


ESTIMATE = Exercise(
    id="moe.estimate",
    title="A gradient from one expert",
    difficulty=4,
    minutes=12,
    points=4,
    reference=_estimate,
    cases=_estimate_cases,
    picture=_rows,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_estimate),
    also_right=(
        Variant("autograd", _by_autograd),
        Variant("token by token", _token_by_token),
        Variant("expanded", _expanded),
        Variant("logit by logit", lambda *given: _logit_by_logit(*given)),
        Variant("float64", lambda x, n, h, o, t: _estimate(x.double(), n, h, o.double(), t.double())),
    ),
    hints=(
        "Each row has four factors: the multiplier m that was used, the slope dL/dm at this m, the 2, and the gradient "
        "of π_D, with the full π_D even if m was halved.",
        "With L = ½ ‖m o − target‖², dL/dm = (m o − target) · o: a product summed over the outputs.",
        "The gradient of π_D with respect to the logits is π_D (e_D − π), where e_D is one at D and zero elsewhere.",
    ),
)


def _logit_by_logit(logits: Tensor, drawn: Tensor, halved: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    pi = torch.softmax(logits, dim=1)
    used = _factor(logits, drawn, halved) * (pi * _one_hot(pi, drawn)).sum(dim=1)
    weight = 2 * _of_multiplier(used, outputs, target)
    return weight.unsqueeze(1) * (pi * (_one_hot(pi, drawn) - pi.gather(1, drawn[:, None])))
