"""The printed tables and verdicts of lesson 03, from measured.json and the published rows beside it."""

import math
from statistics import fmean, median

from course_lib.lessons.common.benchmarks import amounts, has_signal
from course_lib.lessons.common.tables import (
    load_bench,
    load_measured,
    load_published,
    origin,
    rows,
    spaced,
    wrapped,
)
from course_lib.lessons.sparsegpt import claims
from course_lib.lessons.sparsegpt.claims import PHASES, beyond_forward
from course_lib.lessons.sparsegpt.experiment import PARTS
from course_lib.lessons.sparsegpt.experiment import tables as committed
from course_lib.lessons.sparsegpt.measured import NAMES, Tables
from course_lib.measure.paired import mean_and_error

_PATTERNS = ("50%", "4:8", "2:4")
PUBLISHED_NAMES = NAMES | {"adaprune": "AdaPrune"}


def provenance() -> str:
    """What was run, where, when, with how much; and the lesson's other experiments, on the same windows."""
    measured = load_measured("sparsegpt")
    others = [load_measured("sparsegpt", f"experiments/sparsegpt_{part}") for part in PARTS]
    beside = ", ".join(f"`{part['experiment']}` {part['started'][:10]}{_elsewhere(part, measured)}" for part in others)
    return f"{origin(measured, amounts(measured['sizes']['shared']))}\n{wrapped(f'beside it: {beside}')}"


def _elsewhere(part: dict, measured: dict) -> str:
    """The machine of a part that was measured on another one than the rest."""
    return "" if part["machine"] == measured["machine"] else f" ({part['machine']['cpu']})"


def seconds_provenance() -> str:
    """The same of the times, which are those of one machine."""
    seconds = load_measured("sparsegpt", "experiments/sparsegpt_seconds")
    sizes = seconds["sizes"]
    return origin(seconds, f"{sizes['windows']} × {sizes['length']} calibration tokens", weights="")


def pattern_verdict(tables: Tables | None = None) -> str:
    """The claim that 4:8 costs more than unstructured, and 2:4 more than 4:8, with each method."""
    found = tables or committed()
    lines = []
    for method, name in NAMES.items():
        values = [claims.perplexity_row(found, method, pattern)["perplexity"] for pattern in _PATTERNS]
        cells = ", ".join(f"{spaced(p)} {value:.1f}" for p, value in zip(_PATTERNS, values, strict=True))
        lines.append(f"{name:<20}{cells}")
    return "\n".join([*lines, str(claims.judged(claims.PATTERNS_COST, tables))])


