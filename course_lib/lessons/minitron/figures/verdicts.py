"""What lesson 05 prints of its committed measurement: tables, and claims with their verdicts."""

import math
from collections.abc import Iterable

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.effects import accuracy_gap, log_gap, mean_of
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


def aggregations(measured: Measured) -> str:
    """Perplexity by cut and by how windows and tokens are folded up, and the paper's way against the other three."""
    settings = list(dict.fromkeys(row["setting"] for row in rows(measured, "cuts", method="activations")))
    lines = [f"{'over windows, over tokens':<38}" + "".join(f"{name:>12}" for name in settings)]
    for cut in found.cuts(measured):
        cells = [found.scored(measured, cut, setting=setting) for setting in settings]
        said = "".join(f"{row['perplexity']:>12.1f}" if row else f"{'':>12}" for row in cells)
        lines.append(f"{found.name_of(cut):<38}{said}")
    effects = found.than_papers_aggregation(measured)
    by_tokens = [effect for (_, setting), effect in effects.items() if setting == found.BEST]
    gains = ", ".join(f"{-effect.value:.3f} ± {effect.error:.3f}" for effect in by_tokens)
    lines.append(wrapped(f"L2 over tokens too, nats below the paper's way: {gains}"))
    lines.append(f"Claim: the mean over tokens, then L2 over windows, is the best of them: {verdict(effects.values())}")
    return "\n".join(lines)


def heads_add_up(measured: Measured) -> str:
    """What sets of heads cost, block by block and all at once, in nats a token."""
    lines = []
    for which in dict.fromkeys(row["set"] for row in rows(measured, "heads_by_block")):
        alone = rows(measured, "heads_by_block", set=which)
        total = sum(math.log(found.times_dense(measured, row, len(row["losses"]))) for row in alone)
        (together,) = rows(measured, "heads", set=which, chosen="score")
        once = math.log(found.times_dense(measured, together, len(alone[0]["losses"])))
        lines.append(f"{which:<20} one block at a time, summed: {total:.2f} nats; in all blocks at once: {once:.2f}")
    return "\n".join(lines)


def zero_shot(measured: Measured) -> str:
    """Accuracy ± standard error in per cent by task, and the mean gaps to the dense model."""
    models = list(dict.fromkeys((row["model"], row["steps"]) for row in rows(measured, "zero_shot")))
    tasks = list(dict.fromkeys(row["task"] for row in rows(measured, "zero_shot")))
    by_cell = {(row["model"], row["steps"], row["task"]): row for row in rows(measured, "zero_shot")}
    lines = [f"{'accuracy, %':<32}" + "".join(f"{task:>17}" for task in tasks)]
    for model, steps in models:
        cells = [by_cell[model, steps, task] for task in tasks]
        said = "".join(f"{100 * row['accuracy']:>12.0f} ± {100 * row['standard_error']:>2.0f}" for row in cells)
        name = model if model == "dense" else f"{model}, {steps} steps" if steps else f"{model}, cut"
        lines.append(f"{name:<32}{said}")
    chance = "".join(f"{100 * by_cell[*models[0], task]['chance']:>12.0f}{'':5}" for task in tasks)
    lines.append(f"{'chance':<32}{chance}")
    return "\n".join(lines)


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


def search(measured: Measured) -> str:
    """Shapes of one size before and after ten steps, and whether both orders agree."""
    lines = []
    for order in rows(measured, "search_order"):
        shapes = sorted(rows(measured, "search", model=order["model"]), key=lambda row: row["rank_after"])
        name = "byte model" if order["model"] == "byte model" else "SmolLM2"
        title = f"{name}, loss in nats a token"
        lines.append(f"{title:<48}{'cut':>8}{'after ' + str(order['steps']) + ' steps':>16}")
        for row in shapes:
            sizes = f"{row['blocks']} blocks of {row['width']}, {row['neurons']} neurons, {row['heads']} heads"
            lines.append(f"  {sizes:<46}{row['before']:>8.3f}{row['after']:>16.3f}")
        lines.append(f"  Kendall's tau of both orders: {order['tau']:+.2f}, {order['n']} shapes")
    return "\n".join(lines)


def step_cost(measured: Measured) -> str:
    """What a step of learning takes, with a teacher and without."""
    lines = []
    for row in rows(measured, "step_cost"):
        name = "from the teacher" if row["loss"] == "kl" else "from the text alone"
        peak = f", {row['peak_bytes'] / 1e9:.1f} GB of memory at the peak" if row["peak_bytes"] else ""
        lines.append(
            f"a step of {row['tokens']} tokens {name}: {row['seconds']:.1f} s, {row['processor_seconds']:.1f} of "
            f"processor time{peak}"
        )
    return "\n".join(lines)


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
