"""The tables, titles and verdicts of lesson 05."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.common.table import Table, number
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.measure.perplexity import Perplexity
from course_lib.pruning.structured.shape import Shape, count

HEAD_SIZE, VOCABULARY = 64, 49_152  # of SmolLM2-135M
SIZES = (
    {},
    {"neurons": 1024},
    {"groups": 2, "heads": 6},
    {"heads": 6},
    {"width": 504},
    {"neurons": 1126},
    {"blocks": 24},
)


def sizes_table(counted: Callable[..., int], dense: Shape) -> Table:
    """Parameters by shape, counted by the student's function."""
    shapes = [replace(dense, **sizes) for sizes in SIZES]
    counts = [counted(s.width, s.blocks, s.neurons, s.heads, s.groups, HEAD_SIZE, VOCABULARY) for s in shapes]
    return Table(
        [
            asdict(shape) | {"parameters": n, "compared with dense": n / counts[0]}
            for shape, n in zip(shapes, counts, strict=True)
        ],
        caption="Parameters by shape; the first row is the dense model",
        formats={"parameters": number(), "compared with dense": number(1, "%", 100)},
    )


def published_shapes() -> Table:
    """The paper's models: parameters counted from their shapes, next to what is printed."""
    frame = []
    for row in rows(load_published("minitron"), "shapes"):
        sizes = {key: row[key] for key in ("blocks", "width", "heads", "groups", "neurons")}
        n = sum(count(Shape(**sizes), vocabulary=256_000, head_size=128, mlp_matrices=2, tied=False).values())
        frame.append({"model": row["model"]} | sizes | {"counted": n, "printed": 1e9 * row["billions"]})
    return Table(
        frame,
        caption="Parameters of published models",
        formats=dict.fromkeys(("counted", "printed"), number(2, "B", 1e-9)),
        note="Heads of 128, 256,000 tokens, two matrices per MLP, separate embedding and LM head.",
    )


def gap(better: Perplexity, worse: Perplexity) -> Effect:
    """By how many nats a token one model reads worse, window by window."""
    return of_samples([high - low for low, high in zip(better.losses, worse.losses, strict=True)])


def cut_title(results: Mapping[str, Perplexity], n_kept: int) -> str:
    """What the cut by activations has ahead of the others."""
    _, ours, *others = results.values()  # dense, by activations, the rest
    ratios = [other.value / ours.value for other in others]
    clear = all(gap(ours, other).holds for other in others)
    far = f"{min(ratios):,.0f} to {max(ratios):,.0f} times" if clear else "not clearly"
    return f"{n_kept} of 1536 neurons: beside activations,\nother choices have {far} the perplexity"


def heads_title(results: Mapping[str, Perplexity]) -> str:
    """Which of two ways to lose three heads costs more, by score."""
    dense, spread, whole = results.values()
    times = [result.value / dense.value for result in (spread, whole)]
    said = f"{times[0]:.1f} times the dense perplexity, a whole group {times[1]:.1f} times"
    return (
        f"By score, one head of every group:\n{said}" if gap(whole, spread).holds else f"No clear difference:\n{said}"
    )


def heads_line(results: Mapping[str, Perplexity]) -> str:
    """How much more the heads of all groups cost than those of one, window by window."""
    _, spread, whole = results.values()
    effect = gap(whole, spread)
    return (
        f"{effect.value:+.2f} ± {effect.error:.2f} nats a token, {len(spread.losses)} windows.\n"
        f"Claim: one head of every group costs more than a whole group: {verdict(effect)}"
    )


def width_line(losses: Mapping[str, Float[Tensor, "N"]]) -> str:
    """Both perplexities, and the difference window by window with its verdict."""
    plain, scaled = losses.values()
    lines = [f"504 of 576 channels, {name:<26} perplexity {each.mean().exp():7.1f}" for name, each in losses.items()]
    effect = of_samples((plain - scaled).tolist())
    lines.append(
        f"{effect.value:+.3f} ± {effect.error:.3f} nats a token, {len(plain)} windows. "
        f"Claim: the factor lowers the loss: {verdict(effect)}"
    )
    return "\n".join(lines)


def depth_line(by_width: Float[Tensor, "N"], by_depth: Float[Tensor, "N"]) -> str:
    """Width beside depth before anything is learnt, window by window."""
    effect = of_samples((by_depth - by_width).tolist())
    return (
        f"perplexity by width {by_width.mean().exp():.1f}, by depth {by_depth.mean().exp():.1f}: "
        f"{effect.value:+.3f} ± {effect.error:.3f} nats a token, {len(by_width)} windows.\n"
        f"Claim: at equal parameters, before any learning, width is better than depth: {verdict(effect)}"
    )


def gain_line(what: str, before: Float[Tensor, "N"], after: Float[Tensor, "N"]) -> str:
    """Perplexity before and after, and the gain window by window."""
    effect = of_samples((before - after).tolist())
    return (
        f"perplexity {before.mean().exp():.1f}, after the {what} {after.mean().exp():.1f}: "
        f"{effect.value:+.3f} ± {effect.error:.3f} nats a token gained"
    )


def published_benchmarks() -> Table:
    """The lecture's table of benchmarks, marked as published, with the claim counted."""
    models = ("Nemotron-4 15.6B", "Nemotron-3 8.5B", "Minitron 8.3B", "Llama-2 6.7B", "Llama-3 8B")
    by_benchmark: dict[str, dict[str, float]] = {}
    for row in rows(load_published("minitron"), "benchmarks"):
        by_benchmark.setdefault(row["benchmark"], {})[row["model"]] = row["value"]
    ahead = sum(values[models[2]] > values[models[1]] for values in by_benchmark.values())
    return Table(
        [{"benchmark": name} | {m: values[m] for m in models} for name, values in by_benchmark.items()],
        caption="Published scores (%), not measured here",
        formats=dict.fromkeys(models, number(1)),
        note=f"Minitron 8B is ahead of Nemotron-3 8B in {ahead} of {len(by_benchmark)} rows. In brackets: shots.",
    )


def published_width_and_depth() -> Table:
    """Llama-3.1 8B, pruned to 4.5B in two ways and distilled."""
    headings = {"8B": "whole", "4.5B by width": "width", "4.5B by depth": "depth"}
    return Table(
        [
            {"benchmark": row["benchmark"]} | {heading: row[key] for heading, key in headings.items()}
            for row in rows(load_published("minitron"), "width_and_depth")
        ],
        caption="Llama-3.1: published scores (%), not measured here",
        formats=dict.fromkeys(headings, number(1)),
    )


def learnt_lines(curves: Mapping[str, Sequence[tuple[int, Float[Tensor, "N"]]]]) -> str:
    """What the students read at last, and whether the teacher teaches more than the text, window by window."""
    last = {name: points[-1][1] for name, points in curves.items()}
    lines = [f"{name:<30}{losses.mean():.3f} nats a byte" for name, losses in last.items()]
    by_teacher, by_text, *_ = last.values()
    effect = of_samples((by_text - by_teacher).tolist())
    lines.append(
        f"{effect.value:+.4f} ± {effect.error:.4f} nats less by the teacher than by the text, {len(by_text)} windows.\n"
        f"Claim: at equal steps, in this run, the teacher teaches more than the text: {verdict(effect)}"
    )
    return "\n".join(lines)
