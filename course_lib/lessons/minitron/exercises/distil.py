"""The exercise minitron.distil, "The distillation loss": its cases and its named mistakes.

Dimension key: N windows, T tokens in each, V tokens of the vocabulary; τ temperature.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss, softmax

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Accept loss and gradient up to float32 rounding, relative to the largest gradient that a logit can have.

    A probability is the exponential of a difference of two logits, so its relative error grows with their range. On the
    49,152 logits of the real model, with a range of about 50, two right answers differ by 1e-5.
    """
    student, teacher, temperature = case.arguments
    n_tokens = student.shape[0] * student.shape[1]
    widest = max((logits.max() - logits.min()).item() for logits in (student, teacher)) / temperature
    of_gradient = temperature / n_tokens * (1e-6 + 4 * torch.finfo(torch.float32).eps * widest)
    return all_near(got, expected, {"loss": 1e-6 * max(1.0, temperature**2), "gradient": of_gradient})


def _distil(student: Tensor, teacher: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    ours, theirs = log_softmax(student / temperature, -1), log_softmax(teacher / temperature, -1)
    loss = temperature**2 * (theirs.exp() * (theirs - ours)).sum(-1).mean()
    gradient = temperature * (ours.exp() - theirs.exp()) / student[..., 0].numel()
    return loss, gradient


def _with_gradient(student: Tensor, formula: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Compute a loss of the student's logits and its gradient."""
    with torch.enable_grad():
        logits = student.detach().clone().requires_grad_()
        loss = formula(logits)
        return loss.detach(), torch.autograd.grad(loss, logits)[0]


def _divergences(p: Tensor, q: Tensor) -> Tensor:
    """KL of each token, from logits."""
    p, q = log_softmax(p, -1), log_softmax(q, -1)
    return (p.exp() * (p - q)).sum(-1)


def _kl(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    return temperature**2 * _divergences(teacher / temperature, student / temperature).mean()


def _log_of_softmax(
    student: Tensor, teacher: Tensor, temperature: float, logs: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Compute the loss with another formula for the logarithm of the ratio of two probabilities."""
    p, q = (softmax(logits / temperature, -1) for logits in (teacher, student))
    return temperature**2 * (p * logs(p, q)).sum(-1).mean()


def _written_out(logits: Tensor, by_hand: bool) -> Tensor:
    """Compute the softmax as exp of the logits, divided by its sum, or with torch."""
    return logits.exp() / logits.exp().sum(-1, keepdim=True) if by_hand else softmax(logits, -1)


def _by_exponentials(
    student: Tensor, teacher: Tensor, temperature: float, of_student: bool, of_teacher: bool
) -> Tensor:
    """Compute the loss with a hand-written softmax for one of the two, or for both."""
    p, q = _written_out(teacher / temperature, of_teacher), _written_out(student / temperature, of_student)
    return temperature**2 * (p * (p.log() - q.log())).sum(-1).mean()


def _by_kl_div(student: Tensor, teacher: Tensor, temperature: float, reduction: str) -> Tensor:
    """torch's own function."""
    p, q = softmax(teacher / temperature, -1), log_softmax(student / temperature, -1)
    return temperature**2 * kl_div(q, p, reduction=reduction)


def _distil_cases(generator: torch.Generator) -> list[Case]:
    def drawn(*shape: int, size: float = 2.0) -> Tensor:
        return size * torch.randn(*shape, generator=generator)

    by_hand = torch.zeros(1, 2, 2), torch.tensor([[[math.log(3.0), 0.0], [0.0, 0.0]]])
    unsure, sure = drawn(2, 4, 9, size=15.0), drawn(2, 4, 9, size=150.0)
    sure[0].scatter_(1, unsure[0].argmin(dim=1, keepdim=True), 600.0)  # of what the student thinks least likely
    turned = tuple(drawn(7, 4, 3).permute(1, 2, 0) for _ in range(2))
    return [
        Case("2 tokens, vocabulary of 2, by hand: 3/4 and 1/4, for the student equal", (*by_hand, 1.0)),
        Case("the same by hand with temperature 2: √3 to 1", (*by_hand, 2.0)),
        Case(
            "3 windows, 5 tokens, vocabulary of 11, large logits", (drawn(3, 5, 11) + 300, drawn(3, 5, 11) + 200, 2.0)
        ),
        Case("as many windows as tokens as entries of the vocabulary", (drawn(5, 5, 5), drawn(5, 5, 5), 3.0)),
        Case("a very confident teacher", (unsure, sure, 1.0)),
        Case("not contiguous, temperature 1/2", (*turned, 0.5)),
    ]


def _library(student: Tensor, teacher: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    from course_lib.pruning.structured.losses import kl_divergence

    with torch.enable_grad():
        logits = student.detach().clone().requires_grad_()
        loss = kl_divergence(logits, teacher, temperature)
        return loss.detach(), torch.autograd.grad(loss, logits)[0]


DISTIL = Exercise(
    id="minitron.distil",
    title="The distillation loss",
    difficulty=4,
    minutes=12,
    points=3,
    reference=_distil,
    cases=_distil_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_distil),
    also_right=(
        Variant("autograd", lambda s, t, tau: _with_gradient(s, lambda s: _kl(s, t, tau))),
        Variant(
            "torch's function",
            lambda s, t, tau: _with_gradient(s, lambda s: _by_kl_div(s, t, tau, "sum") / s[..., 0].numel()),
        ),
        Variant(
            "flattened",
            lambda s, t, tau: _with_gradient(
                s, lambda s: _by_kl_div(s.flatten(0, 1), t.flatten(0, 1), tau, "batchmean")
            ),
        ),
        Variant("float64", lambda s, t, tau: _distil(s.double(), t.double(), tau)),
    ),
    hints=(
        "The divergence of one token: Σ over the vocabulary of p_T · (log p_T − log p_S), with logits / τ for both. "
        "log_softmax computes the logarithms without ever taking that of a zero.",
        "The gradient by autograd: logits = student.detach().requires_grad_(), the loss of these, and "
        "torch.autograd.grad(loss, logits).",
        "Or on paper: with respect to the logits, the gradient of a divergence is a difference of two probabilities; "
        "then come the factors τ², 1/τ and 1/(N · T). Logits may be large: exp of them overflows, and a softmax can be "
        "exactly 0. log_softmax and softmax of logits / τ stay finite.",
    ),
)
