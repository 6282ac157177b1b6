"""2:4 products against dense ones: one token (bound by memory) and many (bound by arithmetic).

Dimension key: T tokens, O outputs (rows), I inputs (columns), K values stored in a row.
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.timing.contest import Contest, Place, Side
from course_lib.kernels.weights import nm_matmul
from torch import Tensor
from torch.nn import functional

from course_lib.measure.roofline import Work, linear_work
from course_lib.sparsity.formats import NofMPacked
from course_lib.sparsity.patterns import NofM

SHAPE = {"cpu": (4096, 8192), "cuda": (4096, 14336)}  # beyond the last-level cache; the MLP of a 7B model
TOKENS = {"cpu": (1, 16), "cuda": (1, 4, 16, 32, 64, 512, 4096)}


def contests(place: Place) -> Iterator[Contest]:
    rows, columns = (64, 256) if place.quick else SHAPE[place.device.type]
    weight = place.randn(rows, columns) / columns**0.5
    weight = weight * NofM(2, 4).keep(weight.abs())
    packed = NofMPacked.encode(weight)
    for n_tokens in (1, 4) if place.quick else TOKENS[place.device.type]:
        yield _contest(f"2:4, tokens: {n_tokens}", place.randn(n_tokens, columns), weight, packed)


def _contest(name: str, inputs: Tensor, weight: Tensor, packed: NofMPacked) -> Contest:
    (rows, columns), n_tokens = weight.shape, len(inputs)
    width = inputs.element_size()
    dense = linear_work(rows, columns, n_tokens, width)
    sparse = Work(2 * packed.values.numel() * n_tokens, nm_matmul.bytes_moved(inputs, packed))
    expected = functional.linear(inputs.float(), weight.float())
    anchor = Side("dense", lambda: functional.linear(inputs, weight), dense)
    contest = Contest(name, (rows, columns), [anchor], expected)
    if inputs.is_cuda:
        # Without sparse tensor cores the unpacked products are all made, so the kernel's FLOPs are the dense ones.
        unpacked = Work(dense.flops if n_tokens > 1 else sparse.flops, sparse.bytes)
        contest.sides.append(Side("N:M kernel", lambda: nm_matmul.launch(inputs, packed), unpacked))
        contest.try_side("torch semi-structured", lambda: _semi_structured(inputs, weight, sparse))
        return contest
    contest.sides.append(Side("unpack, then dense", lambda: nm_matmul.reference(inputs, packed), sparse))
    if n_tokens == 1:
        gathered = Work(sparse.flops, sparse.bytes - packed.positions.nbytes + packed.columns.nbytes)
        contest.sides.append(Side("gather the inputs", _gather(inputs, packed), gathered))
    return contest


def _semi_structured(inputs: Tensor, weight: Tensor, work: Work) -> Side:
    """Run torch's own 2:4, on sparse tensor cores (cuSPARSELt if torch has it); it pads a few tokens to many."""
    compressed = torch.sparse.to_sparse_semi_structured(weight)
    return Side("torch semi-structured", lambda: functional.linear(inputs, compressed), work)


def _gather(inputs: Tensor, packed: NofMPacked):
    columns = packed.columns  # 8 bytes each: torch gathers by int64
    return lambda: (packed.values * inputs[0][columns]).sum(1)[None]
