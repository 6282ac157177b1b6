"""Inverted lists: the rows are clustered once, so that a search compares a vector with only a few of them.

Dimension key: F rows, W numbers in each, C lists.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Lists(NamedTuple):
    """The centres of the lists, and the list of each row."""

    centres: Float[Tensor, "C W"]
    list_of: Int[Tensor, "F"]


def clustered(rows: Float[Tensor, "F W"], n_lists: int) -> Lists:
    """Cluster the rows with k-means and a fixed seed, into at most as many lists as there are rows."""
    from sklearn.cluster import KMeans  # a second to import, and only this function needs it

    found = KMeans(n_clusters=min(n_lists, len(rows)), n_init=1, max_iter=20, random_state=0).fit(rows.cpu().numpy())
    centres, list_of = torch.from_numpy(found.cluster_centers_), torch.from_numpy(found.labels_)
    return Lists(centres.to(rows), list_of.to(rows.device).long())
