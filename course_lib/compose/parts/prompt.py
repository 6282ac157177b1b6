"""A soft prompt that was trained before, in a file next to the recipe. It is added to the finished model."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from course_lib.compose.part import FiledPart, Ground, Making
from course_lib.prompts.prompted import prompting
from course_lib.prompts.store import load_prompt

MOST_BYTES = 64 * 1024  # of its vectors, which are stored in 16 bits


@dataclass(frozen=True, kw_only=True)
class PromptPart(FiledPart):
    """The vectors before every text, in a file of `save_prompt`."""

    name: ClassVar[str] = "prompt"
    place: ClassVar[int] = 5
    is_read: ClassVar[bool] = False  # a token reads its keys and values, which are in the cache
    most_on_disk: ClassVar[int] = 2 * MOST_BYTES + 4096  # in float32, with a header

    def apply(self, making: Making, ground: Ground) -> Making:
        prompt = load_prompt(self.path_in(ground.folder), making.model)
        # As it is stored: in 16 bits.
        vectors = prompt.vectors.half()
        if vectors.nbytes > MOST_BYTES:
            raise ValueError(
                f"got a prompt of {vectors.nbytes:,} bytes; expected at most {MOST_BYTES:,}. Train fewer vectors."
            )
        prompt = replace(prompt, vectors=vectors.float())
        return making.with_(self.name, prompt, {"vectors": vectors}, partial(prompting, making.model, prompt))

    def n_bytes(self, making: Making) -> int:
        prompt = making.found[self.name]
        return 2 * prompt.n * prompt.vectors.shape[1]

    def in_words(self) -> str:
        return "A learned prompt is put before the text."
