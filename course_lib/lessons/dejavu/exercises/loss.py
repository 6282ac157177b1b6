"""The exercise dejavu.loss, "A predictor's loss": its cases and its named mistakes.

Dimension key: T tokens, F neurons, of which at most k are active for a token.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits, logsigmoid, softplus

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.near import all_near

Answer = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
Labels = Callable[[Tensor, Tensor, int], Tensor]
MORE = 0.005  # than the share, as in the authors' code


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Loss and gradient up to rounding: that of float32, and of what one logit can add to the mean."""
    return all_near(got, expected, {"loss": 1e-6, "gradient": 1e-6 / case.arguments[0].numel()})


def _gradients(case: Case, got: Any, expected: tuple) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    fig = compare_matrices(torch.as_tensor(got[1])[:12], expected[1][:12], "token", "logit of neuron")
    fig.suptitle("the gradient", fontsize=10)
    return fig


def _best(score: Tensor, k: int, dim: int = 1) -> Tensor:
    return torch.zeros_like(score).scatter(dim, score.topk(min(k, score.shape[dim]), dim=dim).indices, 1.0)


def _active(logits: Tensor, parts: Tensor, k: int) -> Tensor:
    return _best(parts, k) * (parts > 0)


def _best_of_all(logits: Tensor, parts: Tensor, k: int) -> Tensor:
    """The longest of the whole batch, as many as k a token make."""
    return _best(parts.reshape(1, -1), k * len(parts)).reshape(parts.shape) * (parts > 0)


def _share(active: Tensor, k: int) -> Tensor:
    return active.mean() + MORE


def _cross_entropy(logits: Tensor, active: Tensor) -> Tensor:
    return softplus(logits) - active * logits


def _mean(losses: Tensor, counts: Tensor, active: Tensor) -> Tensor:
    return (counts * losses).mean()


