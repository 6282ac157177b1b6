"""The forward dynamics of a planar arm of two joints: a smooth map that is nearly linear only piece by piece.

Jordan and Jacobs (1994) fit an arm of four joints in three dimensions. Deviation: two joints in a plane, so that
fitting a tree takes a second. The links have length 1 and mass 1, with the mass at the end; there is no gravity.

Dimension key: P samples.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

# Lowest and highest value of each input: two angles (an elbow bends one way), two speeds, two torques.
RANGES = ((-torch.pi, torch.pi), (0.0, 2.5), (-1.5, 1.5), (-1.5, 1.5), (-5.0, 5.0), (-5.0, 5.0))


class Arm(NamedTuple):
    """Inputs: angles (rad), angular velocities (rad/s) and torques (N m) of both joints; accelerations (rad/s²)."""

    inputs: Float[Tensor, "P 6"]
    accelerations: Float[Tensor, "P 2"]


def accelerations(inputs: Float[Tensor, "P 6"]) -> Float[Tensor, "P 2"]:
    """a = M⁻¹ (τ − c), from the equations of motion M(θ) a + c(θ, ω) = τ of the double pendulum:

    M = [[3 + 2 cos θ2, 1 + cos θ2], [1 + cos θ2, 1]],  c = sin θ2 · (−ω2 (2 ω1 + ω2), ω1²)
    """
    _, bend, speed, bend_speed, torque, bend_torque = inputs.unbind(dim=1)
    cos, sin = bend.cos(), bend.sin()
    first = torque + sin * bend_speed * (2 * speed + bend_speed)
    second = bend_torque - sin * speed.square()
    determinant = 2 - cos.square()  # (3 + 2 cos) − (1 + cos)²
    return torch.stack(
        [(first - (1 + cos) * second) / determinant, ((3 + 2 * cos) * second - (1 + cos) * first) / determinant], dim=1
    )


def arm(n_samples: int, generator: torch.Generator) -> Arm:
    """Sample inputs uniformly from RANGES, in float64, and compute their accelerations."""
    if n_samples < 1:
        raise ValueError(f"n_samples={n_samples}: expected at least 1")
    low, high = torch.tensor(RANGES, dtype=torch.float64).T
    inputs = low + (high - low) * torch.rand(n_samples, len(RANGES), generator=generator, dtype=torch.float64)
    return Arm(inputs, accelerations(inputs))


def arm_samples(generator: torch.Generator, n_training: int = 2000, n_test: int = 1000) -> tuple[Arm, Arm]:
    """Return training and test samples. Inputs are standardised with the mean and deviation of the training samples."""
    training, test = arm(n_training, generator), arm(n_test, generator)
    mean, deviation = training.inputs.mean(dim=0), training.inputs.std(dim=0)
    return tuple(Arm((part.inputs - mean) / deviation, part.accelerations) for part in (training, test))
