"""Measure a recipe: bytes, and the loss of every window of two domains."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.compose.build import Built, build, extended
from course_lib.compose.counting.account import account
from course_lib.compose.evaluate import continued_losses
from course_lib.compose.recipe import Calibration, Recipe, from_json
from course_lib.data.corpora import windows
from course_lib.lessons.capstone.experiments.recipes import PROMPT, PRUNE, ROUND, Parts, text_of
from course_lib.lessons.common.subject import loaded
from course_lib.measure.experiment import QUICK_RESULTS
from course_lib.prompts.initial import from_vocabulary
from course_lib.prompts.recipe import PromptRecipe
from course_lib.prompts.store import save_prompt
from course_lib.prompts.training import train_prompt

DOMAINS = ("wikipedia", "boolq")
DIGITS = 5  # of a loss


@dataclass(frozen=True)
class Sizes:
    """Numbers of windows, tokens and steps.

    Args:
        windows: of `length` tokens from each domain, of which the second half is scored.
        calibration: windows, and their tokens. held: tokens after which the bytes of the cache are counted.
        prompt_steps: training steps of the prompt; each reads `prompt_batch` windows of `prompt_length` tokens.
        recipes, orders: how many of the plan; all when None.
    """

    windows: int = 8
    length: int = 512
    calibration: tuple[int, int] = (16, 256)
    held: int = 1024
    vectors: int = 20
    prompt_steps: int = 32
    prompt_batch: int = 4
    prompt_length: int = 96
    recipes: int | None = None
    orders: int | None = None


QUICK = Sizes(
    windows=2,
    length=40,
    calibration=(2, 32),
    held=48,
    vectors=4,
    prompt_steps=2,
    prompt_batch=2,
    prompt_length=12,
    recipes=3,
    orders=1,
)


def calibration(sizes: Sizes, seed: int) -> Int[Tensor, "n N"]:
    """Load the calibration windows."""
    n, length = sizes.calibration
    return Calibration(windows=n, length=length, seed=seed).text(loaded()[1])


def folder(sizes: Sizes, seed: int) -> Path:
    """Return the folder of the prompt, which later steps use again."""
    name = f"capstone-{seed}-{sizes.prompt_steps}x{sizes.prompt_batch}x{sizes.prompt_length}-{sizes.calibration[0]}"
    return QUICK_RESULTS / "prompts" / name


@lru_cache(maxsize=1)
def of_weights(weights: str, sizes: Sizes, seed: int) -> Built:
    """Build a model from its weights only; the last one is kept, since many recipes share it."""
    return build(from_json(weights), loaded()[0], calibration(sizes, seed))


def made(parts: Parts, sizes: Sizes, seed: int) -> Built:
    """Build the model of a recipe."""
    if "prompt" in parts and not (folder(sizes, seed) / PROMPT["file"]).exists():
        learn(sizes, seed)
    weights = {"weights": parts["weights"]} if "weights" in parts else {}
    recipe: Recipe = from_json(text_of(parts))
    return extended(of_weights(text_of(weights), sizes, seed), recipe, calibration(sizes, seed), folder(sizes, seed))


def learn(sizes: Sizes, seed: int) -> None:
    """Train the prompt on the pruned and rounded model; all recipes use it, since the embedding table is the same."""
    built, tokenizer = of_weights(text_of({"weights": PRUNE | ROUND}), sizes, seed), loaded()[1]
    steps = sizes.prompt_steps
    text = windows("wikipedia", steps * sizes.prompt_batch, sizes.prompt_length, tokenizer, "calibration", seed + 1)
    start = from_vocabulary(built.model, sizes.vectors, torch.Generator().manual_seed(seed))
    recipe = PromptRecipe(n_steps=steps, batch=sizes.prompt_batch, warm_up=min(4, steps - 1), seed=seed)
    trained = train_prompt(built.model, start, text, recipe, origin=built.recipe.as_json(), progress=False)
    save_prompt(trained.prompt, folder(sizes, seed) / PROMPT["file"])


def row_of(built: Built, sizes: Sizes, seed: int) -> dict[str, Any]:
    """Return bytes and multiply-adds, and the losses of both domains."""
    tokenizer = loaded()[1]
    (behind,) = windows("wikipedia", 1, sizes.held, tokenizer, "evaluation", seed + 1)
    found = account(built, behind)
    row = {"stored": found.stored, "cache": found.cache, "read": found.read, "multiply_adds": found.multiply_adds}
    return row | {domain: losses_of(built, domain, sizes, seed) for domain in DOMAINS}


def losses_of(built: Built, domain: str, sizes: Sizes, seed: int) -> list[float]:
    """Return the loss of the second half of each window in nats per token."""
    ids = windows(domain, sizes.windows, sizes.length, loaded()[1], "evaluation", seed)
    return [round(loss, DIGITS) for loss in continued_losses(built, ids).tolist()]


def forget() -> None:
    """Release the models."""
    loaded.cache_clear()
    of_weights.cache_clear()
