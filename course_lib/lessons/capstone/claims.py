"""The claims of lesson 12: how parts of a recipe combine, what published sizes cost here, and when fewer bytes pay."""

from functools import partial
from typing import Any

from course_lib.lessons.capstone import comparisons, estimates, timings
from course_lib.lessons.capstone.estimates import DENSE, DOMAINS, find, recipes, rows_of
from course_lib.lessons.common.claim import NATS, NO_LOSS, OTHER_LOSSES, TIMES, WHY_NO_LOSS, Claim, Unit
from course_lib.lessons.common.results import load_published, percent, rows
from course_lib.lessons.common.verdicts import Effect, of_samples

Measured = dict[str, Any]
SHARES = (1 / 2, 1 / 3, 1 / 4)  # of the dense model's bytes
PARTS, GRID = "capstone/experiments/capstone", "capstone/experiments/capstone_front"
SPARSEGPT = "Frantar and Alistarh (2023), arXiv:2301.00774"
SCISSORHANDS = "Liu and others (2023), arXiv:2305.17118"
PROMPTS = "Xu and others (2023), arXiv:2305.11186"
H2O = "Zhang and others (2023), arXiv:2306.14048"
SPECULATIVE = "Leviathan, Kalman and Matias (2023), arXiv:2211.17192"

_claim = partial(Claim, results=(PARTS,), unit=NATS)
_of_recipes = partial(Claim, results=(PARTS, GRID), unit=NATS)
_of_drafts = partial(Claim, results=("capstone/experiments/capstone_drafts", "sparse_attention/experiments/drafts"))


def _last_minus_alone(measured: Measured) -> dict[str, Effect]:
    found = {DOMAINS[domain]: estimates.last_minus_alone(measured, domain) for domain in _domains(measured, "subsets")}
    return {f"{part}, {name}": effect for name, effects in found.items() for part, effect in effects.items()}


def _interactions(measured: Measured) -> dict[str, Effect]:
    found = {DOMAINS[domain]: estimates.interactions(measured, domain) for domain in _domains(measured, "subsets")}
    return {
        f"{' and '.join(pair)}, {name}": effect for name, effects in found.items() for pair, effect in effects.items()
    }


def _order_gains(measured: Measured, pairs: dict[str, tuple[str, str]]) -> dict[str, Effect]:
    known = {row["order"] for row in rows_of(measured, "orders")}
    return {
        f"{name}, {DOMAINS[domain]}": estimates.order_gain(measured, domain, *pair)
        for domain in DOMAINS
        for name, pair in pairs.items()
        if set(pair) <= known
    }


def _domains(measured: Measured, table: str) -> list[str]:
    return list(DOMAINS) if rows_of(measured, table) else []


def _best_within(measured: Measured, grid: Measured) -> dict[str, Effect]:
    """The loss increase of the best recipe of each footprint, in the domain in which it is larger."""
    found, every = {}, recipes(measured, grid)
    for share in SHARES if every else ():
        if fit := estimates.within(every, share, 1.0):
            found[f"at most {percent(share)} of the bytes"] = estimates.larger_increase(fit[0], find(every, DENSE))
    return found


def _sizes(measured: Measured, grid: Measured, prompts: Measured | None = None) -> list[comparisons.Size]:
    return comparisons.sizes(recipes(measured, grid), prompts)


def _beyond_published(*results: Measured) -> dict[str, Effect]:
    """Exact counts: how many times smaller here minus there."""
    return {size.name: Effect(value=size.ours - size.published, error=0.0) for size in _sizes(*results)}


def _show_sizes(*results: Measured) -> str:
    found = [f"{size.ours:.1f} times ({size.name}; published: {size.published:g})" for size in _sizes(*results)]
    why = "; Scissorhands drops half of its budget whenever it is full, and so holds fewer tokens than the budget"
    return ", ".join(found) + why


def _costs_of_sizes(*results: Measured) -> dict[str, Effect]:
    return {size.name: size.cost for size in _sizes(*results)}


