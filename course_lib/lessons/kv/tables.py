"""The printed tables and verdicts of lesson 07, from the long measurement."""

import torch

from course_lib.lessons.common.tables import load_published, origin, rows, verdict
from course_lib.lessons.kv.measured import FULL, Measured, results

SPARSE, PERSISTENT = 0.95, 0.95  # the marks of the papers on H2O and Scissorhands


def provenance(measured: Measured | None = None) -> str:
    """What was run, where, when, with how much."""
    measured = measured or results()
    sizes = measured["sizes"]
    return origin(
        measured,
        f"{sizes['prompts']} prompts of {sizes['prompt']} tokens and {sizes['after']} after each; {sizes['needles']} "
        f"needles in {sizes['haystack']} tokens; attention of {sizes['attention_windows']} × "
        f"{sizes['attention_length']} tokens; streams of {sizes['policy_tokens']} tokens in {sizes['budget']} slots",
    )


def attention_verdicts(measured: Measured | None = None, start: str = "text") -> str:
    """Over 95 % of the weights negligible; few tokens carry most, like a power of the rank; importance persists."""
    layers = rows(measured or results(), "attention", start=start)
    n, column = len(layers), {key: torch.tensor([row[key] for row in layers], dtype=torch.float64) for key in _COLUMNS}
    sparse = int((column["sparsity"] > SPARSE).sum())
    power = int((column["r_squared"] > column["exponential_r_squared"]).sum())
    persistent = int((column["persistence_any"] > PERSISTENT).sum())
    share = {key: f"{100 * values.mean():.0f} %" for key, values in column.items()}
    return "\n".join(
        [
            f"Claim: over 95 % of the weights are negligible: in {sparse} of {n} layers, mean {share['sparsity']}, "
            f"{verdict(sparse, n)}",
            f"Claim: mass falls like a power of the rank, rather than exponentially: in {power} of {n} layers, "
            f"median slope {column['slope'].median():.2f}, {verdict(power, n)}",
            f"Claim: of what matters later, over 95 % mattered before: in {persistent} of {n} layers, "
            f"{verdict(persistent, n)}; but {share['pivotal_any']} of all tokens matter to some query",
            f"By mean weight instead of any query, {share['pivotal_mean']} matter, and {share['persistence_mean']} of "
            "those that matter later did before",
        ]
    )


_COLUMNS = (
    "sparsity",
    "slope",
    "r_squared",
    "exponential_r_squared",
    "persistence_any",
    "persistence_mean",
    "pivotal_any",
    "pivotal_mean",
)


def streams_table(measured: Measured | None = None) -> str:
    """Every policy on one text: perplexity, memory and time."""
    measured = measured or results()
    lines = [f"{'':<14}{'positions':>10}{'perplexity':>16}{'MB at most':>12}{'ms a token':>12}"]
    for row in sorted(measured["tables"]["policies"], key=lambda row: row["perplexity"]):
        error = row["standard_error"]  # none for a stream too short for two blocks
        value = f"{row['perplexity']:.1f}" + (f" ± {error:.1f}" if error is not None else "")
        megabytes, milliseconds = row["peak_bytes"] / 1e6, row["milliseconds_per_token"]
        lines.append(f"{row['policy']:<14}{row['positions']:>10}{value:>16}{megabytes:>12.1f}{milliseconds:>12.1f}")
    return "\n".join(lines)


def heavy_verdict(measured: Measured | None = None) -> str:
    """H2O against the local window and the full cache at every budget, prompt by prompt."""
    measured = measured or results()
    (full,) = rows(measured, "compressed", policy=FULL)
    lines, held = [], []
    for row in sorted(rows(measured, "compressed", policy="H2O"), key=lambda row: row["budget"]):
        (window,) = rows(measured, "compressed", policy="Window", budget=row["budget"])
        lower = torch.tensor(window["losses"]) - torch.tensor(row["losses"])
        above = (torch.tensor(row["losses"]) - torch.tensor(full["losses"])).mean().exp()
        gain, error = lower.mean().item(), lower.std().item() / len(lower) ** 0.5
        held.append(gain > 2 * error)
        lines.append(
            f"{100 * row['budget']:>3.0f} % kept: H2O {row['perplexity']:.1f}, {above:.2f} times the full cache; "
            f"log-perplexity {gain:.2f} ± {error:.2f} below the window's"
        )
    claim = f"Claim: heavy hitters beat a local window: at {sum(held)} of {len(held)} budgets"
    return "\n".join([*lines, f"{claim}, {verdict(sum(held), len(held))}"])


