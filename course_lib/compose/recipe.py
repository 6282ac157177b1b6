"""A recipe: the parts that compress a model, as data. The same recipe gives the same model, up to the order of sums.

    {"weights": {"method": "SparseGPT", "pattern": 0.5, "bits": 3}, "cache": {"policy": "H2O", "budget": 256}}

It contains no code, no path and no address. The dataclasses of parts/ define the names and values of its fields.
"""

import json
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from course_lib import discover
from course_lib.compose import parts
from course_lib.compose.fields import check_types, read_fields, refuse_unknown, within
from course_lib.compose.part import FiledPart, Part
from course_lib.compose.reading import MOST_SEED, read_json, short
from course_lib.data.corpora import windows

PARTS: dict[str, type[Part]] = {
    kind.name: kind for kind in sorted(discover.subclasses(parts, Part), key=lambda kind: kind.place)
}
MOST_TOKENS = 16384  # of calibration text, so that pruning takes about a minute


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Windows of the calibration articles, which we use to prune and round weights and to fit selectors."""

    windows: int = 16
    length: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        within("windows", self.windows, 1, 128)
        within("length", self.length, 16, 2048)
        within("windows × length", self.windows * self.length, 16, MOST_TOKENS)
        within("seed", self.seed, 0, MOST_SEED)

    def text(self, tokenizer: PreTrainedTokenizerBase) -> Int[Tensor, "n N"]:
        """Load the windows; they never contain articles on which models are evaluated."""
        return windows("wikipedia", self.windows, self.length, tokenizer, "calibration", self.seed)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Parts in the order in which they are applied; a recipe without parts is the dense model.

    Raises:
        ValueError: two parts that exclude each other, or one part twice.
    """

    parts: tuple[Part, ...] = ()
    calibration: Calibration = Calibration()

    def __post_init__(self) -> None:
        is_parts = isinstance(self.parts, tuple) and all(isinstance(part, Part) for part in self.parts)
        if not is_parts or not isinstance(self.calibration, Calibration):
            raise ValueError(
                f"got parts {short(self.parts)} and calibration {short(self.calibration)}; expected a tuple of parts, "
                "such as (Weights(bits=4),), and a Calibration."
            )
        object.__setattr__(self, "parts", tuple(sorted(self.parts, key=lambda part: part.place)))
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise ValueError(f"got the parts {', '.join(names)}; expected each once.")
        for part in self.parts:
            for other, why in part.excludes.items():
                if other in names:
                    raise ValueError(
                        f"got {part.name} and {other} in one recipe, {why}; expected one of them. Leave the other out."
                    )

    def part(self, name: str) -> Part | None:
        """Return the part of this name, or None."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def filed(self) -> tuple[FiledPart, ...]:
        """The parts that name a file."""
        return tuple(part for part in self.parts if isinstance(part, FiledPart))

    def files(self, folder: Path) -> list[Path]:
        """Return the paths of the files in this folder that its parts name.

        Raises:
            ValueError: a missing file, or one that a part may not name.
        """
        return [part.path_in(folder) for part in self.filed]

    def in_words(self) -> list[str]:
        """Describe each part in one sentence, in the order in which they are applied."""
        return [part.in_words() for part in self.parts] or ["No part at all: the dense model."]

    def as_json(self) -> str:
        """Write the recipe as JSON for `from_json`, without fields that have their default value."""
        data = {part.name: _changed(part) for part in self.parts}
        calibration = _changed(self.calibration)
        return json.dumps(data | ({"calibration": calibration} if calibration else {}))


def from_json(text: str | bytes) -> Recipe:
    """Read a recipe from a JSON text.

    Raises:
        ValueError: not a recipe; the message says in one line where.
    """
    data = read_json(text)
    refuse_unknown(data, {**PARTS, "calibration": Calibration}, "the recipe")
    calibration = read_fields(Calibration, data.get("calibration", {}), "calibration")
    found = tuple(read_fields(PARTS[name], value, name) for name, value in data.items() if name in PARTS)
    return Recipe(parts=found, calibration=calibration)


def _changed(settings: Any) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    usual = {
        field.name: field.default_factory() if field.default_factory is not MISSING else field.default
        for field in fields(settings)
    }
    return {name: value for name, value in asdict(settings).items() if value != usual[name]}