def successors_table(tables: Tables | None = None) -> str:
    """At half the weights: each step beyond SparseGPT, on the windows of the curves."""
    tables = tables or committed()
    by_setting = _on_curves(tables)
    patterns = [p for p in _PATTERNS if ("swaps + refit", p) in by_setting]
    windows = f"on {tables['successors'][0]['n_tokens']:,} tokens"
    lines = [f"{windows:<26}" + "".join(f"{'unstructured' if p == '50%' else p:>18}" for p in patterns)]
    for method, name in (NAMES | {"swaps + refit": "mask by swaps, refitted"}).items():
        found = (by_setting.get((method, pattern)) for pattern in patterns)
        cells = (f"{row['perplexity']:.1f} ± {row['standard_error']:.1f}" if row else "" for row in found)
        lines.append(f"{name:<26}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def _on_curves(tables: Tables) -> dict[tuple[str, str], dict]:
    """By (method, pattern): perplexity on the windows of the curves; of the main table its first windows, if kept."""
    swapped = tables["successors"][0]
    n = len(swapped.get("losses", ()))
    kept = [row for row in rows(tables, "perplexity", corpus="wikipedia") if n and len(row.get("losses", ())) >= n]
    found = {(row["method"], row["pattern"]): _of_losses(row["losses"][:n]) for row in kept}
    found |= {(row["method"], "50%"): row for row in rows(tables, "sweep", sparsity=0.5)}
    return found | {(row["method"], row["pattern"]): row for row in tables["successors"]}


def _of_losses(losses: list[float]) -> dict[str, float]:
    """Perplexity and its standard error from losses in nats a token: the error of exp(x) is exp(x) times that of x."""
    mean, error = mean_and_error(losses)
    return {"perplexity": math.exp(mean), "standard_error": math.exp(mean) * error}


def published_table() -> str:
    """Perplexities that the authors report for larger models, marked as published; all sizes of both families."""
    published = load_published("sparsegpt")
    return "\n\n".join(
        f"{family}, published, not measured here:\n{published['sources'][name]['what']}\n"
        + _published(published["tables"][name], f"{family}-")
        for name, family in (("opt", "OPT"), ("llama", "LLaMA-2"))
    )


def _published(table_rows: list[dict], family: str) -> str:
    values = {(row["model"], row["method"], row["pattern"]): row["perplexity"] for row in table_rows}
    models = list(dict.fromkeys(model for model, _, _ in values))
    lines = [f"{'':<16}" + "".join(f"{model.removeprefix(family):>8}" for model in models)]
    for method, pattern in dict.fromkeys((m, p) for _, m, p in values):
        name = method if method == pattern else f"{PUBLISHED_NAMES[method]} {spaced(pattern)}"
        cells = (values.get((model, method, pattern)) for model in models)
        lines.append(f"{name:<16}" + "".join(f"{'' if cell is None else as_printed(cell):>8}" for cell in cells))
    return "\n".join(lines)


def as_printed(perplexity: float | int) -> str:
    """As the paper prints it: 8.21, 265, 1.7e4. Beyond a thousand it gives two digits, and so do we."""
    if perplexity >= 1000:
        digits, power = f"{perplexity:.1e}".split("e+")
        return f"{digits}e{int(power)}"
    return f"{perplexity:.0f}" if perplexity >= 100 else f"{perplexity:.2f}"


def rounded_table(tables: Tables | None = None) -> str:
    """Bits a weight and perplexity, pruned and rounded; and whether zeros with more bits beat fewer bits."""
    given, tables = tables, tables or committed()
    lines = [f"{'':<22}{'scale for':>12}{'bits a weight':>15}{'perplexity':>18}"]
    for group in dict.fromkeys(row["group"] for row in tables["rounded"]):
        by_name = {row["name"]: row for row in rows(tables, "rounded", group=group)}
        for row in sorted(by_name.values(), key=lambda r: r["bits_a_weight"]):
            scale, value = (
                f"{group} weights" if group else "a row",
                f"{row['perplexity']:.1f} ± {row['standard_error']:.1f}",
            )
            lines.append(f"{spaced(row['name']):<22}{scale:>12}{row['bits_a_weight']:>15.2f}{value:>18}")
    return "\n".join([*lines, str(claims.judged(claims.ROUNDED, given))])


def seconds_table(tables: Tables | None = None) -> str:
    """Where the time of pruning goes, the most that was held, and how much longer SparseGPT takes than Wanda."""
    tables = tables or committed()
    heads = "".join(f"{phase:>11}" for phase in PHASES)
    lines = [f"{'':<16}{'tokens':>8}{heads}{'activations':>14}{'matrices':>11}"]
    for row in rows(tables, "seconds"):
        name = f"{NAMES[row['method']]} {spaced(row['pattern'])}"
        cells = "".join(f"{row[phase]:>9.1f} s" for phase in PHASES)
        held = (row["bytes_activations"], row["bytes_grams"])
        activations, matrices = (f"{n / 1e6:.1f} MB" if n >= 1e5 else f"{n / 1e6:.2f} MB" for n in held)
        lines.append(f"{name:<16}{row['calibration_tokens']:>8}{cells}{activations:>14}{matrices:>11}")
    return "\n".join([*lines, "", *(_ratio(tables, pattern) for pattern in ("50%", "2:4")), _published_ratio()])


def _ratio(tables: Tables, pattern: str) -> str:
    beyond, whole = beyond_forward(tables, pattern), {}
    for method in beyond:
        (row,) = rows(tables, "seconds", method=method, pattern=pattern)
        whole[method] = sum(row[phase] for phase in PHASES)
    times, in_all = (each["sparsegpt"] / each["wanda"] for each in (beyond, whole))
    return (
        f"{spaced(pattern)}: without forward passes {beyond['sparsegpt']:.1f} s with SparseGPT, "
        f"{beyond['wanda']:.1f} s with Wanda: {times:.1f} times; in all {in_all:.1f} times."
    )


def _published_ratio() -> str:
    spent = {row["method"]: row["seconds"] for row in rows(load_published("sparsegpt"), "metric_seconds")}
    times = spent["sparsegpt"] / spent["wanda"]
    return (
        f"Published for LLaMA-7B, metric alone: {spent['sparsegpt']} s and {spent['wanda']} s, "
        f"{times:.0f} times as long."
    )


def solver_speed() -> str:
    """How much faster the library's solver is than the plain loop, over the layers that `course bench` times."""
    sides = [row for row in load_bench("cpu_sparsegpt")["tables"]["sides"] if row["side"] == "solver"]
    times = [row["times_anchor"] for row in sides]
    return (
        f"`course bench sparsegpt`, {len(sides)} contests on layers of this model: the solver is {min(times):.1f} to "
        f"{max(times):.1f} times\nas fast as a loop over all columns to the right."
    )


def gap_by_layer(tables: Tables | None = None, pattern: str = "50%") -> str:
    """How far SparseGPT is above the best weights on its mask, by place in the block: median and largest."""
    tables = tables or committed()
    gaps: dict[str, list[float]] = {}
    for row in rows(tables, "layer_errors", pattern=pattern):
        part = row["layer"].split(".", 2)[2]
        gaps.setdefault(part, []).append(100 * (row["sparsegpt"] / row["refit"] - 1))
    lines = [f"{'above the best weights':<24}{'median of the blocks':>22}{'largest':>10}"]
    return "\n".join(lines + [f"{part:<24}{median(each):>20.0f} %{max(each):>8.0f} %" for part, each in gaps.items()])


def thirds_verdict(tables: Tables | None = None) -> str:
    """The paper's claim on depth: pruning the last third alone costs more than pruning the first alone."""
    return str(claims.judged(claims.LATE_BLOCKS, tables))


def accuracy_by_pattern(tables: Tables | None = None) -> str:
    """The mean accuracy over the tasks that speak, of every method at every pattern."""
    tables = tables or committed()
    speaking = [row["task"] for row in rows(tables, "zero_shot", method="dense") if has_signal(row)]

    def mean(method: str, pattern: str) -> str:
        found = [row for row in rows(tables, "zero_shot", method=method, pattern=pattern) if row["task"] in speaking]
        if not found:
            return ""
        error = math.hypot(*(row["standard_error"] for row in found)) / len(found)
        return f"{100 * fmean(row['accuracy'] for row in found):.0f} ± {100 * error:.0f}"

    lines = [f"{'mean of ' + str(len(speaking)) + ' tasks (%)':<22}" + "".join(f"{spaced(p):>14}" for p in _PATTERNS)]
    lines.append(f"{'dense':<22}{mean('dense', 'dense'):>14}")
    for method, name in NAMES.items():
        lines.append(f"{name:<22}" + "".join(f"{mean(method, pattern):>14}" for pattern in _PATTERNS))
    return "\n".join(lines)


def accuracy_verdict(tables: Tables | None = None) -> str:
    """On the tasks that tell the dense model from chance: whether SparseGPT keeps more accuracy than Wanda."""
    given, tables = tables, tables or committed()
    gains = claims.accuracy_gains(tables)
    lines = [f"{'task':<18}{'n':>5}{'dense':>7}{'Wanda':>14}{'SparseGPT':>14}{'difference':>18}"]
    for task in gains:
        dense, *both = (
            rows(tables, "zero_shot", method=m, pattern=p, task=task)[0]
            for m, p in (("dense", "dense"), ("wanda", "50%"), ("sparsegpt", "50%"))
        )
        cells = "".join(f"{100 * r['accuracy']:>8.0f} ± {100 * r['standard_error']:<3.0f}" for r in both)
        difference = f"{100 * gains[task].value:+.0f} ± {100 * gains[task].error:.0f}"
        lines.append(f"{task:<18}{dense['n']:>5}{100 * dense['accuracy']:>7.0f}{cells}{difference:>18}")
    return "\n".join([*lines, str(claims.judged(claims.MORE_ACCURATE, given))])