def _costs_above(name: str, other: str, measured: Measured, grid: Measured) -> dict[str, Effect]:
    """The loss of one recipe above that of another, by domain, where both were measured."""
    found = recipes(measured, grid)
    row, beside = find(found, name), find(found, other)
    return {text: estimates.loss_increase(row, beside, domain) for domain, text in DOMAINS.items() if row and beside}


def _equal_bytes(measured: Measured, grid: Measured, lesson_3: Measured | None = None) -> dict[str, Effect]:
    return comparisons.equal_bytes(recipes(measured, grid), lesson_3)


def _published_equal_bytes() -> str:
    by_name = {row["name"]: row for row in rows(load_published("sparsegpt"), "rounded")}
    pruned, rounded = by_name["50% + 4 bits"], by_name["3 bits"]
    return (
        f"perplexity {pruned['perplexity']} with 50 % at 4 bits, {rounded['perplexity']} with 3 bits "
        f"({pruned['model']})"
    )


def _tokens_per_pass(measured: Measured, lesson_11: Measured | None = None) -> dict[str, Effect]:
    drafts = comparisons.drafts_by_case(measured, lesson_11)
    return {name: of_samples(draft.tokens_per_pass) for name, draft in drafts.items()}


def _times_fewer(lookup: bool, measured: Measured, lesson_11: Measured | None = None) -> dict[str, Effect]:
    """Of prompt-lookup drafts, or of compressed models; the oracle, which computes everything, is none of the two."""
    drafts = comparisons.drafts_by_case(measured, lesson_11)
    return {
        name: of_samples(draft.times_fewer_bytes)
        for name, draft in drafts.items()
        if draft.is_lookup is lookup and not draft.is_oracle
    }


