"""What a student hands in for the challenge: a folder with a recipe and, where it names one, a prompt."""

import json
from pathlib import Path
from shutil import copyfile
from typing import Any

from course_lib.compose.recipe import from_json
from course_lib.prompts.soft import SoftPrompt
from course_lib.prompts.store import save_prompt
from course_lib.pruning.stream.safetensors_io import whole

FILE = "recipe.json"


def hand_in(recipe: str | dict[str, Any], folder: Path | str, prompt: SoftPrompt | None = None) -> Path:
    """Write the recipe, and the prompt that it names, into a folder; an earlier recipe is kept beside under a number.

    Raises:
        ValueError: what is no recipe, or a prompt that it does not name or lacks.
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
        number = next(n for n in range(1, 10_000) if not (folder / f"{FILE}.{n}").exists())
        copyfile(path, folder / f"{FILE}.{number}")
    with whole(path) as file:
        file.write(text.encode())
    # A path stands on a line of its own, so that it can be copied.
    print(f"Written. Measure it in full with\n    course challenge {path}")
    print(f"and hand in this folder as it is:\n    {folder}")
    return path
