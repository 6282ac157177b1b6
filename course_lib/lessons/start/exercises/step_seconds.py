"""The exercise start.step_seconds, "The roofline of a pass": its cases and its named mistakes.

Dimension key: P layers of a pass.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _layers(*layers: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Return the (FLOPs, bytes) of each layer as two vectors."""
    flops, n_bytes = torch.tensor(layers, dtype=torch.float64).T
    return flops.contiguous(), n_bytes.contiguous()


def _step_cases(generator: torch.Generator) -> list[Case]:
    def random(n_layers: int) -> tuple[Tensor, Tensor]:
        """Return layers on both sides of the ridge of 10 FLOP/byte, none of them near it."""
        seconds = 10 ** -torch.rand(n_layers, generator=generator, dtype=torch.float64)
        longer = 1.5 + 8 * torch.rand(n_layers, generator=generator, dtype=torch.float64)
        computes = torch.arange(n_layers) % 2 == 0
        return (
            1e11 * torch.where(computes, longer * seconds, seconds),
            1e10 * torch.where(computes, seconds, longer * seconds),
        )

    return [
        Case("one layer, 2 GFLOP and 4 GB at 100 GFLOP/s and 10 GB/s", (*_layers((2e9, 4e9)), 1e11, 1e10)),
        Case(
            "a compute-bound layer, 2 s, then a memory-bound one, 0.4 s",
            (*_layers((2e11, 1e9), (2e9, 4e9)), 1e11, 1e10),
        ),
        Case("three equal layers at the ridge: both times are equal", (*_layers(*[(1e11, 1e10)] * 3), 1e11, 1e10)),
        Case("random, five layers", (*random(5), 1e11, 1e10)),
        Case("random, two layers", (*random(2), 1e11, 1e10)),
    ]


def _step_picture(case: Case, got: object, expected: float) -> "matplotlib.figure.Figure":
    from course_lib.lessons.start.plots import layer_by_layer

    return layer_by_layer(*case.arguments, got=got, expected=expected)


def _step_seconds(flops, n_bytes, flops_per_second, bytes_per_second):
    return torch.maximum(flops / flops_per_second, n_bytes / bytes_per_second).sum().item()


def _library(flops: Tensor, n_bytes: Tensor, flops_per_second: float, bytes_per_second: float) -> float:
    from course_lib.measure.roofline import pass_seconds

    return pass_seconds(flops.tolist(), n_bytes.tolist(), flops_per_second, bytes_per_second)


STEP_SECONDS = Exercise(
    id="start.step_seconds",
    title="The roofline of a pass",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_step_seconds,
    cases=_step_cases,
    picture=_step_picture,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "by comparing with the ridge",
            lambda f, b, fs, bs: torch.where(f / b > fs / bs, f / fs, b / bs).sum(),
        ),
        Variant("a loop", lambda f, b, fs, bs: sum(max(x / fs, y / bs) for x, y in zip(f, b, strict=True))),
    ),
    hints=(
        "How long does the first layer compute, and how long does it read? Which of the two times counts?",
        "A layer cannot start before the layer before it has finished. So first take the longer time of each layer, "
        "then the sum over all layers.",
    ),
)
