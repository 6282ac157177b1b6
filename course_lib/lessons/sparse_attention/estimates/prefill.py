"""FlexPrefill and its rivals: how much each rule reads, and what it costs compared with dense attention."""

from itertools import pairwise
from statistics import fmean

from course_lib.lessons.common.claim import NO_LOSS
from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.results import Measured
from course_lib.lessons.common.verdicts import Effect, Effects, of_count, of_independent, of_samples
from course_lib.lessons.sparse_attention.estimates import rows as found
from course_lib.lessons.sparse_attention.experiments.sparse_attention import (
    DENSE,
    FLEX,
    NO_FLOOR,
    RELEASED,
    SAME_DENSITY,
)
from course_lib.measure.paired import mean_and_error

CLOSE = NO_LOSS  # nats per token above dense attention
AWARE = 0.5  # of the texts on which a head has to be query-aware to be called so


def dense(measured: Measured, length: int) -> Row:
    """The row of dense attention on windows of so many tokens."""
    return found.some(measured, "read", tokens=length, rule=DENSE)[0]


def above(measured: Measured, row: Row) -> Effect:
    """Its loss minus that of dense attention, in nats per token."""
    return log_gap(dense(measured, row["tokens"]), row)


def flex(measured: Measured, length: int | None = None, rule: str = FLEX) -> list[Row]:
    """The rows of FlexPrefill, by length and γ."""
    mine = [row for row in found.some(measured, "read", rule=rule) if length in (None, row["tokens"])]
    return sorted(mine, key=lambda row: (row["tokens"], row["gamma"]))


def density(row: Row) -> float:
    """Of the causal blocks, the mean over windows, layers and heads."""
    return fmean(row["densities"])


def of_same_density(measured: Measured) -> list[Row]:
    """The rules that read as many blocks, as far as they were measured."""
    return [row for name in SAME_DENSITY for row in found.some(measured, "read", rule=name)]


def chosen(measured: Measured) -> Row:
    """FlexPrefill at the γ and length of the comparisons."""
    sizes = measured["sizes"]
    return next(row for row in flex(measured, sizes["middle"]) if row["gamma"] == sizes["gamma"])


def thirds(layers: list[Row]) -> list[list[Row]]:
    """The first, the middle and the last layers."""
    return [layers[part * len(layers) // 3 : (part + 1) * len(layers) // 3] for part in range(3)]


def flat(layers: list[Row], name: str) -> list[float]:
    return [share for row in layers for share in row[name]]


def below(most: float, measured: Measured, row: Row) -> Effect:
    """By how many nats per token it costs less than a limit."""
    pairs = zip(dense(measured, row["tokens"])["losses"], row["losses"], strict=True)
    return of_samples([most - (sparse - whole) for whole, sparse in pairs])


def known(row: Row) -> tuple[float, float]:
    """Its density and the error of that."""
    return mean_and_error(row["densities"])


def case(row: Row) -> str:
    return f"{row['tokens']} tokens at γ {row['gamma']:g}"


def costs(measured: Measured) -> dict[str, Effect]:
    """Loss of FlexPrefill minus that of dense attention, by length and γ."""
    return {case(row): above(measured, row) for row in flex(measured)}


def shrinking(measured: Measured) -> dict[str, Effect]:
    """Density of FlexPrefill at one length minus that at the next, at the chosen γ."""
    at_gamma = [row for row in flex(measured) if row["gamma"] == measured["sizes"]["gamma"]]
    return {
        f"{short['tokens']} to {long['tokens']} tokens": of_independent(known(long), known(short))
        for short, long in pairwise(at_gamma)
    }


def with_floor(measured: Measured) -> dict[float, Row]:
    """FlexPrefill with the floor, by γ, at the length at which it was also measured without."""
    return {row["gamma"]: row for row in flex(measured, measured["sizes"]["middle"])}


def bare(measured: Measured) -> list[Row]:
    """FlexPrefill without the floor, at the values of γ that were measured with it."""
    return [row for row in flex(measured, rule=NO_FLOOR) if row["gamma"] in with_floor(measured)]


def costs_without_floor(measured: Measured) -> dict[str, Effect]:
    return {case(row): above(measured, row) for row in bare(measured)}


def gains_of_floor(measured: Measured) -> dict[str, Effect]:
    """Loss without the floor minus that with it, by γ."""
    return {case(row): log_gap(with_floor(measured)[row["gamma"]], row) for row in bare(measured)}


def above_flex(measured: Measured, rule: str) -> Effects:
    """Loss of a rule of the same density minus that of FlexPrefill."""
    row = found.one(measured, "read", rule=rule)
    return log_gap(chosen(measured), row) if row else {}


def fewer_than_asked(measured: Measured) -> dict[str, Effect]:
    """Density of FlexPrefill minus that of the code as released, window by window."""
    mine = chosen(measured)["densities"]
    return {
        case(row): of_samples([reached - counted for reached, counted in zip(mine, row["densities"], strict=True)])
        for row in found.some(measured, "read", rule=RELEASED)
    }


def released_above_flex(measured: Measured) -> dict[str, Effect]:
    """Loss of the code as released minus that of FlexPrefill."""
    mine = chosen(measured)
    return {case(row): log_gap(mine, row) for row in found.some(measured, "read", rule=RELEASED)}


# Heads, all of which are counted.


def n_aware(measured: Measured) -> tuple[int, int]:
    """How many heads are query-aware on more than half of the texts, and how many heads there are."""
    aware = flat(found.some(measured, "heads"), "query_aware")
    return sum(share > AWARE for share in aware), len(aware)


def rarer_kind(measured: Measured) -> Effect:
    n, of = n_aware(measured)
    return of_count(min(n, of - n), of)


def first_minus_last_third(measured: Measured) -> Effect:
    """Mean density in the first third of the layers minus that in the last."""
    layers = found.some(measured, "heads")
    first, *_, last = (fmean(flat(third, "density")) for third in thirds(layers))
    return Effect(value=first - last, error=0.0, n=len(flat(layers, "density")))


def densest_over_sparsest(measured: Measured) -> Effect:
    """Mean density of the densest tenth of the heads over that of the sparsest tenth."""
    shares = sorted(flat(found.some(measured, "heads"), "density"))
    tenth = max(1, len(shares) // 10)
    return Effect(value=fmean(shares[-tenth:]) / fmean(shares[:tenth]), error=0.0, n=len(shares))
