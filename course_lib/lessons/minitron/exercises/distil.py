"""The exercise minitron.distil, "Learn from the teacher": its cases and its named mistakes.

Dimension key: N sequences, T tokens in each, V words of the vocabulary; τ temperature.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss, softmax

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.near import all_near

Answer = tuple[Tensor, Tensor]
Formula = Callable[[Tensor, Tensor, float], Tensor]


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Loss and gradient up to rounding: that of float32, and of the largest gradient that a logit can have."""
    student, _, temperature = case.arguments
    n_tokens = student.shape[0] * student.shape[1]
    largest = {"loss": max(1.0, temperature**2), "gradient": temperature / n_tokens}
    return all_near(got, expected, {name: 1e-6 * size for name, size in largest.items()})


def _distil(student: Tensor, teacher: Tensor, temperature: float) -> Answer:
    ours, theirs = log_softmax(student / temperature, -1), log_softmax(teacher / temperature, -1)
    loss = temperature**2 * (theirs.exp() * (theirs - ours)).sum(-1).mean()
    return loss, temperature * (ours.exp() - theirs.exp()) / student[..., 0].numel()


def _by_autograd(formula: Formula) -> Callable[[Tensor, Tensor, float], Answer]:
    """The answer with another loss, (student, teacher, τ) -> scalar, and the gradient of that."""

    def answer(student: Tensor, teacher: Tensor, temperature: float) -> Answer:
        with torch.enable_grad():
            logits = student.detach().clone().requires_grad_()
            loss = formula(logits, teacher, temperature)
            return loss.detach(), torch.autograd.grad(loss, logits)[0]

    return answer


def _divergences(p: Tensor, q: Tensor) -> Tensor:
    """KL of each token, from logits."""
    p, q = log_softmax(p, -1), log_softmax(q, -1)
    return (p.exp() * (p - q)).sum(-1)


def _kl(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    return temperature**2 * _divergences(teacher / temperature, student / temperature).mean()


def _other_gradient(change: Callable[..., Tensor]) -> Callable[[Tensor, Tensor, float], Answer]:
    """The right loss, and a gradient that is changed by (gradient, student, teacher, τ) -> (N, T, V)."""

    def answer(student: Tensor, teacher: Tensor, temperature: float) -> Answer:
        loss, gradient = _distil(student, teacher, temperature)
        return loss, change(gradient, student, teacher, temperature)

    return answer


def _loss_alone(formula: Formula) -> Callable[[Tensor, Tensor, float], Answer]:
    """Another loss, beside the right gradient."""
    return lambda s, t, tau: (formula(s, t, tau), _distil(s, t, tau)[1])


_of_teacher = _by_autograd(lambda teacher, student, temperature: _kl(student, teacher, temperature))


def _over(axis: int) -> Formula:
    """Probabilities along another axis."""

    def loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return _kl(student.transpose(axis, -1), teacher.transpose(axis, -1), temperature)

    return loss


def _log_of_softmax(quotient: bool, kept_off_zero: Callable[[Tensor], Tensor] = lambda p: p) -> Formula:
    def loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        p, q = (softmax(logits / temperature, -1) for logits in (teacher, student))
        logs = (p / q).log() if quotient else kept_off_zero(p).log() - kept_off_zero(q).log()
        return temperature**2 * (p * logs).sum(-1).mean()

    return loss


def _small_numbers() -> Iterator[Callable[[Tensor, Tensor, float], Answer]]:
    """A small number added to the probabilities, or the least that they may be, and either gradient."""
    for tiny in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-15):
        for kept_off_zero in (lambda p, tiny=tiny: p + tiny, lambda p, tiny=tiny: p.clamp(min=tiny)):
            formula = _log_of_softmax(False, kept_off_zero)
            yield _by_autograd(formula)
            yield _loss_alone(formula)


def _written_out(logits: Tensor, by_hand: bool) -> Tensor:
    """The softmax as exp of the logits, divided by its sum."""
    return logits.exp() / logits.exp().sum(-1, keepdim=True) if by_hand else softmax(logits, -1)


def _by_exponentials(of_student: bool, of_teacher: bool) -> Formula:
    """The softmax written out for one of the two, or for both."""

    def loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        p, q = _written_out(teacher / temperature, of_teacher), _written_out(student / temperature, of_student)
        return temperature**2 * (p * (p.log() - q.log())).sum(-1).mean()

    return loss