LAST_MINUS_ALONE = _claim(
    id="capstone-last-minus-alone",
    text="a part raises the loss more when it is added last than when it is the only one",
    measure=_last_minus_alone,
    quantity="loss increase of a part added last, minus its loss increase alone",
    refuted="a part that costs less when all the others are there already",
)
PAIRS = _claim(
    id="capstone-pairs",
    text="two parts raise the loss by more than the sum of what each of them costs alone",
    measure=_interactions,
    quantity="loss increase of both parts minus the sum of the two alone",
    refuted="two parts that cost less together than the sum",
)
ZEROS_FIRST = _claim(
    id="capstone-zeros-first",
    text="pruning and then rounding has a lower loss than rounding and then pruning",
    measure=partial(_order_gains, pairs=estimates.ZEROS_FIRST),
    quantity="loss of rounding first minus loss of pruning first",
    refuted="a method for which rounding first has as low a loss",
)
ONE_SWEEP = _claim(
    id="capstone-one-sweep",
    text="pruning and rounding in one sweep has a lower loss than one after the other",
    measure=partial(_order_gains, pairs={"SparseGPT": estimates.ONE_SWEEP}),
    quantity="loss of one after the other minus loss of one sweep",
    refuted="one after the other with as low a loss",
    source=SPARSEGPT,
)
BEST_WITHIN = _of_recipes(
    id="capstone-best-within",
    text=f"the best recipe of half or a third of the bytes raises the loss by less than {NO_LOSS} nats",
    measure=_best_within,
    below=NO_LOSS,
    because=WHY_NO_LOSS,
    other_thresholds=(*OTHER_LOSSES, 0.1),
    quantity="loss increase of the best recipe, by memory footprint",
    refuted=f"a loss increase of {NO_LOSS} nats or more",
)
TIMES_SMALLER = Claim(
    id="capstone-times-smaller",
    text="a recipe becomes as many times smaller as published",
    results=(PARTS, GRID, "compress/experiments/prompts"),
    measure=_beyond_published,
    quantity="times smaller here minus times smaller as published",
    refuted="a recipe that takes more bytes",
    shown=_show_sizes,
    unit=Unit("times", signed=True),
    source=f"{SCISSORHANDS}; {PROMPTS}",
    larger_models=True,
)
TIMES_SMALLER_COST = Claim(
    id="capstone-times-smaller-cost",
    text=f"recipes of the published sizes raise the loss by less than {NO_LOSS} nats",
    results=(PARTS, GRID, "compress/experiments/prompts"),
    measure=_costs_of_sizes,
    below=NO_LOSS,
    because=WHY_NO_LOSS,
    other_thresholds=(*OTHER_LOSSES, 0.1),
    quantity="loss increase over the dense model",
    refuted=f"a loss increase of {NO_LOSS} nats or more",
    published="no loss (larger models)",
    source=f"{SCISSORHANDS}; {PROMPTS}",
    larger_models=True,
)
EQUAL_BYTES = Claim(
    id="capstone-equal-bytes",
    text="at equal bytes, zeros and more bits have a lower loss than fewer bits for all weights",
    results=(PARTS, GRID, "sparsegpt/experiments/sparsegpt_rounded"),
    measure=_equal_bytes,
    quantity="loss with fewer bits minus loss with zeros and more bits",
    refuted="a case in which fewer bits for all weights have as low a loss",
    published=_published_equal_bytes,
    source=SPARSEGPT,
    larger_models=True,
)
H2O_FIFTH, H2O_FOUR_BITS = (
    _of_recipes(
        id=f"capstone-h2o-{name}",
        text=text,
        measure=partial(_costs_above, recipe, other),
        below=NO_LOSS,
        because=WHY_NO_LOSS,
        other_thresholds=(*OTHER_LOSSES, 0.1),
        quantity=quantity,
        refuted=f"a text on which it costs {NO_LOSS} nats or more",
        source=H2O,
        larger_models=True,
    )
    for name, text, recipe, other, quantity in (
        (
            "fifth",
            f"with 20 % of the cache, H2O raises the loss by less than {NO_LOSS} nats",
            "H2O 20 %",
            DENSE,
            "loss increase over the full cache, by text",
        ),
        (
            "four-bits",
            f"rounding H2O's 20 % of the cache to 4 bits raises the loss by less than {NO_LOSS} nats",
            "H2O 20 %, 4 bits",
            "H2O 20 %",
            "loss increase over the same cache without rounding, by text",
        ),
    )
)
HALF_OF_NEURONS = _of_recipes(
    id="capstone-half-of-neurons",
    text=f"rounding raises the cost of computing half of the neurons by less than {NO_LOSS} nats",
    measure=lambda measured, grid=None: comparisons.cost_of_half_neurons(recipes(measured, grid)),
    below=NO_LOSS,
    because=WHY_NO_LOSS,
    other_thresholds=(*OTHER_LOSSES, 0.1),
    quantity="cost of half of the neurons after rounding minus their cost in the dense model",
    refuted=f"a difference of {NO_LOSS} nats or more",
    larger_models=True,
)
FEWER_PASSES = _of_drafts(
    id="capstone-fewer-passes",
    text="with a draft, a forward pass of the dense model yields more than one token",
    measure=_tokens_per_pass,
    above=1.0,
    because="one token per pass is decoding without a draft",
    quantity="tokens per forward pass of the dense model",
    refuted="a draft with which a pass yields only one token",
    unit=Unit("tokens"),
    source=SPECULATIVE,
)
LOOKUP_BYTES = _of_drafts(
    id="capstone-lookup-bytes",
    text="prompt-lookup decoding reads fewer bytes per token than decoding without a draft",
    measure=partial(_times_fewer, True),
    above=1.0,
    because="as many bytes as without a draft",
    quantity="bytes per token without a draft over those with it",
    refuted="a lookup that saves no pass",
    unit=Unit("times"),
)
COMPRESSED_DRAFT_BYTES = _of_drafts(
    id="capstone-compressed-draft-bytes",
    text="decoding with a compressed draft model reads fewer bytes per token, including the draft's own",
    measure=partial(_times_fewer, False),
    above=1.0,
    because="as many bytes as without a draft",
    quantity="bytes per token without a draft over those with it",
    refuted="a draft model that reads more bytes than it saves",
    unit=Unit("times"),
    source=SPECULATIVE,
)
FEWER_BYTES_LESS_TIME = Claim(
    id="capstone-fewer-bytes-less-time",
    text="reading fewer bytes per token takes less time on a CPU",
    results=tuple(f"bench/{name}" for name in timings.BENCHES),
    measure=timings.speedups,
    quantity="speedup of ways that read fewer bytes",
    refuted="a way to read fewer bytes that takes as long",
    unit=TIMES,
)
