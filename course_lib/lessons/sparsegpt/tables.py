"""The printed tables and verdicts of lesson 03, from measured.json and the published rows beside it."""

from itertools import pairwise

from course_lib.lessons.common.benchmarks import amounts, has_signal
from course_lib.lessons.common.effects import accuracy_gap, log_gap, mean_of
from course_lib.lessons.common.tables import load_measured, load_published, origin, rows
from course_lib.lessons.common.verdicts import verdict
from course_lib.lessons.sparsegpt.experiment import tables as committed
from course_lib.lessons.sparsegpt.measured import NAMES, Tables

_PATTERNS = ("50%", "4:8", "2:4")


def provenance() -> str:
    """What was run, where, when, with how much."""
    measured = load_measured("sparsegpt")
    return origin(measured, amounts(measured["sizes"]["shared"]))


def pattern_verdict(tables: Tables | None = None) -> str:
    """The claim that 4:8 costs more than unstructured, and 2:4 more than 4:8, with each method."""
    tables = tables or committed()
    lines, effects = [], []
    for method, name in NAMES.items():
        values = [rows(tables, "perplexity", method=method, pattern=p, corpus="wikipedia")[0] for p in _PATTERNS]
        cells = ", ".join(f"{p} {row['perplexity']:.1f}" for p, row in zip(_PATTERNS, values, strict=True))
        steps = [log_gap(looser, tighter) for looser, tighter in pairwise(values)]
        effects += steps
        listing = ", ".join(f"{step.value:+.2f} ± {step.error:.2f}" for step in steps)
        lines.append(f"{name:<20}{cells}; log-perplexity {listing}")
    claim = "Claim: with each method unstructured costs less than 4:8, and 4:8 less than 2:4"
    return "\n".join([*lines, f"{claim}: {verdict(effects)}"])


def successors_table(tables: Tables | None = None) -> str:
    """At half the weights: each step beyond SparseGPT, on the windows of the curves."""
    tables = tables or committed()
    lines = [f"{'':<26}{'unstructured':>18}{'2:4':>18}"]
    by_setting = {(row["method"], "50%"): row for row in rows(tables, "sweep", sparsity=0.5)}
    by_setting |= {(row["method"], row["pattern"]): row for row in tables["successors"]}
    for method, name in (NAMES | {"swaps + refit": "mask by swaps, refitted"}).items():
        both = (by_setting.get((method, pattern)) for pattern in ("50%", "2:4"))
        cells = (f"{row['perplexity']:.1f} ± {row['standard_error']:.1f}" if row else "" for row in both)
        lines.append(f"{name:<26}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def published_table() -> str:
    """Perplexities that the authors report for larger models, marked as published."""
    published = load_published("sparsegpt")
    return "\n\n".join(
        f"published, not measured here: {published['sources'][name]['what'].split(', as quoted')[0]}\n"
        + _published(published["tables"][name], models)
        for name, models in (
            ("opt", ("OPT-125M", "OPT-1.3B", "OPT-6.7B", "OPT-66B", "OPT-175B")),
            ("llama", ("LLaMA-2-7B", "LLaMA-2-13B", "LLaMA-2-70B")),
        )
    )


def _published(table_rows: list[dict], models: tuple[str, ...]) -> str:
    values = {(row["model"], row["method"], row["pattern"]): row["perplexity"] for row in table_rows}
    kinds = [kind for kind in dict.fromkeys((m, p) for _, m, p in values) if any((x, *kind) in values for x in models)]
    lines = [f"{'':<17}" + "".join(f"{model:>13}" for model in models)]
    for method, pattern in kinds:
        name = method if method == pattern else f"{NAMES[method]} {pattern}"
        cells = (values.get((model, method, pattern)) for model in models)
        lines.append(
            f"{name:<17}"
            + "".join(
                f"{'' if cell is None else f'{cell:,.0f}' if cell >= 1000 else f'{cell:.2f}':>13}" for cell in cells
            )
        )
    return "\n".join(lines)


def rounded_table(tables: Tables | None = None) -> str:
    """Bits a weight and perplexity, pruned and rounded; and whether zeros with more bits beat fewer bits."""
    tables = tables or committed()
    lines = [f"{'':<22}{'scale for':>12}{'bits a weight':>15}{'perplexity':>18}"]
    effects = []
    for group in dict.fromkeys(row["group"] for row in tables["rounded"]):
        by_name = {row["name"]: row for row in rows(tables, "rounded", group=group)}
        for row in sorted(by_name.values(), key=lambda r: r["bits_a_weight"]):
            scale, value = (
                f"{group} weights" if group else "a row",
                f"{row['perplexity']:.1f} ± {row['standard_error']:.1f}",
            )
            lines.append(f"{row['name']:<22}{scale:>12}{row['bits_a_weight']:>15.2f}{value:>18}")
        if {"50% + 4 bits", "3 bits"} <= set(by_name):
            effects.append(log_gap(by_name["50% + 4 bits"], by_name["3 bits"]))
    gaps = ", ".join(f"{effect.value:+.2f} ± {effect.error:.2f}" for effect in effects)
    claim = "Claim: at equal size, half the weights at 4 bits beat all of them at 3, with each kind of scale"
    return "\n".join([*lines, f"{claim}. In log-perplexity {gaps}: {verdict(effects, larger_models=True)}"])


def seconds_table(tables: Tables | None = None) -> str:
    """Where the time of pruning goes, and the most that was held."""
    tables = tables or committed()
    phases = ("forward", "gram", "factorise", "solve")
    lines = [f"{'':<20}{'tokens':>8}" + "".join(f"{phase:>11}" for phase in phases) + f"{'beyond forward':>16}"]
    for row in rows(tables, "seconds"):
        name = f"{NAMES[row['method']]} {row['pattern']}"
        beyond = sum(row[phase] for phase in phases[1:])
        cells = "".join(f"{row[phase]:>9.1f} s" for phase in phases)
        lines.append(f"{name:<20}{row['calibration_tokens']:>8}{cells}{beyond:>14.1f} s")
    return "\n".join(lines)


def accuracy_verdict(tables: Tables | None = None) -> str:
    """On the tasks that tell the dense model from chance: whether SparseGPT keeps more accuracy than Wanda."""
    tables = tables or committed()
    speaking = [row["task"] for row in rows(tables, "zero_shot", method="dense") if has_signal(row)]
    lines, gaps = [f"{'task':<18}{'n':>5}{'dense':>7}{'Wanda':>14}{'SparseGPT':>14}{'difference':>18}"], []
    for task in speaking:
        dense, *both = (
            rows(tables, "zero_shot", method=m, pattern=p, task=task)[0]
            for m, p in (("dense", "dense"), ("wanda", "50%"), ("sparsegpt", "50%"))
        )
        gaps.append(accuracy_gap(both[1], both[0]))
        cells = "".join(f"{100 * r['accuracy']:>8.0f} ± {100 * r['standard_error']:<3.0f}" for r in both)
        difference = f"{100 * gaps[-1].value:+.0f} ± {100 * gaps[-1].error:.0f}"
        lines.append(f"{task:<18}{dense['n']:>5}{100 * dense['accuracy']:>7.0f}{cells}{difference:>18}")
    mean = mean_of(gaps)
    points = f"{100 * mean.value:+.1f} ± {100 * mean.error:.1f} points, the mean of {len(gaps)} tasks"
    claim = f"Claim: SparseGPT keeps more accuracy than Wanda at 50 %. {points}: {verdict(mean)}"
    return "\n".join([*lines, claim])
