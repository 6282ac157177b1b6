"""What the paper reports, marked as published."""

from course_lib.lessons.common.tables import load_published, rows

PROMPTS = ("128", "256", "512", "1024")  # tokens


def accuracy() -> str:
    """OPT-175B with sparse MLPs or sparse attention, predicted: tasks and perplexities."""
    shown = {"COPA": 2, "Lambada": 4, "PIQA": 4, "RTE": 4, "Winogrande": 4, "WikiText": 2, "C4": 2}
    return _table("dejavu_accuracy", "model", shown, first=22)


def smaller() -> str:
    """OPT-66B, and BLOOM, which has no ReLU."""
    shown = {"COPA": 2, "Lambada": 3, "OpenBookQA": 3, "PIQA": 3, "RTE": 3, "Winogrande": 3}
    return _table("dejavu_smaller", "model", shown, first=26)


def latency() -> str:
    """Milliseconds a token by prompt, and how many times faster Deja Vu is."""
    systems = {row["system"]: row for row in rows(load_published("dejavu"), "dejavu_latency")}
    lines = [f"{'published: ms a token, prompt of':<36}" + "".join(f"{n:>9}" for n in PROMPTS)]
    lines += [f"{name:<36}" + "".join(f"{row[n]:>9.1f}" for n in PROMPTS) for name, row in systems.items()]
    for name in ("Hugging Face", "FasterTransformer"):
        ratios = [systems[name][n] / systems["Deja Vu"][n] for n in PROMPTS]
        lines.append(f"{'times faster than ' + name:<36}" + "".join(f"{ratio:>9.1f}" for ratio in ratios))
    return "\n".join(lines)


def depth() -> str:
    """OPT-175B with blocks side by side, and with parts left out."""
    shown = {"COPA": 2, "Hellaswag": 4, "Lambada": 4, "PIQA": 4, "Winogrande": 4}
    return _table("dejavu_depth", "setting", shown, first=42)


def skipped() -> str:
    """Perplexity with one block of every four or two left out."""
    return _table("dejavu_skipped", "setting", {"WikiText": 2, "C4": 2}, first=30)


def search() -> str:
    """A search for the neurons beside the MLP that it should spare."""
    return _table("dejavu_search", "what", {"milliseconds": 1}, first=24)


def read_share() -> float:
    """What Deja Vu reads of a block of OPT-175B at the densities of its latencies, as a share of all."""
    parts = rows(load_published("dejavu"), "dejavu_read")
    return sum(part["gigabytes"] * part["density"] for part in parts) / sum(part["gigabytes"] for part in parts)


def _table(name: str, key: str, shown: dict[str, int], first: int) -> str:
    """Rows of a published table; `shown` has the digits of each column."""
    widths = {column: max(11, len(column) + 2) for column in shown}
    lines = [f"{'published':<{first}}" + "".join(f"{column:>{width}}" for column, width in widths.items())]
    for row in rows(load_published("dejavu"), name):
        numbers = (f"{row[column]:>{widths[column]}.{digits}f}" for column, digits in shown.items())
        lines.append(f"{row[key]:<{first}}" + "".join(numbers))
    return "\n".join(lines)
