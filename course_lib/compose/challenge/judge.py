"""The measurement of a recipe: counted bytes, and its loss compared with the dense model's on the same windows.

Sizes and losses are measured here and never read from the recipe; times are not measured.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.compose.build import Built, build
from course_lib.compose.challenge.budget import BUDGET, Budget
from course_lib.compose.challenge.memory import Memory, digest
from course_lib.compose.challenge.texts import NAMES, Texts
from course_lib.compose.counting.account import Account, account
from course_lib.compose.counting.expected import stored_bytes
from course_lib.compose.evaluate import continued_losses
from course_lib.compose.recipe import Recipe
from course_lib.measure.paired import mean_and_error
from course_lib.prompts.soft import fingerprint

AT_ONCE = 8  # windows in one pass: memory stays the same however many there are
Losses = dict[str, tuple[float, ...]]


class Miscounted(ValueError):
    """Two counts of bytes differ. This is a bug in the library, not a mistake in a recipe."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Bytes that a recipe's model stores and reads, and its loss on every window by domain, in nats per token."""

    account: Account
    losses: Losses


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A recipe compared with the dense model.

    Args:
        losses: by domain, the log of the ratio of the perplexities and its standard error; paired windows.
    """

    dense: Account
    found: Account
    losses: dict[str, tuple[float, float]]
    budget: Budget = BUDGET

    @property
    def held(self) -> float:
        """Stored bytes of weights and cache, as a fraction of the dense model's."""
        return self.found.held / self.dense.held

    @property
    def read(self) -> float:
        """Bytes read per token, as a fraction of the dense model's."""
        return self.found.read / self.dense.read

    @property
    def within(self) -> bool:
        """Whether the recipe respects both limits."""
        return self.held <= self.budget.held and self.read <= self.budget.read

    @property
    def worse(self) -> tuple[str, tuple[float, float]]:
        """The domain that counts: the one with the larger loss increase."""
        return max(self.losses.items(), key=lambda item: item[1][0])

    @property
    def of_budget(self) -> str:
        """Compare both fractions with their limits."""
        limits = (("stored", self.held, self.budget.held), ("read per token", self.read, self.budget.read))
        return "; ".join(
            f"{share:.1%} of the bytes {what}, {'within' if share <= most else 'above'} {most:.1%}"
            for what, share, most in limits
        )


def judged(found: Measured, dense: Measured, budget: Budget = BUDGET) -> Judged:
    """Compare the measurements of a recipe and of the dense model on the same windows."""
    pairs = {domain: zip(losses, dense.losses[domain], strict=True) for domain, losses in found.losses.items()}
    return Judged(
        dense=dense.account,
        found=found.account,
        losses={domain: mean_and_error([mine - its for mine, its in pair]) for domain, pair in pairs.items()},
        budget=budget,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Judge:
    """Measure recipes with a dense model and texts; measurements are stored in `memory` and used again.

    Args:
        say: receives a message before each step.
    """

    model: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerBase | None = field(repr=False)
    texts: Texts
    memory: Memory = field(default_factory=Memory)
    say: Callable[[str], None] = field(default=lambda text: None, repr=False)

    def measure(self, recipe: Recipe, folder: Path = Path()) -> Measured:
        """Measure a recipe; build it at most once, and not at all if all its measurements are stored.

        Raises:
            ValueError: a recipe that does not fit this model, or a model whose loss is NaN or infinite.
        """
        made, files = [], b"".join(path.read_bytes() for path in recipe.files(folder))
        known = digest(recipe.as_json(), files, self.texts.digest, fingerprint(self.model))

        def built() -> Built:
            if not made:
                self.say("building: prune, round, fit")
                made.append(build(recipe, self.model, recipe.calibration.text(self.tokenizer), folder))
            return made[0]

        counts = self.memory.once(f"{known} bytes", lambda: asdict(self._counted(built())))
        losses = {}
        for domain in self.texts.windows:
            row = self.memory.once(f"{known} {domain}", lambda which=domain: {"losses": self._read(built(), which)})
            losses[domain] = tuple(row["losses"])
        return Measured(account=Account(**counts), losses=losses)

    def _counted(self, built: Built) -> Account:
        self.say("counting bytes")
        return counted(built, self.texts.behind)

    def _read(self, built: Built, domain: str) -> list[float]:
        windows = self.texts.windows[domain]
        self.say(f"reading {windows.shape[0]} × {windows.shape[1]} tokens: {NAMES[domain]}")
        losses = torch.cat([continued_losses(built, part) for part in windows.split(AT_ONCE)]).tolist()
        if not all(map(isfinite, losses)):
            raise ValueError(
                f"got a model whose loss on {NAMES[domain]} is NaN or infinite; expected a finite loss. Compress "
                "it less, or look at its prompt."
            )
        return losses


def counted(built: Built, text: Int[Tensor, "N"]) -> Account:
    """Count its bytes, and check them against the formulas of its recipe.

    Raises:
        Miscounted: the two counts differ.
    """
    found, formula = account(built, text), stored_bytes(built)
    if found.stored != formula:
        raise Miscounted(
            f"got {found.stored:,} bytes of tensors and {formula:,} by the sizes of the recipe; expected the same. "
            "Report the recipe: one of the two counts is wrong."
        )
    return found
