"""Jacobs, Jordan, Nowlan, Hinton, 1991, "Adaptive Mixtures of Local Experts", https://doi.org/10.1162/neco.1991.3.1.79

Three error functions for one mixture. They differ in the signal that trains an expert: the residual of the weighted
sum of all experts, or the distance of the expert's own output to the target.

Dimension key: K experts, O outputs, S mixtures, P samples. Any axes may come before the last.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def cooperative(
    prior: Float[Tensor, "*n K"], outputs: Float[Tensor, "*n K O"], target: Float[Tensor, "*m O"]
) -> Float[Tensor, "*n"]:
    """E = ‖d − Σ p_i o_i‖² (equation 1.1): the squared error of the weighted sum.

    The gradient of each expert contains the residual of the whole sum. So experts learn to correct each other, and no
    expert approximates the target alone.
    """
    return (target - mean_output(prior, outputs)).square().sum(dim=-1)


def competitive(
    prior: Float[Tensor, "*n K"], outputs: Float[Tensor, "*n K O"], target: Float[Tensor, "*m O"]
) -> Float[Tensor, "*n"]:
    """E = Σ p_i ‖d − o_i‖² (equation 1.2): the expected squared error if the gate samples one expert."""
    return (prior * distances(outputs, target)).sum(dim=-1)


def mixture(
    prior: Float[Tensor, "*n K"], outputs: Float[Tensor, "*n K O"], target: Float[Tensor, "*m O"]
) -> Float[Tensor, "*n"]:
    """E = −log Σ p_i exp(−½ ‖d − o_i‖²) (equation 1.3): the negative log-likelihood, up to a constant, of a target that
    comes from a Gaussian of variance 1 around one of the outputs.
    """
    return -torch.logsumexp(prior.log() - 0.5 * distances(outputs, target), dim=-1)


ERRORS = {"cooperative": cooperative, "competitive": competitive, "mixture": mixture}


def responsibilities(
    prior: Float[Tensor, "*n K"], outputs: Float[Tensor, "*n K O"], target: Float[Tensor, "*m O"]
) -> Float[Tensor, "*n K"]:
    """h_i = p_i exp(−½ ‖d − o_i‖²) / Σ_j p_j exp(−½ ‖d − o_j‖²): the posterior probability of expert i."""
    return (prior.log() - 0.5 * distances(outputs, target)).softmax(dim=-1)


def mean_output(prior: Float[Tensor, "*n K"], outputs: Float[Tensor, "*n K O"]) -> Float[Tensor, "*n O"]:
    """Return Σ p_i o_i."""
    _check(prior, outputs)
    return (prior[..., None] * outputs).sum(dim=-2)


def likeliest_output(prior: Float[Tensor, "*n K"], outputs: Float[Tensor, "*n K O"]) -> Float[Tensor, "*n O"]:
    """Return the output of the expert with the largest p_i, as a sparse mixture computes it."""
    _check(prior, outputs)
    return torch.take_along_dim(outputs, prior.argmax(dim=-1)[..., None, None], dim=-2).squeeze(-2)


def distances(outputs: Float[Tensor, "*n K O"], target: Float[Tensor, "*m O"]) -> Float[Tensor, "*n K"]:
    """Return ‖d − o_i‖² of every expert."""
    if outputs.ndim < 2 or outputs.shape[-1] != target.shape[-1]:
        raise ValueError(
            f"outputs have shape {tuple(outputs.shape)} and targets {tuple(target.shape)}: expected (..., experts, "
            "outputs) and (..., outputs); one vector of targets serves all experts"
        )
    return (target[..., None, :] - outputs).square().sum(dim=-1)


def output_gradient(
    error: str, prior: Float[Tensor, "*n K"], outputs: Float[Tensor, "*n K O"], target: Float[Tensor, "*m O"]
) -> Float[Tensor, "*n K O"]:
    """Compute ∂E/∂o_i in closed form.

    cooperative  −2 p_i (d − Σ_j p_j o_j)
    competitive  −2 p_i (d − o_i)    (equation 1.4): the expert with the largest p_i learns fastest, good or bad
    mixture      −h_i (d − o_i)      (equation 1.5): the expert that fits this sample best learns fastest
    """
    _check(prior, outputs)
    gap = target[..., None, :] - outputs
    if error == "cooperative":
        return -2 * prior[..., None] * (target - mean_output(prior, outputs))[..., None, :]
    if error == "competitive":
        return -2 * prior[..., None] * gap
    if error == "mixture":
        return -responsibilities(prior, outputs, target)[..., None] * gap
    raise ValueError(f"error={error!r}: expected one of {', '.join(ERRORS)}")


def gate_gradient(
    error: str, prior: Float[Tensor, "*n K"], outputs: Float[Tensor, "*n K O"], target: Float[Tensor, "*m O"]
) -> Float[Tensor, "*n K"]:
    """Compute ∂E/∂x_i, where p = softmax(x).

    cooperative  −2 p_i (d − y)·(o_i − y), with y = Σ_j p_j o_j
    competitive  p_i (‖d − o_i‖² − E)
    mixture      p_i − h_i
    """
    _check(prior, outputs)
    if error == "cooperative":
        blend = mean_output(prior, outputs)
        return -2 * prior * ((target - blend)[..., None, :] * (outputs - blend[..., None, :])).sum(dim=-1)
    if error == "competitive":
        return prior * (distances(outputs, target) - competitive(prior, outputs, target)[..., None])
    if error == "mixture":
        return prior - responsibilities(prior, outputs, target)
    raise ValueError(f"error={error!r}: expected one of {', '.join(ERRORS)}")


def _check(prior: Tensor, outputs: Tensor) -> None:
    if outputs.ndim < 2 or prior.shape != outputs.shape[:-1]:
        raise ValueError(
            f"priors have shape {tuple(prior.shape)} and outputs {tuple(outputs.shape)}: expected (..., experts) and "
            "(..., experts, outputs); give one probability to each expert of each sample"
        )
