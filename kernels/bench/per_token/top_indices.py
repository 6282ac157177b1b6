"""The indices of a token's highest scores, by the number of kept ones, against torch.topk.

Dimension key: F scores, K of them kept.
"""

from collections.abc import Iterator

from course_lib.kernels.per_token import top_indices
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor

from course_lib.measure.roofline import Work

N_SCORES = 14336  # a layer of a model of 8B
DENSITIES = (0.5, 0.2, 0.05)


def contests(place: Place) -> Iterator[Contest]:
    n_scores = 96 if place.quick else N_SCORES
    scores = place.randn(1, n_scores)
    for density in DENSITIES[:1] if place.quick else DENSITIES:
        yield _contest(f"{density:.0%} kept", scores, round(density * n_scores))


def _contest(name: str, scores: Tensor, n_kept: int) -> Contest:
    work = Work(len(scores.flatten()), top_indices.bytes_moved(scores, n_kept))
    expected = top_indices.reference(scores, n_kept)
    highest = scores.float().topk(n_kept, dim=1).values.sum()

    def unordered() -> Tensor:  # equal scores may come in any order and with other indices, so compare their sum
        return scores.topk(n_kept, dim=1, sorted=False).values.float().sum()

    sides = [
        Side("torch.topk", unordered, work, highest),
        Side("torch.sort", lambda: top_indices.reference(scores, n_kept), work),
    ]
    if scores.is_cuda:
        sides.append(Side("kernel", lambda: top_indices.launch(scores, n_kept), work))
    return Contest(name, tuple(scores.shape), sides, expected)
