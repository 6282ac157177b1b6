"""The tables and verdicts of lesson 03, from measured.json and the published rows beside it."""

import math
from statistics import fmean, median

from course_lib.lessons.common.benchmarks import amounts
from course_lib.lessons.common.effects import accuracy_gap
from course_lib.lessons.common.table import Table, number, percent, plus_minus
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
    return "\n".join([*lines, str(claims.PATTERNS_COST.judge(tables))])


def successors_table(tables: Tables | None = None) -> Table:
    """At half the weights: each step beyond SparseGPT, on the windows of the curves."""
    tables = tables or committed()
    by_setting = _on_curves(tables)
    patterns = [p for p in _PATTERNS if ("swaps + refit", p) in by_setting]
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


def published_table(family: str) -> Table:
    """Perplexities that the authors report for all sizes of a family of models, opt or llama."""
    published, name = load_published("sparsegpt"), {"opt": "OPT", "llama": "LLaMA-2"}[family]
    by_setting: dict[tuple[str, str], dict[str, float]] = {}
    for row in published["tables"][family]:
        values = by_setting.setdefault((row["method"], row["pattern"]), {})
        values[row["model"].removeprefix(f"{name}-")] = row["perplexity"]
    labels = {(m, p): m if m == p else f"{PUBLISHED_NAMES[m]} {spaced(p)}" for m, p in by_setting}
    return Table(
        [{"method": labels[setting]} | values for setting, values in by_setting.items()],
        caption=f"{name}: published perplexities by model size, not measured here",
        formats={size: as_printed for values in by_setting.values() for size in values},
        note=published["sources"][family]["what"],
    )


def as_printed(perplexity: float | int) -> str:
    """As the paper prints it: 8.21, 265, 1.7e4. Beyond a thousand it gives two digits, and so do we."""
    if perplexity >= 1000:
        digits, power = f"{perplexity:.1e}".split("e+")
        return f"{digits}e{int(power)}"
    return f"{perplexity:.0f}" if perplexity >= 100 else f"{perplexity:.2f}"


def rounded_table(tables: Tables | None = None) -> Table:
    """Bits per weight and perplexity, pruned and rounded."""
    tables = tables or committed()
    by_group = dict.fromkeys(row["group"] for row in tables["rounded"])
    return Table(
        [
            {"weights": spaced(row["name"]), "one scale for": f"{group} weights" if group else "a row"}
            | {key: row[name] for key, name in _ROUNDED.items()}
            for group in by_group
            for row in sorted(rows(tables, "rounded", group=group), key=lambda row: row["bits_a_weight"])
        ],
        caption="Pruned and rounded in one pass",
        formats={"bits per weight": number(2), ("perplexity", "its error"): plus_minus(1)},
        note="± one standard error.",
    )


_ROUNDED = {"bits per weight": "bits_a_weight", "perplexity": "perplexity", "its error": "standard_error"}


def rounded_verdict(tables: Tables | None = None) -> str:
    """Whether zeros with more bits beat fewer bits."""
    return str(claims.ROUNDED.judge(tables))


def seconds_table(tables: Tables | None = None) -> Table:
    """Where the time of pruning goes, the memory it needs, and how much longer SparseGPT takes than Wanda."""
    tables = tables or committed()
    memory = {"activations (MB)": "bytes_activations", "matrices (MB)": "bytes_grams"}
    phases = {f"{phase} (s)": phase for phase in PHASES}
    return Table(
        [
            {"method": f"{NAMES[row['method']]} {spaced(row['pattern'])}", "tokens": row["calibration_tokens"]}
            | {heading: row[key] for heading, key in (phases | memory).items()}
            for row in rows(tables, "seconds")
        ],
        caption="Time and memory that pruning the whole model needs",
        formats=dict.fromkeys(phases, number(1)) | dict.fromkeys(memory, _megabytes),
        note=" ".join([*(_ratio(tables, pattern) for pattern in ("50%", "2:4")), _published_ratio()]),
    )


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f}" if n_bytes >= 1e5 else f"{n_bytes / 1e6:.2f}"


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


