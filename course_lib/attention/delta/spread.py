"""How far the keys of a model spread: the unit of a threshold, one a channel.

Channels of one layer's keys differ by a factor of 4 to 23 in the default model, so that one threshold for all would
freeze some and send others always. It is measured on calibration text: measured on the text itself, the threshold of a
token would depend on later ones, and decoding would send other values than reading does.

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
    """The standard deviation of each channel of the keys, and on which side of RoPE it was measured.

    Sums over deltas need keys *after* RoPE. Keys coded before it are then turned by each token's own angle, so that
    s_ij is no longer s_{i,j−1} and a few products: a delta of zero saves a value's way from memory, no multiplication.
    """

    deviation: Float[Tensor, "L H D"]
    side: str = "after"
    frequencies: Float[Tensor, "half"] | None = None  # of RoPE, to turn keys back where `side` is before it

    def keys_of(self, seen: Pass) -> Float[Tensor, "B H T D"]:
        """The keys on this side of RoPE."""
        return seen.keys if self.frequencies is None else turned(seen.keys, -seen.position, self.frequencies)

    def as_read(self, keys: Float[Tensor, "B H T D"], seen: Pass) -> Float[Tensor, "B H T D"]:
        """Keys of this side as a query reads them."""
        return keys if self.frequencies is None else turned(keys, seen.position, self.frequencies)


def key_spread(model: PreTrainedModel, windows: Int[Tensor, "n N"], side: str = "after") -> Spread:
    """Measure it over the tokens of windows of calibration text; best of a length like that of the texts to come.

    Raises:
        ValueError: an unknown side, "before" for a model without RoPE, fewer than two tokens, or tokens that this
            model does not have.
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
    """Keys turned on by so many positions, in pairs of channels (i, i + D/2) as RoPE does; angles in float32."""
    angle = (by[..., None].float() * frequencies.to(keys.device))[:, None]  # (B, 1, T, D/2)
    cos, sin = angle.cos().to(keys.dtype), angle.sin().to(keys.dtype)
    low, high = keys.chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
