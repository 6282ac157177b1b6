"""Verdicts on who receives attention, layer by layer: first tokens, punctuation, neighbours, few of many, by depth."""

from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import Effect, of_count, of_independent, verdict
from course_lib.lessons.kv.measured import Measured, results
from course_lib.measure.paired import mean_and_error

MOST = 0.5  # of the layers
LARGE = 10  # even shares of attention
NEIGHBOURS = 16  # tokens before a query, as they were measured
FEW = "top_5_percent"


def attended_verdict(measured: Measured | None = None, start: str = "text") -> str:
    """All layers are counted; for what differs by depth they are the sample."""
    layers = rows(measured or results(), "attention", start=start)
    tokens, *kinds = rows(measured or results(), "attention_kinds", start=start)
    even = _even_share_of_the_first(layers[0]["length"])
    by_word = tokens["punctuation"] / tokens["word"]
    judged = {
        f"in most layers the first token receives over {LARGE} even shares": _most(
            [row["first_token"] > LARGE * even for row in layers]
        ),
        "in most layers punctuation receives more a token than words": _most(
            [row["punctuation"] > by_word * row["word"] for row in kinds]
        ),
        f"in most layers the {NEIGHBOURS} nearest tokens receive over half of what the first one leaves": _most(
            [row["near"] > 0.5 * (1 - row["first token"]) for row in kinds]
        ),
        "in most layers 5 % of the tokens receive over half of the attention": _most(
            [row[FEW] > 0.5 for row in layers]
        ),
        "the last third of the layers is sparser than the first": _by_depth([row["sparsity"] for row in layers]),
    }
    return "\n".join(f"Claim: {claim}: {verdict(effect)}" for claim, effect in judged.items())


def _even_share_of_the_first(length: int) -> float:
    """Query i spreads over i tokens: the mean of 1 / i."""
    return sum(1 / i for i in range(1, length + 1)) / length


def _most(held: list[bool]) -> Effect:
    return of_count(sum(held), len(held), MOST)


def _by_depth(sparsity: list[float]) -> Effect:
    """The means of both thirds, over their layers."""
    third = len(sparsity) // 3
    deeper = of_independent(mean_and_error(sparsity[:third]), mean_and_error(sparsity[-third:]))
    return Effect(value=deeper.value, error=deeper.error, n=third)
