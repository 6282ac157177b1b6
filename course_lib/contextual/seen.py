"""Observe the MLPs of a running model through hooks: the inputs and activations of each token, block by block.

Dimension key: T tokens of a pass in one row (B sequences of N), D width, F neurons.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.sizes import run_through
from course_lib.hooks import calling, hooking
from course_lib.models import architecture, blocks, trunk


@dataclass(frozen=True, eq=False, kw_only=True)
class Seen:
    """The tensors of T tokens at one block.

    Args:
        x: the MLP's input, after its norm.
        embedding: the residual before block 0.
        earlier: x of as many earlier blocks as were requested, by block number.
        hidden: h of all neurons, which only an oracle has before the MLP is computed; None if only chosen neurons will
            be computed.
        ids: of the tokens; None if the input of the model is embeddings.
        real: False for padding, according to the attention mask.
        is_masked: whether there is an attention mask, so that some tokens may be padding.
        n_sequences: the T tokens are this number of sequences of equal length, one after the other.
    """

    x: Float[Tensor, "T D"]
    embedding: Float[Tensor, "T D"]
    earlier: Mapping[int, Tensor]
    hidden: Float[Tensor, "T F"] | None
    neurons: Neurons
    ids: Int[Tensor, "T"] | None
    real: Bool[Tensor, "T"]
    n_sequences: int = 1
    is_masked: bool = False


Look = Callable[[int, Seen], Tensor | None]  # block, what it has -> other values of the neurons, or None to leave them
Compute = Callable[[int, Seen], Tensor | None]  # likewise -> the output of the MLP, or None to compute it as usual

Instead = Callable[[Tensor], Tensor | None]  # what the MLP reads -> its output, or None to compute it as usual


@contextmanager
def looking(model: PreTrainedModel, look: Look, lookahead: int = 0, compute: Compute | None = None) -> Iterator[None]:
    """Call `look` in every block of every pass before the MLP's last matrix, inside the `with` block.

    Args:
        lookahead: the number of earlier blocks whose x is stored.
        compute: called first, before the MLP; if it returns an output, nothing else of the MLP is computed.

    Raises:
        ValueError: the model is of an unknown family, or has experts.
    """
    one_pass = _Pass(look, neurons_of(model), lookahead)
    with hooking() as handles, ExitStack() as stack:
        handles.append(trunk(model).register_forward_pre_hook(one_pass.begin, with_kwargs=True))
        handles.append(blocks(model)[0].register_forward_pre_hook(one_pass.embedded, with_kwargs=True))
        for index, block in enumerate(blocks(model)):
            names = architecture(block).mlp
            first, last = block.get_submodule(names[0]), block.get_submodule(names[-1])
            handles.append(first.register_forward_pre_hook(one_pass.read))
            handles.append(last.register_forward_pre_hook(one_pass.looked(index)))
            if compute is not None:
                stack.enter_context(computing(block, partial(one_pass.computed, index, compute)))
        yield


def look_through(model: PreTrainedModel, windows: Int[Tensor, "n N"], look: Look, lookahead: int = 0) -> None:
    """Run the model over windows of token ids, one at a time and without gradients, and call `look` at each block.

    Raises:
        ValueError: there are no windows, or the model is not supported.
    """
    with looking(model, look, lookahead):
        run_through(model, windows)


def importance_of(model: PreTrainedModel, ids: Int[Tensor, "N"]) -> Float[Tensor, "L N F"]:
    """Return |h_i| ‖w_i‖ of every neuron at every token of one text, in the dense model."""
    by_block: list[Tensor] = []
    look_through(model, ids[None], lambda _, seen: by_block.append(seen.neurons.importance(seen.hidden)))
    return torch.stack(by_block)


class _Pass:
    """The values that the hooks of one pass share."""

    def __init__(self, look: Look, neurons: list[Neurons], lookahead: int) -> None:
        self.look, self.neurons, self.lookahead = look, neurons, lookahead
        self.earlier: dict[int, Tensor] = {}
        self.ids = self.mask = self.x = self.embedding = None
        self.n_sequences = 1
        self.computed_block: int | None = None

    def begin(self, _: nn.Module, args: tuple, kwargs: dict) -> None:
        ids, mask = args[0] if args else kwargs.get("input_ids"), kwargs.get("attention_mask")
        self.ids = None if ids is None else ids.reshape(-1)
        self.mask = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
        self.earlier.clear()
        self.computed_block = None

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
            if self.computed_block == block:  # these values do not belong to any neuron
                return None
            found = self.look(block, self._seen(block, _flat(args[0])))
            self.earlier[block] = self.x
            self.earlier.pop(block - self.lookahead, None)
            return None if found is None else (found.to(args[0].dtype).reshape(args[0].shape), *args[1:])

        return hook

    def computed(self, block: int, compute: Compute, x: Tensor) -> Tensor | None:
        self.x, self.computed_block = _flat(x), None
        found = compute(block, self._seen(block, None))
        if found is None:
            return None
        self.computed_block = block
        self.earlier[block] = self.x
        self.earlier.pop(block - self.lookahead, None)
        return found.to(x.dtype).reshape(x.shape)

    def _seen(self, block: int, hidden: Float[Tensor, "T F"] | None) -> Seen:
        return Seen(
            x=self.x,
            embedding=self.embedding,
            earlier=self.earlier,
            hidden=hidden,
            neurons=self.neurons[block],
            ids=self.ids,
            real=self.real,
            n_sequences=self.n_sequences,
            is_masked=self.mask is not None,
        )


def _flat(hidden: Tensor) -> Float[Tensor, "T D"]:
    """Put all tokens in one row; OPT's linears have them in one row already."""
    return hidden.reshape(-1, hidden.shape[-1])


@contextmanager
def computing(block: nn.Module, instead: Instead) -> Iterator[None]:
    """Replace the MLP's output by the result of `instead` for its input, inside the `with` block; restore on exit.

    Other hooks on the MLP's linears expect them to run, so with such hooks nothing is replaced.
    """
    names = architecture(block).mlp
    linears, path = [block.get_submodule(name) for name in names], names[0].rpartition(".")[0]
    parent = block.get_submodule(path) if path else None
    hooks = _n_hooks(linears)
    found: list[Tensor] = []

    def asked(x: Float[Tensor, "*tokens D"]) -> Tensor | None:
        is_dropping = block.training and parent is not None  # GPT-2 has dropout after the last linear
        return None if is_dropping or _n_hooks(linears) != hooks else instead(x)

    def whole(x: Float[Tensor, "*tokens D"], *args: object, **kwargs: object) -> Tensor:
        y = asked(x)
        return plain[0](x, *args, **kwargs) if y is None else y

    def first(x: Float[Tensor, "*tokens D"]) -> Tensor:
        y = asked(x)
        if y is None:
            return plain[0](x)
        found.append(y)
        return x.new_zeros(1).expand(*x.shape[:-1], linears[-1].weight.shape[1])  # its values are never read

    def last(hidden: Tensor) -> Tensor:
        return found.pop() if found else plain[1](hidden)

    modules, forwards = ([linears[0], linears[-1]], [first, last]) if parent is None else ([parent], [whole])
    plain = [module.forward for module in modules]
    with ExitStack() as stack:
        for module, forward in zip(modules, forwards, strict=True):
            stack.enter_context(calling(module, forward))
        yield


def _n_hooks(modules: list[nn.Module]) -> int:
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in modules)
