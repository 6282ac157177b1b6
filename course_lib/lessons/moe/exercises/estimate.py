"""The exercise moe.estimate, "A gradient from one expert": its cases and its named mistakes.

Dimension key: T tokens, E experts, V outputs of an expert.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

Answer = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Scale = Callable[[Tensor, Tensor, Tensor], Tensor]
Direction = Callable[[Tensor, Tensor], Tensor]


def _rows(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    return compare_matrices(torch.as_tensor(got), expected, "token", "expert")


def _one_hot(pi: Tensor, drawn: Tensor) -> Tensor:
    return torch.eye(pi.shape[1], dtype=pi.dtype)[drawn]


def _is_best(logits: Tensor, drawn: Tensor) -> Tensor:
    return logits.max(dim=1).indices == drawn


def _factor(logits: Tensor, drawn: Tensor, halved: Tensor) -> Tensor:
    """What the drawn probability is multiplied by forwards, (T,)."""
    return 1 - 0.5 * (halved & ~_is_best(logits, drawn)).to(logits)


def _slopes(pi: Tensor, drawn: Tensor) -> Tensor:
    """The gradient of the drawn probability, π_D (e_D − π), one a row."""
    chosen = _one_hot(pi, drawn)
    return (pi * chosen).sum(dim=1, keepdim=True) * (chosen - pi)


def _of_multiplier(used: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    """dL/dm, with L = ½ ‖m o − target‖²."""
    return torch.einsum("tv,tv->t", used.unsqueeze(1) * outputs - target, outputs)


def _step(
    factor: Scale = _factor,
    gain: Scale = lambda x, n, h: torch.full_like(x[:, 0], 2.0),
    direction: Direction = _slopes,
    slope: Callable[[Tensor, Tensor, Tensor], Tensor] = _of_multiplier,
) -> Answer:
    """gain · dL/dm at factor · π_D, times a direction: the answer with one of these changed."""

    def answer(logits: Tensor, drawn: Tensor, halved: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
        pi = torch.softmax(logits, dim=1)
        used = factor(logits, drawn, halved) * (pi * _one_hot(pi, drawn)).sum(dim=1)
        weight = gain(logits, drawn, halved) * slope(used, outputs, target)
        return weight.unsqueeze(1) * direction(pi, drawn)

    return answer


_estimate = _step()


def _times(number: float) -> Scale:
    return lambda logits, drawn, halved: torch.full_like(logits[:, 0], number)


def _halved_by_the_coin(logits: Tensor, drawn: Tensor, halved: Tensor) -> Tensor:
    return torch.where(halved, 0.5, 1.0).to(logits)


def _loss(used: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    return (used.unsqueeze(1) * outputs - target).square().sum(dim=1) / 2


def _with_multiplier(used: Tensor, logits: Tensor, drawn: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    return 2 * _of_multiplier(used, outputs, target).unsqueeze(1) * _slopes(logits.softmax(dim=1), drawn)


def _over_tokens(logits: Tensor, drawn: Tensor, halved: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    pi = logits.softmax(dim=0)
    used = _factor(logits, drawn, halved) * (pi * _one_hot(pi, drawn)).sum(dim=1)
    return 2 * _of_multiplier(used, outputs, target).unsqueeze(1) * _slopes(pi, drawn)


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
        """Every third token draws its most likely expert, the others any; the coin falls anew for each."""
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
    mistakes=(
        Mistake(
            "factor 2 missing",
            "The gradient of the multiplier counts double: half of it stands for how the multiplier moves, and half "
            "for how the draw does.",
            _step(gain=_times(1.0)),
        ),
        Mistake(
            "halved backwards too",
            "Where the multiplier was halved, its gradient was halved as well. Backwards it is taken for π_D itself: "
            "2 dL/dm goes on, whatever the coin said.",
            _step(gain=lambda x, n, h: 2 * _factor(x, n, h)),
        ),
        Mistake(
            "halved backwards too, and not doubled",
            "This is the plain gradient through the multiplier. Backwards the multiplier is taken for π_D itself, also "
            "where it was halved, and its gradient counts double: 2 dL/dm goes on, whatever the coin said.",
            _step(gain=_factor),
        ),
        Mistake(
            "doubled where it was halved alone",
            "The factor 2 stands only where the multiplier was halved. It stands always: whole and halved draws are "
            "averaged, and both are doubled.",
            _step(gain=lambda x, n, h: 1 / _factor(x, n, h)),
        ),
        Mistake(
            "most likely expert not doubled",
            "The factor 2 is missing where the most likely expert was drawn. That expert is never halved, but its "
            "gradient is doubled like the others'.",
            _step(gain=lambda x, n, h: 2 - _is_best(x, n).to(x)),
        ),
        Mistake(
            "most likely expert halved",
            "The coin was obeyed in every row, as the midpoint rule would have it. As released, the most likely expert "
            "is taken whole whatever the coin says.",
            _step(_halved_by_the_coin),
        ),
        Mistake(
            "never halved",
            "No multiplier was halved. Where the coin says so and the expert is not the most likely, the slope is the "
            "one at π_D / 2.",
            _step(_times(1.0)),
        ),
        Mistake(
            "neither halved nor doubled",
            "This is the gradient of a plain multiplier π_D, as in Switch. Where the coin says so and the expert is "
            "not the most likely, the slope is the one at π_D / 2; and the slope always counts double.",
            _step(_times(1.0), _times(1.0)),
        ),
        Mistake(
            "always halved",
            "A multiplier was halved where the coin did not say so. It says so where `halved` is True.",
            _step(lambda x, n, h: _factor(x, n, torch.ones_like(h))),
            also=(_step(_times(0.5)), _step(lambda x, n, h: 1 - 0.5 * (h | ~_is_best(x, n)).to(x))),
        ),
        Mistake(
            "coin turned round",
            "Halved are the rows in which `halved` is False. It is the other way round.",
            _step(lambda x, n, h: _factor(x, n, ~h)),
            also=(_step(lambda x, n, h: _halved_by_the_coin(x, n, ~h)),),
        ),
        Mistake(
            "only the most likely halved",
            "The most likely expert is the one that is never halved; all others are, where the coin says so.",
            _step(lambda x, n, h: 1 - 0.5 * (h & _is_best(x, n)).to(x)),
        ),
        Mistake(
            "gradient of log π",
            "The direction is the gradient of log π_D, as in REINFORCE. What the experts' output is multiplied by is "
            "π_D itself, whose gradient has one factor π_D more.",
            _step(direction=lambda pi, n: _one_hot(pi, n) - pi),
        ),
        Mistake(
            "REINFORCE",
            "The loss itself weighs the direction. SparseMixer needs its slope, dL/dm, and never the loss.",
            _step(direction=lambda pi, n: _one_hot(pi, n) - pi, slope=_loss, gain=_times(1.0)),
            also=(
                _step(slope=_loss, gain=_times(1.0)),
                _step(slope=_loss),
                _step(direction=lambda pi, n: _one_hot(pi, n) - pi, slope=_loss),
                _step(_times(1.0), _times(1.0), lambda pi, n: _one_hot(pi, n) - pi, _loss),
            ),
        ),
        Mistake(
            "the drawn logit alone",
            "Only the logit of the drawn expert has a gradient here. When it rises, the probabilities of all others "
            "fall: −π_D π_j for every other expert j.",
            _step(direction=lambda pi, n: pi * (1 - pi) * _one_hot(pi, n)),
            also=(
                _step(direction=lambda pi, n: pi * _one_hot(pi, n)),
                _step(direction=lambda pi, n: _one_hot(pi, n)),
            ),
        ),
        Mistake(
            "each expert's own slope",
            "The direction is π_j (1 − π_j), which is what each probability does with its own logit. One probability "
            "was used, π_D: its gradient is π_D (1 − π_D) at D and −π_D π_j elsewhere.",
            _step(direction=lambda pi, n: pi * (1 - pi)),
        ),
        Mistake(
            "each expert's own probability",
            "Every entry of the direction has its own π_j in front: π_j (e_D − π)_j. One probability was used, π_D, "
            "and it is the factor of all entries: π_D (e_D − π).",
            _step(direction=lambda pi, n: pi * (_one_hot(pi, n) - pi)),
        ),
        Mistake(
            "turned round",
            "Every entry has the wrong sign. The gradient of π_D is π_D (e_D − π), above zero at the drawn expert, and "
            "the derivative of the loss in m is (m o − target) · o, in this order.",
            _step(direction=lambda pi, n: -_slopes(pi, n)),
        ),
        Mistake(
            "target added",
            "The derivative of ½ ‖m o − target‖² in m is (m o − target) · o: the target is taken away.",
            _step(slope=lambda m, o, t: _of_multiplier(m, o, -t)),
        ),
        Mistake(
            "halved gradient of the square",
            "There is a factor too many. The loss is half of a square, so the derivative in m is (m o − target) · o "
            "without a 2; the 2 of SparseMixer stands once.",
            _step(gain=_times(4.0)),
        ),
        Mistake(
            "not times the outputs",
            "The gradient of the loss with respect to the layer's output was summed, or made into a length. For the "
            "multiplier it is multiplied by the expert's outputs first.",
            _step(slope=lambda m, o, t: (m.unsqueeze(1) * o - t).sum(dim=1)),
            also=(_step(slope=lambda m, o, t: (m.unsqueeze(1) * o - t).norm(dim=1)),),
        ),
        Mistake(
            "multiplier forgotten",
            "The slope was taken where the expert's output stands without its multiplier. The layer gives m · o.",
            _step(_factor, slope=lambda m, o, t: _of_multiplier(torch.ones_like(m), o, t)),
        ),
        Mistake(
            "product of outputs and target",
            "The slope is the product of outputs and target, or minus that, which is dL/dm at m = 0. It is taken at "
            "the m that was used: (m o − target) · o.",
            _step(slope=lambda m, o, t: -(o * t).sum(dim=1)),
            also=(_step(slope=lambda m, o, t: (o * t).sum(dim=1)),),
        ),
        Mistake(
            "halved without its probability",
            "The multiplier is ½ or 1 here. It is π_D, or half of π_D.",
            lambda x, n, h, o, t: _with_multiplier(_factor(x, n, h), x, n, o, t),
        ),
        Mistake(
            "averaged over tokens or outputs",
            "The gradient was divided by the number of tokens, or the loss by the number of outputs. Each token has a "
            "loss of its own, and that is a sum.",
            _step(gain=lambda x, n, h: torch.full_like(x[:, 0], 2 / len(x))),
            also=(_step(slope=lambda m, o, t: _of_multiplier(m, o, t) / o.shape[1]),),
        ),
        Mistake(
            "the second version's rule",
            "This is version 2: a third in place of a half, and nothing doubled. Version 1 halves and doubles.",
            _step(lambda x, n, h: torch.where(_factor(x, n, h) < 1, 1 / 3, 1.0).to(x), _times(1.0)),
        ),
        Mistake(
            "a third, doubled",
            "The multiplier is a third of π_D where the coin says half. That is version 2; version 1 halves.",
            _step(lambda x, n, h: torch.where(_factor(x, n, h) < 1, 1 / 3, 1.0).to(x)),
        ),
        Mistake(
            "the most likely instead of the drawn",
            "The most likely expert was used in place of the drawn one. `outputs` are those of the expert in `drawn`.",
            lambda x, n, h, o, t: _estimate(x, x.argmax(dim=1), h, o, t),
        ),
        Mistake(
            "probabilities over the wrong axis",
            "The probabilities of a token add up to one over the experts: dim=1.",
            _over_tokens,
        ),
    ),
    also_right=(
        Variant("autograd", _by_autograd),
        Variant("token by token", _token_by_token),
        Variant("expanded", _expanded),
        Variant("logit by logit", _step(direction=lambda pi, n: pi * (_one_hot(pi, n) - pi.gather(1, n[:, None])))),
        Variant("float64", lambda x, n, h, o, t: _estimate(x.double(), n, h, o.double(), t.double())),
    ),
    hints=(
        "Four numbers make a row: the multiplier m that was used, the slope dL/dm at this m, the 2, and the gradient "
        "of π_D, with the whole π_D whatever was halved.",
        "With L = ½ ‖m o − target‖², dL/dm = (m o − target) · o: a product summed over the outputs.",
        "The gradient of π_D with respect to the logits is π_D (e_D − π), where e_D is one at D and zero elsewhere.",
    ),
)
