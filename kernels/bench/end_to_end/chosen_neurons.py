"""The MLPs of Llama-3-8B for one token on a GPU: all neurons, those of a predictor, and inputs above TEAL's thresholds.

Dimension key: D width, F neurons, L blocks, r rank, K chosen neurons, m tokens whose keys are missing.
Weights are random, because the choice of neurons does not change the time. Every side computes all L blocks, whose
weights exceed any cache. On a GPU it is one CUDA graph, so that no side waits for the host. A block's input is given;
the predictor reads the input of the block before, in both streams. Per block, the dense MLP reads 352 MB; at 20 %, Deja
Vu reads 70 MB of it and 38 MB of a predictor, 3.3 times less. So it is twice as fast even at 61 % of the dense side's
rate. Further contests decide claims of lesson 09: the time of choosing by a predictor and by hash tables, and the time
of the keys of skipped tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from course_lib.kernels.dispatch import kernel_for
from course_lib.kernels.runtime import one_by_one
from course_lib.kernels.timing.contest import Contest, Place, Side
from course_lib.kernels.timing.graphs import captured
from torch import Tensor
from torch.nn.functional import linear, silu

from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.execute.on_kernels import chosen_mlp
from course_lib.measure.roofline import Work

GPU_SECONDS = 25
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}  # relative; hidden values are rounded before they are summed
DENSITIES, OF_SEARCH = (0.5, 0.2, 0.1), 0.2
HASHES = ((32, 6), (128, 8))  # tables, bits of a bucket's number
MISSING = (1, 7, 31, 127, 511)


@dataclass(frozen=True)
class Sizes:
    width: int = 4096
    neurons: int = 14336
    blocks: int = 8
    rank: int = 1024  # of the paper's predictors
    keys: int = 2048  # numbers in the keys and values of a token: 2 · 8 heads · 128


QUICK = Sizes(16, 40, 2, 4, 24)


@dataclass(frozen=True, eq=False)
class Block:
    """One block's weights, the input of its MLP, and the input of the block before."""

    x: Tensor  # (1, D)
    earlier: Tensor
    into: Tensor  # (2 F, D), gate above up
    down: Tensor  # (D, F)
    columns: tuple[Tensor, Tensor]  # gate and up, (D, F)
    mlp: NeuronMajor
    predictor: tuple[Tensor, Tensor]  # (r, D), (F, r)
    keys: Tensor  # (keys and values, D)

    def logits(self) -> Tensor:
        first, second = self.predictor
        return linear(linear(self.earlier, first), second)


def contests(place: Place) -> Iterator[Contest]:
    """Yield contests by density, on choosing neurons, and on missing keys. For CPUs, see the bench `contextual`."""
    if place.device.type == "cpu" and not place.quick:
        return
    sizes = QUICK if place.quick else Sizes()
    blocks = _blocks(place, sizes)
    for density in DENSITIES[:1] if place.quick else DENSITIES:
        yield _mlps(blocks, density, place.device)
    yield _choosing(blocks, place)
    yield _missing_keys(blocks, place)


def _blocks(place: Place, sizes: Sizes) -> list[Block]:
    d, f, inputs, blocks = sizes.width, sizes.neurons, [], []
    for _ in range(sizes.blocks):
        inputs.append(place.randn(1, d))
        into, rows = place.randn(2 * f, d) / d**0.5, place.randn(f, d) / f**0.5
        gate, up = into.chunk(2)
        blocks.append(
            Block(
                x=inputs[-1],
                earlier=inputs[max(len(inputs) - 2, 0)],
                into=into,
                down=rows.T.contiguous(),
                columns=(gate.T.contiguous(), up.T.contiguous()),
                mlp=NeuronMajor(gate=gate, up=up, down=rows, activation="silu"),
                predictor=(place.randn(sizes.rank, d) / d**0.5, place.randn(f, sizes.rank) / sizes.rank**0.5),
                keys=place.randn(sizes.keys, d) / d**0.5,
            )
        )
    return blocks


def _mlps(blocks: list[Block], density: float, device: torch.device) -> Contest:
    mlp = blocks[0].mlp
    n_kept, size = round(density * mlp.n), mlp.up.element_size()
    known = [_highest(block.logits(), n_kept) for block in blocks]
    rows = [index[0].long() for index in known]
    levels = [_levels(block, density) for block in blocks]
    chosen = torch.cat([_masked(block, index) for block, index in zip(blocks, rows, strict=True)])
    above = torch.cat([_teal_reference(block, at) for block, at in zip(blocks, levels, strict=True)])

    def work(matrices: float, more: int = 0) -> Work:
        numbers = int(3 * mlp.width * mlp.n * matrices) + more
        return Work(2 * numbers * len(blocks), numbers * size * len(blocks))

    predictor = sum(weight.numel() for weight in blocks[0].predictor)
    whole = torch.cat([_masked(block, None) for block in blocks])

    def side(name: str, run: Callable[[], Tensor], work: Work, expected: Tensor) -> Side:
        return Side(name, captured(run, device), work, expected)

    sides = [
        side("dense", lambda: _walk(_dense, blocks), work(1), whole),
        side("dense, gate and up in one matrix", lambda: _walk(_joined, blocks), work(1), whole),
        side("torch, gathered rows", lambda: _walk(_gathered, blocks, rows), work(density), chosen),
    ]
    if blocks[0].x.is_cuda:
        sides += [
            side("known neurons", lambda: _walk(_by_kernel, blocks, known), work(density), chosen),
            side("Deja Vu", lambda: _walk(lambda b: _predicted(b, n_kept), blocks), work(density, predictor), chosen),
            side(
                "Deja Vu, predictor in a second stream",
                lambda: _ahead(blocks, n_kept, device),
                work(density, predictor),
                chosen,
            ),
            side("TEAL", lambda: _walk(_teal, blocks, levels), work(density), above),
        ]
    return Contest(f"MLPs, {density:.0%} kept", (mlp.width, n_kept), sides, whole)


