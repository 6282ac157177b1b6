"""`course challenge recipe.json`: one recipe, built and measured in full, and whether it keeps to the budget."""

import math
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Int
from rich.console import Console
from rich.table import Table
from torch import Tensor

from course_lib.compose.build import Built, build
from course_lib.compose.counting.account import LENGTH, Account, account
from course_lib.compose.counting.expected import stored_bytes
from course_lib.compose.evaluate import continued_losses
from course_lib.compose.front import Point, ratio
from course_lib.compose.reading import MOST_BYTES
from course_lib.compose.recipe import Recipe, from_json
from course_lib.data import corpora
from course_lib.models import DEFAULT_MODEL, load_model

DOMAINS = {"wikipedia": "held-out articles", "boolq": "another domain"}
HELD, READ = 1 / 3, 1 / 2  # of the dense model's bytes


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A recipe beside the dense model.

    Args:
        losses: by domain, the log of the ratio of the perplexities and its standard error; paired windows.
    """

    dense: Account
    found: Account
    losses: dict[str, tuple[float, float]]

    @property
    def held(self) -> float:
        """Of the dense model's bytes, weights and cache together."""
        return self.found.held / self.dense.held

    @property
    def read(self) -> float:
        """Of the bytes that the dense model reads a token."""
        return self.found.read / self.dense.read

    @property
    def within(self) -> bool:
        """Whether both budgets are kept."""
        return self.held <= HELD and self.read <= READ

    @property
    def worse(self) -> tuple[str, tuple[float, float]]:
        """The domain that counts: the one in which more is lost."""
        return max(self.losses.items(), key=lambda item: item[1][0])


def recipe_of(path: Path) -> Recipe:
    """What a file holds; no more of it is read than a recipe may have.

    Raises:
        ValueError: no such file, or no recipe.
    """
    if not path.is_file():
        raise ValueError(f'got {path}, which is no file; expected JSON such as {{"weights": {{"bits": 3}}}} in one.')
    with path.open("rb") as file:
        return from_json(file.read(MOST_BYTES + 1))


def run(path: Path, n_windows: int, length: int, seed: int, console: Console) -> int:
    """Build, count, evaluate and judge; 0 where the budget is kept, 1 where it is not."""
    recipe = recipe_of(path)
    console.print(f"{path.name}: {', '.join(part.name for part in recipe.parts) or 'nothing, the dense model'}")
    judged = judge(recipe, path.parent, n_windows, length, seed, console)
    console.print(_table(judged, n_windows, length, seed))
    console.print(_verdict(judged))
    return 0 if judged.within else 1


def judge(recipe: Recipe, folder: Path, n_windows: int, length: int, seed: int, console: Console) -> Judged:
    """A recipe beside the dense model, on the same windows.

    Raises:
        ValueError: a recipe that this model cannot have.
    """
    model, tokenizer = load_model(DEFAULT_MODEL)
    calibration = recipe.calibration.text(tokenizer)
    console.print("building: prune, round, fit")
    made = {"dense": build(Recipe(), model, calibration), "recipe": build(recipe, model, calibration, folder)}
    console.print("counting bytes")
    (behind,) = corpora.windows("wikipedia", 1, LENGTH, tokenizer, "evaluation", seed + 1)
    counts = {name: counted(built, behind) for name, built in made.items()}
    losses = {}
    for domain in DOMAINS:
        console.print(f"reading {n_windows} × {length} tokens: {DOMAINS[domain]}")
        ids = corpora.windows(domain, n_windows, length, tokenizer, "evaluation", seed)
        points = [
            Point(name=name, cost=counts[name].held, losses=tuple(continued_losses(built, ids).tolist()))
            for name, built in made.items()
        ]
        losses[domain] = ratio(points[1], points[0])
    return Judged(dense=counts["dense"], found=counts["recipe"], losses=losses)


def counted(built: Built, text: Int[Tensor, "N"]) -> Account:
    """Its account, believed only where the formulas of its recipe say the same.

    Raises:
        ValueError: where the two counts differ.
    """
    found, formula = account(built, text), stored_bytes(built)
    if found.stored != formula:
        raise ValueError(
            f"got {found.stored:,} bytes of tensors and {formula:,} by the sizes of the recipe; expected the same. "
            "Report the recipe: one of the two counts is wrong."
        )
    return found


def _table(judged: Judged, n_windows: int, length: int, seed: int) -> Table:
    table = Table("", "dense", "recipe", "of dense", title=f"{n_windows} × {length} tokens a domain, seed {seed}")
    rows = {
        f"MB held, weights and cache at {LENGTH} tokens": ("held", 1e6),
        "  of these the cache": ("cache", 1e6),
        "MB read a token": ("read", 1e6),
        "million multiply-adds a token": ("multiply_adds", 1e6),
    }
    for name, (what, unit) in rows.items():
        dense, found = getattr(judged.dense, what), getattr(judged.found, what)
        table.add_row(name, f"{dense / unit:.1f}", f"{found / unit:.1f}", f"{found / dense:.1%}")
    for domain, (mean, error) in judged.losses.items():
        shown = "" if math.isinf(error) else f" ± {error:.3f}"
        share = f"× {math.exp(min(mean, 50)):.2f} perplexity"
        table.add_row(f"nats a token more, {DOMAINS[domain]}", "", f"{mean:+.3f}{shown}", share)
    return table


def _verdict(judged: Judged) -> str:
    budgets = (("held", judged.held, HELD), ("read a token", judged.read, READ))
    told = [f"{share:.1%} of the bytes {what}, {_side(share, most)} {most:.1%}" for what, share, most in budgets]
    domain, (mean, error) = judged.worse
    kept = "The budget is kept" if judged.within else "The budget is not kept"
    return f"{kept}: {'; '.join(told)}. What counts is {mean:+.3f} ± {error:.3f} nats, on {DOMAINS[domain]}."


def _side(share: float, most: float) -> str:
    return "within" if share <= most else "above"
