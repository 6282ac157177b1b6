"""Answers to the exercises of lesson 00, as people write them."""

import math

import numpy
import torch


def zeros_one_by_one(tensor):
    n = 0
    for number in tensor.reshape(-1):
        if number == 0:
            n += 1
    return n / tensor.numel()


def step_by_case(flops, n_bytes, flops_per_second, bytes_per_second):
    computing, reading = flops / flops_per_second, n_bytes / bytes_per_second
    return computing if computing > reading else reading


def speedup_by_times(share, factor):
    old = 1.0
    fast = 0.0 if math.isinf(factor) else share / factor
    return old / (old - share + fast)


def cache_by_block(n_blocks, n_query, n_key_value, head_size, n_tokens, batch, value_bytes):
    total = 0
    for _ in range(n_blocks):
        keys = batch * n_key_value * n_tokens * head_size
        total += keys + keys
    return total * value_bytes


RIGHT = {
    "start.sparsity": {
        "one by one": zeros_one_by_one,
        "numpy": lambda tensor: float(1 - numpy.count_nonzero(tensor.numpy()) / tensor.numpy().size),
        "by the shape": lambda tensor: (tensor == 0).sum().item() / math.prod(tensor.shape),
        "logical not": lambda tensor: torch.logical_not(tensor).float().mean(),
    },
    "start.intensity": {
        "step by step": lambda o, i, n, b: (2 * o * i * n) / (o * i * b + n * i * b + n * o * b),
        "float64 tensor": lambda o, i, n, b: (
            torch.tensor(2.0, dtype=torch.float64) * o * i * n / ((o * i + n * i + n * o) * b)
        ),
        "tensors without numbers": lambda o, i, n, b: (
            2 * n * o * i / b / sum(torch.empty(s, device="meta").numel() for s in ((o, i), (n, i), (n, o)))
        ),
    },
    "start.step_seconds": {
        "by case": step_by_case,
        "numpy": lambda f, b, fs, bs: numpy.maximum(f / fs, b / bs),
        "by the bound": lambda f, b, fs, bs: f / min(fs, bs * f / b),
    },
    "start.speedup": {
        "by times": speedup_by_times,
        "numpy": lambda p, s: numpy.float64(1) / ((1 - p) + numpy.float64(p) / s),
        "what is saved": lambda p, s: 1 / (1 - (p - p / s)),
    },
    "start.cache_bytes": {
        "block by block": cache_by_block,
        "numpy": lambda n, q, h, d, t, b, v: numpy.prod(numpy.array([2, n, h, d, t, b, v], dtype=object)),
        "math.prod": lambda n, q, h, d, t, b, v: math.prod((b, h, t, d)) * n * v * 2,
    },
}
WRONG = {
    "start.sparsity": {
        "density": lambda t: (t != 0).float().mean().item(),
        "count_nonzero over all": lambda t: torch.count_nonzero(t).item() / t.numel(),
        "count": lambda t: (t == 0).sum(),
        "count of what is not zero": lambda t: torch.count_nonzero(t).item(),
        "by rows": lambda t: (t == 0).sum().item() / t.shape[0],
        "by columns": lambda t: (t == 0).sum().item() / t.shape[-1],
        "below 1e-8": lambda t: (t.abs() < 1e-8).float().mean().item(),
        "below 1e-5": lambda t: (t.abs() < 1e-5).float().mean().item(),
        "not above zero": lambda t: (t <= 0).float().mean().item(),
        "a percentage": lambda t: 100 * (t == 0).float().mean().item(),
        "a number a row": lambda t: (t == 0).float().mean(dim=-1),
        "zeros to the others": lambda t: (t == 0).sum().item() / max(1, torch.count_nonzero(t).item()),
        "mean of truth values": lambda t: (t == 0).mean(),
    },
    "start.intensity": {
        "one FLOP": lambda o, i, n, b: o * i * n / (b * (o * i + n * (o + i))),
        "weights alone": lambda o, i, n, b: 2 * o * i * n / (b * o * i),
        "without outputs": lambda o, i, n, b: 2 * o * i * n / (b * (o * i + n * i)),
        "without inputs": lambda o, i, n, b: 2 * o * i * n / (b * (o * i + n * o)),
        "weights a token": lambda o, i, n, b: 2 * o * i * n / (b * n * (o * i + o + i)),
        "numbers": lambda o, i, n, b: 2 * o * i * n / (o * i + n * (o + i)),
        "bytes a FLOP": lambda o, i, n, b: b * (o * i + n * (o + i)) / (2 * o * i * n),
        "one token": lambda o, i, n, b: 2 * o * i / (b * (o * i + o + i)),
        "activations once": lambda o, i, n, b: 2 * o * i * n / (b * (o * i + o + i)),
        "FLOPs of one token": lambda o, i, n, b: 2 * o * i / (b * (o * i + n * (o + i))),
        "four bytes always": lambda o, i, n, b: 2 * o * i * n / (4 * (o * i + n * (o + i))),
        "times the bytes": lambda o, i, n, b: 2 * o * i * n * b / (o * i + n * (o + i)),
        "bytes of the weight alone": lambda o, i, n, b: 2 * o * i * n / (b * o * i + n * (o + i)),
    },
    "start.step_seconds": {
        "sum": lambda f, b, fs, bs: f / fs + b / bs,
        "shorter": lambda f, b, fs, bs: min(f / fs, b / bs),
        "arithmetic": lambda f, b, fs, bs: f / fs,
        "memory": lambda f, b, fs, bs: b / bs,
        "upside down": lambda f, b, fs, bs: max(fs / f, bs / b),
        "rates swapped": lambda f, b, fs, bs: max(f / bs, b / fs),
        "mean": lambda f, b, fs, bs: (f / fs + b / bs) / 2,
        "products": lambda f, b, fs, bs: max(f * fs, b * bs),
        "by the larger amount": lambda f, b, fs, bs: f / fs if f > b else b / bs,
        "wrong way at the ridge": lambda f, b, fs, bs: f / fs if f / b < fs / bs else b / bs,
        "milliseconds": lambda f, b, fs, bs: 1000 * max(f / fs, b / bs),
        "the larger by the smaller": lambda f, b, fs, bs: max(f, b) / min(fs, bs),
    },
    "start.speedup": {
        "the part alone": lambda p, s: s / p if p else math.inf,
        "speeds averaged": lambda p, s: (1 - p) + p * s,
        "time left": lambda p, s: (1 - p) + p / s,
        "the factor": lambda p, s: s,
        "share times factor": lambda p, s: p * s,
        "the rest forgotten": lambda p, s: 1 / (p / s) if p else math.inf,
        "share and rest swapped": lambda p, s: 1 / (p + (1 - p) / s),
        "rest times factor": lambda p, s: 1 / ((1 - p) + p * s),
        "multiplied through": lambda p, s: s / (s * (1 - p) + p),
        "as a gain": lambda p, s: 1 / (1 - p + p / s) - 1,
        "the limit": lambda p, s: 1 / (1 - p) if p < 1 else math.inf,
        "time saved": lambda p, s: p - p / s,
    },
    "start.cache_bytes": {
        "keys": lambda n, q, h, d, t, b, v: n * h * d * t * b * v,
        "query heads": lambda n, q, h, d, t, b, v: 2 * n * q * d * t * b * v,
        "both kinds of heads": lambda n, q, h, d, t, b, v: 2 * n * (q + h) * d * t * b * v,
        "queries too": lambda n, q, h, d, t, b, v: n * (q + 2 * h) * d * t * b * v,
        "one block": lambda n, q, h, d, t, b, v: 2 * h * d * t * b * v,
        "one sequence": lambda n, q, h, d, t, b, v: 2 * n * h * d * t * v,
        "one token": lambda n, q, h, d, t, b, v: 2 * n * h * d * b * v,
        "one head": lambda n, q, h, d, t, b, v: 2 * n * d * t * b * v,
        "numbers": lambda n, q, h, d, t, b, v: 2 * n * h * d * t * b,
        "bits": lambda n, q, h, d, t, b, v: 16 * n * h * d * t * b * v,
        "the head's size left out": lambda n, q, h, d, t, b, v: 2 * n * h * t * b * v,
        "square of the tokens": lambda n, q, h, d, t, b, v: 2 * n * h * t * t * b * v,
        "the group's size": lambda n, q, h, d, t, b, v: 2 * n * (q // h) * d * t * b * v,
    },
}
