"""Tables and verdicts from what `course reproduce moe` and `moe_upcycling` measured. A seed is a case of a claim.

Dimension key: L blocks, E experts.
"""

from statistics import fmean, stdev
from typing import Any

from course_lib.lessons.common.tables import Measured, rows, wrapped
from course_lib.lessons.common.verdicts import Effect, of_count, of_samples, verdict

Row = dict[str, Any]


def ends(measured: Measured) -> str:
    """Of every kind of model: weights, FLOP of learning from a byte, seconds, and the loss, mean and standard
    deviation over seeds.
    """
    lines = [
        f"{'model':<26}{'weights':>11}{'FLOP a byte':>13}{'CPU s':>8}{'nats a byte':>13}{'seeds':>9}{'busiest':>9}"
    ]
    for name in dict.fromkeys(row["model"] for row in rows(measured, "models")):
        found = rows(measured, "models", model=name)
        losses = [row["loss"] for row in found]
        spread = f"± {stdev(losses):.3f}" if len(losses) > 1 else ""
        busiest = [max(block["load"]) for row in found for block in row["blocks"]]
        share = f"{100 * max(busiest):.0f} %" if busiest else ""
        size = f"{found[0]['parameters']:>11,}{found[0]['flops_a_byte']:>13,}{_seconds(measured, name):>8.0f}"
        lines.append(f"{name:<26}{size}{fmean(losses):>13.3f}{spread:>9}{share:>9}")
    said = "FLOP and seconds: of learning. Busiest: the largest share of a block's choices that one expert has."
    return "\n".join([*lines, said])


def _seconds(measured: Measured, name: str) -> float:
    """Of the processor for all steps, the mean over seeds."""
    found = rows(measured, "held_out", model=name)
    last = max(row["step"] for row in found)
    return fmean(row["processor_seconds"] for row in found if row["step"] == last)


def lower(measured: Measured, better: str, worse: str, threshold: float = 0.0) -> list[Effect]:
    """By how many nats a byte one kind of model reads better than another, window by window, measured from a
    threshold; a case a seed.
    """
    effects = []
    for row in rows(measured, "models", model=better):
        (other,) = rows(measured, "models", model=worse, seed=row["seed"])
        gains = [high - low for low, high in zip(row["losses"], other["losses"], strict=True)]
        effects.append(of_samples(gains, threshold))
    return effects


def claim(measured: Measured, said: str, better: str, worse: str, larger_models: bool = False) -> str:
    """The effects of all seeds, and what is said of the claim, which may be one about larger models."""
    effects = lower(measured, better, worse)
    found = ", ".join(f"{effect.value:+.3f} ± {effect.error:.3f}" for effect in effects)
    windows = f"{effects[0].n} windows"
    return (
        f"{better} beside {worse}: {found} nats a byte lower ({len(effects)} seeds, {windows} each).\n"
        f"Claim: {said}: {verdict(effects, larger_models)}"
    )


def page(*parts: str) -> str:
    """The lines of all parts, broken at the width of a page; a claim and its verdict stay together."""
    lines = [line for part in parts for line in part.splitlines()]
    return "\n".join(line if line.startswith("Claim") else wrapped(line) for line in lines)


def collapse(measured: Measured, name: str, k: int, share: float = 0.5) -> str:
    """In how many blocks of each seed the k busiest experts have more than this share of all choices."""
    loads = [[block["load"] for block in row["blocks"]] for row in rows(measured, "models", model=name)]
    held = [sum(sum(sorted(load)[-k:]) > share for load in of_seed) for of_seed in loads]
    cases = [of_count(here, len(of_seed), more_than=0.5) for here, of_seed in zip(held, loads, strict=True)]
    busiest = "busiest expert has" if k == 1 else f"{k} busiest experts have"
    return (
        f"{name}: in {', '.join(map(str, held))} of {len(loads[0])} blocks the {busiest} more than {100 * share:.0f} % "
        f"({len(held)} seeds).\n"
        f"Claim: most blocks collapse so: {verdict(cases, larger_models=True)}"
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
    claims = (claim(at_last, f"after {last} steps, {name} reads better than {dense}", name, dense) for name in others)
    return page(*claims)
