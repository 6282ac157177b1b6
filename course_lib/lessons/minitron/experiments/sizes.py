"""How much is measured: text in windows of tokens, shapes to cut to, steps of distillation."""

from dataclasses import dataclass

from course_lib.models import DEFAULT_MODEL

TASKS = ("sciq", "arc_easy", "lambada", "common_knowledge")  # on which the dense model stands clear of chance


@dataclass(frozen=True)
class Sizes:
    """Windows that scores read, that models are evaluated on and that students learn from never share a document with
    evaluation. Fewer windows are always the first of more.
    """

    model: str = DEFAULT_MODEL
    length: int = 256  # tokens in a window, but for the students' text
    calibration: int = 32
    fewer: int = 16  # of these, for scores that need a backward pass, and for the refit
    drops: int = 4  # of these, for the model without each block
    evaluation: int = 20
    draws: int = 10
    draw_evaluation: int = 6
    block_evaluation: int = 4
    cuts: tuple[tuple[str, int], ...] = (
        ("neurons", 1126), ("neurons", 1024), ("groups", 2), ("heads", 6), ("width", 540), ("width", 504),
    )  # fmt: skip
    neurons: int = 1126  # as many parameters as with `blocks` blocks
    blocks: int = 24
    text: int = 1680  # windows of the students' text
    batch: int = 4
    text_length: int = 128
    rate: float = 3e-4
    scratch_rate: float = 1e-3  # of random weights, which have further to go
    warm_up: int = 10
    short: int = 40  # steps
    # The curves: after which steps a student is evaluated. A step of the other two costs 1 / 1.396 of one by KL.
    kl: tuple[int, ...] = (5, 10, 20, 40, 80, 120, 150, 200, 250, 300)
    next_token: tuple[int, ...] = (7, 14, 28, 56, 112, 168, 209, 279, 349, 419)
    scratch: tuple[int, ...] = (14, 28, 56, 112, 168, 209)
    dampings: tuple[float, ...] = (0.1, 1.0)
    questions: tuple[tuple[str, int], ...] = tuple((task, 60 if task == "common_knowledge" else 100) for task in TASKS)
    timed: int = 4  # steps
    # Shapes of the search but for what the model has; all of 113 million parameters.
    searched: tuple[tuple[tuple[str, int], ...], ...] = (
        (("neurons", 1126),),
        (("blocks", 24),),
        (("groups", 2), ("heads", 6), ("neurons", 1296)),
        (("width", 540), ("neurons", 1272)),
    )
    search_steps: int = 10
    search_evaluation: int = 10
    byte_candidates: int = 8
    byte_evaluation: int = 48


QUICK = Sizes(
    length=12, cuts=(("neurons", 140), ("width", 540)), calibration=2, fewer=1, drops=1, evaluation=2,
    draws=1, draw_evaluation=1, block_evaluation=1, text=4, batch=1, text_length=8, warm_up=1, short=1, kl=(1, 2),
    next_token=(1, 3), scratch=(1,), dampings=(1.0,), questions=tuple((task, 1) for task in TASKS[::2]), timed=1,
    neurons=140, blocks=1, searched=((("neurons", 140),), (("blocks", 1),)), search_steps=1, search_evaluation=1,
    byte_candidates=2, byte_evaluation=2,
)  # fmt: skip
