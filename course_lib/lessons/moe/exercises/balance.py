"""The exercise moe.balance, "Keep the loads in balance": its cases and its named mistakes.

Dimension key: L layers, T tokens, E experts; k of them take each token.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Loss and gradient up to rounding: that of float32, and of the largest gradient that a logit can have."""
    logits, _, alpha = case.arguments
    largest = alpha * logits.shape[2] / (logits.shape[0] * logits.shape[1])
    return all_near(got, expected, {"loss": 1e-6, "gradient": 1e-6 * largest})


def _counts(logits: Tensor, chosen: Tensor) -> Tensor:
    """How often each expert was chosen, (L, E)."""
    return logits.new_zeros(len(logits), logits.shape[2]).scatter_add_(
        1, chosen.flatten(1), logits.new_ones(chosen.flatten(1).shape)
    )


def _shares(logits: Tensor, chosen: Tensor) -> Tensor:
    return _counts(logits, chosen) / chosen[0].numel()


def _balance(logits: Tensor, chosen: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = logits.detach().clone().requires_grad_()
        p = x.softmax(-1).mean(1)
        f = _shares(x, chosen)
        loss = alpha * x.shape[2] * (f * p).sum(-1).mean()
    gradient = torch.autograd.grad(loss, x)[0]
    return loss.detach(), gradient


def _of_the_chosen(logits: Tensor, chosen: Tensor) -> Tensor:
    """Probabilities, zero where an expert was not chosen."""
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(2, chosen, True)
    return logits.softmax(-1) * kept


def _renormalised(logits: Tensor, chosen: Tensor) -> Tensor:
    kept = _of_the_chosen(logits, chosen)
    return (kept / kept.sum(-1, keepdim=True)).mean(1)


def _layer_by_layer(logits: Tensor, chosen: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        tracked = logits.detach().clone().requires_grad_()
        each = [
            (torch.bincount(of.flatten(), minlength=x.shape[1]) / of.numel() * x.softmax(1).mean(0)).sum()
            for x, of in zip(tracked, chosen, strict=True)
        ]
        loss = alpha * logits.shape[2] * sum(each) / len(each)
    return loss.detach(), torch.autograd.grad(loss, tracked)[0]


def _on_paper(logits: Tensor, chosen: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    factor = alpha * logits.shape[2] / (logits.shape[0] * logits.shape[1])
    slope, p = factor * _shares(logits, chosen).unsqueeze(1), logits.softmax(-1)
    along = torch.einsum("lte,lue->lt", p, slope)
    return along.sum(), p * slope - p * along.unsqueeze(-1)


def _balance_cases(generator: torch.Generator) -> list[Case]:
    def drawn(layers: int, tokens: int, experts: int, k: int, lean: float = 1.0) -> tuple[Tensor, Tensor]:
        """Logits that prefer some experts, different ones in each layer, and the best k after a bias is added."""
        logits = torch.randn(layers, tokens, experts, generator=generator)
        logits += lean * torch.randn(layers, 1, experts, generator=generator)
        biased = logits + 0.5 * torch.randn(layers, 1, experts, generator=generator)
        return logits, biased.topk(k, dim=2).indices

    three = torch.tensor(3.0).log()
    by_hand = torch.tensor([[[1.0, 0.0]] * 2, [[0.0, 1.0]] * 2]) * three, torch.tensor([[[0]] * 2, [[1]] * 2])
    turned = [tensor.permute(2, 1, 0).contiguous().permute(2, 1, 0) for tensor in drawn(3, 10, 6, 2)]
    unwanted, _ = drawn(3, 12, 8, 2)
    chosen = (unwanted + torch.randn(3, 1, 8, generator=generator))[..., :-1].topk(2, dim=2).indices
    return [
        Case("2 layers prefer one of 2 experts, each a different one, by hand: 0.3 for α = 0.2", (*by_hand, 0.2)),
        Case("one layer, 9 tokens, 5 experts, the best one", (*drawn(1, 9, 5, 1), 1.0)),
        Case("3 layers, 12 tokens, 2 of 8 experts, no token chose the last one", (unwanted, chosen, 0.01)),
        Case("as many layers as tokens as experts", (*drawn(4, 4, 4, 3), 0.5)),
        Case("layers with strong preferences", (*drawn(5, 20, 7, 2, 15.0), 1.0)),
        Case("not contiguous", (*turned, 3.0)),
    ]


def _library(logits: Tensor, chosen: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    from course_lib.moe.choice import among
    from course_lib.moe.losses import balance

    with torch.enable_grad():
        tracked = logits.detach().clone().requires_grad_()
        layers = zip(tracked.softmax(dim=2), chosen, strict=True)
        loss = torch.stack([balance(probs, among(of, logits.shape[2]), alpha) for probs, of in layers]).mean()
        return loss.detach(), torch.autograd.grad(loss, tracked)[0]


BALANCE = Exercise(
    id="moe.balance",
    title="Keep the loads in balance",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_balance,
    cases=_balance_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_balance),
    also_right=(
        Variant("layer by layer", _layer_by_layer),
        Variant("on paper", _on_paper),
        Variant("float64", lambda x, c, a: _balance(x.double(), c, a)),
    ),
    hints=(
        "torch.nn.functional.one_hot(chosen, E) is (L, T, k, E). Its mean over tokens and choices is f, (L, E), with "
        "entries that add up to 1 in every layer.",
        "The gradient by autograd: x = logits.detach().requires_grad_(), the loss of x, and torch.autograd.grad(loss, "
        "x). f comes from whole numbers, so it has no gradient.",
        "Or on paper: the gradient with respect to a probability p_j is g_j = α E f_j / (L · T), and through the "
        "softmax it becomes p_j (g_j − Σ p g).",
    ),
)
