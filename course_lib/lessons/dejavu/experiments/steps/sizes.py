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
    bytes: Text = Text(length=128, calibration=320, evaluation=160)  # of the ReLU model
    densities: tuple[float, ...] = (0.75, 0.5, 0.3, 0.2, 0.1, 0.05)
    few: tuple[float, ...] = (0.5, 0.3)
    heads: tuple[int, ...] = (8, 7, 6, 5, 2)  # of nine; two are the fifth that the paper keeps
    static_heads: tuple[int, ...] = (8, 7)
    heads_bytes: tuple[int, ...] = (3, 2, 1)  # of four, of the ReLU model
    activations: tuple[float, ...] = (0.75, 0.6, 0.5)
    together: tuple[tuple[int, float], ...] = ((7, 0.5), (7, 0.3), (2, 0.05))  # heads, and the share of the neurons
    together_bytes: tuple[tuple[int, float], ...] = ((3, 0.2), (1, 0.05))
    batch_density: float = 0.2
    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    searched: float = 0.3  # of the neurons
    rounds: int = 30  # of timing, each way once a round
    rank: int = 64  # of a predictor: 5 % of the bytes of the default model's MLP
    rank_bytes: int = 32  # on the ReLU model
    label_density: float = 0.5
    epochs: int = 8
    lookaheads: tuple[int, ...] = (0, 1, 2, 4)  # blocks
    predicted: tuple[float, ...] = (0.5, 0.3)
    predicted_bytes: tuple[float, ...] = (0.2, 0.1, 0.05)
    predicted_heads: tuple[int, ...] = (7,)
    predicted_heads_bytes: tuple[int, ...] = (3, 2)
    recall_density: float = 0.5
    recalled: int = 8  # evaluation windows


QUICK = Sizes(
    tokens=Text(120, 5, 2), bytes=Text(12, 2, 2), densities=(0.5,), few=(0.5,), heads=(7,), static_heads=(7,),
    heads_bytes=(1,), activations=(0.5,), together=((7, 0.5),), together_bytes=((1, 0.5),), batches=(1, 2), rounds=2,
    rank=4, rank_bytes=4, epochs=1, lookaheads=(0, 1), predicted=(0.5,), predicted_bytes=(0.2,), recalled=1,
    predicted_heads=(7,), predicted_heads_bytes=(1,),
)  # fmt: skip
