"""Claims on attention and on compressed prompts, with one text per article: more texts than `course reproduce kv`.

Also what that experiment leaves out: a cache of Scissorhands exactly five times smaller, D2O and EMS without merging,
and recycled attention with as many full steps as by similarity. Tables and columns are those of `kv`.
"""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.common.subject import article_starts
from course_lib.lessons.kv.experiments import answers, attention
from course_lib.measure.experiment import Experiment, Step
from course_lib.models import Part

FIVE_TIMES = 0.4025  # of 512 slots: Scissorhands evicts half of its budget at once and holds 103 of them, a fifth
POLICIES = ("Full", "Scissorhands", "H2O", "EMS without merging", "D2O", "D2O without merging")


@dataclass(frozen=True)
class Sizes:
    """Lengths in tokens, budgets as fractions of a prompt. 24 of the 25 evaluation articles have 640 tokens."""

    prompts: int = 24
    prompt: int = 512
    after: int = 128
    shares: tuple[float, ...] = (0.1, 0.2)
    policies: tuple[str, ...] = POLICIES
    needles: int = 20
    haystack: int = 384
    share: float = 0.2
    attention_windows: int = 16
    attention_length: int = 1024


QUICK = Sizes(
    prompts=2, prompt=40, after=4, shares=(0.25,), policies=("H2O",), needles=1, haystack=120, share=0.5,
    attention_windows=2, attention_length=32,
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    """Return all steps, each of one to two minutes on an idle core."""
    needles, texts = (sizes.needles, sizes.haystack), (sizes.attention_windows, sizes.attention_length)
    plan = [
        Step(
            f"second needle: {answers.EVERY_4_STEPS}",
            partial(answers.second_needle, answers.EVERY_4_STEPS, sizes.share, *needles),
        ),
        Step("attention", partial(attention.attention, "text", *texts, texts=article_starts)),
    ]
    for name in sizes.policies:
        shares = (FIVE_TIMES,) if name == "Scissorhands" else sizes.shares
        prompts = (shares, sizes.prompts, sizes.prompt, sizes.after)
        plan.append(Step(f"continuation: {name}", partial(answers.continuation, name, *prompts, texts=article_starts)))
    return plan


# The quick run keeps the full width: in a narrow model attention is so even that no token stands out.
EXPERIMENT = Experiment("Lesson 07 with one text per article", Sizes(), QUICK, steps, quick_part=Part(width=None))
