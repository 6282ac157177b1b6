"""The interface of recipes: a part has settings and a method that applies them to a model; see parts/."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from jaxtyping import Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.compose.fields import check_types
from course_lib.models import head

Stored = dict[str, Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class Ground:
    """Inputs for making a model: text for calibration, and the folder of a recipe's files."""

    calibration: Int[Tensor, "n N"] = field(repr=False)
    folder: Path = Path()
    progress: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Making:
    """A model while its parts are applied.

    Args:
        model: a copy of the dense model, with weights decoded from the stored tensors.
        stored: all tensors that are necessary to build it again, as PART/NAME; unchanged weights are float16.
        inside: functions that return the context managers for running the model, in the order in which we enter them.
        found: fitted objects that other parts need, by the name of their part.
    """

    model: PreTrainedModel = field(repr=False)
    stored: Stored = field(default_factory=dict, repr=False)
    inside: tuple[Callable[[], AbstractContextManager], ...] = field(default=(), repr=False)
    found: dict[str, Any] = field(default_factory=dict, repr=False)

    def with_(self, part: str, found: Any, stored: Stored, inside: Callable[[], AbstractContextManager]) -> "Making":
        """Return the result with one more part, which has its own context manager."""
        named = {f"{part}/{name}": tensor for name, tensor in stored.items()}
        return replace(
            self, stored=self.stored | named, inside=(*self.inside, inside), found=self.found | {part: found}
        )


@dataclass(frozen=True, kw_only=True)
class Part(ABC):
    """The settings of one part, all of them plain data.

    Settings that are never valid are refused when the part is created (`__post_init__`), settings that do not fit a
    model when it is applied.
    """

    name: ClassVar[str]  # its key in a recipe
    place: ClassVar[int]  # parts are applied in this order
    excludes: ClassVar[dict[str, str]] = {}  # the name of another part: why a recipe cannot have both
    replaces: ClassVar[str] = ""  # weights that it stores in another form: "dense" (linear layers) or "table"
    kind: ClassVar[str] = ""  # the purpose of its other stored tensors, in one word; its name when empty
    is_read: ClassVar[bool] = True  # whether a decoded token reads its stored tensors
    forgets: ClassVar[bool] = False  # whether it evicts tokens, which a draft cannot restore

    def __post_init__(self) -> None:
        check_types(self)

    @abstractmethod
    def apply(self, making: Making, ground: Ground) -> Making:
        """Apply the part to a model; calibration text is the only data.

        Raises:
            ValueError: settings that do not fit this model.
        """

    def n_bytes(self, making: Making) -> int:
        """Compute its stored bytes from its settings and the sizes of the finished model, not from stored tensors."""
        return 0

    def n_products(self, making: Making) -> int:
        """Compute the multiplications per token that it adds to those of the model."""
        return 0

    @abstractmethod
    def in_words(self) -> str:
        """Describe the part with its settings in one sentence."""


LONGEST_NAME = 100
SUFFIX = ".safetensors"


@dataclass(frozen=True, kw_only=True)
class FiledPart(Part):
    """A part that was trained before. Its file is in the recipe's folder and is handed in with the recipe.

    Args:
        file: the name of a safetensors file, without a folder.
    """

    file: str

    most_on_disk: ClassVar[int] = 0  # bytes

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = self.file.isprintable() and len(self.file) <= LONGEST_NAME and "\\" not in self.file
        if not plain or Path(self.file).name != self.file or not self.file.endswith(SUFFIX):
            raise ValueError(
                f"got file = {self.file[:60]!r}; expected the name of a safetensors file in the recipe's folder, "
                "without a folder."
            )

    def path_in(self, folder: Path) -> Path:
        """Return the path of the file.

        Raises:
            ValueError: not an ordinary file, or too large.
        """
        path = folder / self.file
        if path.is_symlink() or not path.is_file():
            raise ValueError(f"got the {self.name} {self.file!r}, which is not there, or a link; expected a file.")
        if (size := path.stat().st_size) > self.most_on_disk:
            raise ValueError(
                f"got a {self.name} of {size:,} bytes; expected at most {self.most_on_disk:,}. Train fewer parameters."
            )
        return path


def tables_of(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Return the token embedding, and the LM head if it is another matrix."""
    table, out = model.get_input_embeddings().weight, head(model).weight
    return {"words": table} if out is table else {"words": table, "head": out}
