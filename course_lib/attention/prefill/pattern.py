"""The interface of sparse prefill: from a layer's queries and keys to a block index. Each rule is one class.

Dimension key: H key-value heads, heads = H * G query heads (neighbours share their keys), T tokens in N blocks of S, D
size of a head. For several sequences of one length, the number of heads is multiplied by their number.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.attention.checks import check_finite
from course_lib.attention.prefill.index import BlockIndex, dense_index
from course_lib.settings import check_count


@dataclass(frozen=True, kw_only=True)
class SparsePrefill(ABC):
    """The settings of a rule; `index` applies the rule."""

    block_size: int = 128

    def __post_init__(self) -> None:
        check_count("block_size", self.block_size, unit="tokens")

    @property
    def longest_dense(self) -> int:
        """The longest text with dense attention: with two blocks, the first block and the diagonal are all blocks."""
        return 2 * self.block_size

    def index(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int = 0
    ) -> BlockIndex:
        """Choose the blocks that the layer reads.

        Args:
            query, keys: of a whole text, after RoPE. scaling: of their products, usually 1 / √D.
            layer: for rules that choose differently in each layer.

        Raises:
            ValueError: the number of heads is not a multiple of the key-value heads, the numbers of queries and keys
                differ, or there is NaN.
        """
        check_heads(query, keys)
        if query.shape[1] <= self.longest_dense:
            return dense_index(query.shape[0], query.shape[1], self.block_size, query.device)
        self._check_numbers(query, keys)
        return self._choose(query, keys, scaling, layer)

    def _check_numbers(self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"]) -> None:
        """Raise ValueError for NaN and infinity; rules that detect them while choosing override this."""
        check_finite("queries and keys", query, keys)

    @abstractmethod
    def _choose(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int
    ) -> BlockIndex:
        """Apply the rule to a text of more than two blocks."""


def check_heads(query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H others size"]) -> None:
    """Raise ValueError unless these are the queries and keys of one text."""
    if not keys.shape[0] or query.shape[0] % keys.shape[0] or query.shape[1:] != keys.shape[1:]:
        raise ValueError(
            f"got queries {tuple(query.shape)} and keys {tuple(keys.shape)}; expected (heads, tokens, size) and "
            "(key-value heads, tokens, size) of the same text, with a whole number of query heads a key-value head."
        )


def check_index(query: Float[Tensor, "heads T D"], index: BlockIndex) -> None:
    """Raise ValueError for an index of other heads, or of a text of another length."""
    if index.reads.shape[0] != query.shape[0] or index.n_tokens != query.shape[1]:
        raise ValueError(
            f"got an index of {index.reads.shape[0]} heads and {index.n_tokens} tokens for queries "
            f"{tuple(query.shape)}; expected the index of these queries and keys."
        )
