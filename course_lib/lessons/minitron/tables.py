"""Tables of lesson 05."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.ideas import COMPARED, compared_columns
from course_lib.lessons.common.results import load_measured, load_published, origin, rows
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.minitron import results
from course_lib.lessons.minitron.experiments.shapes import Attempt, stored
from course_lib.lessons.minitron.results import Measured
from course_lib.measure.paired import mean_and_error
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


def provenance(measured: Measured | None = None) -> str:
    """Return what was run, where, when, and with how much text."""
    measured = measured or results.results()
    sizes = measured["sizes"]
    amounts = (
        f"{sizes['calibration']} windows of {sizes['length']} tokens for the scores, {sizes['evaluation']} for "
        f"evaluation ({sizes['draw_evaluation']} for random trials)"
    )
    return origin(measured, amounts)


def losses(losses_by_model: Mapping[str, Float[Tensor, "N"]], caption: str) -> Table:
    """Show the perplexity of each model and its loss minus that of the first one, window by window."""
    first, *_ = losses_by_model.values()
    table = []
    for name, values in losses_by_model.items():
        increase, error = mean_and_error(values - first) if values is not first else (None, None)
        table.append({"model": name, "perplexity": values.mean().exp().item()})
        table[-1] |= {"loss increase (nats per token)": increase, "error": error}
    return Table(
        table,
        caption=caption,
        formats={"perplexity": number(1), ("loss increase (nats per token)", "error"): plus_minus(2, sign=True)},
        note=f"Loss increase over the first row, {len(first)} windows, ± one standard error.",
    )


def sizes(count_parameters: Callable[..., int], dense: Shape) -> Table:
    """Show parameters by shape, counted by the student's function."""
    shapes = [replace(dense, **changes) for changes in SIZES]
    counts = [count_parameters(s.width, s.blocks, s.neurons, s.heads, s.groups, HEAD_SIZE, VOCABULARY) for s in shapes]
    return Table(
        [
            asdict(shape) | {"parameters": n, "compared with dense": n / counts[0]}
            for shape, n in zip(shapes, counts, strict=True)
        ],
        caption="Parameters by shape; the first row is the dense model",
        formats={"parameters": number(), "compared with dense": number(1, "%", 100)},
    )


def published_shapes() -> Table:
    """Show the models of the paper: parameters counted from their shapes, and the published numbers."""
    table = []
    for row in rows(load_published("minitron"), "shapes"):
        shape = {key: row[key] for key in ("blocks", "width", "heads", "groups", "neurons")}
        n = sum(count(Shape(**shape), vocabulary=256_000, head_size=128, mlp_matrices=2, tied=False).values())
        table.append({"model": row["model"]} | shape | {"counted": n, "published": 1e9 * row["billions"]})
    return Table(
        table,
        caption="Parameters of published models",
        formats=dict.fromkeys(("counted", "published"), number(2, "B", 1e-9)),
        note="Heads of size 128, 256,000 tokens, two matrices per MLP, separate embedding and LM head.",
    )


def published_benchmarks() -> Table:
    """Show the paper's benchmark scores, and in how many of them Minitron 8B is better than Nemotron-3 8B."""
    models = ("Nemotron-4 15.6B", "Nemotron-3 8.5B", "Minitron 8.3B", "Llama-2 6.7B", "Llama-3 8B")
    by_benchmark: dict[str, dict[str, float]] = {}
    for row in rows(load_published("minitron"), "benchmarks"):
        by_benchmark.setdefault(row["benchmark"], {})[row["model"]] = row["value"]
    n_better = sum(values[models[2]] > values[models[1]] for values in by_benchmark.values())
    return Table(
        [{"benchmark": name} | {m: values[m] for m in models} for name, values in by_benchmark.items()],
        caption="Published scores (%), not measured here",
        formats=dict.fromkeys(models, number(1)),
        note=f"Minitron 8B is better than Nemotron-3 8B in {n_better} of {len(by_benchmark)} rows. In brackets: shots.",
    )


def shapes(attempt: Attempt | None = None, ideas: Mapping[str, Attempt] | None = None) -> Table:
    """Compare ideas for the open task with the first one; your attempt comes last."""
    ideas = ideas or stored(rows(load_measured("minitron", "shapes"), "ideas"))
    first = next(iter(ideas.values()))
    return Table(
        [
            {"shape": name, "parameters": each.parameters} | compared_columns(each.losses, first.losses)
            for name, each in {**ideas, **({"yours": attempt} if attempt else {})}.items()
        ],
        caption="Models of at most 100 million parameters",
        formats={"parameters": number()} | COMPARED,
        note="± one standard error over the windows.",
    )
