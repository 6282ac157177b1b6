"""What keeps the loads of experts in balance, and the logits of a gate small.

Dimension key: T tokens, E experts. Rows of padding are zero in what a Routing holds, so they count nowhere.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.moe.checks import check_number
from course_lib.moe.choice import among, highest
from course_lib.moe.routed import Routing

FAR = 40  # deviations


def squared_variation(values: Float[Tensor, "E"]) -> Float[Tensor, ""]:
    """CV² = variance / mean²; 0 where all are equal, E − 1 where one has everything.

    Raises:
        ValueError: a mean of 0, as where no token is real.
    """
    mean = values.mean()
    if mean == 0:
        raise ValueError(
            f"got {len(values)} values with a mean of 0, as where all rows are padding; expected at least one real "
            "token."
        )
    return (values - mean).square().mean() / mean.square()


def importance(weights: Float[Tensor, "T E"], scale: float = 0.1) -> Float[Tensor, ""]:
    """scale · CV²(Σ_x G(x)): how unevenly weight is spread. Shazeer and others, 2017, equations 6, 7.

    One expert may have few tokens of large weight and another many of small: importance is equal, and load is not.

    Raises:
        ValueError: a scale below 0, as for every loss here.
    """
    check_number("scale", scale)
    return scale * squared_variation(weights.sum(0))


def sent_probability(
    logits: Float[Tensor, "T E"], noisy: Float[Tensor, "T E"], deviation: Float[Tensor, "T E"], k: int
) -> Float[Tensor, "T E"]:
    """P(x, i) = Φ((h_i − kth best of H without i) / deviation_i): the chance that new noise sends x to i.

    Shazeer and others, 2017, equations 8, 9. `noisy` is H, with the noise that was drawn. Smooth in the logits, which
    a count of tokens is not.

    Raises:
        ValueError: k that is not below E: without i there are not k others.
    """
    n_experts = logits.shape[1]
    if not 0 < k < n_experts:
        raise ValueError(f"got k = {k} of {n_experts} experts; expected 1 to {n_experts - 1}: all others are rivals.")
    # Beyond FAR deviations Φ is 0 or 1 to the last bit of float64, with a gradient of 0. Computed there, or with no
    # deviation left, the gradient would be 0 · ∞ or 0 / 0.
    order = highest(noisy, k + 1)  # (T, k + 1)
    edges = noisy.gather(1, order[:, k - 1 :])  # (T, 2): the kth best, and the best of those left out
    inside = among(order[:, :k], n_experts)
    threshold = torch.where(inside, edges[:, 1:], edges[:, :1])  # without oneself, the others move up by one
    distance = logits - threshold
    is_far = distance.abs() >= FAR * deviation
    near = torch.special.ndtr(distance / deviation.where(~is_far, 1))
    return torch.where(is_far, (distance.detach().sign() + 1) / 2, near)


def load(sent: Float[Tensor, "T E"], scale: float = 0.1) -> Float[Tensor, ""]:
    """scale · CV²(Σ_x P(x, i)): how unevenly tokens are spread. Shazeer and others, 2017, equations 10, 11."""
    check_number("scale", scale)
    return scale * squared_variation(sent.sum(0))


def balance(probs: Float[Tensor, "T E"], chosen: Bool[Tensor, "T E"], alpha: float = 0.01) -> Float[Tensor, ""]:
    """α N Σ f P of one layer: f fraction of choices, P mean probability. Fedus and others, 2021, equations 4 to 6.

    α at balance, α N / k where all tokens take the same k with all their probability. f counts what is chosen, before
    anything is dropped, and has no gradient: P's is larger where f is.

    Deviation: f is divided by k too, so that balance is α for every k; the paper has k = 1.

    Raises:
        ValueError: no real token.
    """
    check_number("alpha", alpha)
    _check_real(int(chosen.sum()), len(chosen))
    f, p = chosen.sum(0) / chosen.sum(), probs.sum(0) / probs.sum().detach()
    return alpha * probs.shape[1] * (f * p).sum()


def z_loss(
    logits: Float[Tensor, "T E"], real: Bool[Tensor, "T"] | None = None, scale: float = 1e-3
) -> Float[Tensor, ""]:
    """scale · mean of (log Σ exp h)². Zoph and others, ST-MoE, 2022, https://arxiv.org/abs/2202.08906, equation 5.

    Large logits round badly, and softmax amplifies the error.

    Raises:
        ValueError: no real token.
    """
    check_number("scale", scale)
    rows = logits if real is None else logits[real]
    _check_real(len(rows), len(logits))
    return scale * rows.logsumexp(dim=1).square().mean()


def _check_real(n_real: int, n_rows: int) -> None:
    if n_real == 0:
        raise ValueError(f"got {n_rows} rows, of which all are padding; expected at least one real token.")


def balance_of_layers(routings: Sequence[Routing], alpha: float = 0.01) -> Float[Tensor, ""]:
    """The mean of the layers' losses. Loads averaged over layers first would hide layers that collapse differently.

    Raises:
        ValueError: no layers.
    """
    if not routings:
        raise ValueError("got no routings; expected one for each layer with experts.")
    return torch.stack([balance(each.probs, each.chosen, alpha) for each in routings]).mean()
