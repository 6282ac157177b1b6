"""The printed tables, titles and verdicts of lesson 05."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.tables import load_published, rows
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


def sizes_table(counted: Callable[..., int], dense: Shape) -> str:
    """Parameters by shape, counted by the student's function."""
    lines = [f"{'width':>6}{'blocks':>8}{'neurons':>9}{'heads':>7}{'groups':>8}{'parameters':>14}{'of the whole':>14}"]
    whole = None
    for sizes in SIZES:
        shape = replace(dense, **sizes)
        n = counted(shape.width, shape.blocks, shape.neurons, shape.heads, shape.groups, HEAD_SIZE, VOCABULARY)
        whole = whole or n
        width, n_blocks, neurons, heads, groups = astuple(shape)
        lines.append(f"{width:>6}{n_blocks:>8}{neurons:>9}{heads:>7}{groups:>8}{n:>14,}{100 * n / whole:>12.1f} %")
    return "\n".join(lines)


def published_shapes() -> str:
    """The paper's models: counted from their shapes, beside what is printed."""
    heads = (("published shapes", -18), ("blocks", 7), ("width", 7), ("heads", 7), ("groups", 8), ("neurons", 9))
    lines = [
        "".join(f"{name:<{-n}}" if n < 0 else f"{name:>{n}}" for name, n in (*heads, ("counted", 10), ("printed", 10)))
    ]
    for row in rows(load_published("minitron"), "shapes"):
        shape = Shape(**{key: row[key] for key in ("width", "blocks", "neurons", "heads", "groups")})
        n = sum(count(shape, vocabulary=256_000, head_size=128, mlp_matrices=2, tied=False).values())
        sizes = f"{row['blocks']:>7}{row['width']:>7}{row['heads']:>7}{row['groups']:>8}{row['neurons']:>9}"
        lines.append(f"{row['model']:<18}{sizes}{n / 1e9:>8.2f} B{row['billions']:>8.2f} B")
    return (
        "\n".join(lines) + "\nHeads of 128, 256,000 words, two matrices an MLP, embedding and head each for themselves."
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


def published_benchmarks() -> str:
    """The lecture's table of benchmarks, marked as published, with the claim counted."""
    found = rows(load_published("minitron"), "benchmarks")
    models = ("Nemotron-4 15.6B", "Nemotron-3 8.5B", "Minitron 8.3B", "Llama-2 6.7B", "Llama-3 8B")
    values = {(row["benchmark"], row["model"]): row["value"] for row in found}
    lines = [f"{'published, per cent':<22}" + "".join(f"{model.replace('Nemotron', 'Nem.'):>15}" for model in models)]
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in found))
    for name in benchmarks:
        lines.append(f"{name:<22}" + "".join(f"{values[name, model]:>15.1f}" for model in models))
    ahead = sum(values[name, models[2]] > values[name, models[1]] for name in benchmarks)
    lines.append(f"Minitron 8B is ahead of Nemotron-3 8B in {ahead} of {len(benchmarks)} rows. In brackets: shots.")
    return "\n".join(lines)


def published_width_and_depth() -> str:
    """Llama-3.1 8B, cut to 4.5B in two ways and distilled."""
    lines = [f"{'published, per cent':<22}{'8B':>10}{'4.5B by width':>16}{'4.5B by depth':>16}"]
    for row in rows(load_published("minitron"), "width_and_depth"):
        lines.append(f"{row['benchmark']:<22}{row['whole']:>10.1f}{row['width']:>16.1f}{row['depth']:>16.1f}")
    return "\n".join(lines)


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
