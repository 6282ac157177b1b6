"""The key-value cache of the default model: where attention goes, streams, compressed prompts, needles.

Claims of StreamingLLM (https://arxiv.org/abs/2309.17453), H2O (https://arxiv.org/abs/2306.14048), Scissorhands
(https://arxiv.org/abs/2305.17118) and recycled attention (https://arxiv.org/abs/2411.05787) at the scale of a laptop.
Every policy of course_lib/kv/policies is measured. The steps are in the modules next to this one.
"""

from dataclasses import dataclass
from functools import partial

from course_lib.data.needles import TASKS
from course_lib.lessons.kv.experiments import answers, attention, settings, streams
from course_lib.measure.experiment import Experiment, Step
from course_lib.models import Part


@dataclass(frozen=True)
class Sizes:
    """Lengths in tokens; budgets of streams in slots, budgets of prompts as fractions of their length."""

    attention_windows: int = 2
    attention_length: int = 1024
    stream: int = 20480
    compared: int = 2560  # of the stream, also read with everything kept
    budget: int = 256
    chunk: int = 32  # tokens per forward pass of a stream
    chunks: tuple[int, ...] = (1, 8, 16, 32, 64)
    chunk_tokens: int = 512
    gaps: tuple[int, ...] = (0, 4096, 8192, 16384, 65536)
    gap_tokens: int = 768
    policy_tokens: int = 1280
    policy_chunk: int = 16
    shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)
    prompts: int = 6
    prompt: int = 512
    after: int = 128
    bits: tuple[int, ...] = (8, 4)
    needles: int = 20
    haystack: int = 384
    needle_shares: tuple[float, ...] = (0.1, 0.2, 0.5)
    share: float = 0.2  # of a prompt, where only one budget is measured


QUICK = Sizes(
    attention_windows=1,
    attention_length=32,
    stream=96,
    compared=64,
    budget=16,
    chunks=(16, 32),
    chunk_tokens=48,
    gaps=(0, 8192),
    gap_tokens=48,
    policy_tokens=48,
    shares=(0.25,),
    prompts=2,
    prompt=40,
    after=8,
    bits=(4,),
    needles=2,
    haystack=120,
    needle_shares=(0.5,),
    share=0.5,
)


def steps(sizes: Sizes) -> list[Step]:
    """Return all steps, each of a few minutes at most. The streams whose time is measured come first."""
    plan = []
    for name in (*streams.FIRST, streams.EVERYTHING):
        measure = partial(streams.sinks, name, sizes.stream, sizes.compared, sizes.budget, sizes.chunk)
        plan.append(Step(f"stream: {name}", measure))
    for size in sizes.chunks:
        measure = partial(streams.chunk, size, sizes.chunk_tokens, sizes.budget)
        plan.append(Step(f"stream: {size} tokens in a pass", measure))
    for gap in sizes.gaps:
        for positions in ("original", "rolling"):
            measure = partial(streams.gap, positions, gap, sizes.gap_tokens, sizes.budget, sizes.chunk)
            plan.append(Step(f"gap: {gap}, {positions} positions", measure))
    for name in ("Full", *settings.names(), "StreamingH2O"):
        measure = partial(streams.policy, name, sizes.policy_tokens, sizes.budget, sizes.policy_chunk)
        plan.append(Step(f"stream: {name}", measure))
    for start in attention.STARTS:
        measure = partial(attention.attention, start, sizes.attention_windows, sizes.attention_length)
        plan.append(Step(f"attention: first token {start}", measure))
    return plan + prompts(sizes)


def prompts(sizes: Sizes) -> list[Step]:
    """Return the steps that compress a prompt after it has been read."""
    plan, lengths = [], (sizes.prompts, sizes.prompt, sizes.after)
    for name in ("Full", *settings.names()):
        plan.append(Step(f"continuation: {name}", partial(answers.continuation, name, sizes.shares, *lengths)))
    for bits in sizes.bits:
        for name in ("Full", "StreamingLLM", "Scissorhands"):
            measure = partial(answers.continuation, name, (sizes.share,), *lengths, bits=bits)
            plan.append(Step(f"continuation: {name}, {bits} bits", measure))
    for task in [task for task, needle in TASKS.items() if len(needle.sentences) == 1]:
        for name in ("Full", *settings.names()):
            measure = partial(answers.retrieval, task, name, sizes.needle_shares, sizes.needles, sizes.haystack)
            plan.append(Step(f"needle: {task}, {name}", measure))
    for name in ("Window", "StreamingLLM"):
        measure = partial(answers.leak, name, sizes.needle_shares, sizes.needles, sizes.haystack)
        plan.append(Step(f"needle asked for too early: {name}", measure))
    for name in ("Full", "StreamingLLM", "H2O", "SnapKV", *answers.RECYCLED):
        measure = partial(answers.second_needle, name, sizes.share, sizes.needles, sizes.haystack)
        plan.append(Step(f"second needle: {name}", measure))
    return plan


# The quick run keeps the full width: in a narrow model attention is so even that no token stands out.
EXPERIMENT = Experiment("The key-value cache of the default model", Sizes(), QUICK, steps, quick_part=Part(width=None))
