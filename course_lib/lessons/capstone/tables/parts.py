"""What five parts cost, in numbers, and the verdicts: beside each other, in pairs, in which order."""

from course_lib.lessons.capstone import measured as follows
from course_lib.lessons.capstone.found import DENSE, DOMAINS, PARTS, above, one, recipes, some
from course_lib.lessons.capstone.recipes import FIVE
from course_lib.lessons.common.tables import Measured, origin
from course_lib.lessons.common.verdicts import Effect, claim, said

FIRST = {  # by method: zeros before the grid, and after it
    "Wanda": ("Wanda, then GPTQ", "GPTQ, then Wanda"),
    "SparseGPT": ("SparseGPT, then GPTQ", "GPTQ, then SparseGPT"),
}
SWEEP = ("both in one sweep", "SparseGPT, then GPTQ")


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    if not some(measured, "subsets"):
        return "not measured: `course reproduce capstone`"
    sizes = measured["sizes"]
    return origin(measured, f"{sizes['windows']} × {sizes['length']} tokens a domain, the second half of each scored")


def shares(measured: Measured) -> str:
    """Of each part: bytes it saves alone, nats alone, in the mean over all orders, and on top of all others."""
    lines, dearer = [f"{'':<20}{'':<11}{'alone':>18}{'share':>18}{'on top of all':>18}"], []
    for domain, name in DOMAINS.items() if some(measured, "subsets") else ():
        kinds = [function(measured, domain) for function in (follows.alone, follows.shares, follows.on_top)]
        for part in FIVE:
            lines.append(f"{PARTS[part]:<20}{name:<11}" + "".join(f"{said(kind[part]):>18}" for kind in kinds))
        total = sum(effect.value for effect in kinds[1].values())
        lines.append(f"{'all five':<20}{name:<11}{'':>18}{total:>+13.3f}")
        dearer += follows.dearer(measured, domain).values()
    lines.append("nats a token above the dense model; share: the mean over all orders of adding a part")
    return "\n".join([*lines, claim("on top of all others a part costs more than alone", dearer)])


def pairs(measured: Measured) -> str:
    """What each pair costs beyond the sum of its two costs."""
    lines, effects = [f"{'together, beyond both alone':<40}" + "".join(f"{name:>18}" for name in DOMAINS.values())], []
    if some(measured, "subsets"):
        found = {domain: follows.hurt(measured, domain) for domain in DOMAINS}
        for first, second in found["wikipedia"]:
            cells = "".join(f"{said(found[domain][first, second]):>18}" for domain in DOMAINS)
            lines.append(f"{f'{PARTS[first]} and {PARTS[second]}':<40}{cells}")
        effects = [effect for by_pair in found.values() for effect in by_pair.values()]
    return "\n".join([*lines, claim("two parts cost more together than their costs add up to", effects)])


def orders(measured: Measured) -> str:
    """Pruned then rounded beside rounded then pruned, and both in one sweep."""
    lines = [f"{'nats a token above dense':<28}{'zeros':>8}" + "".join(f"{name:>18}" for name in DOMAINS.values())]
    dense = one(recipes(measured), DENSE)
    for row in some(measured, "orders"):
        cells = "".join(f"{said(above(row, dense, domain)):>18}" for domain in DOMAINS)
        lines.append(f"{row['order']:<28}{100 * row['sparsity']:>6.0f} %{cells}")
    by_domain = [first(measured, domain) for domain in DOMAINS]
    lines.append(
        claim(
            "zeros first and then the grid loses less than the grid first",
            [e for each in by_domain for e in each.values()],
        )
    )
    sweep = [effect for domain in DOMAINS for effect in swept(measured, domain)]
    return "\n".join([*lines, claim("pruned and rounded in one sweep loses less than one after the other", sweep)])


def first(measured: Measured, domain: str) -> dict[str, Effect]:
    """By method: how much less zeros first lose."""
    return {method: follows.better(measured, domain, *pair) for method, pair in FIRST.items() if _there(measured, pair)}


def swept(measured: Measured, domain: str) -> list[Effect]:
    """How much less one sweep loses; none where it is not measured."""
    return [follows.better(measured, domain, *SWEEP)] if _there(measured, SWEEP) else []


def _there(measured: Measured, names: tuple[str, ...]) -> bool:
    return set(names) <= {row["order"] for row in some(measured, "orders")}
