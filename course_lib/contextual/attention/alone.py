"""Compute the input of a block's MLP for a token without context: its embedding replaces the residual.

Dimension key: T tokens, D width, H query heads, G key-value heads, d size of a head.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from course_lib.contextual.attention.trials import differ, in_words, trials
from course_lib.models import architecture, blocks, heads, weight_of


@dataclass(frozen=True, eq=False, kw_only=True)
class AloneBlock:
    """x = norm₂(e + W_o v) with v = W_v norm₁(e): the attention output of a single token is its own value vector.

    The weights are views of the model's parameters.
    """

    norms: tuple[nn.Module, nn.Module]  # before attention, before the MLP
    value: Float[Tensor, "Gd D"]
    output: Float[Tensor, "D Hd"]
    size: int  # of a head
    value_bias: Float[Tensor, "Gd"] | None = None
    output_bias: Float[Tensor, "D"] | None = None

    def read(self, embedding: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """Return x of tokens that do not attend to each other."""
        # Call the norms without their hooks, which are for the model's own pass.
        value = linear(self.norms[0].forward(embedding), self.value, self.value_bias)
        by_group = value.unflatten(1, (-1, self.size))  # (T, G, d)
        of_heads = by_group.repeat_interleave(self.output.shape[1] // value.shape[1], dim=1).flatten(1)
        return self.norms[1].forward(embedding + linear(of_heads, self.output, self.output_bias))


def alone_blocks(model: PreTrainedModel) -> tuple[AloneBlock, ...]:
    """Return one AloneBlock per block.

    Raises:
        ValueError: the family of the model is unknown, or its blocks compute x in another way.
    """
    found = tuple(_alone(block, model) for block in blocks(model))
    for index, (block, trial) in enumerate(zip(found, trials(model, n_tokens=1), strict=True)):
        if differ(block.read(trial.read[0]), trial.into_mlp[0]):
            raise ValueError(
                f"got a {in_words(model)}, in which the MLP of block {index} does not read norm(e + W_o W_v norm(e)) "
                "of a token alone; expected blocks of norm, attention, norm, MLP whose parts are added as they are, "
                "such as Llama's."
            )
    return found


def _alone(block: nn.Module, model: PreTrainedModel) -> AloneBlock:
    family, count = architecture(block), heads(model)
    value, output = (block.get_submodule(name) for name in family.attention[-2:])
    n_values = count.n_key_value * count.size
    biases = [None if layer.bias is None else layer.bias.detach() for layer in (value, output)]
    return AloneBlock(
        norms=tuple(block.get_submodule(name) for name in family.norms),
        value=weight_of(value)[-n_values:],  # where query, key and value are one matrix they come in this order
        output=weight_of(output),
        size=count.size,
        value_bias=None if biases[0] is None else biases[0][-n_values:],
        output_bias=biases[1],
    )
