"""The exercise dejavu.loss, "A predictor's loss": its cases and its named mistakes.

Dimension key: T tokens, F neurons, of which at most k are active for a token.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits, logsigmoid, softplus

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near

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


def _loss(logits: Tensor, parts: Tensor, k: int) -> tuple[Tensor, Tensor]:
    active = _best(parts, k) * (parts > 0)
    w = active.mean() + MORE
    counts = active + (1 - active) * w
    with torch.enable_grad():
        tracked = logits.detach().clone().requires_grad_()
        losses = softplus(tracked) - active * tracked
        loss = (counts * losses).mean()
    gradient = torch.autograd.grad(loss, tracked)[0]
    return loss.detach(), gradient


def _of_probability(said: Tensor, active: Tensor, tiny: float = 0.0) -> Tensor:
    """The cross-entropy of a probability, with a small number added under the logarithm."""
    return -(active * (said + tiny).log() + (1 - active) * (1 - said + tiny).log())


def _cut_off(logits: Tensor, active: Tensor, most: float) -> Tensor:
    """The loss of logits that are kept within ± most."""
    logits = logits.clamp(-most, most)
    return softplus(logits) - active * logits


def _by_torch(logits: Tensor, parts: Tensor, k: int, by_pos_weight: bool = False) -> tuple[Tensor, Tensor]:
    active = _best(parts, k) * (parts > 0)
    w = active.mean() + MORE
    counts, pos_weight = (w, 1 / w) if by_pos_weight else (active + (1 - active) * w, None)
    with torch.enable_grad():
        tracked = logits.detach().clone().requires_grad_()
        losses = binary_cross_entropy_with_logits(tracked, active, pos_weight=pos_weight, reduction="none")
        loss = (counts * losses).mean()
    return loss.detach(), torch.autograd.grad(loss, tracked)[0]


def _on_paper(logits: Tensor, parts: Tensor, k: int) -> tuple[Tensor, Tensor]:
    active = (parts >= parts.sort(dim=1, descending=True).values[:, k - 1 : k]) & (parts > 0)
    counts = torch.full_like(logits, float(active.sum()) / active.numel() + MORE).masked_fill(active, 1.0)
    wrong = torch.where(active, -logits, logits)  # above zero where the predictor is wrong
    return (counts * -logsigmoid(-wrong)).mean(), counts * wrong.sigmoid() * torch.where(active, -1, 1) / counts.numel()


def _loss_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_neurons: int, fires: float, scale: float = 1.5) -> tuple[Tensor, Tensor]:
        """Logits that agree with the labels better than chance, and importances with zeros, more for some tokens."""
        often = 2 * fires * torch.rand(n_tokens, 1, generator=generator)
        fire = torch.rand(n_tokens, n_neurons, generator=generator) < often.clamp(max=0.95)
        parts = torch.exp(torch.randn(n_tokens, n_neurons, generator=generator)) * fire
        noise = torch.randn(n_tokens, n_neurons, generator=generator)
        return scale * (noise + fire - 0.5), parts

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
        Case("after a ReLU: all that are not zero", (*drawn(14, 19, 0.2), 19)),
        Case("large logits", (logits * 120, parts, 6)),
        Case("a predictor that always answers no", (logits.abs() * -2 - 1, parts, 3)),
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
    minutes=15,
    points=4,
    reference=_loss,
    cases=_loss_cases,
    agree=_agree_on_both,
    picture=_gradients,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_loss),
    also_right=(
        Variant("on paper", _on_paper),
        Variant("torch's own loss", _by_torch),
        Variant("torch's own loss with pos_weight", lambda z, p, k: _by_torch(z, p, k, by_pos_weight=True)),
        Variant("in float64", lambda z, p, k: [value.double() for value in _loss(z.double(), p.double(), k)]),
    ),
    hints=(
        "Three steps: labels (T, F) of 0 and 1 from `parts`, one row after the other; w, one number, from the labels; "
        "and what each logit costs. Which labels does a token have of which only two neurons are not zero?",
        "−log σ(z) is softplus(−z), and −log(1 − σ(z)) is softplus(z): neither is infinite. "
        "binary_cross_entropy_with_logits has a weight= that may be (T, F).",
        "The gradient is that of autograd, or on paper: weight · (σ(z) − label) / (T · F). Logits may be large: take "
        "no logarithm of a sigmoid, cut nothing off and add no small number.",
    ),
)
