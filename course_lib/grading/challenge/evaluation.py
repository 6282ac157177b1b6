"""Measure recipes in one of the grader's processes, within limits that its parent process watches.

A recipe is data, so nothing of a student's runs here. The format of a recipe bounds its cost. In
addition, the parent watches processor time and memory, and ends a process that exceeds its limit.
"""

import tempfile
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from course_lib.compose.challenge.budget import BUDGET, Budget
from course_lib.compose.challenge.judge import Judge, Measured, Miscounted
from course_lib.compose.challenge.memory import digest
from course_lib.compose.challenge.texts import texts
from course_lib.compose.counting.account import LENGTH, Account
from course_lib.compose.recipe import Recipe, from_json
from course_lib.measure.result_files import processor_name
from course_lib.models import DEFAULT_MODEL, load_model


@dataclass(frozen=True)
class Settings:
    """The settings for measuring recipes; plain data, sent to every process.

    Args:
        seed: random seed for the windows; only the grader knows it. text: the instructor's, replaces the first domain.
        seconds: processor time per recipe. memory: bytes per process.
    """

    seed: int
    windows: int = 32
    length: int = LENGTH
    text: str | None = field(default=None, repr=False)
    budget: Budget = BUDGET
    seconds: float = 1800.0
    memory: int = 8 * 2**30

    @property
    def key(self) -> str:
        """Return a digest of everything that affects a measurement."""
        limits = (self.seed, self.windows, self.length, self.seconds, self.memory, self.budget)
        machine = (processor_name(), torch.__version__)  # another processor adds in another order
        return digest(repr((limits, machine)), self.text or "")


@dataclass(frozen=True)
class Job:
    """A recipe to measure, and the name and the bytes of each file that its parts refer to."""

    recipe: str
    files: tuple[tuple[str, bytes], ...] = ()

    @property
    def key(self) -> str:
        return digest(self.recipe, *(each for file in self.files for each in file))


@dataclass(frozen=True)
class Found:
    """The measurement of a recipe, or the reason why there is none.

    Args:
        failed: whether the grader is to blame; if so, the next run measures the recipe again.
    """

    account: dict[str, Any] = field(default_factory=dict)
    losses: dict[str, list[float]] = field(default_factory=dict)
    problem: str = ""
    failed: bool = False

    @property
    def measured(self) -> Measured:
        losses = {domain: tuple(windows) for domain, windows in self.losses.items()}
        return Measured(account=Account(**self.account), losses=losses)


@lru_cache(maxsize=1)
def judge(settings: Settings) -> Judge:
    """Load the dense model and the texts, once per process."""
    model, tokenizer = load_model(DEFAULT_MODEL)
    read = texts(tokenizer, settings.windows, settings.length, settings.seed, settings.text)
    return Judge(model=model, tokenizer=tokenizer, texts=read)


def evaluate(job: Job, settings: Settings) -> Found:
    """Measure one recipe, in a process that does only this. All errors become a reason; it never raises."""
    try:
        at = judge(settings)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in job.files:
                (Path(folder) / name).write_bytes(content)
            found = at.measure(from_json(job.recipe), Path(folder))
        if job.recipe == Recipe().as_json():
            settings.budget.check(at.model, found.account)
    except Miscounted as error:
        return Found(problem=str(error), failed=True)
    except (ValueError, RuntimeError, MemoryError, ArithmeticError) as error:
        return Found(problem=str(error) or type(error).__name__)
    except Exception as error:  # an unexpected error: investigate it, and do not blame the student
        return Found(problem=f"{type(error).__name__}: {error}", failed=True)
    return Found(asdict(found.account), {domain: list(windows) for domain, windows in found.losses.items()})
