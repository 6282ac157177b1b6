"""A soft prompt that was learned before, in a file beside the recipe. The model is finished when it comes before it."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from course_lib.compose.part import Ground, Making, Part
from course_lib.prompts.prompted import prompting
from course_lib.prompts.store import load_prompt

MOST_BYTES = 64 * 1024  # of its vectors, in the 16 bits in which they are kept
MOST_ON_DISK = 2 * MOST_BYTES + 4096  # in float32, with a header
LONGEST_NAME = 100


@dataclass(frozen=True, kw_only=True)
class PromptPart(Part):
    """Vectors before every text.

    Args:
        file: of `save_prompt`, by its name alone; it lies in the folder of the recipe.
    """

    file: str

    name: ClassVar[str] = "prompt"
    place: ClassVar[int] = 5
    is_read: ClassVar[bool] = False  # its keys and values are, which lie in the cache

    def __post_init__(self) -> None:
        plain = self.file.isprintable() and len(self.file) <= LONGEST_NAME and "\\" not in self.file
        if not plain or Path(self.file).name != self.file or not self.file.endswith(".safetensors"):
            raise ValueError(
                f"got file = {self.file[:60]!r}; expected the name of a safetensors file that lies beside the recipe, "
                "without a folder."
            )

    def path_in(self, folder: Path) -> Path:
        """Where its file lies.

        Raises:
            ValueError: no ordinary file, or one larger than a prompt may be.
        """
        path = folder / self.file
        if path.is_symlink() or not path.is_file():
            raise ValueError(f"got the prompt {self.file!r}, which is not there, or a link; expected a file.")
        if (size := path.stat().st_size) > MOST_ON_DISK:
            raise ValueError(f"got a prompt of {size:,} bytes; expected at most {MOST_ON_DISK:,}. Learn fewer vectors.")
        return path

    def apply(self, making: Making, ground: Ground) -> Making:
        prompt = load_prompt(self.path_in(ground.folder), making.model)
        # As it is stored: in 16 bits.
        vectors = prompt.vectors.half()
        if vectors.nbytes > MOST_BYTES:
            raise ValueError(
                f"got a prompt of {vectors.nbytes:,} bytes; expected at most {MOST_BYTES:,}. Learn fewer vectors."
            )
        prompt = replace(prompt, vectors=vectors.float())
        return making.with_(self.name, prompt, {"vectors": vectors}, partial(prompting, making.model, prompt))

    def n_bytes(self, making: Making) -> int:
        prompt = making.found[self.name]
        return 2 * prompt.n * prompt.vectors.shape[1]

    def in_words(self) -> str:
        return "A learned prompt stands before the text."
