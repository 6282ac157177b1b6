"""What lesson 05 prints of its committed measurement: tables, and claims with their verdicts."""

import math
from collections.abc import Iterable

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.effects import accuracy_gap, log_gap, mean_of
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.common.tables import load_published, origin, rows, wrapped
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.lessons.minitron.figures import found
from course_lib.lessons.minitron.figures.found import Measured

Claim = tuple[str, str, str, str]  # what is claimed, what the source has, what was measured here, and the verdict


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    amounts = (
        f"{sizes['calibration']} windows of {sizes['length']} tokens to score with, {sizes['evaluation']} to evaluate "
        f"({sizes['draw_evaluation']} for draws by lot)"
    )
    return origin(measured, amounts)


def aggregations_table(measured: Measured) -> Table:
    """Perplexity by what is pruned and by how windows and tokens are aggregated."""
    settings = list(dict.fromkeys(row["setting"] for row in rows(measured, "cuts", method="activations")))
    frame = []
    for cut in found.cuts(measured):
        by_setting = {setting: found.scored(measured, cut, setting=setting) for setting in settings}
        values = {setting: row["perplexity"] if row else None for setting, row in by_setting.items()}
        frame.append({"what is pruned": found.name_of(cut)} | values)
    return Table(
        frame,
        caption="Perplexity by aggregation of the activations: over windows, then over tokens",
        formats=dict.fromkeys(settings, number(1)),
    )


def aggregations(measured: Measured) -> str:
    """The paper's way to aggregate against the other three."""
    lines = []
    effects = found.than_papers_aggregation(measured)
    by_tokens = [effect for (_, setting), effect in effects.items() if setting == found.BEST]
    gains = ", ".join(f"{-effect.value:.3f} ± {effect.error:.3f}" for effect in by_tokens)
    lines.append(wrapped(f"L2 over tokens too, nats below the paper's way: {gains}"))
    lines.append(f"Claim: the mean over tokens, then L2 over windows, is the best of them: {verdict(effects.values())}")
    return "\n".join(lines)


def heads_add_up(measured: Measured) -> Table:
    """What removing sets of heads costs, block by block and in all blocks at once, in nats per token."""
    frame = []
    for which in dict.fromkeys(row["set"] for row in rows(measured, "heads_by_block")):
        alone = rows(measured, "heads_by_block", set=which)
        total = sum(math.log(found.times_dense(measured, row, len(row["losses"]))) for row in alone)
        (together,) = rows(measured, "heads", set=which, chosen="score")
        once = math.log(found.times_dense(measured, together, len(alone[0]["losses"])))
        frame.append({"heads removed": which, "sum over single blocks": total, "all blocks at once": once})
    return Table(
        frame,
        caption="Loss increase without some heads (nats per token)",
        formats=dict.fromkeys(("sum over single blocks", "all blocks at once"), number(2)),
    )


def zero_shot(measured: Measured) -> Table:
    """Accuracy ± standard error in per cent by task; chance in the last row."""
    models = list(dict.fromkeys((row["model"], row["steps"]) for row in rows(measured, "zero_shot")))
    tasks = list(dict.fromkeys(row["task"] for row in rows(measured, "zero_shot")))
    by_cell = {(row["model"], row["steps"], row["task"]): row for row in rows(measured, "zero_shot")}
    frame = []
    for model, steps in models:
        name = model if model == "dense" else f"{model}, {steps} steps" if steps else f"{model}, right after pruning"
        frame.append({"model": name})
        for task in tasks:
            row = by_cell[model, steps, task]
            frame[-1] |= {task: row["accuracy"], f"{task}: error": row["standard_error"]}
    frame.append({"model": "chance"} | {task: by_cell[*models[0], task]["chance"] for task in tasks})
    return Table(
        frame,
        caption="Accuracy (%) by task",
        formats={(task, f"{task}: error"): plus_minus(0, scale=100) for task in tasks},
        note="± one standard error.",
    )


def accuracies(measured: Measured) -> str:
    """Does learning show in the answers, and does width or depth answer more?"""
    learnt, cut = ("neurons", found.curve(measured)[-1]["step"]), ("neurons", 0)
    steps = max(found.ways(measured)["neurons"])
    pairs = {
        f"After {learnt[1]} steps the narrower model answers more than right after the cut": (learnt, cut),
        f"After {steps} steps it answers more than the one with fewer blocks": (
            ("neurons", steps),
            ("blocks by influence", steps),
        ),
    }
    lines = []
    for claim, pair in pairs.items():
        effect = accuracy_gained(measured, *pair)
        lines.append(f"{100 * effect.value:+.1f} ± {100 * effect.error:.1f} points on average.")
        lines.append(f"    Claim: {claim}: {verdict(effect)}")
    return "\n".join(lines)


def accuracy_gained(measured: Measured, better: tuple[str, int], worse: tuple[str, int]) -> Effect:
    """By how much one model answers more than another, the mean over tasks on which the dense model has a signal."""
    by_cell = {(row["model"], row["steps"], row["task"]): row for row in rows(measured, "zero_shot")}
    tasks = [row["task"] for row in rows(measured, "zero_shot", model="dense") if has_signal(row)]
    return mean_of([accuracy_gap(by_cell[*better, task], by_cell[*worse, task]) for task in tasks])


