"""The experts of a few tokens pair by pair, against tiles by expert and torch's grouped products.

Dimension key: T tokens, D size of a token, E experts, F hidden units of an expert, k experts per token.
"""

from collections.abc import Iterator

from course_lib.kernels.bench.experts.grouped_matmul import SHAPE, by_grouped_mm
from course_lib.kernels.experts import grouped_matmul, pair_matmul
from course_lib.kernels.timing.contest import Contest, Place, Side

from course_lib.measure.roofline import Work

TOKENS = (1, 4)


def contests(place: Place) -> Iterator[Contest]:
    n_experts, size, n_hidden, k = (4, 64, 32, 2) if place.quick else SHAPE["cpu"]
    for n_tokens in TOKENS:
        shape = (n_tokens, n_experts, size, n_hidden)
        by_tiles = grouped_matmul.example(place.generator, place.dtype, str(place.device), shape, k)
        inputs, gate_up, down, weight, order, offsets = by_tiles
        expert = (offsets[1:, None] <= order.argsort()[None, :]).sum(0).int().view(n_tokens, k)
        by_pairs = (inputs, gate_up, down, weight, expert)
        work = Work(6 * len(order) * down[0].numel(), pair_matmul.bytes_moved(*by_pairs))
        name = f"tokens: {n_tokens}, awake: {int((offsets.diff() > 0).sum())} of {n_experts}"
        contest = Contest(name, tuple(down.shape), [], pair_matmul.reference(*by_pairs))
        contest.try_side(
            "grouped_mm", lambda its=by_tiles, work=work: Side("grouped_mm", lambda: by_grouped_mm(*its), work)
        )
        contest.sides.append(Side("a loop over experts", lambda its=by_tiles: grouped_matmul.reference(*its), work))
        if inputs.is_cuda:
            contest.sides.append(Side("by group", lambda its=by_tiles: grouped_matmul.launch(*its), work))
            contest.sides.append(Side("by pair", lambda its=by_pairs: pair_matmul.launch(*its), work))
        yield contest
