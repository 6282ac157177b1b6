"""Time a language model, compare it with its roofline, and find the parts that take most of the time.

Dimension key: B sequences, N tokens.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from course_lib.hooks import hooking
from course_lib.measure.machine import decode_times, prefill_seconds, random_ids, synchronise
from course_lib.measure.roofline import Device, Transformer, Work
from course_lib.models import architecture, blocks, head, linears, weight_of

CONTEXT = 32  # tokens in the cache before decoding is timed


@dataclass(frozen=True)
class Timing:
    """One measurement and its work; `n_tokens` is the number of tokens in the pass."""

    kind: str  # "decode" or "prefill"
    n_tokens: int
    work: Work
    seconds: float  # the median of `steps`, if there are any
    steps: tuple[float, ...] = ()  # seconds of each step

    @property
    def flops_per_second(self) -> float:
        """FLOPs of useful arithmetic per second."""
        return self.work.flops / self.seconds

    def of_roofline(self, device: Device) -> float:
        """The least time that the device needs, divided by the measured time: 1 is perfect."""
        return self.work.seconds(device) / self.seconds


def value_bytes(model: PreTrainedModel) -> int:
    """Bytes of one weight."""
    return head(model).weight.element_size()


def time_decoding(model: PreTrainedModel, batches: Sequence[int] = (1, 4, 16)) -> list[Timing]:
    """Time one more token for each of B sequences in one batch."""
    sizes = Transformer.of(model)
    timings = []
    for b in batches:
        steps = decode_times(model, CONTEXT, b)
        work = sizes.decode_step(CONTEXT, b, value_bytes(model))
        timings.append(Timing("decode", b, work, sorted(steps)[len(steps) // 2], tuple(steps)))
    return timings


def time_prefill(model: PreTrainedModel, lengths: Sequence[int] = (16, 64, 256)) -> list[Timing]:
    """Time a prompt of N tokens in one forward pass."""
    sizes = Transformer.of(model)
    return [
        Timing("prefill", n, sizes.prefill(n, 1, value_bytes(model)), prefill_seconds(model, n, repeats=2))
        for n in lengths
    ]


def matrices(model: PreTrainedModel) -> dict[str, list[nn.Module]]:
    """The model's weight matrices by part: attention, MLP, LM head."""
    parts: dict[str, list[nn.Module]] = {"attention matrices": [], "MLP matrices": [], "LM head": [head(model)]}
    for block in blocks(model):
        mlp = architecture(block).mlp
        for name, linear in linears(block).items():
            parts["MLP matrices" if name in mlp else "attention matrices"].append(linear)
    return parts


def part_bytes(model: PreTrainedModel) -> dict[str, int]:
    """Count the bytes of the weights of each part; one decoding step must read all of them."""
    parts = matrices(model)
    return {name: sum(weight_of(m).nbytes for m in modules) for name, modules in parts.items()}


@torch.no_grad()
def part_seconds(model: PreTrainedModel, steps: int = 8) -> dict[str, float]:
    """Measure the median seconds of a decoding step in each part; "everything else" is attention, norms, and Python."""
    cache = DynamicCache(config=model.config)
    model(random_ids(model, 1, CONTEXT), past_key_values=cache, use_cache=True, logits_to_keep=1)
    measured = defaultdict(list)
    for _ in range(steps):
        token = random_ids(model, 1, 1)
        with stopwatch(matrices(model)) as seconds:
            start = time.perf_counter()
            model(token, past_key_values=cache, use_cache=True)
            synchronise(model.device)
            seconds["everything else"] = time.perf_counter() - start - sum(seconds.values())
        for part, value in seconds.items():
            measured[part].append(value)
    return {part: sorted(values)[steps // 2] for part, values in measured.items()}


@contextmanager
def stopwatch(parts: dict[str, list[nn.Module]]) -> Iterator[dict[str, float]]:
    """Measure the seconds in the modules of each part inside the `with` block; the hooks are always removed on exit."""
    seconds = dict.fromkeys(parts, 0.0)
    running: dict[nn.Module, float] = {}

    def begin(module: nn.Module, arguments: tuple) -> None:
        running[module] = time.perf_counter()

    with hooking() as handles:
        for part, modules in parts.items():
            for module in modules:

                def end(module: nn.Module, arguments: tuple, output: object, part: str = part) -> None:
                    synchronise(module.weight.device)
                    seconds[part] += time.perf_counter() - running.pop(module)

                handles += [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
        yield seconds
