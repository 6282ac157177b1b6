"""`course reproduce all`: run every experiment, the quickest first. Complete results are left alone.

The expected duration of an experiment comes from its committed result, which lists the seconds of each step on the
machine that it names; without such a result it is unknown.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from course_lib.cli import claims, reproduce
from course_lib.measure.experiment import QUICK_RESULTS
from course_lib.measure.progress import tracked
from course_lib.measure.result_files import load, plain

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Planned:
    """An experiment, the path of its result, how many steps are done, and the seconds that the rest will take."""

    name: str
    path: Path
    n_steps: int
    n_done: int
    seconds: float | None
    whole: bool


def run(
    only: Sequence[str] = (), out: Path | None = None, quick: bool = False, resume: bool = True, dry_run: bool = False
) -> int:
    """Run the experiments without a complete result; then write the claims page, if committed results have changed.

    If an experiment cannot continue, for example because its file was begun on another machine, the others are run, and
    it is reported at the end.

    Args:
        only: names of experiments or of lessons; all when empty.
        out: a folder for the results; None for the experiments' own folders, or build/reproduce for a quick run.
        quick: tiny samples and few blocks, to see that every step works.
        resume: keep complete results and continue with partial ones. Without it everything is measured again.
        dry_run: only list what would be done.

    Returns:
        0 when all are done, 1 when some could not be, 130 when interrupted.

    Raises:
        ValueError: for an unknown experiment.
    """
    console = Console()
    planned = plan(only, out, quick, resume)
    if dry_run:
        show(planned, console)
        return 0
    refused = {}
    for each in planned:
        console.print(f"[bold]{each.name}[/bold]")
        if each.whole:
            console.print(f"complete already: {each.path}")
            continue
        try:
            if reproduce.run(each.name, each.path, quick, resume) == 130:
                return 130
        except ValueError as error:
            refused[each.name] = error
    for name, error in refused.items():
        console.print(f"{name} was not measured: {error}", markup=False)
    in_place = out is None and not quick
    return max(claims.run(check=not in_place), int(bool(refused)))


def plan(only: Sequence[str] = (), out: Path | None = None, quick: bool = False, resume: bool = True) -> list[Planned]:
    """Sort the experiments, the quickest first; those that were never measured are last."""
    names = [reproduce.called(name) for name in only] or reproduce.names()
    planned = [_planned(name, out, quick, resume) for name in tracked(names, "loading experiments")]
    return sorted(planned, key=lambda each: (each.seconds is None, each.seconds, each.name))


def _planned(name: str, out: Path | None, quick: bool, resume: bool) -> Planned:
    experiment = reproduce.find(name)
    sizes = experiment.quick if quick else experiment.sizes
    folder = out or (QUICK_RESULTS if quick else None)
    path = folder / f"{name}.json" if folder else reproduce.committed(name)
    there = _there(path) if resume else None
    names, done = [step.name for step in experiment.steps(sizes)], there["steps"] if there else {}
    left = [step for step in names if step not in done]
    same = there is not None and (there["sizes"], there["seed"]) == (plain(asdict(sizes)), experiment.seed)
    whole = same and not left and path.exists()
    return Planned(name, path, len(names), len(names) - len(left), None if quick else _seconds(name, left), whole)


def _there(path: Path) -> dict[str, Any] | None:
    """Load the partial result, or else the complete one."""
    return next((load(each) for each in (path.with_suffix(".partial.json"), path) if each.exists()), None)


def _seconds(name: str, left: Sequence[str]) -> float | None:
    """Add up these steps in the committed result; a step that is not in it counts as the mean of the others."""
    path = reproduce.committed(name)
    if not path.exists():
        return None
    steps = load(path)["steps"]
    mean = sum(step["seconds"] for step in steps.values()) / len(steps)
    return sum((steps[step]["seconds"] if step in steps else mean for step in left), 0.0)


def show(planned: Sequence[Planned], console: Console) -> None:
    """Print what would be measured, and how long that took before."""
    table = Table()
    for heading in ("experiment", "folder", "steps done", "minutes left"):
        table.add_column(heading, justify="left" if heading in ("experiment", "folder") else "right", overflow="fold")
    for each in planned:
        minutes = "unknown" if each.seconds is None else f"{each.seconds / 60:.1f}"
        folder = each.path.parent
        lesson = folder.parent.name if folder.name == "experiments" else folder.name
        table.add_row(each.name, lesson, f"{each.n_done} of {each.n_steps}", minutes)
    console.print(table)
    places = list(dict.fromkeys(each.path.parent for each in planned))
    place = places[0].relative_to(ROOT) if places[0].is_relative_to(ROOT) else places[0]
    where = f"in {place}" if len(places) == 1 else f"next to each experiment, such as in {place}"
    console.print(f"Results are written to NAME.json {where}.", markup=False, soft_wrap=True)
    known = [each.seconds for each in planned if each.seconds is not None]
    console.print(
        f"{len(planned)} experiments; those with a known duration need about {sum(known) / 60:.0f} more minutes."
    )
