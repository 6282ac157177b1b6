"""Looking at the MLPs of a model while it runs: what a token has there, block by block, through hooks alone.

Dimension key: T tokens of a pass in one row (B sequences of N), D width, F neurons.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.sizes import run_through
from course_lib.hooks import hooking
from course_lib.models import architecture, blocks, trunk


@dataclass(frozen=True, eq=False, kw_only=True)
class Seen:
    """What there is to read of T tokens at one block.

    Args:
        x: what the MLP reads, behind its norm.
        embedding: the residual before block 0.
        earlier: x of as many earlier blocks as was asked for, by their number.
        hidden: h of all neurons, which nobody but an oracle knows before the MLP is computed.
        ids: of the tokens; None where the model was given embeddings.
        real: False for padding, as far as the attention mask says.
        n_sequences: the T tokens are that many sequences of one length, one after the other.
    """

    x: Float[Tensor, "T D"]
    embedding: Float[Tensor, "T D"]
    earlier: Mapping[int, Tensor]
    hidden: Float[Tensor, "T F"]
    neurons: Neurons
    ids: Int[Tensor, "T"] | None
    real: Bool[Tensor, "T"]
    n_sequences: int = 1


Look = Callable[[int, Seen], Tensor | None]  # block, what it has -> other values of the neurons, or None to leave them


@contextmanager
def looking(model: PreTrainedModel, look: Look, lookahead: int = 0) -> Iterator[None]:
    """Inside, `look` is called in every block of every pass, before the last matrix of the MLP reads its neurons.

    Args:
        lookahead: of how many earlier blocks x is held.

    Raises:
        ValueError: for a model of no known family, or with experts.
    """
    one_pass = _Pass(look, neurons_of(model), lookahead)
    with hooking() as handles:
        handles.append(trunk(model).register_forward_pre_hook(one_pass.begin, with_kwargs=True))
        handles.append(blocks(model)[0].register_forward_pre_hook(one_pass.embedded, with_kwargs=True))
        for index, block in enumerate(blocks(model)):
            names = architecture(block).mlp
            first, last = block.get_submodule(names[0]), block.get_submodule(names[-1])
            handles.append(first.register_forward_pre_hook(one_pass.read))
            handles.append(last.register_forward_pre_hook(one_pass.looked(index)))
        yield


def look_through(model: PreTrainedModel, windows: Int[Tensor, "n N"], look: Look, lookahead: int = 0) -> None:
    """Run the model over windows of token ids, one at a time and without gradients, and look at each block.

    Raises:
        ValueError: without windows, or for a model that cannot be looked at.
    """
    with looking(model, look, lookahead):
        run_through(model, windows)


def importance_of(model: PreTrainedModel, ids: Int[Tensor, "N"]) -> Float[Tensor, "L N F"]:
    """|h_i| ‖w_i‖ of every neuron at every token of one text, in the dense model."""
    by_block: list[Tensor] = []
    look_through(model, ids[None], lambda _, seen: by_block.append(seen.neurons.importance(seen.hidden)))
    return torch.stack(by_block)


class _Pass:
    """What the hooks of one pass leave for each other."""

    def __init__(self, look: Look, neurons: list[Neurons], lookahead: int) -> None:
        self.look, self.neurons, self.lookahead = look, neurons, lookahead
        self.earlier: dict[int, Tensor] = {}
        self.ids = self.mask = self.x = self.embedding = None
        self.n_sequences = 1

    def begin(self, _: nn.Module, args: tuple, kwargs: dict) -> None:
        ids, mask = args[0] if args else kwargs.get("input_ids"), kwargs.get("attention_mask")
        self.ids = None if ids is None else ids.reshape(-1)
        self.mask = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
        self.earlier.clear()

    def embedded(self, _: nn.Module, args: tuple, kwargs: dict) -> None:
        hidden = args[0] if args else kwargs["hidden_states"]
        self.n_sequences, n_tokens = hidden.shape[:2]
        self.embedding = _flat(hidden)
        real = torch.ones(self.n_sequences, n_tokens, dtype=torch.bool, device=hidden.device)
        # The mask also counts what is in the cache; the tokens of this pass are its last columns.
        self.real = (real if self.mask is None else self.mask[:, -n_tokens:].bool()).reshape(-1)

    def read(self, _: nn.Module, args: tuple) -> None:
        self.x = _flat(args[0])

    def looked(self, block: int) -> Callable:
        def hook(_: nn.Module, args: tuple) -> tuple | None:
            found = self.look(block, self._seen(block, _flat(args[0])))
            self.earlier[block] = self.x
            self.earlier.pop(block - self.lookahead, None)
            return None if found is None else (found.to(args[0].dtype).reshape(args[0].shape), *args[1:])

        return hook

    def _seen(self, block: int, hidden: Float[Tensor, "T F"]) -> Seen:
        return Seen(
            x=self.x,
            embedding=self.embedding,
            earlier=self.earlier,
            hidden=hidden,
            neurons=self.neurons[block],
            ids=self.ids,
            real=self.real,
            n_sequences=self.n_sequences,
        )


def _flat(hidden: Tensor) -> Float[Tensor, "T D"]:
    """Tokens in one row; OPT's linears see them so already."""
    return hidden.reshape(-1, hidden.shape[-1])
