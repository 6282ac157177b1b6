"""Tables and verdicts from what `course reproduce moe` and `moe_upcycling` measured. A seed is a case of a claim.

Dimension key: L blocks, E experts.
"""

from statistics import fmean, stdev
from typing import Any

from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_count, of_samples, verdict

Row = dict[str, Any]


def ends(measured: Measured) -> str:
    """Of every kind of model: weights, FLOP a byte, and the loss, mean and standard deviation over seeds."""
    lines = [f"{'model':<26}{'weights':>12}{'FLOP a byte':>14}{'nats a byte':>14}{'over seeds':>12}{'busiest':>10}"]
    for name in dict.fromkeys(row["model"] for row in rows(measured, "models")):
        found = rows(measured, "models", model=name)
        losses = [row["loss"] for row in found]
        spread = f"± {stdev(losses):.3f}" if len(losses) > 1 else ""
        busiest = [max(block["load"]) for row in found for block in row["blocks"]]
        share = f"{100 * max(busiest):.0f} %" if busiest else ""
        size = f"{found[0]['parameters']:>12,}{found[0]['flops_a_byte']:>14,}"
        lines.append(f"{name:<26}{size}{fmean(losses):>14.3f}{spread:>12}{share:>10}")
    return "\n".join(lines) + "\nBusiest: the largest share of a block's choices that one expert has, of all seeds."


def lower(measured: Measured, better: str, worse: str) -> list[Effect]:
    """By how many nats a byte one kind of model reads better than another, window by window; a case a seed."""
    effects = []
    for row in rows(measured, "models", model=better):
        (other,) = rows(measured, "models", model=worse, seed=row["seed"])
        effects.append(of_samples([high - low for low, high in zip(row["losses"], other["losses"], strict=True)]))
    return effects


def claim(measured: Measured, said: str, better: str, worse: str) -> str:
    """The effects of all seeds, and what is said of the claim."""
    effects = lower(measured, better, worse)
    found = ", ".join(f"{effect.value:+.3f} ± {effect.error:.3f}" for effect in effects)
    windows = f"{effects[0].n} windows"
    return (
        f"{better} beside {worse}: {found} nats a byte lower ({len(effects)} seeds, {windows} each).\n"
        f"Claim: {said}: {verdict(effects)}"
    )


def collapse(measured: Measured, name: str, k: int, share: float = 0.5) -> str:
    """In how many blocks, of all seeds, the k busiest experts have more than this share of all choices."""
    blocks = [block["load"] for row in rows(measured, "models", model=name) for block in row["blocks"]]
    held = sum(sum(sorted(load)[-k:]) > share for load in blocks)
    more = of_count(held, len(blocks), more_than=0.5)
    return (
        f"{name}: in {held} of {len(blocks)} blocks the {k} busiest experts have more than {100 * share:.0f} %.\n"
        f"Claim: most blocks collapse so: {verdict(more)}"
    )


def specialisation(measured: Measured, name: str) -> str:
    """By block: how much of the expert the byte decides, beside the same for bytes in random order."""
    found = rows(measured, "models", model=name)
    lines = [f"{name:<20}{'the byte decides':>20}{'by chance':>12}"]
    for at in range(len(found[0]["blocks"])):
        of_block = [row["blocks"][at] for row in found]
        known, chance = (fmean(block[key] for block in of_block) for key in ("known", "by_chance"))
        lines.append(f"{f'block {at}':<20}{100 * known:>18.0f} %{100 * chance:>10.0f} %")
    return "\n".join(lines)


def copies(measured: Measured) -> str:
    """Perplexity of the default model with its MLPs copied, by router."""
    lines = [f"{'SmolLM2, four copies of each MLP':<34}{'perplexity':>12}{'largest difference of a logit':>32}"]
    for row in rows(measured, "copies"):
        lines.append(f"{row['router']:<34}{row['perplexity']:>12.1f}{row['largest_difference']:>32.1e}")
    return "\n".join(lines)


def first_gradients(measured: Measured) -> str:
    """What reaches the gates of copies at the start, in per cent of what reaches their experts; means over seeds."""
    lines = [f"{'at the start':<34}{'gradient of gates, % of that of experts':>39}"]
    for name in dict.fromkeys(row["model"] for row in rows(measured, "gradients")):
        found = rows(measured, "gradients", model=name)
        share = fmean(100 * row["gate_gradient"] / row["expert_gradient"] for row in found)
        lines.append(f"{name:<34}{share:>39.2g}")
    return "\n".join(lines)


def trained_on(measured: Measured) -> str:
    """Copies trained on, beside the dense model trained on over the same bytes."""
    last = max(row["steps"] for row in rows(measured, "models"))
    at_last = {"models": rows(measured, "models", steps=last)}
    names = list(dict.fromkeys(row["model"] for row in at_last["models"]))
    dense, *others = names
    return "\n".join(
        claim(at_last, f"after {last} steps, {name} reads better than {dense}", name, dense) for name in others
    )
