"""How much is measured: windows of text for both models, shares of neurons and heads, training of predictors."""

from dataclasses import dataclass

from course_lib.models import DEFAULT_MODEL


@dataclass(frozen=True)
class Text:
    """Windows to learn a choice from, and windows to evaluate on: no document is in both."""

    length: int = 256
    calibration: int = 48
    evaluation: int = 20


@dataclass(frozen=True)
class Sizes:
    """Of `course reproduce dejavu`. Fewer windows are always the first of more."""

    model: str = DEFAULT_MODEL
    tokens: Text = Text()
    bytes: Text = Text(length=128, calibration=160, evaluation=160)  # of the ReLU model
    densities: tuple[float, ...] = (0.75, 0.5, 0.3, 0.2, 0.1, 0.05)
    few: tuple[float, ...] = (0.5, 0.3)
    heads: tuple[int, ...] = (8, 7, 6, 5, 2)  # of nine; two are the fifth that the paper keeps
    activations: tuple[float, ...] = (0.75, 0.6, 0.5)
    together: tuple[tuple[int, float], ...] = ((7, 0.5), (7, 0.3), (2, 0.05))  # heads, and the share of the neurons
    batches: tuple[int, ...] = (1, 2, 4, 8, 16)


QUICK = Sizes(
    tokens=Text(12, 2, 2), bytes=Text(12, 2, 2), densities=(0.5,), few=(0.5,), heads=(7,), activations=(0.5,),
    together=((7, 0.5),), batches=(1, 2),
)  # fmt: skip
