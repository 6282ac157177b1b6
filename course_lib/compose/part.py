"""The seam of recipes: a part is settings, and what it makes of a model, in one file of parts/."""

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
    """A model on its way through the parts.

    Args:
        model: a copy of the dense one, as it comes back from what is stored of it.
        stored: every tensor that has to be kept to make it again, as PART/NAME; what no part touched is float16.
        inside: what makes the blocks in which the model runs, in the order in which they are entered.
        found: what a part has fitted and others ask for, by the part's name.
    """

    model: PreTrainedModel = field(repr=False)
    stored: Stored = field(default_factory=dict, repr=False)
    inside: tuple[Callable[[], AbstractContextManager], ...] = field(default=(), repr=False)
    found: dict[str, Any] = field(default_factory=dict, repr=False)

    def with_(self, part: str, found: Any, stored: Stored, inside: Callable[[], AbstractContextManager]) -> "Making":
        """One part more, which runs in a block of its own."""
        named = {f"{part}/{name}": tensor for name, tensor in stored.items()}
        return replace(
            self, stored=self.stored | named, inside=(*self.inside, inside), found=self.found | {part: found}
        )


@dataclass(frozen=True, kw_only=True)
class Part(ABC):
    """Settings of one part, plain data all of them.

    Settings that are never valid are refused when the part is made (`__post_init__`), those that do not fit a model
    when it is applied.
    """

    name: ClassVar[str]  # its key in a recipe
    place: ClassVar[int]  # parts are applied in this order
    excludes: ClassVar[dict[str, str]] = {}  # the name of another part: why they cannot both be there
    replaces: ClassVar[str] = ""  # weights that it stores in its own form: "dense", the linears, or "table"
    kind: ClassVar[str] = ""  # what the rest that it stores is for, in a word; its name when empty
    is_read: ClassVar[bool] = True  # whether a decoded token reads what it stores
    forgets: ClassVar[bool] = False  # whether tokens leave, which a draft cannot take back

    def __post_init__(self) -> None:
        check_types(self)

    @abstractmethod
    def apply(self, making: Making, ground: Ground) -> Making:
        """The model with this part, from calibration text alone.

        Raises:
            ValueError: settings that this model cannot have.
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
    """A part that was learned before, with a file that is in the recipe's folder and is handed in with it.

    Args:
        file: of safetensors, by its name alone.
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
        """Where its file lies.

        Raises:
            ValueError: no ordinary file, or one larger than it may be.
        """
        path = folder / self.file
        if path.is_symlink() or not path.is_file():
            raise ValueError(f"got the {self.name} {self.file!r}, which is not there, or a link; expected a file.")
        if (size := path.stat().st_size) > self.most_on_disk:
            raise ValueError(
                f"got a {self.name} of {size:,} bytes; expected at most {self.most_on_disk:,}. Learn fewer numbers."
            )
        return path


def tables_of(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The embedding of words, and the head where it is not the same matrix."""
    table, out = model.get_input_embeddings().weight, head(model).weight
    return {"words": table} if out is table else {"words": table, "head": out}
