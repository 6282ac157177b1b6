"""Dispatch and combine: send tokens to their experts, and sum the weighted outputs.

Dimension key: T tokens, E experts, D width, P pairs of a token and an expert, sorted by expert.

    y_t = Σ_e w_te E_e(x_t)    over the experts with keep_te

All functions return the same result; they differ in what they multiply. Sums are in float32 at least.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.moe.experts import Experts

GROUPED_TYPES = {"cpu": (torch.float32, torch.bfloat16, torch.float16), "cuda": (torch.bfloat16,)}


def token_loop(
    experts: Experts, tokens: Float[Tensor, "T D"], weights: Float[Tensor, "T E"], keep: Bool[Tensor, "T E"]
) -> Float[Tensor, "T D"]:
    """Compute the formula token by token: the slow reference for the other functions."""
    total = torch.zeros_like(tokens, dtype=_sum_type(tokens))
    for token, expert in keep.nonzero().tolist():
        total[token] += weights[token, expert] * experts.one(expert, tokens[token : token + 1])[0]
    return total.to(tokens.dtype)


def all_experts(
    experts: Experts, tokens: Float[Tensor, "T D"], weights: Float[Tensor, "T E"], keep: Bool[Tensor, "T E"]
) -> Float[Tensor, "T D"]:
    """Compute every expert for every token and multiply most outputs by zero: E / k times the work, but no dispatch."""
    # Experts get zeros instead of tokens that are not sent to them: padding may have any values, and the output of an
    # expert that was not chosen may overflow, and its product with a weight of 0 would be NaN.
    rows = [experts.one(e, tokens.where(keep[:, e : e + 1], 0)) for e in range(experts.n_experts)]
    outputs = torch.stack(rows, dim=1).where(keep[..., None], 0)  # (T, E, D)
    return (outputs * weights.where(keep, 0)[..., None]).sum(1).to(tokens.dtype)


def expert_loop(
    experts: Experts, tokens: Float[Tensor, "T D"], weights: Float[Tensor, "T E"], keep: Bool[Tensor, "T E"]
) -> Float[Tensor, "T D"]:
    """Sort pairs by expert and compute one product per expert that has pairs. This works for every type and width."""
    expert, token = pairs(keep)
    parts = tokens[token].split(keep.sum(0).tolist())
    outputs = [experts.one(e, part) for e, part in enumerate(parts) if len(part)]
    return combined(torch.cat([tokens[:0], *outputs]), tokens, weights, expert, token)


def grouped(
    experts: Experts, tokens: Float[Tensor, "T D"], weights: Float[Tensor, "T E"], keep: Bool[Tensor, "T E"]
) -> Float[Tensor, "T D"]:
    """Sort pairs by expert and compute one grouped product per matrix, or use `expert_loop` if torch has none."""
    expert, token = pairs(keep)
    if not can_group(experts, tokens) or len(token) == 0:
        return expert_loop(experts, tokens, weights, keep)
    ends = keep.sum(0).cumsum(0, dtype=torch.int32)  # where each expert's rows end; equal ends mean an idle expert
    hidden = F.grouped_mm(tokens[token], experts.into.transpose(1, 2), offs=ends)  # (P, H)
    hidden = hidden if experts.bias is None else hidden + experts.bias[expert]
    outputs = F.grouped_mm(experts.activation(hidden).contiguous(), experts.out.transpose(1, 2), offs=ends)
    return combined(outputs, tokens, weights, expert, token)


WAYS = {"grouped": grouped, "expert_loop": expert_loop, "all_experts": all_experts, "token_loop": token_loop}


def can_group(experts: Experts, tokens: Float[Tensor, "T D"]) -> bool:
    """Return whether torch has a grouped product for these: one supported type, and rows of a multiple of 16 bytes."""
    weights = (experts.into, experts.out)
    if not hasattr(F, "grouped_mm") or any(weight.dtype != tokens.dtype for weight in weights):
        return False
    rows = [tokens.shape[1], *(size for weight in weights for size in weight.shape[1:])]
    aligned = all(size * tokens.element_size() % 16 == 0 for size in rows)
    aligned &= all(weight.is_contiguous() and weight.data_ptr() % 16 == 0 for weight in weights)
    return aligned and tokens.dtype in GROUPED_TYPES.get(tokens.device.type, ())


def pairs(keep: Bool[Tensor, "T E"]) -> tuple[Int[Tensor, "P"], Int[Tensor, "P"]]:
    """Return expert and token of each pair, ordered by expert and then token, from the columns of the mask."""
    expert, token = keep.T.nonzero(as_tuple=True)
    return expert, token


def combined(
    outputs: Float[Tensor, "P D"],
    tokens: Float[Tensor, "T D"],
    weights: Float[Tensor, "T E"],
    expert: Int[Tensor, "P"],
    token: Int[Tensor, "P"],
) -> Float[Tensor, "T D"]:
    """Return the weighted sum over each token's experts; zero for a token without experts."""
    weighted = outputs * weights[token, expert][:, None]
    total = torch.zeros_like(tokens, dtype=_sum_type(tokens))
    return total.index_add_(0, token, weighted.to(total.dtype)).to(tokens.dtype)


def _sum_type(tokens: Tensor) -> torch.dtype:
    return torch.promote_types(tokens.dtype, torch.float32)
