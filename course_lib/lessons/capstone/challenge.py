"""The challenge in the notebook: up to eight recipes of your own, and the folder that is handed in.

Two windows show the direction, not the size of a difference: `course challenge` measures a recipe in full. Where a
recipe leaves its calibration open it is small here, so that a recipe is built within seconds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from shutil import copyfile
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.compose.challenge.judge import Judge, Judged, Measured, judged
from course_lib.compose.challenge.texts import FIRST, Texts, texts
from course_lib.compose.recipe import Calibration, Recipe, from_json
from course_lib.prompts.soft import SoftPrompt
from course_lib.prompts.store import save_prompt
from course_lib.pruning.stream.safetensors_io import whole

MOST = 8  # recipes at once
SMALL = Calibration(windows=4, length=128)
FILE = "recipe.json"
RecipeData = str | dict[str, Any]  # JSON, or the data that it stands for


@dataclass(frozen=True, kw_only=True)
class Try:
    """A recipe with its measurements, or the problem with it.

    Attributes:
        losses: of the windows, nats per token.
    """

    name: str
    judged: Judged | None = None
    losses: tuple[float, ...] = ()
    problem: str = ""

    @property
    def held(self) -> float:
        """Memory footprint as a fraction of the dense model's."""
        return self.judged.held if self.judged else nan

    @property
    def read(self) -> float:
        """Bytes read per token as a fraction of the dense model's."""
        return self.judged.read if self.judged else nan

    @property
    def loss(self) -> float:
        """Loss increase over the dense model, nats per token."""
        return self.judged.worse[1][0] if self.judged else nan

    @property
    def is_within(self) -> bool:
        return self.judged is not None and self.judged.within


def try_recipes(
    recipes: Mapping[str, RecipeData],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    folder: Path = Path(),
    n_windows: int = 2,
    length: int = 256,
) -> list[Try]:
    """Build each recipe and measure it on windows of Wikipedia; one that cannot be built keeps its problem.

    Args:
        folder: where the prompt lies that a recipe may name.
        length: tokens of a window. A cache with room for all of them evicts nothing.

    Raises:
        ValueError: more than eight recipes.
    """
    if len(recipes) > MOST:
        raise ValueError(f"got {len(recipes)} recipes; expected at most {MOST}. Try some, then others.")
    every = texts(tokenizer, n_windows, length)
    read = Texts(windows={FIRST: every.windows[FIRST]}, behind=every.behind)
    judge = Judge(model=model, tokenizer=tokenizer, texts=read)
    dense = judge.measure(Recipe(calibration=SMALL))
    return [_try(name, recipe, judge, dense, folder) for name, recipe in recipes.items()]


def _try(name: str, data: RecipeData, judge: Judge, dense: Measured, folder: Path) -> Try:
    try:
        recipe = from_json(data if isinstance(data, str) else json.dumps(data))
        small = replace(recipe, calibration=SMALL) if recipe.calibration == Calibration() else recipe
        found = judge.measure(small, folder)
    except ValueError as error:
        return Try(name=name, problem=str(error))
    return Try(name=name, judged=judged(found, dense), losses=found.losses[FIRST])


def hand_in(recipe: RecipeData, folder: Path | str, prompt: SoftPrompt | None = None) -> Path:
    """Write the recipe, and the prompt that it names, into a folder; an earlier recipe is kept next to it, numbered.

    Raises:
        ValueError: no recipe, or a prompt that it does not name or lacks.
    """
    text = recipe if isinstance(recipe, str) else json.dumps(recipe, indent=1)
    part, folder = from_json(text).part("prompt"), Path(folder)
    if prompt is not None and part is None:
        raise ValueError(
            'got a prompt for a recipe without one; expected {"prompt": {"file": "prompt.safetensors"}} in the recipe.'
        )
    if part is not None and prompt is None and not (folder / part.file).is_file():
        raise ValueError(f"got a recipe with the prompt {part.file}, which is not in {folder}; expected prompt=…")
    folder.mkdir(parents=True, exist_ok=True)
    if prompt is not None:
        save_prompt(prompt, folder / part.file)
    path = folder / FILE
    if path.exists() and path.read_text(encoding="utf-8") != text:
        place = next(n for n in range(1, 10_000) if not (folder / f"{FILE}.{n}").exists())
        copyfile(path, folder / f"{FILE}.{place}")
    with whole(path) as file:
        file.write(text.encode())
    # A path has its own line, so that it can be copied.
    print(f"Written. Measure it in full with\n    course challenge {path}")
    print(f"and hand in this folder as it is:\n    {folder}")
    return path
