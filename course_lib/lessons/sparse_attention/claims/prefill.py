"""FlexPrefill: how much is read over γ, what that costs, and what else could have been read.

Every rule of one length read the same windows, and is compared with dense attention window by window.
"""

import math
from itertools import pairwise
from statistics import fmean

from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.common.verdicts import Effect, claim, of_count, of_independent, of_samples, said
from course_lib.lessons.sparse_attention.claims import rows as found
from course_lib.lessons.sparse_attention.experiments.experiment_sparse_attention import (
    DENSE,
    FLEX,
    NO_FLOOR,
    RELEASED,
    SAME_DENSITY,
    Sizes,
    further,
)
from course_lib.measure.paired import mean_and_error

CLOSE = 0.02  # nats a token above dense attention: 2 % of perplexity, here the meaning of "no loss"
AWARE = 0.5  # of the texts on which a head has to be query-aware to be called so


def results() -> Measured:
    """The committed `course reproduce sparse_attention`, with `sparse_attention_further` where that is."""
    return found.joined("experiments/sparse_attention", "experiments/sparse_attention_further")


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    amounts = f"{sizes['windows']} windows a length; blocks of {sizes['block_size']}, a floor of "
    amounts += f"{sizes['min_budget']} tokens; coverage of all queries on {sizes['covered']} windows"
    return found.provenance(measured, amounts, further(Sizes()))


def dense(measured: Measured, length: int) -> Row:
    """The row of dense attention on windows of so many tokens."""
    return found.some(measured, "read", tokens=length, rule=DENSE)[0]


def above(measured: Measured, row: Row) -> Effect:
    """By how many nats a token it reads worse than dense attention."""
    return log_gap(dense(measured, row["tokens"]), row)


def flex(measured: Measured, length: int | None = None, rule: str = FLEX) -> list[Row]:
    """The rows of FlexPrefill, by length and γ."""
    mine = [row for row in found.some(measured, "read", rule=rule) if length in (None, row["tokens"])]
    return sorted(mine, key=lambda row: (row["tokens"], row["gamma"]))


def density(row: Row) -> float:
    """Of the causal blocks, the mean over windows, layers and heads."""
    return fmean(row["densities"])


def over_gamma(measured: Measured) -> str:
    """By length and γ: what is read and what that costs; is no loss true, and is less read of longer texts?"""
    every = flex(measured)
    lines = _table(measured, every)
    chosen = [row for row in every if row["gamma"] == measured["sizes"]["gamma"]]
    cheap = [below(CLOSE, measured, row) for row in every]
    lines.append(claim(f"FlexPrefill costs less than {CLOSE} nats a token, at every γ and length", cheap, True))
    longer = [of_independent(_known(long), _known(short)) for short, long in pairwise(chosen)]
    if longer:  # where more than one length was measured
        lines.append(claim("the longer the text, the smaller the share that is read", longer))
    return "\n".join(lines)


def floor(measured: Measured) -> str:
    """γ alone beside γ with a floor under what each head reads."""
    with_floor = {row["gamma"]: row for row in flex(measured, measured["sizes"]["middle"])}
    bare = [row for row in flex(measured, rule=NO_FLOOR) if row["gamma"] in with_floor]
    lines = _table(measured, [each for row in bare for each in (with_floor[row["gamma"]], row)])
    cheap = [below(CLOSE, measured, row) for row in bare]
    lines.append(claim(f"γ alone, without the floor, costs less than {CLOSE} nats a token", cheap))
    worse = [log_gap(with_floor[row["gamma"]], row) for row in bare]
    lines.append(claim("with the floor it reads better at the same γ", worse))
    return "\n".join(lines)


def rivals(measured: Measured) -> str:
    """Rules that give each head the mean of what FlexPrefill gave."""
    mine = chosen(measured)
    others = of_same_density(measured)
    lines = _table(measured, [mine, *others])
    for row in others:
        effect = log_gap(mine, row)
        lines.append(f"{row['rule']} above FlexPrefill by {said(effect)} nats a token")
        lines.append(claim(f"at equal density FlexPrefill reads better than {row['rule']}", effect))
    return "\n".join(lines)


