"""A Llama whose small operations are fused, as engines that serve models fuse them, for a step of decoding.

In a step, transformers' Llama launches eight kernels for each norm, ten for RoPE and two for the gate. They hardly move
any bytes, but together take a good part of the time that an eviction saves. All sides of a contest get the same model.

Dimension key: B sequences, H query heads, K key-value heads, D size of a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType

import torch
from course_lib.kernels.runtime import jit, runs_kernel, tl, triton
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.llama import modeling_llama

BLOCK = 1024  # numbers of a program


@jit
def turn_kernel(
    query, key, cos, sin, new_query, new_key, H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """RoPE of one head of one token."""
    sequence, head, half = tl.program_id(0), tl.program_id(1), D // 2
    d = tl.arange(0, BLOCK_D)
    c = tl.load(cos + sequence * D + d, mask=d < half).to(tl.float32)
    s = tl.load(sin + sequence * D + d, mask=d < half).to(tl.float32)
    if head < H:
        source, target, row = query, new_query, sequence * H + head
    else:
        source, target, row = key, new_key, sequence * K + head - H
    low = tl.load(source + row * D + d, mask=d < half).to(tl.float32)
    high = tl.load(source + row * D + half + d, mask=d < half).to(tl.float32)
    tl.store(target + row * D + d, (low * c - high * s).to(target.dtype.element_ty), mask=d < half)
    tl.store(target + row * D + half + d, (high * c + low * s).to(target.dtype.element_ty), mask=d < half)


@jit(lengths=("N",))
def gate_kernel(gate, up, hidden, N, BLOCK: tl.constexpr):
    """silu(gate) · up."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + n, mask=n < N).to(tl.float32)
    u = tl.load(up + n, mask=n < N).to(tl.float32)
    tl.store(hidden + n, (g / (1 + tl.exp(-g)) * u).to(hidden.dtype.element_ty), mask=n < N)


@contextmanager
def fused_parts(model: PreTrainedModel) -> Iterator[None]:
    """Inside, norms, RoPE of single tokens and the gates of the MLPs are one kernel each; on a CPU, only the norms."""
    norms = [(part, name) for part in model.modules() for name, norm in part.named_children() if _is_norm(norm)]
    before = [getattr(part, name) for part, name in norms]
    mlps = [part for part in model.modules() if isinstance(part, modeling_llama.LlamaMLP)]
    turn = modeling_llama.apply_rotary_pos_emb
    for (part, name), norm in zip(norms, before, strict=True):
        setattr(part, name, _fused_norm(norm))
    for mlp in mlps:
        mlp.forward = MethodType(_mlp, mlp)
    modeling_llama.apply_rotary_pos_emb = lambda query, key, cos, sin: _turned(turn, query, key, cos, sin)
    try:
        yield
    finally:
        modeling_llama.apply_rotary_pos_emb = turn
        for mlp in mlps:
            del mlp.forward
        for (part, name), norm in zip(norms, before, strict=True):
            setattr(part, name, norm)


def _is_norm(module: nn.Module) -> bool:
    return hasattr(module, "variance_epsilon")


def _fused_norm(norm: nn.Module) -> nn.RMSNorm:
    with torch.device("meta"):
        fused = nn.RMSNorm(len(norm.weight), eps=norm.variance_epsilon)
    fused.weight = norm.weight
    return fused


def _turned(turn, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries (B, H, 1, D) and keys (B, K, 1, D) by the angles of each token, (B, 1, D)."""
    n_sequences, n_heads, n_tokens, size = query.shape
    tensors, angles = (query, key, cos, sin), (n_sequences, n_tokens, size)
    plain = n_tokens == 1 and cos.shape == angles and all(tensor.is_contiguous() for tensor in tensors)
    if not (plain and runs_kernel(query)):
        return turn(query, key, cos, sin)
    turned = torch.empty_like(query), torch.empty_like(key)
    block = triton.next_power_of_2(size // 2)
    with torch.cuda.device_of(query):
        turn_kernel[n_sequences, n_heads + key.shape[1]](
            *tensors, *turned, H=n_heads, K=key.shape[1], D=size, BLOCK_D=block, num_warps=1
        )
    return turned


def _mlp(mlp: nn.Module, x: Tensor) -> Tensor:
    gate, up = mlp.gate_proj(x), mlp.up_proj(x)
    if not runs_kernel(gate):
        return mlp.down_proj(mlp.act_fn(gate) * up)
    hidden = torch.empty_like(gate)
    with torch.cuda.device_of(gate):
        gate_kernel[(triton.cdiv(gate.numel(), BLOCK),)](gate, up, hidden, gate.numel(), BLOCK=BLOCK)
    return mlp.down_proj(hidden)
