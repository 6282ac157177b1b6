"""A contest: several ways to compute one result, timed in turns in one run, with a lower bound on each time.

Times are only comparable within a run: the sides alternate, so a machine that slows down slows all of them; the caches
are emptied before each run, because a model's other weights would have emptied them; the result is checked first.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from course_lib.measure.roofline import Work


@dataclass(frozen=True)
class Place:
    """The device, type and size of a measurement."""

    device: torch.device
    dtype: torch.dtype
    quick: bool
    generator: torch.Generator

    def randn(self, *shape: int) -> Tensor:
        """Draw normal numbers on the generator's device: a CPU gives equal numbers on all machines, a GPU is faster."""
        numbers = torch.randn(*shape, generator=self.generator, device=self.generator.device)
        return numbers.to(self.device, self.dtype)

    def rand(self, *shape: int) -> Tensor:
        """Draw numbers between 0 and 1 in float32, where the generator is."""
        return torch.rand(*shape, generator=self.generator, device=self.generator.device).to(self.device)


class DoesNotFit(RuntimeError):
    """A side needs more memory than there is: it counts as absent, not as wrong."""


@dataclass(frozen=True)
class Side:
    """One way to compute the result, and its unavoidable work. `expected` is set if its result should differ.

    A side that fills most of the memory is timed alone: `opened` is a context that builds the run and frees its memory
    afterwards, or raises DoesNotFit. Its `run` only returns what is checked, which may be computed at a smaller size.
    `numbers` returns further results of such a side, by name, given the median of its seconds.
    """

    name: str
    run: Callable[[], Tensor]
    work: Work
    expected: Tensor | None = None
    opened: Callable[[], AbstractContextManager[Callable[[], Tensor]]] | None = None
    numbers: Callable[[float], dict[str, float | str]] | None = None


@dataclass(frozen=True)
class Contest:
    """The sides, of which the first is the anchor for all others. `absent`: the sides that cannot run, with reasons.

    `once`: each side takes so long that it runs a single time, timed and then checked. All kernels are compiled before.
    """

    name: str
    shape: tuple[int, ...]  # (O, I)
    sides: list[Side]
    expected: Tensor
    absent: dict[str, str] = field(default_factory=dict)
    once: bool = False

    def try_side(self, name: str, build: Callable[[], Side]) -> None:
        """Add a side that a library may refuse to run on this machine; the reason is then stored instead."""
        try:
            side = build()
            side.run()
        except (RuntimeError, NotImplementedError, ValueError) as error:
            self.absent[name] = str(error).strip().splitlines()[0]
        else:
            self.sides.append(side)


class Clock:
    """Times one call with cold caches: by CUDA events on a GPU, otherwise by the CPU's timer."""

    def __init__(self, place: Place, bytes_per_second: float) -> None:
        self.device = place.device
        # On a GPU the emptying also lasts long enough (1 ms) for the host to have queued what is timed.
        size = max(2**28, int(bytes_per_second * 5e-4)) if place.device.type == "cuda" else 2**27
        self.flush = torch.zeros(2**20 if place.quick else size, dtype=torch.uint8, device=place.device)
        self.n_flushes = 3 if place.device.type == "cuda" else 1

    def seconds(self, run: Callable[[], Tensor]) -> float:
        for _ in range(self.n_flushes):
            self.flush.zero_()
        if self.device.type != "cuda":
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3


@contextmanager
def poisoned_outputs() -> Iterator[None]:
    """Inside, uninitialised memory from torch contains NaN, or the largest integer."""
    enabled, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # which fills it; what cannot be deterministic warns
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warns)


def relative_error(got: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference over the norm of the expected result; NaN if there is any NaN."""
    return float((got.double() - expected.double()).norm() / expected.double().norm())


def run_once(side: Side, contest: Contest, clock: Clock) -> tuple[float, float]:
    """Return the relative error of a side's result, and the seconds of the run that computed it."""
    results = []
    seconds = clock.seconds(lambda: results.append(side.run()))
    return relative_error(results[0], contest.expected if side.expected is None else side.expected), seconds


def race(contest: Contest, clock: Clock, budget: float, limits: tuple[int, int]) -> dict[str, list[float]]:
    """Return the seconds of each repetition of each side. The sides alternate, and so does the side that runs first.

    Repeats as often as fits into `budget` seconds, but within `limits` (fewest, most).
    """
    for side in contest.sides:  # compiles, tunes, and fills the allocator's pools
        side.run()
    seconds: dict[str, list[float]] = {side.name: [] for side in contest.sides}
    for repetition in _repetitions(budget, limits):
        first = repetition % max(len(contest.sides), 1)
        for side in contest.sides[first:] + contest.sides[:first]:
            seconds[side.name].append(clock.seconds(side.run))
    return seconds


def time_alone(side: Side, clock: Clock, budget: float, limits: tuple[int, int]) -> list[float]:
    """Return the seconds of each repetition of a side that is built only for this and freed afterwards."""
    with side.opened() as run:
        run()
        return [clock.seconds(run) for _ in _repetitions(budget, limits)]


def _repetitions(budget: float, limits: tuple[int, int]) -> Iterator[int]:
    begin, (fewest, most) = time.perf_counter(), limits
    for repetition in range(most):
        if repetition >= fewest and time.perf_counter() - begin > budget:
            break
        yield repetition
