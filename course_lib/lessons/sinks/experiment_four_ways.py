"""Dense attention, a window, the window read afresh, and sinks: beyond the trained length, and in a chat.

The claims of figure 1 of StreamingLLM (https://arxiv.org/abs/2309.17453), on the default model.
"""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.sinks.experiments import dialogue, four_ways
from course_lib.measure.experiment import Experiment, Step


@dataclass(frozen=True)
class Sizes:
    """Lengths in tokens, budgets in slots."""

    tokens: int = 9024
    compared: int = 48  # every sixteenth of the end, beyond the trained length
    budget: int = 128
    chats: int = 6
    answer: int = 80
    chat_budget: int = 64


def steps(sizes: Sizes) -> list[Step]:
    plan = []
    for cache in dialogue.CACHES:
        measure = partial(dialogue.chats, cache, sizes.chats, sizes.answer, sizes.chat_budget)
        plan.append(Step(f"chats: {cache}", measure))
    for name in four_ways.WAYS:
        measure = partial(four_ways.way, name, sizes.tokens, sizes.compared, sizes.budget)
        plan.append(Step(f"way: {name}", measure))
    return plan


EXPERIMENT = Experiment("Four ways to read on", Sizes(), Sizes(96, 2, 16, 2, 4, 16), steps)
