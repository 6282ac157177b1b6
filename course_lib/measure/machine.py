"""Measure what this machine can do: its roofline, and how fast a language model reads and writes on it.

Dimension key: B sequences, N tokens.
"""

import time
from collections.abc import Callable

import torch
from transformers import DynamicCache, PreTrainedModel

from course_lib.measure.result_files import processor_name
from course_lib.measure.roofline import Device

MATRIX = {"cpu": 1536, "cuda": 8192}  # large enough to reach the peak, small enough for a tenth of a second
STREAM_BYTES = {"cpu": 256 * 2**20, "cuda": 4 * 2**30}  # well beyond any last-level cache


def synchronise(device: torch.device) -> None:
    """Wait for a GPU to finish; a CPU needs no wait."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fastest_seconds(function: Callable[[], object], device: torch.device, budget: float = 0.4) -> float:
    """Return the shortest time of several runs after a warm-up: at least three, for `budget` seconds."""
    function()
    synchronise(device)
    times, end = [], time.perf_counter() + budget
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        synchronise(device)
        times.append(time.perf_counter() - start)
    return min(times)


def matmul_flops_per_second(device: torch.device) -> float:
    """float32 matrix product of two square matrices: 2 n³ FLOPs."""
    n = MATRIX[device.type]
    left, right = torch.rand(n, n, device=device), torch.rand(n, n, device=device)
    return 2 * n**3 / fastest_seconds(lambda: left @ right, device)


def read_bytes_per_second(device: torch.device) -> float:
    """Matrix times vector: every byte of the matrix is read once, as in decoding, and other costs are negligible."""
    matrix = torch.rand(STREAM_BYTES[device.type] // (4 * 8192), 8192, device=device)
    vector = torch.rand(8192, device=device)
    return STREAM_BYTES[device.type] / fastest_seconds(lambda: matrix @ vector, device)


def copy_bytes_per_second(device: torch.device) -> float:
    """Copy a tensor; each byte counts twice, once for reading and once for writing."""
    source = torch.rand(STREAM_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    return 2 * STREAM_BYTES[device.type] / fastest_seconds(lambda: target.copy_(source), device)


def measure_device(device: str | torch.device = "cpu") -> Device:
    """Measure both numbers of the roofline in about two seconds: float32 matmul, and reading a matrix.

    On a GPU, torch by default does not use tensor cores for float32 products.
    """
    device = torch.device(device)
    if device.type not in MATRIX:
        raise ValueError(f"got the device {device}, expected one of {', '.join(MATRIX)}")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
    flops, bandwidth = matmul_flops_per_second(device), read_bytes_per_second(device)
    return Device(name, flops, bandwidth, "measured just now: float32 matmul, matrix times vector")


@torch.no_grad()
def prefill_seconds(model: PreTrainedModel, n_tokens: int, batch: int = 1, repeats: int = 3) -> float:
    """Measure the shortest time of reading a prompt of n_tokens random tokens, with logits only for the last one."""
    ids = random_ids(model, batch, n_tokens)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        model(ids, past_key_values=DynamicCache(config=model.config), use_cache=True, logits_to_keep=1)
        synchronise(model.device)
        times.append(time.perf_counter() - start)
    return min(times)


def decode_seconds(model: PreTrainedModel, context: int = 32, batch: int = 1, steps: int = 8) -> float:
    """Measure the median time of decoding a token for each of `batch` sequences with about `context` tokens."""
    return sorted(decode_times(model, context, batch, steps))[steps // 2]


@torch.no_grad()
def decode_times(model: PreTrainedModel, context: int = 32, batch: int = 1, steps: int = 8) -> list[float]:
    """Return the seconds of each of several decoding steps, in order."""
    cache = DynamicCache(config=model.config)
    model(random_ids(model, batch, context), past_key_values=cache, use_cache=True, logits_to_keep=1)
    times = []
    for _ in range(steps + 1):
        token = random_ids(model, batch, 1)
        synchronise(model.device)
        start = time.perf_counter()
        model(token, past_key_values=cache, use_cache=True)
        synchronise(model.device)
        times.append(time.perf_counter() - start)
    return times[1:]  # the first step warms up


def random_ids(model: PreTrainedModel, batch: int, n_tokens: int) -> torch.Tensor:
    """Draw (B, N) random tokens; the time does not depend on which tokens they are."""
    generator = torch.Generator().manual_seed(n_tokens)
    return torch.randint(5, model.config.vocab_size, (batch, n_tokens), generator=generator).to(model.device)