def _walk(run: Callable[..., Tensor], *by_block: list) -> Tensor:
    """Run all blocks one after the other."""
    return torch.cat([run(*each) for each in zip(*by_block, strict=True)])


def _dense(block: Block) -> Tensor:
    mlp = block.mlp
    return linear(silu(linear(block.x, mlp.gate)) * linear(block.x, mlp.up), block.down)


def _joined(block: Block) -> Tensor:
    gate, up = linear(block.x, block.into).chunk(2, dim=-1)
    return linear(silu(gate) * up, block.down)


def _gathered(block: Block, index: Tensor) -> Tensor:
    gate, up, down = (weight.index_select(0, index) for weight in (block.mlp.gate, block.mlp.up, block.mlp.down))
    return (silu(linear(block.x, gate)) * linear(block.x, up)) @ down


def _by_kernel(block: Block, index: Tensor) -> Tensor:
    return chosen_mlp(block.x, block.mlp, index)


def _predicted(block: Block, n_kept: int) -> Tensor:
    return _by_kernel(block, _highest(block.logits(), n_kept))


def _ahead(blocks: list[Block], n_kept: int, device: torch.device) -> Tensor:
    """Choose a block's neurons in a second stream while the first stream computes the block before."""
    if device.type != "cuda":
        return _walk(lambda block: _predicted(block, n_kept), blocks)
    main, second, outputs = torch.cuda.current_stream(), _second_stream(device), []
    with one_by_one():  # a kernel that starts early waits for the one before it, but not for another stream
        chosen = [_highest(blocks[0].logits(), n_kept)]
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            second.wait_stream(main)  # the next predictor's input is ready when the block before has ended
            with torch.cuda.stream(second):
                if following is not None:
                    chosen.append(_highest(following.logits(), n_kept))
            outputs.append(_by_kernel(block, chosen[len(outputs)]))
            main.wait_stream(second)
    return torch.cat(outputs)


@lru_cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    """Return one stream for all sides, because cuBLAS keeps memory for each stream that it was called on."""
    return torch.cuda.Stream(device)


def _highest(score: Tensor, n_kept: int) -> Tensor:
    """Return the indices of the highest scores in ascending order, by the kernel on a GPU."""
    if kernel := kernel_for("per_token.top_indices", score, n_kept=n_kept):
        return kernel.launch(score, n_kept)
    return score.topk(n_kept, dim=1, sorted=False).indices.sort(dim=1).values.int()


def _masked(block: Block, index: Tensor | None) -> Tensor:
    """Compute the output of the chosen neurons, in float32."""
    x, mlp = block.x.float(), block.mlp
    hidden = silu(x @ mlp.gate.float().T) * (x @ mlp.up.float().T)
    if index is not None:
        hidden = hidden * torch.zeros_like(hidden).index_fill_(1, index, 1)
    return hidden @ mlp.down.float()


def _levels(block: Block, density: float) -> tuple[float, float]:
    """Return the thresholds that this fraction of the MLP's inputs and of its hidden values exceeds."""
    x = block.x.float()[0]
    at = _quantile(x, density)
    x = x * (x.abs() > at)
    gate, up = (weight.float() @ x for weight in (block.mlp.gate, block.mlp.up))
    return at, _quantile(silu(gate) * up, density)


def _quantile(values: Tensor, density: float) -> float:
    return float(values.abs().sort().values[len(values) - round(density * len(values)) - 1])


def _teal(block: Block, levels: tuple[float, float]) -> Tensor:
    x, columns = block.x[0], block.columns
    kernel = kernel_for("per_token.threshold_matvec", x, columns[0], threshold=levels[0])
    gate, up = (kernel.launch(x, weight, levels[0]) for weight in columns)
    return kernel.launch(silu(gate) * up, block.mlp.down, levels[1])[None]


def _teal_reference(block: Block, levels: tuple[float, float]) -> Tensor:
    x = block.x.float()
    x = x * (x.abs() > levels[0])
    hidden = silu(x @ block.mlp.gate.float().T) * (x @ block.mlp.up.float().T)
    return (hidden * (hidden.abs() > levels[1])) @ block.mlp.down.float()


