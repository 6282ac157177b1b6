"""Tables and verdicts from what `course reproduce moe` and `moe_upcycling` measured. A seed is a case of a claim.

Dimension key: L blocks, E experts.
"""

from statistics import fmean, stdev
from typing import Any

from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.common.tables import Measured, rows, wrapped
from course_lib.lessons.common.verdicts import Effect, of_count, of_samples, verdict

Row = dict[str, Any]


def ends(measured: Measured) -> Table:
    """For every kind of model: weights, FLOP of learning from a byte, seconds, and the loss over the seeds."""
    frame = []
    for name in dict.fromkeys(row["model"] for row in rows(measured, "models")):
        found = rows(measured, "models", model=name)
        losses = [row["loss"] for row in found]
        busiest = [max(block["load"]) for row in found for block in row["blocks"]]
        frame.append(
            {"model": name, "weights": found[0]["parameters"], "FLOP per byte": found[0]["flops_a_byte"]}
            | {"processor time (s)": _seconds(measured, name), "loss (nats per byte)": fmean(losses)}
            | {"deviation": stdev(losses) if len(losses) > 1 else None}
            | {"busiest expert": max(busiest) if busiest else None}
        )
    return Table(
        frame,
        caption="The models after training",
        formats={
            "weights": number(),
            "FLOP per byte": number(),
            "processor time (s)": number(),
            ("loss (nats per byte)", "deviation"): plus_minus(3),
            "busiest expert": percent,
        },
        note="FLOP and time are those of training. Loss: mean ± standard deviation over the seeds. Busiest expert: the "
        "largest fraction of a block's choices that one expert has.",
    )


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


def specialisation(measured: Measured, name: str) -> Table:
    """By block: how much of the expert the byte determines, compared with the same for bytes in random order."""
    found = rows(measured, "models", model=name)
    frame = []
    for at in range(len(found[0]["blocks"])):
        of_block = [row["blocks"][at] for row in found]
        known, chance = (fmean(block[key] for block in of_block) for key in ("known", "by_chance"))
        frame.append({"block": f"block {at}", "determined by the byte": known, "by chance": chance})
    return Table(
        frame,
        caption=f"{name}: how much of the choice of expert the byte alone determines",
        formats=dict.fromkeys(("determined by the byte", "by chance"), percent),
    )


def copies(measured: Measured) -> Table:
    """Perplexity of the default model with its MLPs copied, by router."""
    heading = "largest difference of a logit"
    return Table(
        [
            {"router": row["router"], "perplexity": row["perplexity"], heading: row["largest_difference"]}
            for row in rows(measured, "copies")
        ],
        caption="SmolLM2 with four copies of each MLP",
        formats={"perplexity": number(1), heading: "{:.1e}".format},
    )


def first_gradients(measured: Measured) -> Table:
    """The gradient of the gates at the start of training, compared with that of the experts; means over seeds."""
    frame = []
    for name in dict.fromkeys(row["model"] for row in rows(measured, "gradients")):
        found = rows(measured, "gradients", model=name)
        ratio = fmean(row["gate_gradient"] / row["expert_gradient"] for row in found)
        frame.append({"model": name, "gradient of the gates (%)": 100 * ratio})
    return Table(
        frame,
        caption="At the start: the gradient of the gates in per cent of that of the experts",
        formats={"gradient of the gates (%)": "{:.2g}".format},
    )


def trained_on(measured: Measured) -> str:
    """Copies trained on, beside the dense model trained on over the same bytes."""
    last = max(row["steps"] for row in rows(measured, "models"))
    at_last = {"models": rows(measured, "models", steps=last)}
    names = list(dict.fromkeys(row["model"] for row in at_last["models"]))
    dense, *others = names
    claims = (claim(at_last, f"after {last} steps, {name} reads better than {dense}", name, dense) for name in others)
    return page(*claims)
