"""Nearest-neighbor search for the rows of the gate with the largest inner product: scan, inverted lists, ball tree.

Seconds, compared with those of the MLP, and how many of the neurons are the oracle's.

Rows have no bias: a gated MLP's. Dimension key: D width, F neurons, k neurons kept.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import linear, pad

from course_lib.contextual.fitting.lists import Lists
from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.seen import Seen, look_through
from course_lib.contextual.selector import n_kept
from course_lib.contextual.selectors.neighbours import Neighbours
from course_lib.lessons.dejavu.experiments.ground import Row, Sizes, subject
from course_lib.measure.experiment import Tables

Input = Float[Tensor, "1 D"]
Found = Int[Tensor, "_"]  # as many as were found
MLP, SCAN, LISTS, TREE = "the MLP itself", "scan of all rows", "inverted lists, half of them", "ball tree"


def search(sizes: Sizes, name: str, seed: int) -> Tables:
    """Time one token in all blocks, one row per way. The ways take turns, so that noise affects all of them."""
    of = subject(sizes, name, seed)
    inputs, oracle = inputs_of(of.model, of.evaluation[:1], sizes.searched)
    ways = ways_of(of.model, of.calibration, sizes.searched)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    found: dict[str, list[Found]] = {}
    for _ in range(sizes.rounds + 1):
        for way, blocks in ways.items():
            start = time.perf_counter()
            found[way] = [look(x) for look, x in zip(blocks, inputs, strict=True)]
            seconds[way].append(time.perf_counter() - start)
    rows = []
    for way, taken in seconds.items():
        row: Row = {"model": name, "way": way, "density": sizes.searched}
        row["seconds"] = [round(each, 6) for each in taken[1:]]  # the first round is a warm-up
        row["recall"] = None if way == MLP else round(recall(found[way], oracle), 4)
        rows.append(row)
    return {"search": rows}


def inputs_of(model: torch.nn.Module, windows: Int[Tensor, "n N"], density: float) -> tuple[list[Input], list[Found]]:
    """Return the input of the last token in each block, and the neurons that matter most to it."""
    inputs, oracle = [], []

    def look(_: int, seen: Seen) -> None:
        inputs.append(seen.x[-1:].clone())
        score = seen.neurons.importance(seen.hidden[-1:])[0]
        oracle.append(score.topk(n_kept(density, len(score))).indices)

    look_through(model, windows, look)
    return inputs, oracle


def ways_of(
    model: torch.nn.Module, calibration: Int[Tensor, "n N"], density: float
) -> dict[str, list[Callable[[Input], Tensor]]]:
    """Return the functions to time in each block, by name."""
    neurons = neurons_of(model)
    rows, k = [keys(each) for each in neurons], n_kept(density, neurons[0].n)
    search = Neighbours().fit(model, calibration)
    return {
        MLP: [partial(whole, each) for each in neurons],
        SCAN: [partial(scan, each, k) for each in rows],
        LISTS: [
            partial(by_lists, each, lists, search.n_probes, k) for each, lists in zip(rows, search.lists, strict=True)
        ],
        TREE: [by_tree(each, k) for each in rows],
    }


def whole(neurons: Neurons, x: Input) -> Float[Tensor, "1 D"]:
    """Compute the MLP's output."""
    return linear(neurons.values(x), neurons.down, neurons.down_bias)


def scan(rows: Float[Tensor, "F D"], k: int, x: Input) -> Found:
    """Compare every row with x."""
    return linear(x, rows)[0].topk(k).indices


def by_lists(rows: Float[Tensor, "F D"], lists: Lists, n_probes: int, k: int, x: Input) -> Found:
    """Compare only rows in the lists with the nearest centres; there may be fewer than k of them."""
    near = linear(pad(x, (0, 1), value=1.0), lists.centres)[0].topk(min(n_probes, len(lists.centres))).indices
    candidates = torch.isin(lists.list_of, near).nonzero()[:, 0]
    score = linear(x, rows[candidates])[0]
    return candidates[score.topk(min(k, len(score))).indices]


def by_tree(rows: Float[Tensor, "F D"], k: int) -> Callable[[Input], Found]:
    """Search a ball tree: the largest ⟨r, x⟩ is nearest to (x, 0) among (r, √(M² − ‖r‖²)), M the largest norm."""
    from sklearn.neighbors import BallTree  # takes a second to import, and only this function needs it

    lengths = rows.norm(dim=1)
    last = (lengths.max() ** 2 - lengths**2).clamp(min=0).sqrt()
    tree = BallTree(torch.cat([rows, last[:, None]], dim=1).numpy())
    return lambda x: torch.from_numpy(tree.query(pad(x, (0, 1)).numpy(), k, return_distance=False)[0])


def keys(neurons: Neurons) -> Float[Tensor, "F D"]:
    return neurons.up if neurons.gate is None else neurons.gate


def recall(found: Sequence[Found], oracle: Sequence[Found]) -> float:
    """Return the fraction of the oracle's neurons that were found, in all blocks together."""
    hits = sum(torch.isin(best, those).sum().item() for best, those in zip(oracle, found, strict=True))
    return hits / sum(len(best) for best in oracle)
