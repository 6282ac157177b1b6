"""A block index: which blocks of keys each block of queries attends to, as data, whatever rule chose them.

Dimension key: T tokens in N blocks of S, of which the last may be shorter; i a block of queries, j a block of keys.
"""

from dataclasses import InitVar, dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.kernels.dispatch import kernel_for


@dataclass(frozen=True, eq=False)
class BlockIndex:
    """The key blocks that each head reads. Inside the blocks on the diagonal, attention is still causal.

    Attributes:
        reads: True where a head's queries i·S … (i+1)·S − 1 attend to the keys j·S … (j+1)·S − 1. It is False above the
            diagonal and True on it, so that every query attends at least to itself.
        query_aware: which heads use the query-aware pattern of FlexPrefill; None for rules that have no such heads.
        is_checked: the caller guarantees these properties of `reads`; checking them would wait for a GPU.
    """

    reads: Bool[Tensor, "heads N N"]
    n_tokens: int
    block_size: int
    query_aware: Bool[Tensor, "heads"] | None = None
    is_checked: InitVar[bool] = False

    def __post_init__(self, is_checked: bool) -> None:
        n = n_blocks(self.n_tokens, self.block_size)
        if self.reads.shape[1:] != (n, n):
            raise ValueError(
                f"got an index of shape {tuple(self.reads.shape)}; expected (heads, {n}, {n}) for {self.n_tokens} "
                f"tokens in blocks of {self.block_size}."
            )
        if (
            not is_checked and self.reads.triu(1).any() | ~self.reads.diagonal(dim1=1, dim2=2).all()
        ):  # one wait for a GPU, not two
            raise ValueError(
                "got an index that reads later blocks, or in which a block of queries does not read its own keys; "
                "expected reads[h, i, j] only for j <= i, and always for j = i. Intersect it with causal_blocks(N), "
                "then add always_read(N)."
            )

    @property
    def density(self) -> Float[Tensor, "heads"]:
        """Fraction of the N (N + 1) / 2 causal blocks that each head reads; 1 is dense attention."""
        n = self.reads.shape[1]
        return self.reads.sum(dim=(1, 2)) / (n * (n + 1) / 2)

    @property
    def is_dense(self) -> Bool[Tensor, "heads"]:
        """True for heads that read all causal blocks."""
        n = self.reads.shape[1]
        return self.reads.sum(dim=(1, 2)) == n * (n + 1) // 2

    def lists(self) -> tuple[Int[Tensor, "heads N most"], Int[Tensor, "heads N"]]:
        """The index as int32 lists: the key blocks of each block of queries in ascending order, and their number.

        The rest of each list holds blocks that are not read. On a GPU the lists have length N, because the host would
        have to wait for the device to learn how long the longest list is.
        """
        if kernel := kernel_for("cache.prefill_index", self.reads):
            return kernel.block_lists(self.reads)
        counts = self.reads.sum(dim=2)
        most = self.reads.shape[2] if self.reads.is_cuda else int(counts.max())
        # A stable descending sort of zeros and ones lists the blocks that are read first, in ascending order.
        columns = self.reads.int().argsort(dim=2, descending=True, stable=True)[:, :, :most]
        return columns.int().contiguous(), counts.int()


def n_blocks(n_tokens: int, block_size: int) -> int:
    """Return ⌈T / S⌉."""
    return -(-n_tokens // block_size)


def causal_blocks(n: int, device: torch.device | str = "cpu") -> Bool[Tensor, "N N"]:
    """Return True for the blocks in which at least one query may attend to at least one key: j <= i."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def always_read(n: int, device: torch.device | str = "cpu") -> Bool[Tensor, "N N"]:
    """Return True for the blocks that all rules read: the first, which holds the attention sinks, and the diagonal."""
    is_read = torch.eye(n, dtype=torch.bool, device=device)
    is_read[:, 0] = True
    return is_read


def dense_index(n_heads: int, n_tokens: int, block_size: int, device: torch.device | str = "cpu") -> BlockIndex:
    """Return the index in which every head reads all causal blocks."""
    causal = causal_blocks(n_blocks(n_tokens, block_size), device)
    return BlockIndex(causal.repeat(n_heads, 1, 1), n_tokens, block_size, is_checked=True)
