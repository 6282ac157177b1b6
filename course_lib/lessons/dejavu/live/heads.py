"""A student's measure of heads as the score by which each token keeps some.

Dimension key: T tokens, H query heads, d size of a head, D width.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.attention.heads import HeadScore
from course_lib.models import architecture, blocks, heads, weight_of

HeadNorms = Callable[[Float[Tensor, "T Hd"], Float[Tensor, "D Hd"], int], Float[Tensor, "T H"]]


def by_function(model: PreTrainedModel, function: HeadNorms) -> HeadScore:
    """function(heads side by side (T, H * d), the output projection's weight (D, H * d), H) -> (T, H), high = keep."""
    weights = [weight_of(block.get_submodule(architecture(block).attention[-1])) for block in blocks(model)]
    n_heads = heads(model).n_query
    return lambda seen, block: function(seen.outputs.flatten(1), weights[block], n_heads)
