"""Auxiliary losses that balance the loads of experts and keep the logits of a gate small.

Dimension key: T tokens, E experts. A Routing has zeros in the rows of padding, so padding adds nothing to any loss.
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
    """CV² = variance / mean²: 0 if all values are equal, E − 1 if all but one are 0.

    Raises:
        ValueError: a mean of 0, for example because all tokens are padding.
    """
    mean = values.mean()
    if mean == 0:
        raise ValueError(
            f"got {len(values)} values with a mean of 0, as where all rows are padding; expected at least one real "
            "token."
        )
    return (values - mean).square().mean() / mean.square()


def importance(weights: Float[Tensor, "T E"], scale: float = 0.1) -> Float[Tensor, ""]:
    """scale · CV²(Σ_x G(x)): how unequal the experts' total gate weights are. Shazeer and others, 2017, eq. 6, 7.

    For example, an expert with few tokens of large weight and an expert with many tokens of small weight can have equal
    importance, but their loads differ.

    Raises:
        ValueError: a negative scale, as in all losses of this module.
    """
    check_number("scale", scale)
    return scale * squared_variation(weights.sum(0))


def sent_probability(
    logits: Float[Tensor, "T E"], noisy: Float[Tensor, "T E"], deviation: Float[Tensor, "T E"], k: int
) -> Float[Tensor, "T E"]:
    """P(x, i) = Φ((h_i − kth best of H without i) / deviation_i): the probability to send x to i with new noise of i.

    Shazeer and others, 2017, equations 8, 9. `noisy` is H, the logits with the noise of this pass. Unlike a count of
    tokens, P is a smooth function of the logits.

    Raises:
        ValueError: k is not below E: there are not k experts in addition to i.
    """
    n_experts = logits.shape[1]
    if not 0 < k < n_experts:
        raise ValueError(f"got k = {k} of {n_experts} experts; expected 1 to {n_experts - 1}: all others are rivals.")
    # Beyond FAR deviations Φ is 0 or 1 to the last bit of float64, with a gradient of 0. Computed there, or with no
    # deviation left, the gradient would be 0 · ∞ or 0 / 0.
    order = highest(noisy, k + 1)  # (T, k + 1)
    edges = noisy.gather(1, order[:, k - 1 :])  # (T, 2): the kth best, and the best of those left out
    inside = among(order[:, :k], n_experts)
    threshold = torch.where(inside, edges[:, 1:], edges[:, :1])  # without expert i, the others move up by one rank
    distance = logits - threshold
    is_far = distance.abs() >= FAR * deviation
    near = torch.special.ndtr(distance / deviation.where(~is_far, 1))
    return torch.where(is_far, (distance.detach().sign() + 1) / 2, near)


def load(sent: Float[Tensor, "T E"], scale: float = 0.1) -> Float[Tensor, ""]:
    """scale · CV²(Σ_x P(x, i)): how unequal the experts' loads are. Shazeer and others, 2017, equations 10, 11."""
    check_number("scale", scale)
    return scale * squared_variation(sent.sum(0))


def balance(probs: Float[Tensor, "T E"], chosen: Bool[Tensor, "T E"], alpha: float = 0.01) -> Float[Tensor, ""]:
    """α N Σ f P of one layer: f fraction of choices, P mean probability. Fedus and others, 2021, equations 4 to 6.

    The loss is α if all experts are chosen equally often, and α N / k if all tokens choose the same k experts with
    their whole probability. f counts choices before tokens are dropped. It has no gradient: only P does, and an expert
    with a larger f has a larger gradient.

    Deviation: f is also divided by k, so that a balanced layer has the loss α for every k; the paper uses k = 1.

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

    Large logits have large rounding errors, which softmax amplifies.

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
    """Return the mean of the layers' losses.

    If loads were averaged over layers first, layers that collapse to different experts would look balanced.

    Raises:
        ValueError: no layers.
    """
    if not routings:
        raise ValueError("got no routings; expected one for each layer with experts.")
    return torch.stack([balance(each.probs, each.chosen, alpha) for each in routings]).mean()
