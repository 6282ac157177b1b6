"""Keys and values in 4 or 8 bits, under any eviction policy. FlexGen: Sheng and others, 2023, https://arxiv.org/abs/2303.06865

Dimension key: B sequences, H key-value heads, N slots, E some tokens, D size of a head, g groups of a vector.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.kernels.dispatch import kernel_for
from course_lib.kv.vectors import VectorFormat


@dataclass(frozen=True)
class Quantized(VectorFormat):
    """x ≈ low + code · step in each group of neighbouring dimensions, low its minimum, step = (max − min)/(2^bits − 1).

    The newest `residual` tokens are stored in full precision, and are rounded when newer tokens replace them. A pass
    over new tokens attends to their exact vectors. Groups lie within one token, so that tokens can be evicted one by
    one. Finer schemes share the scale of a channel between tokens, which does not work with eviction.

    Args:
        bits: 4 (two codes per byte) or 8.
        group: dimensions that share a minimum and a step, each in float16; all dimensions of a head if it has fewer.
        residual: newest tokens kept in full precision.
    """

    bits: int = 4
    group: int = 32
    residual: int = 32

    def __post_init__(self) -> None:
        if type(self.bits) is not int or self.bits not in (4, 8):
            raise ValueError(f"got {self.bits!r} bits; expected 4 or 8.")
        for name, least in (("group", 2), ("residual", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"got {name} {value!r}; expected a whole number, {least} or more.")

    def pack(self, name: str, vectors: Float[Tensor, "B H E D"]) -> dict[str, Tensor]:
        like = vectors.new_empty(0).expand(*vectors.shape[:3], 0)  # remembers the type of the vectors
        group = self._group(vectors.shape[3])
        one = vectors.shape[2] == 1 and vectors.stride(3) == 1
        if one and (kernel := kernel_for("cache.few_bits", like, group=group)):
            codes, low, step = kernel.pack(vectors, self.bits, group)
            return {f"{name}.codes": codes, f"{name}.low": low, f"{name}.step": step, f"{name}.type": like}
        # low = min x, step = (max x − min x) / (2^bits − 1), code = round((x − low) / step), for each group
        groups = vectors.float().unflatten(3, (-1, group))  # (B, H, E, g, D / g)
        low, high = groups.amin(dim=4).half(), groups.amax(dim=4)
        step = ((high - low.float()) / (2**self.bits - 1)).clamp(min=torch.finfo(torch.float16).tiny).half()
        if not bool((low.isfinite() & step.isfinite()).all()):
            raise ValueError(
                f"got {name} of magnitude {float(vectors.abs().max()):g}; expected numbers up to 65504, the largest of "
                "float16, in which minimum and step are stored. Use a cache without `vectors=`."
            )
        codes = ((groups - low.float()[..., None]) / step.float()[..., None]).round().clamp(0, 2**self.bits - 1)
        codes = codes.to(torch.uint8).flatten(3)
        if self.bits == 4:
            codes = codes[..., ::2] | codes[..., 1::2] << 4
        return {f"{name}.codes": codes, f"{name}.low": low, f"{name}.step": step, f"{name}.type": like}

    def unpack(self, name: str, storage: dict[str, Tensor], n: int) -> Float[Tensor, "B H n D"]:
        codes, low, step = (storage[f"{name}.{part}"][:, :, :n] for part in ("codes", "low", "step"))
        dtype = storage[f"{name}.type"].dtype
        if kernel := kernel_for("cache.few_bits", storage[f"{name}.type"], codes, low, step):
            return kernel.unpack(codes, low, step, self.bits, dtype)
        if self.bits == 4:
            codes = torch.stack([codes & 15, codes >> 4], dim=4).flatten(3)
        groups = codes.unflatten(3, (low.shape[3], -1)).float() * step.float()[..., None] + low.float()[..., None]
        return groups.flatten(3).to(dtype)

    def _group(self, size: int) -> int:
        group = min(self.group, size)
        if size % group:
            raise ValueError(f"got heads of {size} dimensions in groups of {group}; expected a divisor of {size}.")
        if self.bits == 4 and size % 2:
            raise ValueError(f"got heads of {size} dimensions; expected an even number, two to the byte, or 8 bits.")
        return group