def _overflowing() -> Iterator[Callable[[Tensor, Tensor, float], Answer]]:
    """The same, with a gradient by autograd, on paper, or by the softmax of torch."""
    for of_student, of_teacher in ((True, True), (False, True), (True, False)):
        loss = _by_exponentials(of_student, of_teacher)
        yield _by_autograd(loss)
        yield _loss_alone(loss)
        yield lambda s, t, tau, loss=loss, of=(of_student, of_teacher): (
            loss(s, t, tau),
            tau * (_written_out(s / tau, of[0]) - _written_out(t / tau, of[1])) / s[..., 0].numel(),
        )


def _by_kl_div(reduction: str, **given: bool) -> Formula:
    """torch's own function, as one may call it."""

    def loss(s: Tensor, t: Tensor, tau: float) -> Tensor:
        target = log_softmax(t / tau, -1) if given else softmax(t / tau, -1)
        return tau**2 * kl_div(log_softmax(s / tau, -1), target, reduction=reduction, **given)

    return loss


def _distil_cases(generator: torch.Generator) -> list[Case]:
    def drawn(*shape: int, size: float = 2.0) -> Tensor:
        return size * torch.randn(*shape, generator=generator)

    by_hand = torch.zeros(1, 2, 2), torch.tensor([[[math.log(3.0), 0.0], [0.0, 0.0]]])
    unsure, sure = drawn(2, 4, 9, size=15.0), drawn(2, 4, 9, size=150.0)
    sure[0].scatter_(1, unsure[0].argmin(dim=1, keepdim=True), 600.0)  # of what the student thinks least likely
    turned = tuple(drawn(7, 4, 3).permute(1, 2, 0) for _ in range(2))
    return [
        Case("2 tokens, 2 words, by hand: 3/4 and 1/4, which the student takes for equal", (*by_hand, 1.0)),
        Case("the same by hand with temperature 2: √3 to 1", (*by_hand, 2.0)),
        Case("3 sequences, 5 tokens, 11 words, large logits", (drawn(3, 5, 11) + 300, drawn(3, 5, 11) + 200, 2.0)),
        Case("as many sequences as tokens as words", (drawn(5, 5, 5), drawn(5, 5, 5), 3.0)),
        Case("a teacher who is very sure", (unsure, sure, 1.0)),
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
    title="Learn from the teacher",
    difficulty=4,
    minutes=12,
    points=3,
    reference=_distil,
    cases=_distil_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=(
        Mistake(
            "direction reversed",
            "This is KL(student ‖ teacher), in which the student's own probabilities weigh the words. The teacher's do."
            "",
            _by_autograd(lambda s, t, tau: tau**2 * _divergences(s / tau, t / tau).mean()),
            also=(_loss_alone(lambda s, t, tau: tau**2 * _divergences(s / tau, t / tau).mean()),),
        ),
        Mistake(
            "direction and sign reversed",
            "This is −KL(student ‖ teacher). Two things are wrong: a divergence is never negative, and the teacher's "
            "probabilities weight the tokens of the vocabulary, not the student's.",
            _by_autograd(lambda s, t, tau: -(tau**2) * _divergences(s / tau, t / tau).mean()),
        ),
        Mistake(
            "student and teacher exchanged",
            "Loss and gradient are those of a student in the place of the teacher. The loss is KL(teacher ‖ student), "
            "and its gradient is taken with respect to the student's logits.",
            lambda s, t, tau: _distil(t, s, tau),
        ),
        Mistake(
            "averaged over the vocabulary",
            "The loss was divided by the number of words as well. The divergence of a token is a sum over words, and "
            'the mean is over tokens only; kl_div(reduction="mean") divides by both.',
            _by_autograd(lambda s, t, tau: _kl(s, t, tau) / s.shape[-1]),
        ),
        Mistake(
            "summed over tokens",
            "A sum grows with the batch. Take the mean over all N · T tokens.",
            _by_autograd(lambda s, t, tau: _kl(s, t, tau) * s[..., 0].numel()),
        ),
        Mistake(
            "averaged over sequences only",
            "The sum over all tokens was divided by the number of sequences, or of tokens in one: "
            'kl_div(reduction="batchmean") divides by the first axis alone. Take the mean over all N · T tokens.',
            _by_autograd(lambda s, t, tau: _kl(s, t, tau) * s.shape[1]),
        ),
        Mistake(
            "τ² missing",
            "The temperature makes gradients smaller by its square. Without the factor τ² the loss would weigh less "
            "the higher the temperature.",
            _by_autograd(lambda s, t, tau: _kl(s, t, tau) / tau**2),
            also=(_loss_alone(lambda s, t, tau: _kl(s, t, tau) / tau**2),),
        ),
        Mistake(
            "τ once",
            "The loss has the factor τ. The temperature makes gradients smaller by its square, so the factor is τ².",
            _by_autograd(lambda s, t, tau: _kl(s, t, tau) / tau),
            also=(_loss_alone(lambda s, t, tau: _kl(s, t, tau) / tau),),
        ),
        Mistake(
            "temperature of one of the two",
            "Only one of the two was divided by the temperature. Both are, or the student would learn another softness."
            "",
            _by_autograd(lambda s, t, tau: tau**2 * _divergences(t / tau, s).mean()),
            also=(_by_autograd(lambda s, t, tau: tau**2 * _divergences(t, s / tau).mean()),),
        ),
        Mistake(
            "temperature left out",
            "The logits were not divided by the temperature.",
            _by_autograd(lambda s, t, tau: _divergences(t, s).mean()),
            also=(_by_autograd(lambda s, t, tau: tau**2 * _divergences(t, s).mean()),),
        ),
        Mistake(
            "multiplied by the temperature",
            "Logits are divided by the temperature: a high one makes probabilities softer.",
            _by_autograd(lambda s, t, tau: tau**2 * _divergences(t * tau, s * tau).mean()),
            also=(_by_autograd(lambda s, t, tau: _divergences(t * tau, s * tau).mean()),),
        ),
        Mistake(
            "cross-entropy with the teacher",
            "This is the cross-entropy, −Σ p_T log p_S. Its gradient is the same, but it does not become zero where "
            "the student says what the teacher says: the teacher's entropy is missing.",
            _by_autograd(
                lambda s, t, tau: -(tau**2) * (softmax(t / tau, -1) * log_softmax(s / tau, -1)).sum(-1).mean()
            ),
        ),
        Mistake(
            "the teacher's best word alone",
            "The student was asked for the teacher's most likely word. All that the teacher says about the others, "
            "which is what distillation adds, is lost.",
            _by_autograd(lambda s, t, tau: cross_entropy(s.flatten(0, 1), t.argmax(-1).flatten())),
            also=(
                _by_autograd(lambda s, t, tau: tau**2 * cross_entropy((s / tau).flatten(0, 1), t.argmax(-1).flatten())),
            ),
        ),
        Mistake(
            "a distance",
            "This is a distance between logits or probabilities. The divergence is Σ p_T (log p_T − log p_S).",
            _by_autograd(lambda s, t, tau: mse_loss(s, t)),
            also=(
                _by_autograd(lambda s, t, tau: (softmax(s / tau, -1) - softmax(t / tau, -1)).square().sum(-1).mean()),
            ),
        ),
        Mistake(
            "probabilities over the wrong axis",
            "The probabilities of a token add up to one over the words, which are the last axis.",
            _by_autograd(_over(1)),
            also=(_by_autograd(_over(0)),),
        ),
        Mistake(
            "probabilities instead of their logarithms",
            "kl_div takes the logarithm of the student's probabilities first: log_softmax, not softmax. Of the teacher "
            "it takes probabilities, unless log_target=True.",
            _by_autograd(
                lambda s, t, tau: (
                    tau**2 * kl_div(softmax(s / tau, -1), softmax(t / tau, -1), reduction="sum") / s[..., 0].numel()
                )
            ),
            also=(
                _by_autograd(
                    lambda s, t, tau: (
                        tau**2
                        * kl_div(log_softmax(s / tau, -1), log_softmax(t / tau, -1), reduction="sum")
                        / s[..., 0].numel()
                    )
                ),
            ),
        ),
        Mistake(
            "another unit",
            "Nats are asked for: the natural logarithm.",
            _by_autograd(lambda s, t, tau: _kl(s, t, tau) / math.log(2.0)),
        ),
        Mistake(
            "below zero",
            "The sign of the loss is turned round: a divergence is never negative. It is Σ p_T (log p_T − log p_S).",
            _by_autograd(lambda s, t, tau: -_kl(s, t, tau)),
        ),
        Mistake(
            "logarithm of zero",
            "The teacher's softmax is exactly 0 for some words, and the logarithm of that is infinite. log_softmax "
            "never takes the logarithm of a zero.",
            _by_autograd(_log_of_softmax(False)),
            also=(_by_autograd(_log_of_softmax(True)), _loss_alone(_log_of_softmax(False))),
        ),
        Mistake(
            "a small number under the logarithm",
            "A small number was added to the probabilities, or they were kept above one, before the logarithm. Where "
            "the student's probability is smaller than that number, the loss is too small, and nothing warns you. "
            "log_softmax needs no such number.",
            _by_autograd(_log_of_softmax(False, lambda p: p + 1e-9)),
            also=tuple(_small_numbers()),
        ),
        Mistake(
            "overflow",
            "exp of a large logit is infinite, and infinity divided by infinity is not a number. softmax and "
            "log_softmax take the largest logit off first, which changes nothing else.",
            _by_autograd(_by_exponentials(True, True)),
            also=tuple(_overflowing()),
        ),
        Mistake(
            "gradient turned round",
            "The loss is right, but the gradient points the other way: it is positive where the student gives a word "
            "more than the teacher does.",
            _other_gradient(lambda g, s, t, tau: -g),
        ),
        Mistake(
            "gradient of a sum",
            "The loss is right. Its gradient is that of a mean over tokens too: divide it by N · T.",
            _other_gradient(lambda g, s, t, tau: g * s[..., 0].numel()),
            also=(_other_gradient(lambda g, s, t, tau: g * s.shape[1]),),
        ),
        Mistake(
            "another power of τ in the gradient",
            "The loss is right, but the gradient lacks a factor, or has one too many: τ² stands before the divergence, "
            "and the logits are divided by τ, so the chain rule gives τ² / τ.",
            _other_gradient(lambda g, s, t, tau: g / tau),
            also=(_other_gradient(lambda g, s, t, tau: g * tau),),
        ),
        Mistake(
            "no temperature in the gradient",
            "The loss is right, but the probabilities in its gradient are those of the logits as they are. They come "
            "from logits / τ, as in the loss, and are multiplied by τ.",
            _other_gradient(lambda g, s, t, tau: (softmax(s, -1) - softmax(t, -1)) / s[..., 0].numel()),
            also=(_other_gradient(lambda g, s, t, tau: tau * (softmax(s, -1) - softmax(t, -1)) / s[..., 0].numel()),),
        ),
        Mistake(
            "the difference alone",
            "The loss is right. In its gradient stand, before the difference of the two probabilities, also a factor τ "
            "and the 1 / (N · T) of the mean.",
            _other_gradient(lambda g, s, t, tau: softmax(s / tau, -1) - softmax(t / tau, -1)),
        ),
        Mistake(
            "gradient of the teacher",
            "This is the gradient with respect to the teacher's logits. The teacher stays as it is; the student learns."
            "",
            _other_gradient(lambda g, s, t, tau: _of_teacher(t, s, tau)[1]),
        ),
        Mistake(
            "one of the two, or the other way round",
            "Two values are asked for: the loss, and then its gradient.",
            lambda s, t, tau: _distil(s, t, tau)[0],
            also=(lambda s, t, tau: _distil(s, t, tau)[1], lambda s, t, tau: _distil(s, t, tau)[::-1]),
        ),
        Mistake(
            "one loss a token",
            "There is still a loss for each token. Take the mean over all of them.",
            lambda s, t, tau: (tau**2 * _divergences(t / tau, s / tau), _distil(s, t, tau)[1]),
        ),
    ),
    also_right=(
        Variant("autograd", _by_autograd(_kl)),
        Variant("torch's function", _by_autograd(lambda s, t, tau: _by_kl_div("sum")(s, t, tau) / s[..., 0].numel())),
        Variant(
            "flattened", _by_autograd(lambda s, t, tau: _by_kl_div("batchmean")(s.flatten(0, 1), t.flatten(0, 1), tau))
        ),
        Variant("float64", lambda s, t, tau: _distil(s.double(), t.double(), tau)),
    ),
    hints=(
        "The divergence of one token: Σ over words of p_T · (log p_T − log p_S), where both come from logits / τ. "
        "log_softmax gives the logarithms without ever taking that of a zero.",
        "The gradient by autograd: logits = student.detach().requires_grad_(), the loss of these, and "
        "torch.autograd.grad(loss, logits).",
        "Or on paper: in the logits of a softmax the gradient of a divergence is a difference of two probabilities; "
        "then the factors τ², 1/τ and 1/(N · T). Logits may be large: exp of them overflows, and a softmax can be "
        "exactly 0. log_softmax and softmax of logits / τ stay finite.",
    ),
)
