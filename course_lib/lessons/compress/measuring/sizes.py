"""How much is measured: text in windows of tokens, steps of learning, which models, which questions."""

from dataclasses import dataclass

from course_lib.prompts.compressed.store import DENSE

CUT = "minitron-50"
# What the lesson needs first; the claim "50 % and 4 bits" is the paper's best known one.
FIRST = (DENSE, "wanda-50", "gptq-3", "sparsegpt-50-4bit")
OTHERS = ("wanda-75", "gptq-4", "wanda-62.5", CUT, "gptq-2")
REST = ("sparsegpt-50", "sparsegpt-75", "wanda-2of4", "minitron-75", "sparsegpt-62.5", "sparsegpt-2of4")


@dataclass(frozen=True)
class Sizes:
    """Windows that prompts learn from never share a document with those that they are evaluated on.

    The main run of each model is `n_steps` of `batch` windows with `n_vectors` vectors, from words drawn by lot.
    """

    evaluation: int = 24
    length: int = 128  # tokens of a window to evaluate on
    text: int = 512
    text_length: int = 96
    batch: int = 4
    n_vectors: int = 20
    n_steps: int = 32
    warm_up: int = 4
    rate: float = 3e-2
    first: tuple[str, ...] = FIRST
    others: tuple[str, ...] = OTHERS
    rest: tuple[str, ...] = REST
    moved_to: tuple[str, ...] = (*FIRST, "wanda-75")
    moved_from: tuple[str, ...] = (*FIRST, "wanda-75")
    vectors: tuple[int, ...] = (5, 80)
    steps: tuple[int, ...] = (8, 96)
    seeds: tuple[int, ...] = (1,)
    adapter_steps: int = 38  # as many tokens through the model, forth and back, as a prompt's
    taught_steps: int = 26  # the same with a teacher beside
    adapter_rate: float = 3e-3
    adapter_rank: int = 4
    distil_rate: float = 3e-4
    questions: tuple[tuple[str, int], ...] = (("sciq", 100), ("arc_easy", 100), ("lambada", 100))


QUICK = Sizes(
    evaluation=3,
    length=12,
    text=8,
    text_length=12,
    batch=2,
    n_vectors=4,
    n_steps=2,
    warm_up=1,
    first=FIRST[:2],
    others=(CUT,),
    rest=(),
    moved_to=FIRST[:2],
    moved_from=FIRST[:2],
    vectors=(2,),
    steps=(1,),
    seeds=(1,),
    adapter_steps=2,
    taught_steps=2,
    questions=(("sciq", 2), ("lambada", 2)),
)
