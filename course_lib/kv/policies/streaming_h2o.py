"""StreamingH2O, the H2O of endless texts. Zhang and others, 2023, https://arxiv.org/abs/2306.14048"""

from dataclasses import dataclass

from course_lib.kv.policies.h2o import H2O


@dataclass(frozen=True)
class StreamingH2O(H2O):
    """H2O with eviction while the prompt is read, by token or in chunks, and with positions counted in slots.

    The authors' code for streaming keeps 4 heavy hitters and 512 recent tokens by default. Use it with
    `evicting(..., positions="rolling")`.

    Deviation: scores belong to one sequence and one key-value head; the authors sum them over the batch.
    """

    budget: int | float = 516
    recent: int = 512
