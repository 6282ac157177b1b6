"""MoEfication. Zhang, Lin, Liu, Li, Sun, Zhou, MoEfication, 2021, https://arxiv.org/abs/2110.01786

The neurons of a trained ReLU MLP are divided among experts: few of them fire for a token, and those that fire together
should lie together. All experts together are the MLP, to rounding; some of them are nearly as much.

Dimension key: F neurons, D width, E experts, S = F / E neurons of each, T tokens.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.moe.checks import check_count
from course_lib.moe.experts import Experts

STEPS = 20  # of k-means at most; it ends when no neuron moves


def by_weights(
    into: Float[Tensor, "F D"], n_experts: int, generator: torch.Generator | None = None
) -> Int[Tensor, "F"]:
    """The expert of each neuron: balanced k-means of the neurons' input weights.

    Raises:
        ValueError: neurons that cannot be divided evenly, as for every division here.
    """
    return balanced_clusters(into, n_experts, generator)


def by_coactivation(
    hidden: Float[Tensor, "T F"], n_experts: int, generator: torch.Generator | None = None
) -> Int[Tensor, "F"]:
    """The expert of each neuron, so that neurons that fire for the same tokens lie together.

    Deviation: the paper cuts the graph of co-activations with METIS; here whom a neuron fires with, of unit length, is
    its place for balanced k-means.
    """
    fires = (hidden > 0).to(hidden.dtype)
    return balanced_clusters(F.normalize(fires.T @ fires, dim=1), n_experts, generator)


def balanced_clusters(
    points: Float[Tensor, "F D"], n_clusters: int, generator: torch.Generator | None = None
) -> Int[Tensor, "F"]:
    """k-means with clusters of one size: each step assigns at the least sum of squared distances, exactly."""
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
    """The MLP y = W_out relu(W_in x + b_in) as ReLU experts. A bias of the output stays outside, added once."""
    order = expert.argsort(stable=True)
    n_experts = int(expert.max()) + 1
    if (expert.bincount(minlength=n_experts) * n_experts != len(expert)).any():
        raise ValueError(f"got experts of {expert.bincount().tolist()} neurons; expected experts of one size.")
    inner = into[order].unflatten(0, (n_experts, -1))
    outer = out[:, order].unflatten(1, (n_experts, -1)).transpose(0, 1).contiguous()
    return Experts(inner, outer, "relu", None if bias is None else bias[order].unflatten(0, (n_experts, -1)))


def centres(experts: Experts) -> Float[Tensor, "E D"]:
    """A gate that needs no training: the mean of each expert's input weights, of unit length."""
    return F.normalize(experts.into.detach().mean(1), dim=1)


def firing(experts: Experts, tokens: Float[Tensor, "T D"]) -> Float[Tensor, "T E"]:
    """The sum of each expert's activations: logits of the best gate there is, at the price of computing everything."""
    hidden = torch.einsum("td,esd->tes", tokens, experts.into)
    return F.relu(hidden if experts.bias is None else hidden + experts.bias).sum(2)
