"""Which of many models nobody should take another for.

Dimension key: M models, N windows.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.compose.front import Point, front


def on_the_front(cost: Float[Tensor, "M"], losses: Float[Tensor, "M N"]) -> Bool[Tensor, "M"]:
    """True for each model that no other beats: costing no more, and clearly better on the same windows."""
    points = [
        Point(name=str(at), cost=each, losses=tuple(row))
        for at, (each, row) in enumerate(zip(cost.tolist(), losses.tolist(), strict=True))
    ]
    stays = torch.zeros(len(points), dtype=torch.bool)
    stays[[int(point.name) for point in front(points)]] = True
    return stays