def gap_by_layer(tables: Tables | None = None, pattern: str = "50%") -> Table:
    """How far SparseGPT is above the best weights on its mask, by layer of the block: median and largest."""
    tables = tables or committed()
    gaps: dict[str, list[float]] = {}
    for row in rows(tables, "layer_errors", pattern=pattern):
        part = row["layer"].split(".", 2)[2]
        gaps.setdefault(part, []).append(row["sparsegpt"] / row["refit"] - 1)
    return Table(
        [{"layer": part, "median of the blocks": median(each), "largest": max(each)} for part, each in gaps.items()],
        caption="How far SparseGPT's error is above that of the best weights on its mask",
        formats={"median of the blocks": percent, "largest": percent},
    )


def thirds_verdict(tables: Tables | None = None) -> str:
    """The paper's claim on depth: pruning the last third alone costs more than pruning the first alone."""
    return str(claims.LATE_BLOCKS.judge(tables))


def accuracy_by_pattern(tables: Tables | None = None) -> Table:
    """The mean accuracy over the tasks on which the dense model has a signal, of every method at every pattern."""
    tables = tables or committed()
    tasks = claims.tasks_with_signal(tables)
    frame = [{"method": "dense"} | _mean_accuracy(tables, tasks, "dense", "dense")]
    for method, name in NAMES.items():
        frame.append({"method": name})
        for pattern in _PATTERNS:
            frame[-1] |= _mean_accuracy(tables, tasks, method, pattern)
    headings = [spaced(pattern) for pattern in ("dense", *_PATTERNS)]
    return Table(
        frame,
        caption=f"Mean accuracy (%) on {len(tasks)} tasks, by pattern",
        formats={(heading, f"{heading}: error"): plus_minus(0, scale=100) for heading in headings},
        note="± one standard error.",
    )


def _mean_accuracy(tables: Tables, tasks: list[str], method: str, pattern: str) -> dict[str, float | None]:
    """Two columns: the mean over the tasks and its standard error; empty where it was not measured."""
    found = [row for row in rows(tables, "zero_shot", method=method, pattern=pattern) if row["task"] in tasks]
    heading = spaced(pattern)
    if not found:
        return {heading: None, f"{heading}: error": None}
    error = math.hypot(*(row["standard_error"] for row in found)) / len(found)
    return {heading: fmean(row["accuracy"] for row in found), f"{heading}: error": error}


def accuracy_table(tables: Tables | None = None) -> Table:
    """Accuracy at 50 % with Wanda and SparseGPT, task by task, where the dense model has a signal."""
    tables = tables or committed()
    frame = []
    for task in claims.tasks_with_signal(tables):
        (dense,) = rows(tables, "zero_shot", method="dense", task=task)
        wanda, sparsegpt = _at_half(tables, task)
        difference = accuracy_gap(sparsegpt, wanda)
        row = {"task": task, "questions": dense["n"], "dense": dense["accuracy"]}
        row |= {"Wanda": wanda["accuracy"], "Wanda: error": wanda["standard_error"]}
        row |= {"SparseGPT": sparsegpt["accuracy"], "SparseGPT: error": sparsegpt["standard_error"]}
        frame.append(row | {"difference": difference.value, "difference: error": difference.error})
    pairs = {(name, f"{name}: error"): plus_minus(0, scale=100) for name in ("Wanda", "SparseGPT")}
    return Table(
        frame,
        caption="Accuracy (%) with half of the weights, by task",
        formats={"dense": number(0, scale=100)}
        | pairs
        | {("difference", "difference: error"): plus_minus(0, scale=100, sign=True)},
        note="± one standard error; that of the difference is computed question by question.",
    )


def _at_half(tables: Tables, task: str) -> list[dict]:
    """The rows of a task with Wanda and with SparseGPT at 50 %."""
    return [rows(tables, "zero_shot", method=m, pattern="50%", task=task)[0] for m in ("wanda", "sparsegpt")]


def accuracy_verdict(tables: Tables | None = None) -> str:
    """On the tasks that tell the dense model from chance: whether SparseGPT keeps more accuracy than Wanda."""
    return str(claims.MORE_ACCURATE.judge(tables))
