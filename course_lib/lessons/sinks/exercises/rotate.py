"""The exercise sinks.rotate, "Rotate a key": its cases and its named mistakes.

Dimension key: N tokens in the cache, D size of a head.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _rotate(keys: Tensor, by: Tensor, frequencies: Tensor) -> Tensor:
    angle = by[:, None] * frequencies
    low, high = keys.chunk(2, dim=1)
    return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], dim=1)


def _frequencies(size: int) -> Tensor:
    return 10_000.0 ** (-torch.arange(0, size, 2) / size)


def _rotate_cases(generator: torch.Generator) -> list[Case]:
    # the pair (0, 2) makes a quarter turn, the pair (1, 3) none
    by_hand = (torch.tensor([[1.0, 2.0, 0.0, 3.0]]), torch.tensor([1]), torch.tensor([torch.pi / 2, 0.0]))

    def drawn(n: int, size: int, low: int, high: int) -> tuple[Tensor, Tensor, Tensor]:
        by = torch.randint(low, high, (n,), generator=generator)
        return randn(generator, n, size), by, _frequencies(size)

    return [
        Case("a quarter turn of the first pair: (0, 2, 1, 3)", by_hand),
        Case("6 keys of size 8, forwards", drawn(6, 8, 1, 30)),
        Case("5 keys of size 16, backwards", drawn(5, 16, -90, -1)),
        Case("8 keys of size 8, to and fro", drawn(8, 8, -50, 50)),
    ]


def _interleaved(keys: Tensor, by: Tensor, frequencies: Tensor) -> Tensor:
    halves = torch.cat([keys[:, 0::2], keys[:, 1::2]], dim=1)
    return torch.stack(_rotate(halves, by, frequencies).chunk(2, dim=1), dim=2).flatten(1)


def _overwritten(keys: Tensor, angle: Tensor) -> Tensor:
    low, high = keys.chunk(2, dim=1)
    low = low * angle.cos() - high * angle.sin()
    return torch.cat([low, high * angle.cos() + low * angle.sin()], dim=1)


def _rotate_half(keys: Tensor) -> Tensor:
    low, high = keys.chunk(2, dim=1)
    return torch.cat([-high, low], dim=1)


def _complex(keys: Tensor, by: Tensor, frequencies: Tensor) -> Tensor:
    low, high = keys.chunk(2, dim=1)
    turned = torch.complex(low, high) * torch.polar(torch.ones(len(by), low.shape[1]), by[:, None] * frequencies)
    return torch.cat([turned.real, turned.imag], dim=1)


def _library(keys: Tensor, by: Tensor, frequencies: Tensor) -> Tensor:
    from course_lib.kv.rotation import Rotation

    return Rotation(frequencies).turn(keys, by)


ROTATE = Exercise(
    id="sinks.rotate",
    title="Rotate a key",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_rotate,
    cases=_rotate_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "rotate_half",
            lambda k, b, f: k * (b[:, None] * f.repeat(2)).cos() + _rotate_half(k) * (b[:, None] * f.repeat(2)).sin(),
        ),
        Variant("complex numbers", _complex),
        Variant("float64", lambda k, b, f: _rotate(k.double(), b, f.double())),
    ),
    hints=(
        "The pair (keys[i], keys[i + D/2]) is a point of a plane; turn it by the angle by · frequencies[i].",
        "With low and high, the two halves of each key: low cos − high sin, and high cos + low sin.",
        "The angles have shape (N, D/2): by[:, None] * frequencies. Join the halves with torch.cat(..., dim=1).",
    ),
)
