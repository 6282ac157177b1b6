"""Soft MoE. Puigcerver, Riquelme, Mustafa, Houlsby, From sparse to soft mixtures of experts, 2023, https://arxiv.org/abs/2308.00951

It has no router: tokens are neither sent nor dropped. Experts process slots, which are weighted means of all tokens.

Dimension key: B sequences, N tokens, D width, E experts, S slots of each.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_lib.moe.checks import check_count
from course_lib.moe.experts import Experts


class SoftMoE(nn.Module):
    """X̃ = Dᵀ X, Ỹ = the experts' outputs for their slots, Y = C Ỹ (section 2.1), with the logits X Φ.

    D is the softmax of the logits over tokens, so a slot is a mean of tokens; C is the softmax over slots, so a token
    is a mean of outputs. E · S slots cost as much as E · S tokens. Every slot depends on every token: not causal.

    Deviation: X and Φ are not normalised to unit length first, as the paper does for large widths.

    Args:
        slots: Φ, (D, E, S).
    """

    def __init__(self, experts: Experts, slots: Float[Tensor, "D E S"]) -> None:
        super().__init__()
        if slots.shape[:2] != (experts.width, experts.n_experts):
            raise ValueError(
                f"got slots {tuple(slots.shape)}; expected (width, experts, slots of each), beginning with "
                f"{(experts.width, experts.n_experts)}."
            )
        self.experts, self.slots = experts, nn.Parameter(slots)

    def forward(self, x: Float[Tensor, "B N D"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N D"]:
        """Return the output; it is zero for padding, which is in no slot.

        Raises:
            ValueError: a sequence has no tokens.
        """
        real = torch.ones_like(x[..., 0], dtype=torch.bool) if real is None else real
        if x.shape[1] == 0 or not real.any(1).all():
            raise ValueError("got a sequence without tokens; expected at least one in each.")
        x = x.where(real[..., None], 0)
        logits = torch.einsum("bnd,des->bnes", x, self.slots)
        dispatch = logits.masked_fill(~real[..., None, None], float("-inf")).softmax(dim=1)
        combine = logits.flatten(2).softmax(dim=2).view_as(logits)
        read = torch.einsum("bnes,bnd->ebsd", dispatch, x)
        made = torch.stack([self.experts.one(e, rows.flatten(0, 1)).view_as(rows) for e, rows in enumerate(read)])
        return torch.einsum("bnes,ebsd->bnd", combine, made).where(real[..., None], 0)


def random_soft(experts: Experts, n_slots: int, generator: torch.Generator | None = None) -> SoftMoE:
    """Return a layer with random normal slots of standard deviation 1 / √D.

    Raises:
        ValueError: there is less than one slot.
    """
    check_count("n_slots", n_slots)
    shape = (experts.width, experts.n_experts, n_slots)
    return SoftMoE(experts, torch.randn(shape, generator=generator) / experts.width**0.5)
