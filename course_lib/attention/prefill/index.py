"""An index of blocks: which blocks of keys each block of queries reads. It is data, whatever rule made it.

Dimension key: T tokens in N blocks of S, the last of them ragged; i a block of queries, j a block of keys.
"""

from dataclasses import InitVar, dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.kernels.dispatch import kernel_for


@dataclass(frozen=True, eq=False)
class BlockIndex:
    """What each head reads. Inside the blocks on the diagonal, queries still read no later key than their own.

    Attributes:
        reads: whether head h's queries i·S … (i+1)·S − 1 read the keys j·S … (j+1)·S − 1. Never later blocks, and
            always the diagonal, so that every query reads at least itself.
        query_aware: which heads chose each block by itself, where the rule tells heads apart (FlexPrefill).
        is_checked: `reads` is known to be as it should. To find out is to wait for a GPU.
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
                "got an index that reads later blocks, or of which a block of queries does not read its own keys; "
                "expected reads[h, i, j] only for j <= i, and always for j = i. Intersect it with causal_blocks(N)."
            )

    @property
    def density(self) -> Float[Tensor, "heads"]:
        """Blocks read over causal blocks, N (N + 1) / 2 of them: 1 is dense attention."""
        n = self.reads.shape[1]
        return self.reads.sum(dim=(1, 2)) / (n * (n + 1) / 2)

    @property
    def is_dense(self) -> Bool[Tensor, "heads"]:
        """Which heads read all that causal attention reads."""
        n = self.reads.shape[1]
        return self.reads.sum(dim=(1, 2)) == n * (n + 1) // 2

    def lists(self) -> tuple[Int[Tensor, "heads N most"], Int[Tensor, "heads N"]]:
        """The same as lists, int32: the key blocks of each query block in ascending order, and how many those are.

        After the last of a list come blocks that are not read. On a GPU the lists have room for all blocks: the CPU
        would have to wait to know how long the longest is.
        """
        if kernel := kernel_for("cache.prefill_index", self.reads):
            return kernel.block_lists(self.reads)
        counts = self.reads.sum(dim=2)
        most = self.reads.shape[2] if self.reads.is_cuda else int(counts.max())
        columns = self.reads.int().argsort(dim=2, descending=True, stable=True)[:, :, :most]
        return columns.int().contiguous(), counts.int()


def n_blocks(n_tokens: int, block_size: int) -> int:
    """⌈T / S⌉"""
    return -(-n_tokens // block_size)


def causal_blocks(n: int, device: torch.device | str = "cpu") -> Bool[Tensor, "N N"]:
    """Blocks of which at least one query may read at least one key: j <= i."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def always_read(n: int, device: torch.device | str = "cpu") -> Bool[Tensor, "N N"]:
    """The first block of keys, where the attention sinks are, and each query's own block."""
    always = torch.eye(n, dtype=torch.bool, device=device)
    always[:, 0] = True
    return always


def dense_index(n_heads: int, n_tokens: int, block_size: int, device: torch.device | str = "cpu") -> BlockIndex:
    """All causal blocks of every head."""
    causal = causal_blocks(n_blocks(n_tokens, block_size), device)
    return BlockIndex(causal.repeat(n_heads, 1, 1), n_tokens, block_size, is_checked=True)
