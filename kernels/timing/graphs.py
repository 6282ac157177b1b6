"""Record a step as a CUDA graph: one launch replays it, instead of a thousand from Python and the driver."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

WARM_UPS = 3  # compile, tune, and fill the allocator's pools, none of which may happen while recording


class NotCapturable(RuntimeError):
    """The step waits for the GPU, or does something else that a graph cannot contain."""


@dataclass(frozen=True, eq=False)
class Replay:
    """A recorded step. A graph stores only addresses, so we keep the step: its closure owns the graph's tensors."""

    graph: torch.cuda.CUDAGraph
    step: Callable[[], Tensor]
    output: Tensor

    def __call__(self) -> Tensor:
        self.graph.replay()
        return self.output


def captured(step: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Return a replay of the step, which updates all its state in place. Without CUDA graphs, return the step itself.

    Raises:
        NotCapturable: the step may have stopped midway, so its tensors cannot be used again.
    """
    for _ in range(WARM_UPS - 1):
        step()
    if device.type != "cuda":
        step()
        return step
    current, stream, graph = torch.cuda.current_stream(device), _stream(device), torch.cuda.CUDAGraph()
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream), _no_waiting():  # names the operation at which a recording would only abort
            step()
        current.wait_stream(stream)
        with torch.cuda.graph(graph, stream=stream):
            output = step()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        first = error.__context__ or error  # an error while recording is followed by another when it ends
        raise NotCapturable(f"{type(first).__name__}: {first}".splitlines()[0]) from error
    finally:
        torch.cuda.set_stream(current)  # a recording that fails leaves its own stream set
    return Replay(graph, step, output)


@lru_cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return one stream for all recordings, because cuBLAS keeps 32 MB for each stream that it was called on."""
    return torch.cuda.Stream(device)


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Inside, every operation that waits for the GPU raises an error."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
