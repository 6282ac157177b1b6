"""A soft prompt that was learned before, in a file next to the recipe. The model is finished before it is added."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from course_lib.compose.part import FiledPart, Ground, Making
from course_lib.prompts.prompted import prompting
from course_lib.prompts.store import load_prompt

MOST_BYTES = 64 * 1024  # of its vectors, in the 16 bits in which they are kept


@dataclass(frozen=True, kw_only=True)
class PromptPart(FiledPart):
    """Vectors before every text, of `save_prompt`."""

    name: ClassVar[str] = "prompt"
    place: ClassVar[int] = 5
    is_read: ClassVar[bool] = False  # its keys and values are, which lie in the cache
    most_on_disk: ClassVar[int] = 2 * MOST_BYTES + 4096  # in float32, with a header

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
        return "A learned prompt is put before the text."
