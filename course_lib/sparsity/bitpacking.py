"""Small codes packed into bytes, little-endian.

A byte holds p = 8 / bits codes: code j of a row is in byte j // p, shifted left by (j mod p) * bits.

Dimension key: O rows, N codes in a row, P packed bytes in a row.
Each row starts at a new byte, so a kernel finds row o at offset o * P; the unused bits of the last byte are zero.
"""

import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn.functional import pad


def pack(codes: UInt8[Tensor, "O N"], bits: int) -> UInt8[Tensor, "O P"]:
    """Pack codes of 1, 2 or 4 bits, 8 / bits of them per byte."""
    per_byte = codes_per_byte(bits)
    if codes.numel() and int(codes.max()) >= 2**bits:
        raise ValueError(f"a code of {int(codes.max())} needs more than {bits} bits: expected codes below {2**bits}")
    padded = pad(codes, (0, -codes.shape[1] % per_byte))
    shifted = padded.unflatten(1, (-1, per_byte)) << _shifts(bits, codes.device)
    return shifted.sum(2, dtype=torch.uint8)  # the shifted codes share no bit, so their sum is their union


def unpack(packed: UInt8[Tensor, "O P"], bits: int, n: int) -> UInt8[Tensor, "O N"]:
    """Return the first n codes of each row."""
    if n > packed.shape[1] * codes_per_byte(bits):
        raise ValueError(f"{packed.shape[1]} bytes per row hold no {n} codes of {bits} bits: expected a smaller n")
    codes = (packed[:, :, None] >> _shifts(bits, packed.device)) & (2**bits - 1)
    return codes.flatten(1)[:, :n]


def packed_width(n: int, bits: int) -> int:
    """Return the bytes of a row of n codes: n * bits / 8, rounded up."""
    return -(-n // codes_per_byte(bits))


def codes_per_byte(bits: int) -> int:
    if bits not in (1, 2, 4):
        raise ValueError(f"bits={bits}: expected 1, 2 or 4, so that whole codes fill a byte")
    return 8 // bits


def _shifts(bits: int, device: torch.device) -> UInt8[Tensor, "p"]:
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=device)