def of_same_density(measured: Measured) -> list[Row]:
    """The rules that read as many blocks, as far as they were measured."""
    return [row for name in SAME_DENSITY for row in found.some(measured, "read", rule=name)]


def chosen(measured: Measured) -> Row:
    """FlexPrefill at the γ and length of the comparisons."""
    sizes = measured["sizes"]
    return next(row for row in flex(measured, sizes["middle"]) if row["gamma"] == sizes["gamma"])


def released(measured: Measured) -> str:
    """The public code's two lines beside γ that is reached."""
    mine, theirs = chosen(measured), found.some(measured, "read", rule=RELEASED)
    lines = _table(measured, [mine, *theirs])
    pairs = [zip(mine["densities"], row["densities"], strict=True) for row in theirs]
    fewer = [of_samples([reached - counted for reached, counted in shares]) for shares in pairs]
    lines.append(claim("the code as released reads fewer blocks than γ asks for", fewer))
    lines.append(claim("and reads the text worse", [log_gap(mine, row) for row in theirs]))
    return "\n".join(lines)


def heads(measured: Measured) -> str:
    """Are heads as different as the rule supposes? Layer by layer in thirds, then all heads."""
    layers = measured["tables"]["heads"]
    lines = [f"{'layers':<12}{'density':>10}{'sparsest':>10}{'densest':>10}{'query-aware':>14}"]
    for third in thirds(layers):
        shares, aware = _flat(third, "density"), _flat(third, "query_aware")
        name = f"{third[0]['layer']} to {third[-1]['layer']}"
        ends = f"{fmean(shares):>10.2f}{min(shares):>10.2f}{max(shares):>10.2f}"
        lines.append(f"{name:<12}{ends}{f'{100 * fmean(aware):.0f} %':>14}")
    aware, shares = _flat(layers, "query_aware"), sorted(_flat(layers, "density"))
    n = sum(share > AWARE for share in aware)
    lines.append(f"{n} of {len(aware)} heads are query-aware on more than half of the texts")
    lines.append(claim("both kinds of heads are there", of_count(min(n, len(aware) - n), len(aware), more_than=0.0)))
    first, *_, last = (fmean(_flat(third, "density")) for third in thirds(layers))
    effect = Effect(value=first - last, error=0.0, n=len(aware))
    lines.append(claim("the first third of the layers reads more of its blocks than the last", effect))
    tenth = max(1, len(shares) // 10)
    times = fmean(shares[-tenth:]) / fmean(shares[:tenth])
    lines.append(f"the densest tenth of the heads reads {times:.1f} times as many blocks as the sparsest")
    lines.append(claim("that is more than twice as many", Effect(value=times - 2, error=0.0, n=len(shares))))
    return "\n".join(lines)


def thirds(layers: list[Row]) -> list[list[Row]]:
    """The first, the middle and the last layers."""
    return [layers[part * len(layers) // 3 : (part + 1) * len(layers) // 3] for part in range(3)]


def _flat(layers: list[Row], name: str) -> list[float]:
    return [share for row in layers for share in row[name]]


def below(most: float, measured: Measured, row: Row) -> Effect:
    """By how much less than that many nats a token it costs."""
    pairs = zip(dense(measured, row["tokens"])["losses"], row["losses"], strict=True)
    return of_samples([most - (sparse - whole) for whole, sparse in pairs])


def _known(row: Row) -> tuple[float, float]:
    """Its density and the error of that."""
    return mean_and_error(row["densities"])


def _table(measured: Measured, shown: list[Row]) -> list[str]:
    """What is read, how much of the attention that is, and the ratio of perplexities to dense attention."""
    lines = [
        f"{'tokens':>6}  {'rule':<22}{'γ':>5}{'density':>9}{'coverage':>10}{'perplexity':>12}{'ratio to dense':>18}"
    ]
    for row in shown:
        effect, gamma = above(measured, row), "" if row["gamma"] is None else f"{row['gamma']:g}"
        ratio = math.exp(effect.value)
        cells = f"{density(row):>9.2f}{row['coverage']:>10.3f}{row['perplexity']:>12.2f}"
        cells += f"{f'{ratio:.3f} ± {ratio * effect.error:.3f}':>18}"
        lines.append(f"{row['tokens']:>6}  {row['rule']:<22}{gamma:>5}{cells}")
    return lines
