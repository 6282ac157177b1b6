"""Claims of H2O (https://arxiv.org/abs/2306.14048) on heavy hitters: few are enough, without them it is worse."""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.kv.estimates import HEAVIEST, RANDOM, SPARED
from course_lib.lessons.kv.experiments import heavy
from course_lib.measure.experiment import Experiment, Step


@dataclass(frozen=True)
class Sizes:
    """Texts and lengths in tokens; shares of the tokens."""

    texts: int = 8
    length: int = 384
    enough: tuple[float, ...] = (0.05, 0.1, 0.2)
    masked: tuple[float, ...] = (0.02, 0.1)
    prompts: int = 8
    after: int = 96
    budgets: tuple[float, ...] = (0.1, 0.2, 0.5)
    written: int = 12
    prompt: int = 128
    new: int = 64
    share: float = 0.2  # of the prompt, for a cache that writes


QUICK = Sizes(1, 64, (0.1,), (0.1,), 1, 4, (0.25,), 1, 40, 4)


def steps(sizes: Sizes) -> list[Step]:
    plan = []
    for name in heavy.WRITERS:
        measure = partial(heavy.written, name, sizes.share, sizes.written, sizes.prompt, sizes.new)
        plan.append(Step(f"written: {name}", measure))
    for share in sizes.enough:
        plan.append(Step(f"enough: {share:.0%}", partial(heavy.enough, share, sizes.texts, sizes.length)))
    for which in (HEAVIEST, SPARED, RANDOM):
        for share in sizes.masked:
            measure = partial(heavy.masked, which, share, sizes.texts, sizes.length)
            plan.append(Step(f"masked: {which}, {share:.0%}", measure))
    plan.append(Step("bias", partial(heavy.bias, sizes.budgets, sizes.prompts, sizes.length, sizes.after)))
    plan.append(Step("words", partial(heavy.occurring, sizes.texts, sizes.length)))
    plan.append(Step("heads", partial(heavy.heads, sizes.texts, sizes.length)))
    return plan


EXPERIMENT = Experiment("Heavy hitters of the default model", Sizes(), QUICK, steps)
