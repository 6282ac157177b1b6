"""Decoding with a whole Llama of 8B parameters: tokens per second and memory, by the contents of its cache.

Weights and slots are random, and the slots are filled directly, as after a prompt: no time depends on their values. A
step is recorded as a CUDA graph and replayed; one contest without graphs shows the cost of launches. Two caches of a
long text rarely fit next to each other, so the sides are timed one after the other. Each is checked at a smaller size:
two steps, by the library's kernels and by its PyTorch code. Three contests decode with the largest batch that fits.
"""

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from course_lib.kernels.dispatch import kernels
from course_lib.kernels.timing.contest import Contest, DoesNotFit, Place, Side
from course_lib.kernels.timing.filled_caches import (
    D2O_KEPT,
    EVERY,
    FULL,
    FULL_STEP,
    H2O_KEPT,
    LOW_BITS,
    METHODS,
    RECYCLED,
    SNAPKV,
    STATIC,
    STREAMING,
    WINDOW,
    FilledCache,
    bytes_allocated,
)
from course_lib.kernels.timing.fused_parts import fused_parts
from course_lib.kernels.timing.graphs import NotCapturable, captured
from course_lib.kernels.timing.random_llama import LLAMA3_8B, TINY, random_llama
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel, StaticCache

from course_lib.kv.layers import EvictingCache
from course_lib.measure.roofline import Transformer

GPU_SECONDS = 85  # the model included
CHECKED_ONCE = True  # new random numbers would need another model
# Of the logits. In bfloat16 each of two right ways is off by 0.016 after 64 branches of rounding, hence both from each
# other by 0.022; values that are shifted by one slot, or attention without any, are off by 0.16 to 0.22.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
RESERVE = 3 * 2**30  # bytes of a GPU that are not available to a cache: activations, graphs, workspaces
LARGEST = 0  # sequences of a cell: as many as fit
PREPARED = 32  # sequences in place of those
# cuDNN would build a plan for each new length of a cache that grows, in each step and while a graph is recorded.
WITHOUT_PLANS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class Cell:
    """The measurement of one contest."""

    n_context: int  # tokens before the step
    n_sequences: int  # or LARGEST
    as_graph: bool = True
    fused: bool = False  # whether to fuse small operations of the model, which the library does not change
    methods: tuple[str, ...] = METHODS
    finds_largest: bool = False  # also computes the largest batch that fits

    @property
    def name(self) -> str:
        how = ("" if self.as_graph else ", no CUDA graph") + (", fused parts" if self.fused else "")
        if self.n_sequences == LARGEST:
            return f"largest batch, {self.n_context:,} tokens: {', '.join(self.methods)}{how}"
        return f"batch {self.n_sequences}, {self.n_context:,} tokens{how}"


# The most important first, because there may be too little time for all.
CELLS = (
    Cell(32768, 8, finds_largest=True),
    Cell(8192, 1, methods=(FULL, STATIC, WINDOW, H2O_KEPT, SNAPKV, LOW_BITS)),
    Cell(8192, 32, methods=(FULL, WINDOW, STREAMING, H2O_KEPT)),
    # Each at its own largest batch. The steps of D2O wait for the GPU, as each merges what it evicts.
    Cell(32768, LARGEST, methods=(FULL,)),
    Cell(32768, LARGEST, methods=(H2O_KEPT,)),
    Cell(32768, LARGEST, as_graph=False, methods=(D2O_KEPT,)),
    Cell(32768, 1, methods=(FULL, STATIC, H2O_KEPT)),
    Cell(32768, 32, methods=(FULL, WINDOW, H2O_KEPT)),
    Cell(8192, 1, as_graph=False, methods=(FULL, H2O_KEPT)),
    Cell(8192, 8, methods=(FULL, H2O_KEPT)),
    Cell(32768, 8, fused=True, methods=(FULL, H2O_KEPT)),
)
QUICK = (
    Cell(60, 2, finds_largest=True),
    Cell(60, 1, as_graph=False, fused=True, methods=(FULL, H2O_KEPT)),
    Cell(60, LARGEST, as_graph=False, methods=(FULL, D2O_KEPT)),
)
CHECKED, QUICK_CHECKED = (2048, 1), (170, 1)  # tokens and sequences; of 170, 34 slots are kept, 32 of them unrounded


def contests(
    place: Place, cells: tuple[Cell, ...] | None = None, shape: Transformer | None = None
) -> Iterator[Contest]:
    """Yield one contest per cell; none on a CPU, which would take minutes per step."""
    if place.device.type == "cpu" and not place.quick:
        return
    before = allocated(place.device)
    shape = shape or (TINY if place.quick else LLAMA3_8B)
    decoder = Decoder(random_llama(shape, place), shape, place, before)
    cells = cells or (QUICK if place.quick else CELLS)
    methods = dict.fromkeys(name for cell in cells for name in cell.methods)
    checks = {method: decoder.check(method) for method in methods}
    for cell in cells:
        with fused_parts(decoder.model) if cell.fused else nullcontext():
            yield decoder.contest(cell, checks)