def _choosing(blocks: list[Block], place: Place) -> Contest:
    """Measure the seconds to choose a token's neurons; the first side is the time that this choice should save."""
    mlp = blocks[0].mlp
    n_kept, size, n = round(OF_SEARCH * mlp.n), mlp.up.element_size(), len(blocks)

    def side(name: str, run: Callable[[Block], Tensor], numbers: int) -> Side:
        expected = _walk(run, blocks).float()
        return Side(
            name,
            captured(lambda: _walk(run, blocks), place.device),
            Work(2 * numbers * n, numbers * size * n),
            expected,
        )

    predictor = sum(weight.numel() for weight in blocks[0].predictor)
    sides = [
        side("the MLP itself, dense", _dense, 3 * mlp.width * mlp.n),
        side("predictor", lambda block: _highest(block.logits(), n_kept), predictor),
        side("predictor, torch.topk", lambda block: _by_topk(block.logits(), n_kept), predictor),
        side("scan of all rows", lambda block: _highest(linear(block.x, block.mlp.gate), n_kept), mlp.width * mlp.n),
    ]
    for n_tables, n_bits in HASHES:
        tables = {id(block): Tables.of(block.mlp.gate, n_tables, n_bits, place) for block in blocks}
        sides.append(
            side(
                f"hash tables: {n_tables} of {n_bits} bits",
                lambda block, tables=tables: _highest(tables[id(block)].votes(block.x), n_kept),
                n_tables * n_bits * mlp.width,
            )
        )
    return Contest(f"choosing {OF_SEARCH:.0%} of the neurons", (mlp.width, n_kept), sides, sides[0].expected)


def _by_topk(score: Tensor, n_kept: int) -> Tensor:
    """Choose by torch.topk; the indices are sorted only for the comparison."""
    return score.topk(n_kept, dim=1, sorted=False).indices.sort(dim=1).values.int()


@dataclass(frozen=True, eq=False)
class Tables:
    """Hash tables of signs of random projections: rows in the buckets of x probably have a similar direction to x.

    All buckets have room for the same number of rows, so the memory addresses of a search are known when it begins, and
    no list lengths are needed.
    """

    planes: Tensor  # (tables * bits, D)
    buckets: Tensor  # (tables, 2^bits, room), F where there is no row
    n_rows: int

    @classmethod
    def of(cls, rows: Tensor, n_tables: int, n_bits: int, place: Place) -> "Tables":
        planes = place.randn(n_tables * n_bits, rows.shape[1])
        codes = cls._codes(rows, planes, n_tables)  # (F, tables)
        room = max(int(torch.bincount(of_table, minlength=2**n_bits).max()) for of_table in codes.T)
        buckets = torch.full((n_tables, 2**n_bits, room), len(rows), device=rows.device)
        for table, of_table in enumerate(codes.T):
            order = of_table.argsort(stable=True)
            code = of_table[order]
            start = torch.bincount(code, minlength=2**n_bits).cumsum(0) - torch.bincount(code, minlength=2**n_bits)
            buckets[table, code, torch.arange(len(rows), device=rows.device) - start[code]] = order
        return cls(planes, buckets, len(rows))

    @staticmethod
    def _codes(rows: Tensor, planes: Tensor, n_tables: int) -> Tensor:
        bits = (linear(rows, planes) > 0).unflatten(1, (n_tables, -1))
        return (bits * 2 ** torch.arange(bits.shape[2], device=rows.device)).sum(dim=2)

    def votes(self, x: Tensor) -> Tensor:
        """Count the tables in which each row is in the bucket of x, (1, F)."""
        n_tables = len(self.buckets)
        codes = self._codes(x, self.planes, n_tables)[0]
        found = self.buckets[torch.arange(n_tables, device=x.device), codes].flatten()
        votes = torch.zeros(self.n_rows + 1, device=x.device)
        return votes.scatter_add_(0, found, votes.new_ones(len(found)))[None, :-1].contiguous()


def _missing_keys(blocks: list[Block], place: Place) -> Contest:
    """Compute keys and values of one token, alone and together with those of earlier tokens whose head was skipped."""
    (n_numbers, width), size = blocks[0].keys.shape, blocks[0].keys.element_size()
    x = place.randn(1 + max(MISSING), width)

    def side(name: str, n_tokens: int) -> Side:
        rows = x[:n_tokens]
        run = captured(lambda: _walk(lambda block: linear(rows, block.keys), blocks), place.device)
        numbers = n_numbers * width + n_tokens * (width + n_numbers)
        work = Work(2 * n_numbers * width * n_tokens * len(blocks), numbers * size * len(blocks))
        return Side(name, run, work, torch.cat([rows.float() @ block.keys.float().T for block in blocks]))

    sides = [side("one token", 1)]
    sides += [side(f"one token and {m} missing", 1 + m) for m in (MISSING[:2] if place.quick else MISSING)]
    return Contest("keys and values", (n_numbers, width), sides, sides[0].expected)