def _of(
    labels: Labels = _active,
    share: Callable[[Tensor, int], Tensor] = _share,
    counts: Callable[[Tensor, Tensor], Tensor] = lambda active, w: active + (1 - active) * w,
    losses: Callable[[Tensor, Tensor], Tensor] = _cross_entropy,
    total: Callable[[Tensor, Tensor, Tensor], Tensor] = _mean,
) -> Answer:
    """The answer with other labels, another w, other weights, another loss of a logit or another sum, and its gradient.

    labels: (logits, parts, k) -> (T, F). share: (labels, k). counts: (labels, w) -> (T, F). losses: (logits, labels).
    total: (losses, weights, labels) -> a number.
    """

    def answer(logits: Tensor, parts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            tracked = logits.detach().clone().requires_grad_()
            active = labels(logits, parts, k)
            loss = total(losses(tracked, active), counts(active, share(active, k)), active)
            return loss.detach(), torch.autograd.grad(loss, tracked)[0]

    return answer


_right = _of()


def _with_gradient(change: Callable[..., Tensor]) -> Answer:
    """The right loss, and a gradient that is changed by (gradient, logits, labels)."""

    def answer(logits: Tensor, parts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        loss, gradient = _right(logits, parts, k)
        return loss, change(gradient, logits, _active(logits, parts, k))

    return answer


def _softmax(logits: Tensor, active: Tensor) -> Tensor:
    """−y log of the softmax over the neurons."""
    return -active * logits.log_softmax(dim=1)


def _by_logarithms(logits: Tensor, active: Tensor) -> Tensor:
    said = logits.sigmoid()
    return -(active * said.log() + (1 - active) * (1 - said).log())


def _added(logits: Tensor, active: Tensor, tiny: float) -> Tensor:
    """A small number added under the logarithm."""
    said = logits.sigmoid()
    return -(active * (said + tiny).log() + (1 - active) * (1 - said + tiny).log())


def _kept(logits: Tensor, active: Tensor, tiny: float) -> Tensor:
    """The probability kept off 0 and 1."""
    said = logits.sigmoid().clamp(tiny, 1 - tiny)
    return -(active * said.log() + (1 - active) * (1 - said).log())


def _loss_alone(losses: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """Another loss of a logit, and the right gradient, as who derived it on paper."""
    return lambda logits, parts, k: (_of(losses=losses)(logits, parts, k)[0], _right(logits, parts, k)[1])


def _cut_off(most: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of logits that are kept within ± most."""
    return lambda logits, active: _cross_entropy(logits.clamp(-most, most), active)


def _through(probability: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The cross-entropy of another probability."""
    return lambda logits, active: binary_cross_entropy(probability(logits), active, reduction="none")


def _on_paper(logits: Tensor, parts: Tensor, k: int) -> tuple[Tensor, Tensor]:
    active = (parts >= parts.sort(dim=1, descending=True).values[:, k - 1 : k]) & (parts > 0)
    counts = torch.full_like(logits, float(active.sum()) / active.numel() + MORE).masked_fill(active, 1.0)
    wrong = torch.where(active, -logits, logits)  # above zero where the predictor is wrong
    return (counts * -logsigmoid(-wrong)).mean(), counts * wrong.sigmoid() * torch.where(active, -1, 1) / counts.numel()


def _loss_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_neurons: int, fires: float, loud: float = 1.5) -> tuple[Tensor, Tensor]:
        """What a predictor says that has an inkling, and parts of which some are zero, more for some tokens."""
        often = 2 * fires * torch.rand(n_tokens, 1, generator=generator)
        fire = torch.rand(n_tokens, n_neurons, generator=generator) < often.clamp(max=0.95)
        parts = torch.exp(torch.randn(n_tokens, n_neurons, generator=generator)) * fire
        noise = torch.randn(n_tokens, n_neurons, generator=generator)
        return loud * (noise + fire - 0.5), parts

    three = torch.tensor(3.0).log()
    by_hand = torch.tensor([[1.0, 1.0, -1.0, 0.0], [-1.0, 0.0, 1.0, 0.0]]) * three
    lengths = torch.tensor([[2.0, 1.0, 0.5, 0.0], [3.0, 0.0, 0.0, 0.0]])
    logits, parts = drawn(9, 16, 0.3)
    many, few = drawn(12, 12, 0.6)
    turned = [x.T.contiguous().T for x in drawn(7, 18, 0.5)]
    return [
        Case("2 tokens, 4 neurons, k = 2, by hand: 3 active, w = 0.38", (by_hand, lengths, 2)),
        Case("15 tokens, at most 5 of 22 neurons", (*drawn(15, 22, 0.4), 5)),
        Case("as many tokens as neurons, at most 4, whole numbers for logits", (many.round(), few, 4)),
        Case("after a ReLU: all that fire", (*drawn(14, 19, 0.2), 19)),
        Case("large logits", (logits * 120, parts, 6)),
        Case("a predictor that always says no", (logits.abs() * -2 - 1, parts, 3)),
        Case("not contiguous", (*turned, 8)),
    ]


def _library(logits: Tensor, parts: Tensor, k: int) -> tuple[Tensor, Tensor]:
    from course_lib.contextual.predictor.training import weighted_loss
    from course_lib.sparsity.ranking import keep_highest

    active = keep_highest(parts, parts.shape[1] - k) & (parts > 0)
    with torch.enable_grad():
        tracked = logits.detach().clone().requires_grad_()
        loss = weighted_loss(tracked, active)
        return loss.detach(), torch.autograd.grad(loss, tracked)[0]


LOSS = Exercise(
    id="dejavu.loss",
    title="A predictor's loss",
    difficulty=4,
    minutes=12,
    points=4,
    reference=_right,
    cases=_loss_cases,
    agree=_agree_on_both,
    picture=_gradients,
    library=_library,
    mistakes=(
        Mistake(
            "softmax over the neurons",
            "A softmax lets the neurons compete: their probabilities add up to one. But many are active at once, and "
            "each is a question of its own, yes or no: a sigmoid for every logit.",
            _of(losses=_softmax),
            also=(
                _of(losses=lambda z, y: -(y / y.sum(dim=1, keepdim=True).clamp(min=1)) * z.log_softmax(dim=1)),
                _of(losses=_through(lambda z: z.softmax(dim=1))),
                _of(losses=_softmax, total=lambda losses, counts, y: losses.sum() / len(y)),
                _of(losses=_softmax, total=lambda losses, counts, y: losses.sum(dim=1).mean() / y.shape[1]),
                _of(
                    losses=lambda z, y: -(y / y.sum(dim=1, keepdim=True).clamp(min=1)) * z.log_softmax(dim=1),
                    total=lambda losses, counts, y: losses.sum() / len(y),
                ),
            ),
        ),
        Mistake(
            "active of the whole batch",
            "The longest parts of all tokens together were called active, so that a loud token has many and a quiet "
            "one none. A neuron is active for its token: the k longest of each row.",
            _of(_best_of_all),
            also=(_of(lambda z, p, k: _best(p.reshape(1, -1), k).reshape(p.shape) * (p > 0)),),
        ),
        Mistake(
            "active over the tokens",
            "For every neuron the k tokens with the longest part were taken. A token has k active neurons: dim=1.",
            _of(lambda z, p, k: _best(p, k, dim=0) * (p > 0)),
        ),
        Mistake(
            "zeros called active",
            "Of some tokens fewer than k neurons give anything. Those that give zero were filled in: they are "
            "not active.",
            _of(lambda z, p, k: _best(p, k)),
            also=(_of(lambda z, p, k: (p >= p.topk(k, dim=1).values[:, -1:]).to(p)),),
        ),
        Mistake(
            "all that are not zero",
            "Every neuron that gives anything was called active. Of a token it is the k longest parts among these.",
            _of(lambda z, p, k: (p > 0).to(p)),
        ),
        Mistake(
            "one too few",
            "The k-th longest part is active too.",
            _of(lambda z, p, k: (p > p.topk(k, dim=1).values[:, -1:]).to(p)),
        ),
        Mistake(
            "one too many",
            "k + 1 neurons were called active. Of a token it is the k longest parts.",
            _of(lambda z, p, k: _best(p, k + 1) * (p > 0)),
        ),
        Mistake(
            "shortest active",
            "The neurons with the shortest parts were called active.",
            _of(lambda z, p, k: _best(-p, k)),
            also=(_of(lambda z, p, k: _best(-p, k) * (p > 0)),),
        ),
        Mistake(
            "labels exchanged",
            "The active neurons have the label 0 and all others 1. It is the other way round.",
            _of(lambda z, p, k: 1 - _active(z, p, k)),
        ),
        Mistake(
            "labels from the prediction",
            "What is active was read off the logits. They are what the predictor says; what is true stands in `parts`.",
            _of(lambda z, p, k: (z > 0).to(z)),
            also=(_of(lambda z, p, k: _best(z, k)),),
        ),
        Mistake(
            "lengths for labels",
            "The lengths themselves were taken for labels. A label says active or not, 1 or 0.",
            _of(lambda z, p, k: p),
            also=(
                _of(lambda z, p, k: p * _active(z, p, k)),
                _of(lambda z, p, k: p / p.amax()),
                _of(lambda z, p, k: p / p.amax(dim=1, keepdim=True).clamp(min=1e-9)),
            ),
        ),
        Mistake(
            "weights swapped",
            "Here an active neuron counts w and the others count 1. There are far fewer active ones, and a missed one "
            "costs more than one too many: these count 1.",
            _of(counts=lambda y, w: y * w + (1 - y)),
        ),
        Mistake(
            "all count the same",
            "Active neurons and the others count the same, so that a predictor does well that always says no.",
            _of(counts=lambda y, w: torch.ones_like(y)),
            also=(_of(counts=lambda y, w: w * torch.ones_like(y)),),
        ),
        Mistake(
            "share that was asked for",
            "w was made of k / F. Tokens in which fewer fire have fewer active neurons: w is the share that the labels "
            "have.",
            _of(share=lambda y, k: torch.tensor(k / y.shape[1]).to(y) + MORE),
        ),
        Mistake(
            "a share for each token or neuron",
            "Every token, or every neuron, has a w of its own here. One w is asked for, from the labels of all tokens "
            "and neurons.",
            _of(share=lambda y, k: y.mean(dim=1, keepdim=True) + MORE),
            also=(_of(share=lambda y, k: y.mean(dim=0) + MORE),),
        ),
        Mistake(
            "share of the others",
            "w is the share of those that are not active here. The few active ones are to weigh as much in all as the "
            "many others: w is the share of the active.",
            _of(share=lambda y, k: 1 - y.mean() + MORE),
            also=(_of(share=lambda y, k: 1 - y.mean() - MORE), _of(share=lambda y, k: 1 - y.mean())),
        ),
        Mistake(
            "the number, not the share",
            "w was made of how many are active. It is their share of all T · F.",
            _of(share=lambda y, k: y.sum() + MORE),
            also=(_of(share=lambda y, k: y.sum() / len(y) + MORE),),
        ),
        Mistake(
            "divided by the others",
            "w was made of the active neurons divided by those that are not active. It is their share of all T · F.",
            _of(share=lambda y, k: y.sum() / (1 - y).sum() + MORE),
        ),
        Mistake(
            "0.005 left out",
            "The share alone was taken for w: 0.005 is added, so that the others count even where hardly any is "
            "active.",
            _of(share=lambda y, k: y.mean()),
        ),
        Mistake(
            "0.005 added to the active ones",
            "0.005 was added to the weight of the active neurons too. They count exactly 1; it belongs to w, once.",
            _of(counts=lambda y, w: y * (1 + MORE) + (1 - y) * w),
            also=(
                _of(counts=lambda y, w: y + (1 - y) * w + MORE),
                _of(counts=lambda y, w: y + (1 - y) * (w - MORE) + MORE),
            ),
        ),
        Mistake(
            "weights relative to the others",
            "The ratio of the two weights is right, or nearly so, but here the others count 1 and the active ones "
            "more, as pos_weight does it. Asked for is 1 for the active and w for others: weight=, not pos_weight=.",
            _of(counts=lambda y, w: y / w + (1 - y)),
            also=(
                _of(share=lambda y, k: y.mean() / (1 - y.mean()), counts=lambda y, w: y / w + (1 - y)),
                _of(share=lambda y, k: y.mean(), counts=lambda y, w: y / w + (1 - y)),
                _of(counts=lambda y, w: y * (1 / w) + (1 - y) * w),
            ),
        ),
        Mistake(
            "only the active",
            "Those that are not active have no part in the loss, so that a predictor does best that always says yes. "
            "They count less, but they count.",
            _of(counts=lambda y, w: y),
        ),
        Mistake(
            "divided by something else",
            "The mean is over all T · F logits: neither a sum, nor divided by T, by the sum of the weights or by the "
            "number of active ones.",
            _of(total=lambda losses, counts, y: (counts * losses).sum() / counts.sum()),
            also=(
                _of(total=lambda losses, counts, y: (counts * losses).sum()),
                _of(total=lambda losses, counts, y: (counts * losses).sum(dim=1).mean()),
                _of(total=lambda losses, counts, y: (counts * losses).sum(dim=0).mean()),
                _of(total=lambda losses, counts, y: (counts * losses).sum() / y.sum()),
                _of(
                    total=lambda losses, counts, y: (
                        (losses * y).sum() / y.sum() + (losses * counts * (1 - y)).sum() / (1 - y).sum()
                    )
                ),
            ),
        ),
        Mistake(
            "wrong side of the sigmoid",
            "The sigmoid of a logit is the probability of *active*: here it is taken for the other one.",
            _of(losses=lambda z, y: softplus(z) - (1 - y) * z),
        ),
        Mistake(
            "below zero",
            "The loss has the wrong sign: a logarithm of a probability is below zero, so there is a minus before it.",
            _of(losses=lambda z, y: -_cross_entropy(z, y)),
        ),
        Mistake(
            "sigmoid twice",
            "The sigmoid was taken of a probability. binary_cross_entropy_with_logits takes it by itself.",
            _of(losses=lambda z, y: binary_cross_entropy_with_logits(z.sigmoid(), y, reduction="none")),
        ),
        Mistake(
            "square of the difference",
            "This is the square of how far the probability is off. Asked for is the cross-entropy, a logarithm.",
            _of(losses=lambda z, y: (z.sigmoid() - y).square()),
        ),
        Mistake(
            "overflow",
            "The sigmoid of a large logit is 1 or 0 in floating point, and the logarithm of what is left is infinite "
            "or cut off. logsigmoid, softplus and binary_cross_entropy_with_logits do both in one step.",
            _of(losses=_by_logarithms),
            also=(
                _of(losses=_through(torch.sigmoid)),
                lambda z, p, k: (_of(losses=_by_logarithms)(z, p, k)[0], _right(z, p, k)[1]),
                lambda z, p, k: (_of(losses=_through(torch.sigmoid))(z, p, k)[0], _right(z, p, k)[1]),
                _of(losses=lambda z, y: (1 + z.exp()).log() - y * z),
                lambda z, p, k: (_of(losses=lambda z, y: (1 + z.exp()).log() - y * z)(z, p, k)[0], _right(z, p, k)[1]),
                _of(losses=lambda z, y: _added(z, y, 1e-6)),
                _loss_alone(lambda z, y: _added(z, y, 1e-6)),
                _of(losses=lambda z, y: _kept(z, y, 1e-6)),
                _loss_alone(lambda z, y: _kept(z, y, 1e-6)),
                _of(losses=lambda z, y: _added(z, y, 1e-7)),
                _loss_alone(lambda z, y: _added(z, y, 1e-7)),
                _of(losses=lambda z, y: _kept(z, y, 1e-7)),
                _loss_alone(lambda z, y: _kept(z, y, 1e-7)),
                _of(losses=lambda z, y: _added(z, y, 1e-8)),
                _loss_alone(lambda z, y: _added(z, y, 1e-8)),
                _of(losses=lambda z, y: _kept(z, y, 1e-8)),
                _loss_alone(lambda z, y: _kept(z, y, 1e-8)),
                _of(losses=lambda z, y: _added(z, y, 1e-9)),
                _loss_alone(lambda z, y: _added(z, y, 1e-9)),
                _of(losses=lambda z, y: _kept(z, y, 1e-9)),
                _loss_alone(lambda z, y: _kept(z, y, 1e-9)),
                _of(losses=lambda z, y: _added(z, y, 1e-12)),
                _loss_alone(lambda z, y: _added(z, y, 1e-12)),
                _of(losses=lambda z, y: _kept(z, y, 1e-12)),
                _loss_alone(lambda z, y: _kept(z, y, 1e-12)),
            ),
        ),
        Mistake(
            "large logits cut off",
            "The logits were kept within a bound before the loss was taken. Beyond it the loss is too small and the "
            "gradient zero. softplus and binary_cross_entropy_with_logits cope with large logits as they are.",
            _of(losses=_cut_off(30.0)),
            also=(
                *(_of(losses=_cut_off(most)) for most in (10.0, 15.0, 20.0, 50.0, 80.0, 100.0)),
                *(_loss_alone(_cut_off(most)) for most in (20.0, 30.0, 50.0)),
            ),
        ),
        Mistake(
            "gradient without the mean",
            "The loss is right. It is a mean, so its gradient is divided by T · F too.",
            _with_gradient(lambda g, z, y: g * z.numel()),
            also=(_with_gradient(lambda g, z, y: g * len(z)), _with_gradient(lambda g, z, y: g * z.shape[1])),
        ),
        Mistake(
            "gradient without the weights",
            "The loss is right. In its gradient every neuron has the weight that it has in the loss.",
            _with_gradient(lambda g, z, y: (z.sigmoid() - y) / z.numel()),
        ),
        Mistake(
            "gradient without weights and mean",
            "The loss is right. Its gradient is that of the sum of unweighted losses: every neuron has the weight that "
            "it has in the loss, and all is divided by T · F.",
            _with_gradient(lambda g, z, y: z.sigmoid() - y),
        ),
        Mistake(
            "gradient turned round",
            "The loss is right, and its gradient has the wrong sign: it says where the loss rises, σ(z) - label.",
            _with_gradient(lambda g, z, y: -g),
        ),
        Mistake(
            "with respect to the probability",
            "The loss is right, and this is its derivative with respect to the probability, or a factor σ(1 - σ) too "
            "many. With respect to the logit all that is left is σ(z) - label.",
            _with_gradient(lambda g, z, y: g / (z.sigmoid() * (1 - z.sigmoid()))),
            also=(_with_gradient(lambda g, z, y: g * z.sigmoid() * (1 - z.sigmoid())),),
        ),
        Mistake(
            "one of the two, or the other way round",
            "Two values are asked for: the loss, and then its gradient.",
            lambda z, p, k: _right(z, p, k)[0],
            also=(lambda z, p, k: _right(z, p, k)[1], lambda z, p, k: _right(z, p, k)[::-1]),
        ),
    ),
    also_right=(
        Variant("on paper", _on_paper),
        Variant(
            "torch's own loss",
            _of(losses=lambda z, y: binary_cross_entropy_with_logits(z, y, reduction="none")),
        ),
        Variant(
            "torch's own loss with pos_weight",
            _of(
                losses=lambda z, y: binary_cross_entropy_with_logits(
                    z, y, pos_weight=1 / _share(y, 0), reduction="none"
                ),
                counts=lambda y, w: w,
            ),
        ),
        Variant("in float64", lambda z, p, k: [value.double() for value in _right(z.double(), p.double(), k)]),
    ),
    hints=(
        "Three steps: labels (T, F) of 0 and 1 from `parts`, one row after the other; w, one number, from the labels; "
        "and what each logit costs. Which labels does a token have of which only two neurons fire?",
        "−log σ(z) is softplus(−z), and −log(1 − σ(z)) is softplus(z): neither is infinite. "
        "binary_cross_entropy_with_logits has a weight= that may be (T, F).",
        "The gradient is that of autograd, or on paper: weight · (σ(z) − label) / (T · F). Logits may be large: take "
        "no logarithm of a sigmoid, cut nothing off and add no small number.",
    ),
)
