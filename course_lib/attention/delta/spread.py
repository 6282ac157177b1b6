"""Measure the spread of a model's keys, which is the unit of a threshold for each channel.

In the default model, the spread of the channels in one layer differs by a factor of 4 to 23. With a single threshold,
some channels would never be sent and others always. The spread is measured on calibration text: on the text itself, a
token's threshold would depend on later tokens, so decoding would send other values than a pass over the whole text.

Dimension key: L layers, H key-value heads, D size of a head, n windows of N tokens.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.registered import Pass, attending
from course_lib.models import blocks, check_all_rotated, check_tokens, heads, rotary_frequencies

SIDES = ("after", "before")  # of RoPE


@dataclass(frozen=True, eq=False)
class Spread:
    """The standard deviation of each channel of the keys, measured before or after RoPE.

    Sums over deltas need keys *after* RoPE. Keys encoded before RoPE are rotated by each token's own angle afterwards,
    so s_ij is not s_{i,j−1} plus a few products: a delta of zero saves memory traffic, but no multiplication.
    """

    deviation: Float[Tensor, "L H D"]
    side: str = "after"
    frequencies: Float[Tensor, "half"] | None = None  # of RoPE, to rotate keys back if `side` is before it

    def keys_of(self, seen: Pass) -> Float[Tensor, "B H T D"]:
        """Return the keys on this side of RoPE."""
        return seen.keys if self.frequencies is None else turned(seen.keys, -seen.position, self.frequencies)

    def as_read(self, keys: Float[Tensor, "B H T D"], seen: Pass) -> Float[Tensor, "B H T D"]:
        """Turn keys of this side into keys after RoPE, which queries multiply."""
        return keys if self.frequencies is None else turned(keys, seen.position, self.frequencies)


def key_spread(model: PreTrainedModel, windows: Int[Tensor, "n N"], side: str = "after") -> Spread:
    """Measure the spread over windows of calibration text, ideally as long as the texts it will be used for.

    Raises:
        ValueError: the side is unknown, or "before" for a model without RoPE; there are fewer than two tokens; or the
            model does not have some of the tokens.
    """
    if side not in SIDES:
        raise ValueError(f"got side {side!r}; expected 'after' RoPE or 'before' it.")
    if windows.numel() < 2:
        raise ValueError(f"got windows of shape {tuple(windows.shape)}; expected at least two tokens.")
    check_tokens(model, windows)
    if side == "before":
        check_all_rotated(model)
    found = Spread(torch.empty(0, 0, 0), side, rotary_frequencies(model) if side == "before" else None)
    shape = len(blocks(model)), 2, heads(model).n_key_value, heads(model).size
    moments = torch.zeros(shape, dtype=torch.float64, device=model.device)

    def note(seen: Pass) -> Tensor:
        keys = found.keys_of(seen).double()
        moments[seen.layer] += torch.stack([keys.sum(dim=(0, 2)), keys.square().sum(dim=(0, 2))])
        return seen.read(seen.logits)

    with attending(model, "course_key_spread", note), torch.no_grad():
        for window in windows:
            model(window[None].to(model.device), use_cache=False, logits_to_keep=1)
    mean, square = (moments / windows.numel()).unbind(dim=1)
    return Spread((square - mean**2).clamp(min=0).sqrt().float(), side, found.frequencies)


def turned(
    keys: Float[Tensor, "B H T D"], by: Int[Tensor, "B T"], frequencies: Float[Tensor, "half"]
) -> Float[Tensor, "B H T D"]:
    """Rotate keys by this number of positions, in pairs of channels (i, i + D/2) as RoPE does; angles are float32."""
    angle = (by[..., None].float() * frequencies.to(keys.device))[:, None]  # (B, 1, T, D/2)
    cos, sin = angle.cos().to(keys.dtype), angle.sin().to(keys.dtype)
    low, high = keys.chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
