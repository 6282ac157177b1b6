"""The exercise moe.balance, "Keep the loads in balance": its cases and its named mistakes.

Dimension key: L layers, T tokens, E experts; k of them take each token.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.near import all_near

Answer = tuple[Tensor, Tensor]
Parts = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


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


def _probable(logits: Tensor) -> Tensor:
    return logits.softmax(-1).mean(1)


def _parts(logits: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    return _shares(logits, chosen), _probable(logits)


def _by_autograd(formula: Callable[[Tensor, Tensor, float], Tensor]) -> Callable[[Tensor, Tensor, float], Answer]:
    """The answer with another loss, (logits, chosen, α) -> scalar, and the gradient of that."""

    def answer(logits: Tensor, chosen: Tensor, alpha: float) -> Answer:
        with torch.enable_grad():
            tracked = logits.detach().clone().requires_grad_()
            loss = formula(tracked, chosen, alpha)
            return loss.detach(), torch.autograd.grad(loss, tracked)[0]

    return answer


def _of(parts: Parts, scale: Callable[[Tensor, Tensor], float] = lambda x, c: 1.0) -> Callable[..., Answer]:
    """The answer with another f, P of (L, E), or with a factor before it."""

    def loss(logits: Tensor, chosen: Tensor, alpha: float) -> Tensor:
        f, p = parts(logits, chosen)
        return scale(logits, chosen) * alpha * logits.shape[2] * (f * p).sum(-1).mean()

    return _by_autograd(loss)


_balance = _of(_parts)


def _with_gradient(change: Callable[[Tensor, Tensor, Tensor, float], Tensor]) -> Callable[..., Answer]:
    """The right loss, and a gradient that is changed by (gradient, logits, chosen, α) -> (L, T, E)."""

    def answer(logits: Tensor, chosen: Tensor, alpha: float) -> Answer:
        loss, gradient = _balance(logits, chosen, alpha)
        return loss, change(gradient, logits, chosen, alpha)

    return answer


def _through_the_counts(logits: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """A count forwards, and backwards the probability: straight through."""
    p = _probable(logits)
    return _shares(logits, chosen) + p - p.detach(), p


def _of_the_chosen(logits: Tensor, chosen: Tensor) -> Tensor:
    """Probabilities, zero where an expert was not chosen."""
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(2, chosen, True)
    return logits.softmax(-1) * kept


def _renormalised(logits: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    kept = _of_the_chosen(logits, chosen)
    return _shares(logits, chosen), (kept / kept.sum(-1, keepdim=True)).mean(1)


def _layer_by_layer(logits: Tensor, chosen: Tensor, alpha: float) -> Tensor:
    each = [
        (torch.bincount(of.flatten(), minlength=x.shape[1]) / of.numel() * x.softmax(1).mean(0)).sum()
        for x, of in zip(logits, chosen, strict=True)
    ]
    return alpha * logits.shape[2] * sum(each) / len(each)


def _on_paper(logits: Tensor, chosen: Tensor, alpha: float) -> Answer:
    factor = alpha * logits.shape[2] / (logits.shape[0] * logits.shape[1])
    slope, p = factor * _shares(logits, chosen).unsqueeze(1), logits.softmax(-1)
    along = torch.einsum("lte,lue->lt", p, slope)
    return along.sum(), p * slope - p * along.unsqueeze(-1)


def _balance_cases(generator: torch.Generator) -> list[Case]:
    def drawn(layers: int, tokens: int, experts: int, k: int, lean: float = 1.0) -> tuple[Tensor, Tensor]:
        """Logits that lean to some experts, to others in each layer, and the best k of what a bias makes of them."""
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
        Case("2 layers lean to one of 2 experts, each to another, by hand: 0.3 for α = 0.2", (*by_hand, 0.2)),
        Case("one layer, 9 tokens, 5 experts, the best one", (*drawn(1, 9, 5, 1), 1.0)),
        Case("3 layers, 12 tokens, 2 of 8 experts, no token chose the last one", (unwanted, chosen, 0.01)),
        Case("as many layers as tokens as experts", (*drawn(4, 4, 4, 3), 0.5)),
        Case("layers that lean strongly", (*drawn(5, 20, 7, 2, 15.0), 1.0)),
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
    mistakes=(
        Mistake(
            "averaged over layers first",
            "f and P were averaged over the layers before the product, as transformers does. Layers that lean to "
            "different experts look balanced together: first the product of each layer, then the mean.",
            _of(lambda x, c: (_shares(x, c).mean(0, keepdim=True), _probable(x).mean(0, keepdim=True))),
            also=(_of(lambda x, c: (_shares(x, c).mean(0, keepdim=True), _probable(x))),),
        ),
        Mistake(
            "averaged over layers first, not divided by k",
            "This is the loss of transformers, with two differences. f and P were averaged over the layers before the "
            "product: take the product of each layer, then the mean. And f was divided by the tokens alone, so it adds "
            "up to k: divide by all T · k choices.",
            _of(
                lambda x, c: (_shares(x, c).mean(0, keepdim=True), _probable(x).mean(0, keepdim=True)),
                lambda x, c: c.shape[2],
            ),
        ),
        Mistake(
            "softmax twice",
            "Softmax was taken of probabilities. Twice it makes nearly equal numbers of all of them, and the loss "
            "hardly sees who is preferred.",
            _of(lambda x, c: (_shares(x, c), _probable(x.softmax(-1)))),
        ),
        Mistake(
            "no softmax",
            "P is a mean of probabilities, and these are logits: take the softmax over the experts first.",
            _of(lambda x, c: (_shares(x, c), x.mean(1))),
        ),
        Mistake(
            "sigmoid",
            "P was made with a sigmoid for each expert. It is the mean of the softmax over all experts, whose "
            "probabilities add up to one for each token.",
            _of(lambda x, c: (_shares(x, c), x.sigmoid().mean(1))),
        ),
        Mistake(
            "softmax over the wrong axis",
            "The probabilities of a token add up to one over the experts, which are the last axis.",
            _of(lambda x, c: (_shares(x, c), x.softmax(1).mean(1))),
            also=(_of(lambda x, c: (_shares(x, c), x.softmax(0).mean(1))),),
        ),
        Mistake(
            "mean before the softmax",
            "P is the softmax of the mean logits. First the softmax of each token, then the mean over the tokens.",
            _of(lambda x, c: (_shares(x, c), x.mean(1).softmax(-1))),
        ),
        Mistake(
            "not divided by k",
            "f was divided by the tokens alone, so its entries add up to k. As shares of all T · k choices they add up "
            "to 1, and the loss is α at balance, whatever k is.",
            _of(_parts, lambda x, c: c.shape[2]),
        ),
        Mistake(
            "gradient not divided by k",
            "The loss is right, but its gradient is k times too large: f holds shares of all T · k choices there too.",
            _with_gradient(lambda g, x, c, a: g * c.shape[2]),
        ),
        Mistake(
            "only the first choice counted",
            "Only the first of the k choices was counted. An expert that is chosen second has work to do too.",
            _of(lambda x, c: (_shares(x, c[..., :1]), _probable(x))),
        ),
        Mistake(
            "best expert counted",
            "f counts the expert of the largest logit of each token. It counts the k experts in `chosen`, which a bias "
            "or noise may have changed.",
            _of(lambda x, c: (_shares(x, x.argmax(-1, keepdim=True)), _probable(x))),
        ),
        Mistake(
            "chosen anew",
            "f counts the best k by the logits, and not what is in `chosen`. A router may choose otherwise, with a "
            "bias or with noise.",
            _of(lambda x, c: (_shares(x, x.topk(c.shape[2]).indices), _probable(x))),
        ),
        Mistake(
            "counts instead of shares",
            "f holds counts, which grow with the batch. Divide them by how many choices there were, T · k.",
            _of(lambda x, c: (_counts(x, c), _probable(x))),
        ),
        Mistake(
            "probabilities added up",
            "f is right, but P is a sum over the tokens, which grows with the batch. P is the mean of the "
            "probabilities over the tokens.",
            _of(lambda x, c: (_shares(x, c), x.softmax(-1).sum(1))),
        ),
        Mistake(
            "counts, and probabilities added up",
            "Neither f nor P was divided, so the loss grows with the square of the batch. f holds shares of all T · k "
            "choices, and P is the mean of the probabilities over the tokens.",
            _of(lambda x, c: (_counts(x, c), x.softmax(-1).sum(1))),
        ),
        Mistake(
            "probabilities in place of counts",
            "This is the sum of P², which has no counts. f is made of the choices: what an expert has to compute.",
            _of(lambda x, c: (_probable(x), _probable(x))),
            also=(_of(lambda x, c: (_probable(x).detach(), _probable(x))),),
        ),
        Mistake(
            "gradient through f",
            "The loss is right, but in its gradient f changes with the logits. A count has no gradient: only P has.",
            _of(_through_the_counts),
        ),
        Mistake(
            "token by token",
            "The probabilities of the experts that each token chose were summed. f and P are means over all tokens "
            "first, and then multiplied: what one token chooses makes its expert dearer for the others.",
            _of(lambda x, c: (torch.ones_like(x[:, 0]), _of_the_chosen(x, c).mean(1) / c.shape[2])),
            also=(_of(lambda x, c: (torch.ones_like(x[:, 0]), _of_the_chosen(x, c).mean(1))),),
        ),
        Mistake(
            "probabilities of the chosen alone",
            "P is the mean of all probabilities, whether an expert was chosen or not. Otherwise an expert that nobody "
            "chooses has no say.",
            _of(lambda x, c: (_shares(x, c), _of_the_chosen(x, c).mean(1))),
            also=(_of(_renormalised),),
        ),
        Mistake(
            "α or the number of experts left out",
            "A factor is missing: α E stands before the sum over experts. A mean over experts has divided by E.",
            _by_autograd(lambda x, c, a: a * (_shares(x, c) * _probable(x)).sum(-1).mean()),
            also=(
                _by_autograd(lambda x, c, a: x.shape[2] * (_shares(x, c) * _probable(x)).sum(-1).mean()),
                _by_autograd(lambda x, c, a: (_shares(x, c) * _probable(x)).sum(-1).mean()),
            ),
        ),
        Mistake(
            "summed over layers",
            "The losses of the layers were added up. Take their mean, so that α means the same for every depth.",
            _of(_parts, lambda x, c: len(x)),
        ),
        Mistake(
            "layers left apart",
            "There is still a loss for each layer: take their mean.",
            lambda x, c, a: (a * x.shape[2] * (_shares(x, c) * _probable(x)).sum(-1), _balance(x, c, a)[1]),
        ),
        Mistake(
            "gradient of a sum",
            "The loss is right. It is a mean over layers, and P a mean over tokens: the gradient is divided by both.",
            _with_gradient(lambda g, x, c, a: g * len(x)),
            also=(
                _with_gradient(lambda g, x, c, a: g * x.shape[1]),
                _with_gradient(lambda g, x, c, a: g * len(x) * x.shape[1]),
            ),
        ),
        Mistake(
            "gradient turned round",
            "The loss is right, but the gradient has the wrong sign: it is positive where an expert is chosen more "
            "than the token's other experts are.",
            _with_gradient(lambda g, x, c, a: -g),
        ),
        Mistake(
            "no gradient",
            "The gradient is zero: P was cut off from the logits, or made of counts. A softmax has a gradient, and it "
            "is the only one here.",
            _with_gradient(lambda g, x, c, a: torch.zeros_like(g)),
            also=(lambda x, c, a: (a * x.shape[2] * _shares(x, c).square().sum(-1).mean(), torch.zeros_like(x)),),
        ),
        Mistake(
            "gradient in the probabilities",
            "This is the gradient with respect to the probabilities. The logits are asked for, with the softmax in "
            "between: p_j (g_j − Σ p g), where g is the gradient in p.",
            _with_gradient(
                lambda g, x, c, a: (a * x.shape[2] * _shares(x, c)[:, None] / len(x) / x.shape[1]).expand(x.shape)
            ),
        ),
        Mistake(
            "softmax differentiated in part",
            "The loss is right, but the derivative of the softmax is incomplete: a logit moves the probabilities of "
            "all experts. With g the gradient in p, the gradient in the logits is p_j (g_j − Σ p g); here it is p_j "
            "g_j, or p_j (1 − p_j) g_j.",
            _with_gradient(
                lambda g, x, c, a: a * x.shape[2] * _shares(x, c)[:, None] * x.softmax(-1) / len(x) / x.shape[1]
            ),
            also=(
                _with_gradient(
                    lambda g, x, c, a: (
                        (a * x.shape[2] * _shares(x, c)[:, None] * x.softmax(-1) * (1 - x.softmax(-1)))
                        / (len(x) * x.shape[1])
                    )
                ),
            ),
        ),
        Mistake(
            "one of the two, or the other way round",
            "Two values are asked for: the loss, and then its gradient.",
            lambda x, c, a: _balance(x, c, a)[0],
            also=(lambda x, c, a: _balance(x, c, a)[1], lambda x, c, a: _balance(x, c, a)[::-1]),
        ),
    ),
    also_right=(
        Variant("layer by layer", _by_autograd(_layer_by_layer)),
        Variant("on paper", _on_paper),
        Variant("float64", lambda x, c, a: _balance(x.double(), c, a)),
    ),
    hints=(
        "torch.nn.functional.one_hot(chosen, E) is (L, T, k, E). Its mean over tokens and choices is f, (L, E), with "
        "entries that add up to 1 in every layer.",
        "The gradient by autograd: x = logits.detach().requires_grad_(), the loss of x, and torch.autograd.grad(loss, "
        "x). f comes from whole numbers, so nothing flows through it.",
        "Or on paper: the gradient in a probability p_j is g_j = α E f_j / (L · T), and through the softmax it becomes "
        "p_j (g_j − Σ p g).",
    ),
)