def prepared(place: Place, cells: tuple[Cell, ...] = CELLS) -> Iterator[Contest]:
    """Run the library's kernels in a model of one block, whose caches are a 32nd as large."""
    if place.quick:
        yield from contests(place)
        return
    own = []
    for cell in cells:
        methods = tuple(name for name in cell.methods if name != STATIC)
        own.append(replace(cell, methods=methods, n_sequences=cell.n_sequences or PREPARED, finds_largest=False))
    yield from contests(place, tuple(own), replace(LLAMA3_8B, n_blocks=1, vocabulary=1024))


def summary(rows: list[dict[str, Any]]) -> str:
    """Report how much faster H2O decodes than the complete cache, by contest."""
    rows = [row for row in rows if row["side"] == H2O_KEPT and "times_full" in row.get("numbers", {})]
    return " ".join(
        f"{row['contest']}: H2O with 20 % of the slots decodes {row['numbers']['tokens_per_second']:,.0f} tokens per "
        f"second, {row['numbers']['times_full']:.2f} times as many as with all."
        for row in rows
    )


@dataclass
class Decoder:
    """Decodes with one model and one cache after the other."""

    model: PreTrainedModel
    shape: Transformer
    place: Place
    before: int  # bytes that were allocated before the model was
    full_step_seconds: dict[Cell, float] = field(default_factory=dict)
    full_rates: dict[tuple[int, int], float] = field(default_factory=dict)  # tokens per second, by context and batch

    @property
    def model_bytes(self) -> int:
        return sum(weight.nbytes for weight in self.model.parameters())

    def contest(self, cell: Cell, checks: dict[str, tuple[Callable[[], Tensor], Tensor]]) -> Contest:
        sides = [self._side(method, cell, *checks[method]) for method in cell.methods]
        return Contest(cell.name, (cell.n_sequences, cell.n_context), sides, sides[0].expected)

    def _as_many_as_fit(self, method: str, n_context: int) -> int:
        """Return the number of sequences that fit; 2 without a GPU."""
        if self.place.device.type != "cuda":
            return 2
        room = self.free_bytes() - RESERVE
        return int(room / FilledCache(method, n_context, 1).bytes_needed(self.shape, self.place.dtype.itemsize))

    def _side(self, method: str, cell: Cell, check: Callable[[], Tensor], expected: Tensor) -> Side:
        measured: dict[str, float | str] = {}
        filled = FilledCache(method, cell.n_context, cell.n_sequences or self._as_many_as_fit(method, cell.n_context))
        return Side(
            method,
            check,
            filled.work(self.shape, self.place.dtype.itemsize),
            expected,
            opened=lambda: self._opened(filled, cell.as_graph, measured),
            numbers=lambda seconds: self._numbers(filled, cell, measured, seconds),
        )

    def check(self, method: str) -> tuple[Callable[[], Tensor], Tensor]:
        """Return the method's result with kernels, and the expected one. The two complete caches check each other.

        An error is raised only when the result is used, so that the other methods are still checked.
        """
        others = {FULL: STATIC, STATIC: FULL}
        try:
            with kernels(False):
                expected = self._two_steps(others.get(method, method))
            with kernels(True):
                got = self._two_steps(method)
        except Exception as error:
            return _raising(_with_traceback(error)), torch.zeros(1)
        return lambda: got, expected

    def _two_steps(self, method: str) -> Tensor:
        """Return the logits of two steps at a small size; the second step reads the cache that the first one left."""
        filled = FilledCache(method, *(QUICK_CHECKED if self.place.quick else CHECKED))
        with filled.opened(self.model, self.place) as cache:
            _, step = self._step(cache, filled)
            return torch.cat([step().clone() for _ in range(2)])

    def _step(self, cache: EvictingCache | StaticCache, filled: FilledCache) -> tuple[Tensor, Callable[[], Tensor]]:
        """Return the step's input tokens, and the step: it returns the logits and advances the positions by one."""
        token = (torch.arange(filled.n_sequences, device=self.place.device) % self.shape.vocabulary)[:, None].clone()
        position = torch.full_like(token, filled.n_context)

        @torch.no_grad()
        def run() -> Tensor:
            with nullcontext() if filled.method == STATIC else sdpa_kernel(WITHOUT_PLANS):
                output = self.model(token, position_ids=position, past_key_values=cache, use_cache=True)
            position.add_(1)
            return output.logits[:, -1]

        return token, run

    def greedy(self, cache: EvictingCache | StaticCache, filled: FilledCache) -> Callable[[], Tensor]:
        """Return a step that reads the tokens to which the previous step gave the highest probability."""
        token, step = self._step(cache, filled)

        def run() -> Tensor:
            logits = step()
            token.copy_(logits.argmax(dim=-1, keepdim=True))
            return logits

        return run

    @contextmanager
    def _opened(self, filled: FilledCache, as_graph: bool, measured: dict[str, float | str]) -> Iterator[Callable]:
        """Yield a decoding step; on exit, its memory is measured and freed."""
        self._check_fits(filled)
        try:
            with ExitStack() as stack:
                cache, run = self._ready(stack, filled, as_graph, measured)
                yield run
                if self.place.device.type == "cuda":
                    measured["peak_bytes"] = torch.cuda.max_memory_allocated(self.place.device) - self.before
                measured["cache_bytes"] = bytes_allocated(cache)
        except torch.OutOfMemoryError as error:
            raise DoesNotFit(f"{error}".splitlines()[0]) from None
        except Exception as error:
            raise _with_traceback(error) from None

    def _ready(
        self, stack: ExitStack, filled: FilledCache, as_graph: bool, measured: dict[str, float | str]
    ) -> tuple[EvictingCache | StaticCache, Callable[[], Tensor]]:
        """Return the cache and its step, as a CUDA graph if requested and supported by the method."""
        if as_graph:
            cache = self._fill(stack, filled)
            try:
                measured["graph"] = 1.0
                return cache, captured(self.greedy(cache, filled), self.place.device)
            except NotCapturable as why:
                measured["no_graph"] = str(why)
            stack.close()
            del cache
            self.free_bytes()
        measured["graph"] = 0.0
        cache = self._fill(stack, filled)
        run = self.greedy(cache, filled)
        for _ in range(2):
            run()
        return cache, run

    def _fill(self, stack: ExitStack, filled: FilledCache) -> EvictingCache | StaticCache:
        """Fill a cache; the memory that this takes does not count for decoding."""
        cache = stack.enter_context(filled.opened(self.model, self.place))
        if self.place.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.place.device)
        return cache

    def _check_fits(self, filled: FilledCache) -> None:
        """Raise DoesNotFit before any memory is allocated."""
        least = filled.vector_bytes(self.shape, self.place.dtype.itemsize, filled.n_held)
        if least > (free := self.free_bytes()):
            raise DoesNotFit(
                f"does not fit: keys and values take {least / 1e9:.1f} GB, and next to the weights "
                f"({self.model_bytes / 1e9:.1f} GB) {free / 1e9:.1f} GB are free"
            )

    def free_bytes(self) -> float:
        """Return the GPU's free memory, after cached blocks have been returned to it."""
        if self.place.device.type != "cuda":
            return float("inf")
        if allocated(self.place.device) > self.before + self.model_bytes + 2**28:
            gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.place.device)[0]

    def _numbers(
        self, filled: FilledCache, cell: Cell, measured: dict[str, float | str], seconds: float
    ) -> dict[str, float | str]:
        """Return further results. For recycled attention, one in 50 steps is full."""
        numbers, kind = dict(measured), (cell.n_context, cell.n_sequences)
        if filled.method == FULL_STEP:
            self.full_step_seconds[cell] = seconds
        elif filled.method == RECYCLED and cell in self.full_step_seconds:
            seconds = ((EVERY - 1) * seconds + self.full_step_seconds[cell]) / EVERY
            numbers["seconds_with_full_steps"] = seconds
        numbers["tokens_per_second"] = rate = filled.n_sequences / seconds
        if filled.method == FULL:
            self.full_rates[kind] = rate
        if kind in self.full_rates:
            numbers["times_full"] = rate / self.full_rates[kind]
        if cell.n_sequences == LARGEST:
            numbers["largest_batch"] = filled.n_sequences
        if cell.finds_largest and self.place.device.type == "cuda":
            numbers |= self._largest_batch(cell, numbers["peak_bytes"])
        return numbers

    def _largest_batch(self, cell: Cell, peak_bytes: float) -> dict[str, float]:
        """Compute the largest batch from the bytes per sequence, and test if so many bytes can be allocated."""
        per_sequence = (peak_bytes - self.model_bytes) / cell.n_sequences
        largest = int((self.free_bytes() + self.before - RESERVE) / per_sequence)
        n_bytes = max(0, int(largest * per_sequence) - self.before)
        try:
            torch.empty(n_bytes, dtype=torch.uint8, device=self.place.device)
            was_allocated = 1.0
        except torch.OutOfMemoryError:
            was_allocated = 0.0
        return {"bytes_per_sequence": per_sequence, "largest_batch": largest, "was_allocated": was_allocated}


def allocated(device: torch.device) -> int:
    """Return the bytes of tensors on a GPU."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _raising(error: Exception) -> Callable[[], Tensor]:
    def run() -> Tensor:
        raise error

    return run


def _with_traceback(error: Exception) -> RuntimeError:
    """Return the error with its traceback as text, because the frames of a traceback would keep the cache in memory."""
    return RuntimeError("".join(traceback.format_exception(error)[-6:])[-900:])
