"""FlexPrefill. Lai, Lu, Luo, Ma, Zhou, ICLR 2025, https://arxiv.org/abs/2502.20766

Dimension key: H key-value heads, heads = H * G query heads, T tokens in N blocks of S, D size of a head.
"""

from dataclasses import dataclass
from math import ceil
from types import ModuleType

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.attention.checks import check_finite
from course_lib.attention.prefill.cumulative import check_masses, smallest_set, smallest_set_of_checked
from course_lib.attention.prefill.divergence import jensen_shannon
from course_lib.attention.prefill.index import BlockIndex, always_read, causal_blocks, dense_index
from course_lib.attention.prefill.lines import block_means, line_masses, where_lines_are
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.kernels.dispatch import kernel_for
from course_lib.settings import check_count, is_real


@dataclass(frozen=True, kw_only=True)
class FlexPrefill(SparsePrefill):
    """Each head gets its own pattern, with as many blocks as hold a fraction γ of its estimated attention.

    A head is query-aware if the attention of block means predicts that of the last queries,
    √JSD(softmax(q̄ K̄ᵀ), mean of softmax(Q̂ Kᵀ)) < τ (section 3.1): it reads the blocks chosen by the means of all
    queries. For other heads the means are no good estimate, and they read the vertical and slash lines that hold γ of
    the last queries' attention. Every head reads at least `min_budget` tokens of each kind of line, the first block and
    its own.

    Deviation: the paper's lines are one token wide. Here a line is one block wide, so that blocks can be skipped, and
    the kept lines of each kind hold γ of the attention in blocks, so their union does too.
    Deviation: in a query-aware head the first column and the diagonal count towards γ. The released code selects its
    blocks without them and adds them afterwards, so it may read more blocks. Both hold γ.

    Args:
        gamma: in (0, 1]; 1 is dense attention. tau: 0 makes every head vertical-slash.
        min_budget: in tokens. A text that is not longer than this is read densely.
    """

    gamma: float = 0.95
    tau: float = 0.1
    min_budget: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_real(self.gamma) or not 0 < self.gamma <= 1:
            raise ValueError(f"got gamma {self.gamma!r}; expected a fraction of the attention in (0, 1], such as 0.95.")
        if not is_real(self.tau) or self.tau < 0:
            raise ValueError(f"got tau {self.tau!r}; expected a distance of 0 or more, such as 0.1.")
        check_count("min_budget", self.min_budget, unit="tokens", least=0)

    @property
    def longest_dense(self) -> int:
        return max(super().longest_dense, self.min_budget)

    def _choose(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int
    ) -> BlockIndex:
        n_heads, n_tokens = query.shape[:2]
        if self.gamma == 1:
            return dense_index(n_heads, n_tokens, self.block_size, query.device)
        if kernel := self._kernel(query, keys):
            return self._choose_on_kernels(kernel, query, keys, scaling)
        masses = self._masses(query, keys, scaling)
        check_masses(self.gamma, *masses)
        aware = self._divergence(query, keys, scaling, masses[0]) < self.tau
        reads = self._lines(masses, self.gamma)
        if aware.any():
            asked_for = self._blocks(query, keys, scaling) | self._lines(masses, share=0.0)
            reads = torch.where(aware[:, None, None], asked_for, reads)
        return BlockIndex(reads, n_tokens, self.block_size, aware)

    def _check_numbers(self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"]) -> None:
        if self.gamma == 1 or not self._kernel(query, keys):
            super()._check_numbers(query, keys)

    def _kernel(self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"]) -> ModuleType | None:
        if type(self) is not FlexPrefill:  # a subclass may use other masses
            return None
        return kernel_for("cache.prefill_index", query, keys, block_size=self.block_size)

    def _choose_on_kernels(
        self, kernel: ModuleType, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float
    ) -> BlockIndex:
        """Choose the index with a few kernel launches; the host waits for the GPU only once, to check for NaN."""
        query_means, key_means = block_means(query, self.block_size), block_means(keys, self.block_size)
        masses = torch.stack(line_masses(query, keys, scaling, self.block_size))  # (2, heads, N)
        lines, budget = self._enough(masses, self.gamma), self._enough(masses, share=0.0)
        aware = kernel.aware_heads(query.contiguous(), key_means, masses[0], scaling, self.tau, self.block_size)
        if self.tau == 0:  # no head is query-aware, so the means are not used
            blocks = masses.new_empty(query.shape[0], masses.shape[2], masses.shape[2], dtype=torch.bool)
        else:
            guess, always = self._map(query_means, key_means, scaling)
            blocks = smallest_set_of_checked(guess.flatten(1), self.gamma, always=always.flatten(1)).view_as(guess)
        reads = kernel.blocks_read(lines, budget, blocks, aware)
        if not bool((query_means.sum() + key_means.sum() + masses.sum()).isfinite()):  # or their sum overflows
            check_finite("queries and keys", query, keys)
            check_masses(self.gamma, *masses)
        return BlockIndex(reads, query.shape[1], self.block_size, aware, is_checked=True)

    def _masses(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float
    ) -> tuple[Tensor, ...]:
        """Return the mass that the last queries give to columns of blocks, and the other sums that `_lines` needs."""
        return line_masses(query, keys, scaling, self.block_size)

    def _divergence(
        self,
        query: Float[Tensor, "heads T D"],
        keys: Float[Tensor, "H T D"],
        scaling: float,
        columns: Float[Tensor, "heads N"],
    ) -> Float[Tensor, "heads"]:
        """√JSD(ā, â)."""
        return jensen_shannon(self._guess(query, keys, scaling), columns).sqrt()

    def _guess(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float
    ) -> Float[Tensor, "heads N"]:
        """Return ā, the attention of the last queries' mean to the mean keys of blocks; that of these queries is â."""
        mean_query = query[:, -self.block_size :].float().mean(dim=1, keepdim=True)  # (heads, 1, D)
        return _products(mean_query, block_means(keys, self.block_size), scaling).softmax(dim=-1)[:, 0]

    def _lines(self, masses: tuple[Tensor, ...], share: float) -> Bool[Tensor, "heads N N"]:
        """Choose as many columns and diagonals of blocks as the fraction and the budget require (algorithm 3)."""
        columns, diagonals = masses
        return where_lines_are(self._enough(columns, share), self._enough(diagonals, share))

    def _enough(self, mass: Float[Tensor, "*heads N"], share: float) -> Bool[Tensor, "*heads N"]:
        """Return which lines of one kind are kept; the first column and the main diagonal always are."""
        first = torch.zeros_like(mass, dtype=torch.bool)
        first[..., 0] = True
        return smallest_set_of_checked(mass, share, ceil(self.min_budget / self.block_size), always=first)

    def _blocks(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float
    ) -> Bool[Tensor, "heads N N"]:
        """Choose the fewest blocks in the map of block means that hold γ of it (algorithm 4)."""
        guess, always = self._map(block_means(query, self.block_size), block_means(keys, self.block_size), scaling)
        return smallest_set(guess.flatten(1), self.gamma, always=always.flatten(1)).view_as(guess)

    def _map(
        self, query_means: Float[Tensor, "heads N D"], key_means: Float[Tensor, "H N D"], scaling: float
    ) -> tuple[Float[Tensor, "heads N N"], Bool[Tensor, "heads N N"]]:
        """Return the attention of block means to block means, and which blocks are always read."""
        logits = _products(query_means, key_means, scaling)
        n = logits.shape[1]
        guess = logits.masked_fill(~causal_blocks(n, logits.device), -torch.inf).softmax(dim=-1)
        return guess, always_read(n, logits.device).expand_as(guess)


def _products(
    query: Float[Tensor, "heads M D"], keys: Float[Tensor, "H N D"], scaling: float
) -> Float[Tensor, "heads M N"]:
    """Compute scaling · q kᵀ; each key-value head serves G adjacent query heads."""
    return query * scaling @ keys.repeat_interleave(query.shape[0] // keys.shape[0], dim=0).transpose(1, 2)
