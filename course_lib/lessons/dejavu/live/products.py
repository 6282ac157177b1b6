"""How many numbers a function multiplies by others: what its result does not show."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxtyping import Bool
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.lessons.common.results import percent

# Where the first of the two factors stands among the arguments.
PRODUCTS = {"dot": 0, "mv": 0, "mm": 0, "bmm": 0, "addmv": 1, "addmm": 1, "baddbmm": 1}


class Count(TorchDispatchMode):
    """Inside, products of numbers are counted: those in products of matrices and vectors, and one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        if name in PRODUCTS:
            left, right = args[PRODUCTS[name] :][:2]
            self.n += left.numel() * (right.shape[-1] if right.ndim > 1 else 1)
        elif name == "mul":
            self.n += out.numel()
        elif "embedding_bag" in name:
            self.n += args[1].numel() * args[0].shape[1]
        return out


@contextmanager
def counted() -> Iterator[Count]:
    """`with counted() as count:`, and after it `count.n`."""
    with Count() as count:
        yield count


def line(n: int, n_whole: int, keep: Bool[Tensor, "F"]) -> str:
    """How many products there were, beside those of all neurons and of those that stay."""
    needed = int(keep.sum()) / len(keep)
    said = f"{n:,} products, {percent(n / n_whole)} of the whole MLP's; {int(keep.sum())} of {len(keep)} neurons need"
    more = ": the others were computed as well" if n > 1.5 * needed * n_whole else ""
    return f"{said} {percent(needed)}{more}"
