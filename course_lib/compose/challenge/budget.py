"""The budget: the fraction of the dense model's bytes that a recipe may store, and the fraction that a token may read.

A model reads only bytes that it stores. A model that stores a third therefore reads a third or less, and a limit of a
half on reading would have no effect. A limit of a quarter has one: with table and weights on 4 bits in groups of 32 and
a cache on 4 bits, a model stores less than a third (29.5 %) but reads more than a quarter, unless each token skips
nearly half of the neurons (24.3 %).

Dimension key: O outputs of a layer, I its inputs.
"""

from dataclasses import dataclass

from transformers import PreTrainedModel

from course_lib.compose.choices import BITS, SPARSEST
from course_lib.compose.counting.account import NUMBER_BYTES, Account
from course_lib.compose.counting.expected import POSITION_BYTES
from course_lib.compose.kept import NUMBER
from course_lib.compose.part import tables_of
from course_lib.contextual.sizes import sizes_of
from course_lib.models import architecture, blocks, heads, layers_of, weight_of
from course_lib.quantization.storage import dense_bytes, sparse_bytes
from course_lib.settings import is_real

# The highest sparsity, the rest and the table on the fewest bits, one slot per head, one neuron per block.
LEANEST = {
    "weights": {"method": "Magnitude", "pattern": SPARSEST, "bits": min(BITS), "rounding": "nearest"},
    "embedding": {"bits": min(BITS)},
    "neurons": {"selector": "Static", "density": 1e-6},
    "cache": {"policy": "Window", "budget": 1},
}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Fractions of the dense model's bytes; a recipe may reach both limits but not exceed them.

    Args:
        held: of weights and cache together. read: of the bytes that one decoded token reads, including the cache.
    """

    held: float = 1 / 3
    read: float = 1 / 4

    def __post_init__(self) -> None:
        for name, share in (("held", self.held), ("read", self.read)):
            if not (is_real(share) and 0 < share <= 1):
                raise ValueError(
                    f"got a budget of {share!r} of the bytes {name}; expected a share above 0 and up to 1."
                )

    def check(self, model: PreTrainedModel, dense: Account) -> None:
        """Raise ValueError for a budget that is too small for every recipe, with the smallest possible one."""
        least = smallest(model, dense)
        if self.held < least.held or self.read < least.read:
            raise ValueError(
                f"got a budget of {self.held:.2%} stored and {self.read:.2%} read; expected at least {least.held:.2%} "
                f"and {least.read:.2%}, which the smallest recipe needs: {SPARSEST:.0%} of the weights pruned, the "
                f"rest on {min(BITS)} bits, one slot per head, one neuron per block."
            )


BUDGET = Budget()


def smallest(model: PreTrainedModel, dense: Account) -> Budget:
    """Compute the fractions of `LEANEST` from its formats, without the zeros that only rounding makes."""
    shape, (n_blocks, _, n_neurons) = heads(model), sizes_of(model)
    sizes = {(layer.name, layer.part): _leanest(*weight_of(layer.module).shape) for layer in layers_of(model)}
    tables = sum(dense_bytes(*table.shape, min(BITS)) for table in tables_of(model).values())
    counted = sum(weight_of(layer.module).numel() for layer in layers_of(model))
    counted += sum(table.numel() for table in tables_of(model).values())
    rest = tables + NUMBER_BYTES * (sum(each.numel() for each in model.parameters()) - counted)
    rest += n_blocks * shape.n_key_value * (POSITION_BYTES + 2 * NUMBER_BYTES * shape.size)  # one slot per head
    rest += NUMBER * n_blocks * n_neurons  # a list of what matters, by which a neuron is chosen
    # A token reads a row of the table and the LM head, and the weights of one neuron in each matrix of the MLP.
    row = -(-tables // len(model.get_input_embeddings().weight))
    names = architecture(blocks(model)[0]).mlp
    read = sum(-(-size // n_neurons) if part in names else size for (_, part), size in sizes.items())
    return Budget(
        held=min(1.0, (rest + sum(sizes.values())) / dense.held), read=min(1.0, (rest + row + read) / dense.read)
    )


def _leanest(rows: int, columns: int) -> int:
    """Return the bytes of one matrix (O, I)."""
    n_stored = -(-rows * columns * round(100 * (1 - SPARSEST)) // 100) + rows
    return sparse_bytes(rows, columns, n_stored, min(BITS))
