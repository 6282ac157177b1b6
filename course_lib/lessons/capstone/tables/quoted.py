"""What papers claim of compressed models, and what the same recipe does here: their numbers beside ours."""

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.lessons.capstone.found import DENSE, DOMAINS, above, one, worse
from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.tables import load_measured, load_published, rows, spaced
from course_lib.lessons.common.verdicts import Effect, claim, of_samples, said

CLOSE = 0.05  # nats a token: what the lessons take for no loss
EQUAL = (  # more bits and zeros beside fewer bits, of about the same bytes
    ("SparseGPT 50 %, 4 bits", "3 bits, 64"),
    ("SparseGPT 50 %, 2 bits", "2 bits, 64"),
    ("SparseGPT 75 %, 4 bits", "2 bits, 64"),
)
CACHES = {  # sizes that Scissorhands claims: with 16 bits and with 4
    "H2O 20 %": 0,
    "Scissorhands 20 %": 0,
    "H2O 20 %, 4 bits": 1,
    "Scissorhands 20 %, 4 bits": 1,
}
FEWER, ROUNDED = "CATS 50 %", ("4 bits, rows", "3 bits, 64", "2 bits, 64")
HALF_4_BITS = "sparsegpt-50-4bit"  # in lesson 10


class Size(NamedTuple):
    """Times smaller, in a paper and here, and what it costs here in nats a token."""

    name: str
    published: float
    here: float
    cost: Effect


def less_than_close(cost: Effect) -> Effect:
    """By how much less than CLOSE."""
    return Effect(value=CLOSE - cost.value, error=cost.error, n=cost.n)


def of_caches(recipes: Sequence[Row]) -> list[Size]:
    """Scissorhands' 5 and 20 times, as its own policy and H2O do here behind 1,024 tokens; the worse domain counts."""
    dense, claims = one(recipes, DENSE), rows(load_published("kv"), "claims", source="Scissorhands")
    published = [row["value"] for row in claims if "less cache" in row["claim"]]
    found = {name: one(recipes, name) for name in CACHES}
    return [
        Size(f"cache, {name}", published[CACHES[name]], dense["cache"] / row["cache"], worse(row, dense))
        for name, row in found.items()
        if row
    ]


def of_weights() -> list[Size]:
    """The 8 times of compress-then-prompt, as lesson 10 measured them: with a prompt, in the blocks and in all."""
    measured = load_measured("compress", "prompts")
    (dense,), (row,) = (rows(measured, "models", model=name) for name in (DENSE, HALF_4_BITS))
    (own,) = rows(measured, "own", model=HALF_4_BITS)
    (published,) = rows(load_published("compress"), "claims", claim="times smaller")
    kinds = {"in the blocks": "weight_bytes", "in all": "bytes"}
    return [
        Size(f"50 % and 4 bits, {where}", published["published"], dense[key] / row[key], log_gap(dense, own))
        for where, key in kinds.items()
    ]


def times_smaller(recipes: Sequence[Row]) -> list[Size]:
    """All sizes."""
    return [*of_caches(recipes), *of_weights()]


def sizes(recipes: Sequence[Row]) -> str:
    """Times smaller, published and here, and whether that is free."""
    lines = [f"{'':<36}{'published':>11}{'here':>9}{'nats above dense':>20}"]
    found = times_smaller(recipes)
    for size in found:
        lines.append(f"{size.name:<36}{size.published:>11g}{size.here:>9.2f}{said(size.cost):>20}")
    lines.append("cache: of the domain in which more is lost; 50 % and 4 bits: with a prompt of its own (lesson 10)")
    reached = [Effect(value=size.here - size.published, error=0.0) for size in found]
    lines.append(claim("a recipe becomes as many times smaller as published", reached, True))
    free = [less_than_close(size.cost) for size in found]
    return "\n".join([*lines, claim(f"at less than {CLOSE} nats", free, True)])


def of_lesson_3() -> dict[str, Effect]:
    """50 % and 4 bits beside 3 bits, by the kind of scale: other windows of the same text."""
    by_group = {}
    for row in rows(load_measured("sparsegpt", "experiments/sparsegpt_rounded"), "rounded"):
        by_group.setdefault(row["group"], {})[spaced(row["name"])] = row
    return {
        f"50 % + 4 bits beside 3 bits, {f'groups of {group}' if group else 'rows'} (lesson 03)": log_gap(
            found["50 % + 4 bits"], found["3 bits"]
        )
        for group, found in by_group.items()
    }


def at_equal_bytes(recipes: Sequence[Row]) -> dict[str, Effect]:
    """By how much zeros with more bits lose less than fewer bits for all weights of about the same bytes."""
    found = of_lesson_3()
    for first, second in EQUAL:
        pruned, rounded = one(recipes, first), one(recipes, second)
        if pruned and rounded:
            sizes = f"{pruned['stored'] / 1e6:.0f} and {rounded['stored'] / 1e6:.0f} MB"
            found |= {
                f"{first} beside {second} ({sizes}), {name}": above(rounded, pruned, domain)
                for domain, name in DOMAINS.items()
            }
    return found


def equal_bytes(recipes: Sequence[Row]) -> str:
    """Zeros and more bits, beside fewer bits for all weights, and what SparseGPT's authors report."""
    found = at_equal_bytes(recipes)
    lines = [f"{name:<76}{said(effect):>18}" for name, effect in found.items()]
    published = {row["name"]: row for row in rows(load_published("sparsegpt"), "rounded")}
    pruned, rounded = published["50% + 4 bits"], published["3 bits"]
    lines.append("nats a token lost less by zeros and more bits")
    lines.append(
        f"published, {pruned['model']}: perplexity {pruned['perplexity']} with 50 % and 4 bits, "
        f"{rounded['perplexity']} with 3 bits"
    )
    text = "at equal bytes zeros and more bits lose less than fewer bits for all"
    return "\n".join([*lines, claim(text, found.values(), True)])


def chosen(recipes: Sequence[Row]) -> str:
    """Half of the neurons of rounded weights, beside half of the neurons of the dense model."""
    dense, few = one(recipes, DENSE), one(recipes, FEWER)
    lines, effects = [f"{'half of the neurons, by CATS, of':<36}" + "".join(f"{n:>20}" for n in DOMAINS.values())], []
    for name in (DENSE, *ROUNDED):
        both, whole = one(recipes, FEWER if name == DENSE else f"{name} + {FEWER}"), one(recipes, name)
        if both and whole and few:
            cells = "".join(f"{said(above(both, whole, domain)):>20}" for domain in DOMAINS)
            lines.append(f"{name:<36}{cells}")
            effects += [_no_dearer(both, whole, few, dense, domain) for domain in DOMAINS if name != DENSE]
    lines.append("nats a token above the same weights with all neurons")
    return "\n".join([*lines, claim(f"rounding makes them dearer by less than {CLOSE} nats", effects, True)])


def _no_dearer(both: Row, whole: Row, few: Row, dense: Row, domain: str) -> Effect:
    """CLOSE less what both cost beyond the two alone, window by window."""
    columns = zip(*(row[domain] for row in (both, whole, few, dense)), strict=True)
    return of_samples([CLOSE - (b - w - f + d) for b, w, f, d in columns])
