"""The tables of lesson 03, from the stored results."""

import math
from collections.abc import Mapping

from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.results import load_measured, load_published, rows, spaced
from course_lib.lessons.common.table import Table, count, number, plus_minus
from course_lib.lessons.sparsegpt.claims import NAMES, PATTERNS, PHASES, Tables, beyond_forward
from course_lib.lessons.sparsegpt.experiments.recipes import Attempt, stored
from course_lib.lessons.sparsegpt.experiments.sparsegpt import tables as stored_tables
from course_lib.measure.paired import mean_and_error


def cost(tables: Tables | None = None) -> Table:
    """Show the time and memory that pruning needs, and how much longer SparseGPT takes than Wanda."""
    tables = tables or stored_tables()
    memory = {"activations (MB)": "bytes_activations", "matrices (MB)": "bytes_grams"}
    phases = {f"{phase} (s)": phase for phase in PHASES}
    return Table(
        [
            {"method": f"{NAMES[row['method']]} {spaced(row['pattern'])}", "tokens": row["calibration_tokens"]}
            | {heading: row[key] for heading, key in (phases | memory).items()}
            for row in rows(tables, "seconds")
        ],
        caption="Time and memory to prune the whole model on a CPU with two cores",
        formats={"tokens": count} | dict.fromkeys(phases, number(1)) | dict.fromkeys(memory, _megabytes),
        note=" ".join([*(_ratio(tables, pattern) for pattern in ("50%", "2:4")), _published_ratio()]),
    )


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f}" if n_bytes >= 1e5 else f"{n_bytes / 1e6:.2f}"


def _ratio(tables: Tables, pattern: str) -> str:
    beyond, total = beyond_forward(tables, pattern), {}
    for method in beyond:
        (row,) = rows(tables, "seconds", method=method, pattern=pattern)
        total[method] = sum(row[phase] for phase in PHASES)
    ratio, total_ratio = (seconds["sparsegpt"] / seconds["wanda"] for seconds in (beyond, total))
    return (
        f"{spaced(pattern)}: without forward passes {beyond['sparsegpt']:.1f} s with SparseGPT and "
        f"{beyond['wanda']:.1f} s with Wanda, {ratio:.1f} times as long; in total {total_ratio:.1f} times."
    )


def _published_ratio() -> str:
    seconds = {row["method"]: row["seconds"] for row in rows(load_published("sparsegpt"), "metric_seconds")}
    ratio = seconds["sparsegpt"] / seconds["wanda"]
    return (
        f"Published for LLaMA-7B, without forward passes: {seconds['sparsegpt']} s and {seconds['wanda']} s, "
        f"{ratio:.0f} times as long."
    )


def successors(tables: Tables | None = None) -> Table:
    """Compare steps beyond SparseGPT with half of the weights, on the windows of the curves."""
    tables = tables or stored_tables()
    by_setting = _on_curves(tables)
    patterns = [p for p in PATTERNS if ("swaps + refit", p) in by_setting]
    frame, formats = [], {}
    for method, name in (NAMES | {"swaps + refit": "mask by swaps, refitted"}).items():
        line = {"method": name}
        for pattern in patterns:
            heading = "unstructured" if pattern == "50%" else pattern
            row = by_setting.get((method, pattern), {})
            line |= {heading: row.get("perplexity"), f"{heading}: error": row.get("standard_error")}
            formats[heading, f"{heading}: error"] = plus_minus(1)
        frame.append(line)
    return Table(
        frame,
        caption="Perplexity with half of the weights, by pattern",
        formats=formats,
        note=f"± one standard error, on {tables['successors'][0]['n_tokens']:,} tokens. A dash: not measured.",
    )


def _on_curves(tables: Tables) -> dict[tuple[str, str], dict]:
    """Perplexity by (method, pattern) on the windows of the curves, which are the first ones of the main table."""
    n = len(tables["successors"][0].get("losses", ()))
    longer = [row for row in rows(tables, "perplexity", corpus="wikipedia") if n and len(row.get("losses", ())) >= n]
    by_setting = {(row["method"], row["pattern"]): _of_losses(row["losses"][:n]) for row in longer}
    by_setting |= {(row["method"], "50%"): row for row in rows(tables, "sweep", sparsity=0.5)}
    return by_setting | {(row["method"], row["pattern"]): row for row in tables["successors"]}


def _of_losses(losses: list[float]) -> dict[str, float]:
    """Perplexity and its standard error from losses in nats per token: exp(x) has exp(x) times the error of x."""
    mean, error = mean_and_error(losses)
    return {"perplexity": math.exp(mean), "standard_error": math.exp(mean) * error}


def bits_per_weight(sparsity: float, value_bits: int, group_size: int, grid_bits: int) -> float:
    """Count the bits of values, bitmap and quantization grid per weight of a layer, pruned ones included."""
    values, bitmap, grid = value_bits * (1 - sparsity), float(sparsity > 0), grid_bits / group_size
    return values + bitmap + grid


def rounded(tables: Tables | None = None) -> Table:
    """Show bits per weight and perplexity after pruning and rounding."""
    tables = tables or stored_tables()
    by_group = dict.fromkeys(row["group"] for row in tables["rounded"])
    return Table(
        [
            {"weights": spaced(row["name"]), "one scale per": f"{group} weights" if group else "row"}
            | {key: row[name] for key, name in _ROUNDED.items()}
            for group in by_group
            for row in sorted(rows(tables, "rounded", group=group), key=lambda row: row["bits_a_weight"])
        ],
        caption="Pruned and rounded in one pass",
        formats={"bits per weight": number(2), ("perplexity", "its error"): plus_minus(1)},
        note="± one standard error.",
    )


_ROUNDED = {"bits per weight": "bits_a_weight", "perplexity": "perplexity", "its error": "standard_error"}


def recipes(attempt: Attempt | None = None, ideas: Mapping[str, Attempt] | None = None) -> Table:
    """Compare ideas for the open task with SparseGPT as in the lesson, which is the first row; yours comes last."""
    ideas = ideas or stored(rows(load_measured("sparsegpt", "recipes"), "ideas"))
    usual = next(iter(ideas.values()))
    frame = []
    for name, each in {**ideas, **({"yours": attempt} if attempt else {})}.items():
        errors = [x.log().mean().exp().item() for x in (each.calibration, each.held_out)]
        lower, standard_error = (None, None) if each is usual else against(each.losses, usual.losses)
        row = {"recipe": name, "calibration text": errors[0], "held-out text": errors[1]}
        frame.append(row | {"lower log error": lower, "standard error": standard_error})
    return Table(
        frame,
        caption="Relative error of the outputs of four layers with half of their weights",
        formats=dict.fromkeys(("calibration text", "held-out text"), number(2, "%", 100))
        | {("lower log error", "standard error"): plus_minus(3, sign=True)},
        note="Geometric means over layers and windows. The last column is the difference to the first row on held-out "
        "text, window by window, ± one standard error; positive numbers are better.",
    )
