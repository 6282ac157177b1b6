"""Chosen neurons of one token: SmolLM2's MLPs by the fraction of kept neurons, and batches that use the union of sets.

Dimension key: D width, F neurons, L blocks, K chosen neurons, r rank, B tokens that are decoded together.
Every side runs all L blocks, 318 MB at SmolLM2's sizes, so that no cache holds the weights of the next call. The choice
of neurons does not change the time, so it is random; the sets of a batch are independent, the worst case of a union.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from course_lib.kernels.timing.chosen_neurons import all_of, best, in_int8, masked, product_in_8_bits, rounded, walk
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor

from course_lib.contextual.execute.choices import long_columns
from course_lib.contextual.execute.gathered import by_bag, by_bundle, by_rows, by_samples, dense, gate_first
from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.execute.room import Room
from course_lib.contextual.execute.union import gathered_union
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.selector import n_kept
from course_lib.measure.roofline import Work

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # relative; sums over D and K in another order
SIZES = {"width": 576, "neurons": 1536, "blocks": 30, "rank": 64, "batches": (1, 2, 4, 8, 16)}
QUICK = {"width": 16, "neurons": 40, "blocks": 2, "rank": 4, "batches": (1, 3)}
DENSITIES, OF_BATCH = (1.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05), 0.1
DENSE, INT8, UNION, PREDICTED = "dense", "dense, 8 bits", "rows of the union", "predictor, then index_select"
WAYS = {
    "index_select": by_rows,
    "bundle, one index_select": by_bundle,
    "embedding_bag": by_bag,
    "sampled_addmm": by_samples,
}


def contests(place: Place) -> Iterator[Contest]:
    """Yield one token by density, then batches at one density; only on the CPU, for which the methods are made."""
    if place.device.type != "cpu":
        return
    sizes = QUICK if place.quick else SIZES
    room = Room()  # blocks come one after the other
    mlps = [_mlp(place, sizes["width"], sizes["neurons"], room) for _ in range(sizes["blocks"])]
    for density in DENSITIES:
        yield _one_token(place, mlps, density, sizes["rank"])
    for batch in sizes["batches"]:
        yield _batch(place, mlps, batch)


def summary(rows: list[dict[str, Any]]) -> str:
    """Report where gathering is faster than all neurons, with and without the predictor, and up to which batch size."""
    faster = {(row["side"], row["shape"][1]): row["contest"] for row in rows if row.get("times_anchor", 0) > 1}
    sentences = []
    for side in (*WAYS, PREDICTED, UNION):
        wins = [(largest, name) for (winner, largest), name in faster.items() if winner == side]
        sentences.append(f"{side}: faster than dense up to {max(wins)[1]}." if wins else f"{side}: nowhere faster.")
    eight = [row["times_anchor"] for row in rows if row["side"] == INT8 and row["repetitions"]]
    if eight:
        middle = sorted(eight)[len(eight) // 2]
        sentences.append(f"All neurons in 8 bits: {middle:.2f} x as fast as in {rows[0]['bytes'] / 1e6:.0f} MB.")
    return " ".join(sentences)


def _mlp(place: Place, width: int, neurons: int, room: Room) -> NeuronMajor:
    gate, up, down = (place.randn(neurons, width) / n**0.5 for n in (width, width, neurons))
    return NeuronMajor(gate=gate, up=up, down=down, activation="silu", room=room)


def _one_token(place: Place, mlps: list[NeuronMajor], density: float, rank: int) -> Contest:
    width, n = mlps[0].width, mlps[0].n
    x, kept, size = place.randn(width), n_kept(density, n), mlps[0].up.element_size()
    drawn = [torch.randperm(n, generator=place.generator)[:kept].to(place.device) for _ in mlps]
    predictors = [Predictor(width, rank, n, place.generator).to(x).requires_grad_(False) for _ in mlps]
    for each in predictors:
        each.out.weight.data = long_columns(each.out.weight)
    predicted = [each(x[None])[0].topk(kept).indices for each in predictors]
    largest = [torch.nn.functional.silu(mlp.gate @ x).abs().topk(kept).indices for mlp in mlps]
    stored = [[in_int8(weight) for weight in (mlp.gate, mlp.up, mlp.down.T)] for mlp in mlps]
    in_steps = [rounded(mlp, of) for mlp, of in zip(mlps, stored, strict=True)]

    def work(weights: float, bytes_each: int = size) -> Work:
        return Work(int(2 * weights * len(mlps)), int(weights * bytes_each * len(mlps)))

    whole = walk(lambda i: dense(x, mlps[i]), len(mlps))
    contest = Contest(f"{density:.0%} kept", (width, kept), [Side(DENSE, whole, work(3 * width * n))], whole())

    def add(name: str, run: Callable[[int], Tensor], of: Work, expected: Tensor) -> None:
        contest.try_side(name, lambda: Side(name, walk(run, len(mlps)), of, expected))

    for name, way in WAYS.items():
        run = partial(lambda way, i: way(x, mlps[i], drawn[i]), way)
        add(name, run, work(3 * width * kept), masked(x, mlps, drawn))
    chosen = work(3 * width * kept + rank * (width + n))
    add(PREDICTED, lambda i: by_rows(x, mlps[i], best(predictors[i], x, kept)), chosen, masked(x, mlps, predicted))
    gated = work(width * n + 2 * width * kept)
    add("the gate, then embedding_bag", lambda i: gate_first(x, mlps[i], kept), gated, masked(x, mlps, largest))
    everything = masked(x, in_steps, [torch.arange(n, device=place.device)] * len(mlps))
    add(INT8, lambda i: product_in_8_bits(x, stored[i]), work(3 * width * n, 1), everything)
    return contest


def _batch(place: Place, mlps: list[NeuronMajor], batch: int) -> Contest:
    width, n, size = mlps[0].width, mlps[0].n, mlps[0].up.element_size()
    x, keeps = place.randn(batch, width), [place.rand(batch, n) < OF_BATCH for _ in mlps]
    read = sum(int(keep.any(dim=0).sum()) for keep in keeps)

    def side(name: str, chosen: list[Tensor], n_read: int) -> Side:
        expected = torch.stack([all_of(x, mlp) * keep @ mlp.down for mlp, keep in zip(mlps, chosen, strict=True)])
        work = Work(2 * batch * 3 * width * n_read, 3 * width * n_read * size)
        if name == DENSE:
            return Side(name, walk(lambda i: all_of(x, mlps[i]) @ mlps[i].down, len(mlps)), work, expected)
        return Side(name, walk(lambda i: gathered_union(x, mlps[i], chosen[i]), len(mlps)), work, expected)

    sides = [side(DENSE, [torch.ones_like(keep) for keep in keeps], n * len(mlps)), side(UNION, keeps, read)]
    share = read / n / len(mlps)
    return Contest(f"batch of {batch}, {share:.0%} in all", (width, batch), sides, sides[0].expected)
