"""The embedding table, rounded to a grid. If the LM head is tied to it, every token reads the whole table.

In the default model it has a fifth of all weights, and more than half of the bytes if the blocks have 2 bits.

Dimension key: V tokens of the vocabulary, D width.
"""

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from course_lib.compose.choices import check_grid, grid_in_words
from course_lib.compose.part import Ground, Making, Part, tables_of
from course_lib.prompts.compressed.layouts import Codes
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import dense_bytes


@dataclass(frozen=True, kw_only=True)
class EmbeddingPart(Part):
    """The table, and the LM head if it is another matrix; each row is rounded to the nearest values of its grids.

    This part comes before the weights, so they are pruned and rounded for the inputs that they will receive. A prompt
    must be trained with the rounded table.

    Args:
        bits: bits per code. group: columns that share a scale; default: whole rows.
    """

    bits: int
    group: int | None = None

    name: ClassVar[str] = "embedding"
    place: ClassVar[int] = 0
    replaces: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid(self.bits, self.group)

    def apply(self, making: Making, ground: Ground) -> Making:
        model, layout, stored = copy.deepcopy(making.model), Codes(Quantization(self.bits, self.group)), {}
        tables = tables_of(model)
        for which, weight in tables.items():
            parts = layout.encode(weight.detach(), weight.detach())
            with torch.no_grad():
                weight.copy_(layout.decode(parts, tuple(weight.shape)))
            stored |= {f"{self.name}/{which}/{part}": tensor for part, tensor in parts.items()}
        kept = {name: tensor for name, tensor in making.stored.items() if not name.startswith("table/")}
        return replace(making, model=model, stored=kept | stored)

    def n_bytes(self, making: Making) -> int:
        return sum(dense_bytes(*weight.shape, self.bits, self.group) for weight in tables_of(making.model).values())

    def in_words(self) -> str:
        return f"The embedding table is rounded to {grid_in_words(self.bits, self.group)}."
