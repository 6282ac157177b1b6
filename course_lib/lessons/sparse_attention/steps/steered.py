"""The attention of heads that are steered to what is highlighted, of one text.

Dimension key: H heads, Q newest of T tokens, P tokens of the prompt.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.attention.steering.steer import steered


def steered_weights(
    logits: Float[Tensor, "H Q T"], highlighted: Bool[Tensor, "P"], chosen: Bool[Tensor, "H"], alpha: float
) -> Float[Tensor, "H Q T"]:
    """softmax(l + log α) over the prompt's columns that are not highlighted, the first spared, in chosen heads."""
    if logits.shape[-1] < len(highlighted):
        raise ValueError(
            f"got logits of {logits.shape[-1]} keys; expected the {len(highlighted)} of the prompt at least."
        )
    lowered = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
    lowered[1 : len(highlighted)] = ~highlighted[1:]
    return steered(logits, lowered & chosen[:, None, None], alpha).softmax(dim=-1)