def bits_table(measured: Measured | None = None) -> str:
    """Fewer bits on top of fewer tokens: bytes and log-perplexity, prompt by prompt against the same in full."""
    measured = measured or results()
    lines = [f"{'':<14}{'kept':>6}{'bits':>6}{'bytes':>9}{'change of log-perplexity':>27}"]
    for row in sorted(measured["tables"]["quantized"], key=lambda row: (row["policy"], -row["bits"])):
        (same,) = rows(measured, "compressed", policy=row["policy"], budget=row["budget"])
        change = torch.tensor(row["losses"]) - torch.tensor(same["losses"])
        cell = f"{change.mean():+.3f} ± {change.std() / len(change) ** 0.5:.3f}"
        share = f"{100 * row['budget']:.0f} %"
        bytes_held = f"{row['bytes'] / same['bytes']:.2f}"
        lines.append(f"{row['policy']:<14}{share:>6}{row['bits']:>6}{bytes_held:>9}{cell:>27}")
    return "\n".join(lines)


def retrieval_table(measured: Measured | None = None) -> str:
    """Right answers with their 95 % intervals, by task, policy and budget; tasks that the full cache solves alone."""
    measured = measured or results()
    lines = []
    for row in (row for row in measured["tables"]["retrieval"] if row["policy"] == FULL):
        usable = "" if row["usable"] else ": too hard for the model, says nothing"
        lines.append(f"{row['task']}: everything kept {100 * row['exact']:.0f} %, n = {row['n']}{usable}")
        if row["usable"]:
            lines += _of_task(measured, row["task"])
    return "\n".join(lines)


def _of_task(measured: Measured, task: str) -> list[str]:
    table_rows = [row for row in rows(measured, "retrieval", task=task) if row["policy"] != FULL]
    budgets = sorted({row["budget"] for row in table_rows})
    lines = [f"{'':<14}" + "".join(f"{100 * budget:>12.0f} % kept" for budget in budgets)]
    for name in dict.fromkeys(row["policy"] for row in table_rows):
        cells = (rows(measured, "retrieval", task=task, policy=name, budget=budget)[0] for budget in budgets)
        intervals = (f"{100 * c['exact']:.0f} ({100 * c['low']:.0f} to {100 * c['high']:.0f})" for c in cells)
        lines.append(f"{name:<14}" + "".join(f"{cell:>19}" for cell in intervals))
    return lines


def recycled_verdict(measured: Measured | None = None) -> str:
    """The claim that looking again finds what eviction has lost: the second question."""
    measured = measured or results()
    second = {row["policy"]: row for row in rows(measured, "second_needle", question=2)}
    recycled = {name: row for name, row in second.items() if name.startswith("recycled") and "never" not in name}
    evicting = {name: row for name, row in second.items() if name not in recycled and name != FULL}
    best_lost = max(row["exact"] for row in evicting.values())
    held = [row["low"] > best_lost for row in recycled.values()]
    lines = [
        f"{name:<26}{100 * row['exact']:>5.0f} %, {row['bytes'] / 1e6:.1f} MB"
        + (f", {row['full_steps']:.1f} full steps after the prompt" if "full_steps" in row else "")
        for name, row in second.items()
    ]
    claim = "Claim: looking at everything now and then answers the second question better than any eviction"
    return "\n".join([*lines, f"{claim}: {verdict(sum(held), len(held))}"])


def published_table() -> str:
    """What the authors report of larger models, marked as published."""
    published = load_published("kv")
    lines = [f"published, not measured here: {published['sources']['speed']['what']}"]
    for row in published["tables"]["speed"]:
        seconds = f", {row['seconds']} s" if "seconds" in row else ""
        lines.append(f"{row['device']:<6}{row['method']:<26}{row['tokens_per_second']:>8,.4g} tokens a second{seconds}")
    lines.append(f"\npublished, not measured here: {published['sources']['claims']['what']}")
    lines += [f"{row['source']:<14}{row['claim']}: {row['value']:g}" for row in published["tables"]["claims"]]
    return "\n".join(lines)