def search(measured: Measured) -> Table:
    """Shapes of one size before and after a few steps of learning, and whether both orders agree."""
    frame, notes = [], []
    for order in rows(measured, "search_order"):
        name = "byte model" if order["model"] == "byte model" else "SmolLM2"
        notes.append(
            f"{name}: {order['steps']} steps of learning; Kendall's tau of the two orders {order['tau']:+.2f}, "
            f"{order['n']} shapes."
        )
        for row in sorted(rows(measured, "search", model=order["model"]), key=lambda row: row["rank_after"]):
            sizes = f"{row['blocks']} blocks of {row['width']}, {row['neurons']} neurons, {row['heads']} heads"
            losses = {"right after pruning": row["before"], "after learning": row["after"]}
            frame.append({"model": name, "shape": sizes} | losses)
    return Table(
        frame,
        caption="Loss (nats per token) of shapes of one size",
        formats=dict.fromkeys(("right after pruning", "after learning"), number(3)),
        note=" ".join(notes),
    )


def step_cost(measured: Measured) -> Table:
    """What a training step takes, with a teacher and without."""
    return Table(
        [
            {"target": "the teacher" if row["loss"] == "kl" else "the text alone", "tokens": row["tokens"]}
            | {"wall-clock time (s)": row["seconds"], "processor time (s)": row["processor_seconds"]}
            | {"peak memory (GB)": row["peak_bytes"] / 1e9 if row["peak_bytes"] else None}
            for row in rows(measured, "step_cost")
        ],
        caption="What one training step costs",
        formats=dict.fromkeys(("wall-clock time (s)", "processor time (s)", "peak memory (GB)"), number(1)),
    )


def claims(measured: Measured) -> list[Claim]:
    """(claim, the source's numbers, ours, verdict), each verdict from an effect and its error."""
    lots, ways = found.than_lots(measured), found.ways(measured)
    steps = max(ways["neurons"])
    depth = {after: found.width_over_depth(measured, after)["blocks by influence"] for after in (False, True)}
    published = {row["benchmark"]: row for row in rows(load_published("minitron"), "width_and_depth")}
    ahead = sum(row["width"] > row["depth"] for row in published.values())
    looks = found.curve(measured)
    refits = {row["steps"]: row for row in rows(measured, "refit", setting=found.BEST) if row["damping"] == 1.0}
    gains = {
        0: log_gap(refits[0], found.scored(measured, ("neurons", 1126))),
        steps: log_gap(refits[steps], ways["neurons"][steps]),
    }
    leads = still_best(measured)
    gradients = found.than_score(measured, "LLM-Pruner", "param_first")
    return [
        (
            "Sizes of activations choose better than lots",
            "Minitron: one forward pass is enough",
            f"{_range(lots.values())} nats better by cut",
            verdict(lots.values()),
        ),
        (
            "Gradients choose no better than they",
            "Minitron: no gradients needed",
            f"{_range(gradients.values())} nats better by cut",
            verdict(gradients.values()),
        ),
        (
            f"Width is better than depth (by influence), {steps} steps after the cut",
            f"{ahead} of {len(published)} benchmarks (Llama-3.1 8B to 4.5B)",
            f"{depth[True].value:+.3f} ± {depth[True].error:.3f} nats; {depth[False].value:+.3f} before",
            verdict(depth[True], larger_models=True),
        ),
        (
            f"{looks[-1]['step']} steps repair more than half of what the cut cost",
            "a few hundred iterations",
            f"{100 * found.left(measured):.0f} % of the loss is left",
            verdict(_half_repaired(measured)),
        ),
        (
            f"A refit helps, at once and {steps} steps later",
            "-",
            "; ".join(f"{gain.value:+.3f} ± {gain.error:.3f} nats" for gain in gains.values()),
            verdict(gains.values()),
        ),
        (
            "The shape that leads after the cut leads ten steps later",
            "not so with Qwen3-8B",
            "; ".join(f"{effect.value:+.3f} ± {effect.error:.3f} nats" for effect in leads.values()),
            verdict(leads.values()),
        ),
    ]


def _range(effects: Iterable[Effect]) -> str:
    values = [effect.value for effect in effects]
    return f"{min(values):+.2f} to {max(values):+.2f}"


def _half_repaired(measured: Measured) -> Effect:
    """By how much the long run gained more, in nats a token, than what is left of the way to the dense model."""
    first, *_, last = found.curve(measured)
    windows = zip(first["losses"], last["losses"], found.dense(measured)["losses"], strict=True)
    return of_samples([(cut + whole) / 2 - end for cut, end, whole in windows])


def still_best(measured: Measured) -> dict[str, Effect]:
    """By model: by how much the best other shape reads worse, after its steps, than the one that led after the cut."""
    effects = {}
    for order in rows(measured, "search_order"):
        led, *others = sorted(rows(measured, "search", model=order["model"]), key=lambda row: row["rank_before"])
        rival = min(others, key=lambda row: row["after"])
        pairs = zip(led["losses_after"], rival["losses_after"], strict=True)
        effects[order["model"]] = of_samples([other - leader for leader, other in pairs])
    return effects


def claims_table(measured: Measured) -> str:
    """The claims and what became of them here."""
    lines = []
    for claim, source, here, said in claims(measured):
        lines += [f"Claim: {claim}: {said}", f"    source: {source}; here: {here}"]
    return "\n".join(lines)
