"""Runs a warp-specialised Gluon kernel on the CPU: each group of warps is a thread, and barriers are real.

Only what `hopper_prefill` uses is here. Copies and products happen at once, but a copy becomes visible through its
barrier alone: what is read too early, or overwritten too early, is NaN or another block's.
"""

import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

SECONDS = 20  # until a wait counts as a deadlock


class Barrier:
    """An mbarrier: a phase ends when all arrivals and all expected bytes have come."""

    def __init__(self) -> None:
        self.condition, self.phase, self.count, self.pending, self.bytes = threading.Condition(), 0, 0, 0, 0

    def init(self, count: int) -> None:
        self.count = self.pending = count

    def change(self, arrivals: int = 0, n_bytes: int = 0) -> None:
        with self.condition:
            self.pending, self.bytes = self.pending - arrivals, self.bytes + n_bytes
            assert self.pending >= 0, "more arrivals than the barrier expects"
            if self.pending == 0 and self.bytes == 0:
                self.phase, self.pending = self.phase + 1, self.count
                self.condition.notify_all()

    def wait(self, parity: int) -> None:
        """Until the phase of this parity is over; that before the first one counts as over with parity 1."""
        with self.condition:
            assert self.condition.wait_for(lambda: self.phase % 2 != parity, SECONDS), "deadlock"


class Tiles:
    """Shared memory: some tiles, or some barriers."""

    def __init__(self, content: list) -> None:
        self.content, self.dtype = content, getattr(content[0], "dtype", None)

    def index(self, n: int) -> Any:
        return self.content[n]


class Pointer:
    def __init__(self, numbers: Tensor, at: Any = 0) -> None:
        self.numbers, self.at = numbers, at

    def __add__(self, offset: Any) -> "Pointer":
        return Pointer(self.numbers, self.at + offset)


def stand_ins(n_programs: int, program: threading.local) -> dict[str, Any]:
    """For the names that a Gluon kernel takes from its module."""

    def tile(array: Tensor, at: list[int], shape: list[int]) -> Tensor:
        """What the tensor memory accelerator copies: zeros beyond the end."""
        filled = torch.zeros(shape, dtype=array.dtype)
        part = array[tuple(slice(a, a + n) for a, n in zip(at, shape, strict=True))]
        filled[tuple(slice(0, n) for n in part.shape)] = part
        return filled

    def copy(source: SimpleNamespace, at: list[int], barrier: Barrier, target: Tensor) -> None:
        target.copy_(tile(source.tensor, at, source.shape))
        barrier.change(n_bytes=-target.nbytes)

    def expect(barrier: Barrier, n_bytes: int) -> None:
        barrier.change(n_bytes=n_bytes, arrivals=1)

    def load(pointer: Pointer) -> int:
        return int(pointer.numbers.flatten()[pointer.at])

    def store(pointer: Pointer, values: Tensor, mask: Tensor) -> None:
        inside = mask.expand(values.shape)
        pointer.numbers.view(-1)[pointer.at[inside]] = values[inside]

    def where(condition: Tensor, values: Tensor, other: float) -> Tensor:
        return torch.where(condition, values, other)

    def multiply(left: Tensor, right: Tensor, total: Tensor, use_acc: bool = True, is_async: bool = False) -> Tensor:
        return left.float() @ right.float() + (total if use_acc else 0)

    def maximum(values: Tensor, axis: int) -> Tensor:
        return values.amax(axis)

    gl = SimpleNamespace(
        program_id=lambda axis: program.number, num_programs=lambda axis: n_programs, load=load, store=store,
        where=where, max=maximum, sum=torch.sum, exp2=torch.exp2, maximum=torch.maximum,
        arange=lambda start, end, layout: torch.arange(start, end), float32=torch.float32, int64=torch.int64,
        zeros=lambda shape, dtype, layout: torch.zeros(shape), convert_layout=lambda values, layout: values,
        cast=lambda number, dtype: number, constexpr=int, SliceLayout=lambda *a: None,
        NVMMADistributedLayout=lambda *a: None, DotOperandLayout=lambda *a: None,
    )  # fmt: skip
    mbarrier = SimpleNamespace(wait=Barrier.wait, expect=expect, arrive=lambda barrier: barrier.change(arrivals=1))
    return {
        "gl": gl,
        "mbarrier": mbarrier,
        "tma": SimpleNamespace(async_copy_global_to_shared=copy),
        "warpgroup_mma": multiply,
        "warpgroup_mma_wait": lambda n, values: values[0],
    }


def python_of(kernel: Any) -> Any:
    return getattr(kernel, "fn", kernel)


def run(module: ModuleType, arguments: tuple, n_programs: int, monkeypatch: Any) -> Tensor:
    """What `hopper_prefill.attend` would write, by programs that run one after another."""
    query, keys, values, columns, counts, scaling, size = arguments
    n_tokens, stages = query.shape[1], module.STAGES
    output, n_blocks = torch.full_like(query, torch.nan), counts.shape[1]
    program = threading.local()
    for name, value in stand_ins(n_programs, program).items():
        monkeypatch.setattr(module, name, value, raising=False)
    monkeypatch.setattr(module, "_place_of", python_of(module._place_of))
    numbers = {"T": n_tokens, "N": n_blocks, "n_tiles": len(query) * n_blocks}
    shape = {"G": len(query) // len(keys), "S": size, "STAGES": stages}

    def described(tensor: Tensor, rows: int) -> SimpleNamespace:
        n_bytes = rows * tensor.shape[2] * tensor.element_size()
        block = SimpleNamespace(nbytes=n_bytes)
        return SimpleNamespace(tensor=tensor, shape=[1, rows, tensor.shape[2]], block_type=block)

    def room(n: int, rows: int) -> Tiles:
        return Tiles([torch.full((1, rows, query.shape[2]), torch.nan, dtype=query.dtype) for _ in range(n)])

    def barriers(n: int, count: int) -> Tiles:
        made = [Barrier() for _ in range(n)]
        for barrier in made:
            barrier.init(count)
        return Tiles(made)

    for number in range(n_programs):
        tiles = room(4, 64), room(stages, size), room(stages, size)
        ready, free = ([barriers(n, count) for n in (2, stages, stages)] for count in (1, 2))
        failed: list[BaseException] = []
        shared = {"tiles": tiles, "ready": ready, "free": free, "counts": Pointer(counts)}

        def begin(function: Any, number: int = number, failed: list = failed, **named: Any) -> threading.Thread:
            def target() -> None:
                program.number = number
                try:
                    python_of(function)(**named)
                except BaseException as error:  # a thread's error is nobody's otherwise
                    failed.append(error)

            thread = threading.Thread(target=target, daemon=True)
            thread.start()
            return thread

        rest = {"output": Pointer(output), "scaling": scaling * module.LOG2_E}
        sources = described(query, 64), described(keys, size), described(values, size)
        lists = {"columns": Pointer(columns), "M": columns.shape[2]}
        threads = [
            begin(module._attend, WHICH=which, D=query.shape[2], **shared, **rest, **numbers, **shape)
            for which in range(2)
        ]
        without_t = {name: value for name, value in numbers.items() if name != "T"}
        threads.append(begin(module._copy, sources=sources, **shared, **lists, **without_t, **shape))
        for thread in threads:
            thread.join(2 * SECONDS)
        if failed:
            raise failed[0]
    return output
