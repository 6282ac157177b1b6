"""MoEfication. Zhang, Lin, Liu, Li, Sun, Zhou, MoEfication, 2021, https://arxiv.org/abs/2110.01786

The neurons of a trained ReLU MLP are divided among experts. Only few neurons are active for a token, and neurons that
are active together should be in one expert. All experts together are the MLP, up to rounding; a few are close to it.

Dimension key: F neurons, D width, E experts, S = F / E neurons per expert, T tokens.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.moe.checks import check_count
from course_lib.moe.experts import Experts

STEPS = 20  # at most, of k-means; it ends earlier if no neuron changes its cluster


def by_weights(
    into: Float[Tensor, "F D"], n_experts: int, generator: torch.Generator | None = None
) -> Int[Tensor, "F"]:
    """Return the expert of each neuron by balanced k-means of the neurons' input weights.

    Raises:
        ValueError: the neurons cannot be divided evenly, as in all functions of this module.
    """
    return balanced_clusters(into, n_experts, generator)


def by_coactivation(
    hidden: Float[Tensor, "T F"], n_experts: int, generator: torch.Generator | None = None
) -> Int[Tensor, "F"]:
    """Return the expert of each neuron, so that neurons that are active for the same tokens are together.

    Deviation: the paper partitions the co-activation graph with METIS; here a neuron's row of co-activations,
    normalised to unit length, is its point for balanced k-means.
    """
    fires = (hidden > 0).to(hidden.dtype)
    return balanced_clusters(F.normalize(fires.T @ fires, dim=1), n_experts, generator)


def balanced_clusters(
    points: Float[Tensor, "F D"], n_clusters: int, generator: torch.Generator | None = None
) -> Int[Tensor, "F"]:
    """k-means with clusters of equal size: each step finds the assignment with the least sum of squared distances."""
    from scipy.optimize import linear_sum_assignment  # half a second to import, and only this function needs it

    check_count("n_experts", n_clusters)
    n_points = len(points)
    if n_points % n_clusters:
        raise ValueError(
            f"got {n_points} neurons for {n_clusters} experts; expected a number that divides them evenly."
        )
    points = points.double()
    centroids = points[torch.randperm(n_points, generator=generator)[:n_clusters]]
    cluster = torch.full((n_points,), -1)
    for _ in range(STEPS):
        cost = torch.cdist(points, centroids).square().repeat_interleave(n_points // n_clusters, dim=1)  # (F, F)
        places = torch.from_numpy(linear_sum_assignment(cost.cpu().numpy())[1])
        before, cluster = cluster, places // (n_points // n_clusters)
        if torch.equal(before, cluster):
            break
        centroids = torch.stack([points[cluster == c].mean(0) for c in range(n_clusters)])
    return cluster


def divided(
    into: Float[Tensor, "F D"], out: Float[Tensor, "D F"], bias: Float[Tensor, "F"] | None, expert: Int[Tensor, "F"]
) -> Experts:
    """Divide y = W_out relu(W_in x + b_in) into ReLU experts. A bias of the output stays outside: it is added once."""
    order = expert.argsort(stable=True)
    n_experts = int(expert.max()) + 1
    if (expert.bincount(minlength=n_experts) * n_experts != len(expert)).any():
        raise ValueError(f"got experts of {expert.bincount().tolist()} neurons; expected experts of one size.")
    inner = into[order].unflatten(0, (n_experts, -1))
    outer = out[:, order].unflatten(1, (n_experts, -1)).transpose(0, 1).contiguous()
    return Experts(inner, outer, "relu", None if bias is None else bias[order].unflatten(0, (n_experts, -1)))


def centres(experts: Experts) -> Float[Tensor, "E D"]:
    """Return a gate that needs no training: the mean of each expert's input weights, normalised to unit length."""
    return F.normalize(experts.into.detach().mean(1), dim=1)


def firing(experts: Experts, tokens: Float[Tensor, "T D"]) -> Float[Tensor, "T E"]:
    """Return the sum of each expert's activations: an oracle's logits, for which all neurons are computed."""
    hidden = torch.einsum("td,esd->tes", tokens, experts.into)
    return F.relu(hidden if experts.bias is None else hidden + experts.bias).sum(2)
