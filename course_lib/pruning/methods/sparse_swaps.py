"""SparseSwaps. Zimmer, Roux, Wagner, Hendrych, Pokutta, 2025. https://arxiv.org/abs/2512.10922

Dimension key: O outputs of a layer, I its inputs, A rows still improving, K candidates on either side, m of a group.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from course_lib.pruning.base import LayerPruner, check_class
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.wanda import CumulativeRows, Wanda
from course_lib.sparsity.patterns import NofM, Unstructured
from course_lib.sparsity.ranking import check_positive

ENTRIES = 2**24  # pairs compared in one batch
ENOUGH = 1e-6  # a swap must lower the row's error by this fraction, so that rounding never decides

Swap = tuple[Float[Tensor, "A"], Int64[Tensor, "A"], Int64[Tensor, "A"]]  # change of the error, p, q


@dataclass
class SparseSwaps(LayerPruner):
    """Swap a kept and a dropped weight of a row while that lowers the layer's error; values of weights do not change.

    With r the dropped weights of a row and c = r XᵀX, dropping p and keeping q changes the error r XᵀX rᵀ by (section
    2) 2 w_p c_p + w_p² G_pp − 2 w_q c_q + w_q² G_qq − 2 w_p w_q G_pq. The number of kept weights per row is constant,
    so rows are independent of each other; N:M patterns swap within their groups.

    Deviation: each swap is the best among the `shortlist` cheapest weights on either side, instead of all pairs of a
    row, which cost I²/4. None compares all pairs, as in the paper.

    Attributes:
        start: the class of pruner whose mask is improved.
        sweeps: maximum number of swaps per row.
    """

    start: type[LayerPruner] = Wanda
    sweeps: int = 100
    shortlist: int | None = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        check_class("start", self.start)
        check_positive("sweeps", self.sweeps)
        check_positive("shortlist", 1 if self.shortlist is None else self.shortlist)
        free = isinstance(self.pattern, NofM | CumulativeRows) or (
            isinstance(self.pattern, Unstructured) and self.pattern.per != "column"
        )
        if not free:
            raise ValueError(
                f"got the pattern {self.pattern}, which a swap within a row would break; expected Unstructured per row "
                "or per layer, or NofM. Use Refit, which leaves the mask as it is."
            )

    def prepare(self, inputs: Gram) -> None:
        self.start(self.pattern).prepare(inputs)

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """Return the score that gave the initial mask."""
        return self.start(self.pattern)._score(weight, inputs)

    def _keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        start = self.start(self.pattern)._keep(weight, inputs)
        group = self.pattern.m if isinstance(self.pattern, NofM) else None
        return swap_rows(weight, start, inputs.matrix, self.sweeps, group, self.shortlist)


def swap_rows(
    weight: Float[Tensor, "O I"],
    keep: Bool[Tensor, "O I"],
    gram: Float[Tensor, "I I"],
    sweeps: int,
    group: int | None = None,
    shortlist: int | None = None,
) -> Bool[Tensor, "O I"]:
    """Return the mask after at most `sweeps` swaps per row; each is the best available one and lowers the error."""
    dtype = torch.promote_types(weight.dtype, torch.float32)
    result, gram = keep.clone(), gram.to(dtype)
    rows, weight, keep = torch.arange(len(keep), device=keep.device), weight.detach().to(dtype), keep.clone()
    # c = r G and the error r G rᵀ, for the dropped weights r of each row
    dropped = weight.masked_fill(keep, 0)
    pull = dropped @ gram
    error = (dropped * pull).sum(1)
    for _ in range(sweeps):
        change, leaves, returns = _best_swaps(weight, keep, pull, gram, group, shortlist)
        better = change < -ENOUGH * error
        if not better.all():  # rows without an improving swap are done
            result[rows[~better]] = keep[~better]
            rows, weight, keep, pull, error = (x[better] for x in (rows, weight, keep, pull, error))
            change, leaves, returns = change[better], leaves[better], returns[better]
        if not len(rows):
            break
        # r gains w_p and loses w_q, so c += w_p G_p − w_q G_q                     (A, I) += (A, 1) * (A, I)
        row = torch.arange(len(rows), device=rows.device)
        pull += weight[row, leaves][:, None] * gram[leaves]
        pull -= weight[row, returns][:, None] * gram[returns]
        keep[row, leaves], keep[row, returns] = False, True
        error = error + change
    result[rows] = keep
    return result


def _best_swaps(
    weight: Float[Tensor, "A I"],
    keep: Bool[Tensor, "A I"],
    pull: Float[Tensor, "A I"],
    gram: Float[Tensor, "I I"],
    group: int | None,
    shortlist: int | None,
) -> Swap:
    """Return the best swap of each row; its change is +inf if the row has no pair to swap."""
    # out_p = w_p² G_pp + 2 w_p c_p where p is kept, back_q = w_q² G_qq − 2 w_q c_q where q is dropped
    alone, linear = weight.square() * gram.diagonal(), 2 * weight * pull
    out = (alone + linear).masked_fill(~keep, torch.inf)
    back = (alone - linear).masked_fill(keep, torch.inf)
    if group is not None:
        return _in_groups(out, back, weight, gram, group)
    size = min(shortlist or weight.shape[1], weight.shape[1])
    parts = [_anywhere(*part, gram, size) for part in _chunks(size**2, out, back, weight)]
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))


def _chunks(entries: int, *tensors: Tensor):
    n_rows = max(1, ENTRIES // entries)
    return zip(*(tensor.split(n_rows) for tensor in tensors), strict=True)


def _anywhere(out: Tensor, back: Tensor, weight: Tensor, gram: Tensor, size: int) -> Swap:
    """Compare all pairs of the `size` weights that are cheapest to drop and the `size` that gain most if kept."""
    cost, leaves = out.topk(size, dim=1, largest=False)  # (A, K)
    gain, returns = back.topk(size, dim=1, largest=False)
    # change_pq = out_p + back_q − 2 w_p w_q G_pq                                    (A, K, K)
    change = gram[leaves[:, :, None], returns[:, None, :]]
    change *= -2 * weight.gather(1, leaves)[:, :, None]
    change *= weight.gather(1, returns)[:, None, :]
    change += cost[:, :, None]
    change += gain[:, None, :]
    best, place = change.flatten(1).min(1)
    row = torch.arange(len(place), device=place.device)
    return best, leaves[row, place // size], returns[row, place % size]


def _in_groups(out: Tensor, back: Tensor, weight: Tensor, gram: Tensor, m: int) -> Swap:
    """Compare all pairs within every group of m columns."""
    out, back, weight = (x.unflatten(1, (-1, m)) for x in (out, back, weight))
    blocks = torch.stack([gram[i : i + m, i : i + m] for i in range(0, len(gram), m)])
    # change_pq = out_p + back_q − 2 w_p w_q G_pq, (A, I / m, m, m)
    change = -2 * blocks * weight[..., :, None] * weight[..., None, :] + out[..., :, None] + back[..., None, :]
    best, place = change.flatten(1).min(1)
    first = place // m**2 * m
    return best, first + place // m % m, first + place % m
