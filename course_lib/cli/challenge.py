"""`course challenge recipe.json`: build one recipe, measure it in full, and compare it with the budget."""

import math
from pathlib import Path

from rich.console import Console
from rich.table import Table

from course_lib.compose.challenge.budget import Budget
from course_lib.compose.challenge.judge import Judge, Judged, judged
from course_lib.compose.challenge.memory import Memory
from course_lib.compose.challenge.texts import NAMES, texts
from course_lib.compose.counting.account import LENGTH
from course_lib.compose.reading import MOST_BYTES
from course_lib.compose.recipe import Recipe, from_json
from course_lib.data.assets.cache import cache_folder
from course_lib.data.assets.checkpoint import quiet_transformers
from course_lib.measure.progress import bar
from course_lib.models import DEFAULT_MODEL, load_model

STOPPED = 130


def recipe_of(path: Path) -> Recipe:
    """Read a recipe from a file, up to the largest size that a recipe may have.

    Raises:
        ValueError: for a missing file, or one that contains no recipe.
    """
    if not path.is_file():
        raise ValueError(
            f'got {path}, which is not a file; expected one with JSON such as {{"weights": {{"bits": 3}}}}.'
        )
    with path.open("rb") as file:
        return from_json(file.read(MOST_BYTES + 1))


def run(path: Path, n_windows: int, length: int, seed: int, budget: Budget, console: Console) -> int:
    """Build, count, evaluate and judge. Return 0 if the recipe is within the budget, 1 if not, 130 when interrupted."""
    recipe = recipe_of(path)
    recipe.files(path.parent)  # a missing file is reported before anything is measured
    console.print(f"{path.name}: {', '.join(part.name for part in recipe.parts) or 'no parts, the dense model'}")
    with quiet_transformers():
        model, tokenizer = load_model(DEFAULT_MODEL)
    read = texts(tokenizer, n_windows, length, seed)
    memory = Memory(cache_folder() / "challenge")
    judge = Judge(model=model, tokenizer=tokenizer, texts=read, memory=memory, say=console.print)
    try:
        with bar(console=console) as shown:
            task = shown.add_task("measuring the dense model", total=2)
            dense = judge.measure(Recipe())
            budget.check(model, dense.account)
            shown.update(task, advance=1, description="measuring the recipe")
            found = judged(judge.measure(recipe, path.parent), dense, budget)
    except KeyboardInterrupt:
        console.print("Stopped. Finished measurements are kept: the same command continues from there.")
        return STOPPED
    console.print(_table(found, f"{n_windows} × {length} tokens per domain, seed {seed}"))
    console.print(_verdict(found))
    return 0 if found.within else 1


def _table(found: Judged, title: str) -> Table:
    table = Table("", title=title)
    for heading in ("dense", "recipe", "of dense"):
        table.add_column(heading, justify="right", overflow="fold")
    rows = {
        f"MB stored, weights and cache at {LENGTH} tokens": ("held", 1e6),
        "  the cache alone": ("cache", 1e6),
        "MB read per token": ("read", 1e6),
        "million multiply-adds per token": ("multiply_adds", 1e6),
    }
    for name, (what, unit) in rows.items():
        dense, its = getattr(found.dense, what), getattr(found.found, what)
        table.add_row(name, f"{dense / unit:.1f}", f"{its / unit:.1f}", f"{its / dense:.1%}")
    for domain, (mean, error) in found.losses.items():
        shown = "" if math.isinf(error) else f" ± {error:.3f}"
        share = f"× {math.exp(min(mean, 50)):.2f} perplexity"
        table.add_row(f"loss increase, nats per token, {NAMES[domain]}", "", f"{mean:+.3f}{shown}", share)
    return table


def _verdict(found: Judged) -> str:
    domain, (mean, error) = found.worse
    budget = f"The recipe is {'within' if found.within else 'above'} the budget"
    return f"{budget}: {found.of_budget}. The worse domain counts: {mean:+.3f} ± {error:.3f} nats on {NAMES[domain]}."
