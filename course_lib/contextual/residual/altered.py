"""Models in which a block is taken to change little: parts side by side, blocks side by side, blocks left out.

Liu, Wang, Dao and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157, appendix L. Through hooks alone; what is
skipped is computed all the same, so this measures what is lost.

Dimension key: T tokens of a pass in one row, F neurons.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from course_lib.contextual.residual.passing import first, given, hooked, instead, with_first
from course_lib.contextual.seen import Seen, looking
from course_lib.contextual.sizes import refuse_mixture
from course_lib.models import architecture, blocks


@contextmanager
def attention_beside_mlp(model: PreTrainedModel) -> Iterator[None]:
    """X' = X + attention(X) + MLP(X): inside, the MLP reads what attention reads, so that both can run at once."""
    refuse_mixture(model)
    with hooked([handle for block in blocks(model) for handle in _beside(block)]):
        yield


@contextmanager
def blocks_in_pairs(model: PreTrainedModel) -> Iterator[None]:
    """X'' = X + F_b(X) + F_{b+1}(X), b even: inside, the second block of each pair reads what the first does."""
    refuse_mixture(model)
    pairs = zip(blocks(model)[::2], blocks(model)[1::2], strict=False)  # the last may be alone
    with hooked([handle for pair in pairs for handle in _paired(*pair)]):
        yield


@contextmanager
def blocks_skipped(model: PreTrainedModel, every: int = 4) -> Iterator[None]:
    """Inside, every fourth block hands on what it was given: the fourth, the eighth, ...

    Raises:
        ValueError: where `every` is no whole number from 1 to that of the blocks, or the model is of no known family.
    """
    refuse_mixture(model)
    n_blocks = len(blocks(model))
    if isinstance(every, bool) or not 1 <= every <= n_blocks:
        raise ValueError(f"got every={every!r}; expected a whole number from 1 to {n_blocks}, such as 4.")

    def hand_on(_: nn.Module, args: tuple, kwargs: dict, output: Tensor | tuple) -> Tensor | tuple:
        return with_first(output, given(args, kwargs))

    skipped = blocks(model)[every - 1 :: every]
    with hooked([block.register_forward_hook(hand_on, with_kwargs=True) for block in skipped]):
        yield


@contextmanager
def activation_replaced(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Inside, the MLPs have another nonlinearity, by transformers' name for it, and the weights that they had.

    Raises:
        ValueError: for a name that transformers does not know, or a model that cannot be looked at.
    """
    if name not in ACT2FN:
        raise ValueError(f'got activation {name!r}; expected one that transformers knows, such as "relu".')

    def other(_: int, seen: Seen) -> Float[Tensor, "T F"]:
        return replace(seen.neurons, activation=name).values(seen.x)

    with looking(model, other):
        yield


def _beside(block: nn.Module) -> list[RemovableHandle]:
    """The norm before the MLP is given the block's input."""
    held: dict[str, Tensor] = {}

    def remember(_: nn.Module, args: tuple, kwargs: dict) -> None:
        held["x"] = given(args, kwargs)

    def give(_: nn.Module, args: tuple) -> tuple:
        return (held["x"].reshape(args[0].shape), *args[1:])

    norm = block.get_submodule(architecture(block).norms[1])
    return [block.register_forward_pre_hook(remember, with_kwargs=True), norm.register_forward_pre_hook(give)]


def _paired(one: nn.Module, other: nn.Module) -> list[RemovableHandle]:
    held: dict[str, Tensor] = {}

    def remember(_: nn.Module, args: tuple, kwargs: dict, output: Tensor | tuple) -> None:
        held["x"] = given(args, kwargs)
        held["added"] = first(output) - held["x"]

    def give(_: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        return instead(args, kwargs, held["x"])

    def add(_: nn.Module, __: tuple, output: Tensor | tuple) -> Tensor | tuple:
        return with_first(output, first(output) + held["added"])

    return [
        one.register_forward_hook(remember, with_kwargs=True),
        other.register_forward_pre_hook(give, with_kwargs=True),
        other.register_forward_hook(add),
    ]
