"""The exercise dejavu.gathered, "Only the rows that are needed": its cases and its named mistakes.

Dimension key: D width, F neurons, K of them that stay.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

Answer = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Rows = Callable[[Tensor], Tensor]


def _first_channels(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    n = min(12, len(expected))
    fig = compare_bars(torch.as_tensor(got)[:n], expected[:n], tuple(map(str, range(n))), "output")
    fig.axes[0].set_xlabel("channel")
    return fig


def _as_given(index: Tensor) -> Tensor:
    return index


def _sorted(index: Tensor) -> Tensor:
    return index.sort().values


def _first(index: Tensor) -> Tensor:
    return torch.arange(len(index))


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return silu(gate) * up


def _reading(gate_at: Rows = _as_given, up_at: Rows = _as_given, down_at: Rows = _as_given) -> Answer:
    """The answer that reads other rows of gate, of up, or other columns of down."""

    def answer(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, index: Tensor) -> Tensor:
        return down[:, down_at(index)] @ _swiglu(gate[gate_at(index)] @ x, up[up_at(index)] @ x)

    return answer


def _with(act: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """The answer with other values of the neurons, (gate, up) -> (K,)."""

    def answer(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, index: Tensor) -> Tensor:
        return down[:, index] @ act(gate[index] @ x, up[index] @ x)

    return answer


_right = _with(_swiglu)


def _then(change: Callable[..., Tensor]) -> Answer:
    """The answer, changed by (output, x, gate, up, down, index)."""
    return lambda *given: change(_right(*given), *given)


def _values(x: Tensor, gate: Tensor, up: Tensor, index: Tensor) -> Tensor:
    return _swiglu(gate[index] @ x, up[index] @ x)


def _keep(n: int, index: Tensor) -> Tensor:
    return torch.isin(torch.arange(n), index)


def _masked(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, index: Tensor) -> Tensor:
    """All neurons, and zero times those that leave."""
    return down @ (_swiglu(gate @ x, up @ x) * _keep(len(gate), index))


def _masked_by_choice(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, index: Tensor) -> Tensor:
    """All neurons, and zero in place of those that leave."""
    return down @ _swiglu(gate @ x, up @ x).where(_keep(len(gate), index), 0)


def _others(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, index: Tensor) -> Tensor:
    return _right(x, gate, up, down, (~_keep(len(gate), index)).nonzero().flatten())


def _gathered_cases(generator: torch.Generator) -> list[Case]:
    def drawn(width: int, n_neurons: int, n_kept: int, loaded: bool = True) -> tuple[Tensor, ...]:
        """An MLP whose values are of both signs; without the weights of the others where these were not loaded."""
        x = torch.randn(width, generator=generator)
        gate, up = (torch.randn(n_neurons, width, generator=generator) * 2 / width**0.5 for _ in range(2))
        down = torch.randn(width, n_neurons, generator=generator)
        order = torch.randperm(n_neurons, generator=generator)
        if not loaded:
            gate[order[n_kept:]], up[order[n_kept:]], down[:, order[n_kept:]] = torch.nan, torch.nan, torch.nan
        return x, gate, up, down, order[:n_kept]

    gate, up = (
        torch.tensor([[0.0, 50.0], [100.0, 0.0], [40.0, 30.0]]),
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    )
    by_hand = torch.tensor([1.0, 2.0]), gate, up, torch.tensor([[0.01, 0.0, 0.01], [0.0, 0.01, 0.02]])
    x, *matrices, index = drawn(9, 15, 6)
    turned = [matrix.T.contiguous().T for matrix in matrices]
    return [
        Case("neurons 2 and 0 of 3, by hand: values of 300 and 100, output 4 and 6", (*by_hand, torch.tensor([2, 0]))),
        Case("8 of 31 neurons, width 11", drawn(11, 31, 8)),
        Case("7 of 20 neurons, the others never loaded", drawn(10, 20, 7, loaded=False)),
        Case("as many neurons as channels", drawn(12, 12, 5)),
        Case("a single neuron, the others never loaded", drawn(6, 9, 1, loaded=False)),
        Case("all neurons, in another order", drawn(18, 13, 13)),
        Case("no neuron", drawn(8, 10, 0)),
        Case("not contiguous", (x, *turned, index)),
    ]


def _library(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, index: Tensor) -> Tensor:
    from course_lib.contextual.execute.gathered import by_rows
    from course_lib.contextual.execute.neuron_major import NeuronMajor

    return by_rows(x, NeuronMajor(gate=gate, up=up, down=down.T, activation="silu"), index)


GATHERED = Exercise(
    id="dejavu.gathered",
    title="Only the rows that are needed",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_right,
    cases=_gathered_cases,
    picture=_first_channels,
    library=_library,
    mistakes=(
        Mistake(
            "gate and up in different orders",
            "The values of the gate stand in one order and those of `up` in another, so that a neuron's gate opens "
            "another one. A mask, or a sorted index, lists neurons in rising order; `index` need not.",
            _reading(up_at=_sorted),
            also=(
                _reading(gate_at=_sorted),
                _reading(up_at=_sorted, down_at=_sorted),
                _reading(gate_at=_sorted, down_at=_sorted),
                _reading(up_at=lambda i: i.flip(0)),
                _reading(gate_at=lambda i: i.flip(0)),
            ),
        ),
        Mistake(
            "columns of down for rows",
            "Rows of `down` were taken. Its rows are the D channels of the output; what neuron i adds to them is "
            "column i: down[:, index].",
            lambda x, g, u, d, i: _values(x, g, u, i) @ d[i],
            also=(
                lambda x, g, u, d, i: d[i] @ _values(x, g, u, i),
                lambda x, g, u, d, i: d[i].T @ _values(x, g, u, i),
                lambda x, g, u, d, i: d.T[:, i] @ _values(x, g, u, i),
            ),
        ),
        Mistake(
            "channels chosen",
            "`index` numbers neurons, and here it was used on the D channels of x or of the output too. Every neuron "
            "reads all channels and adds to all of them.",
            lambda x, g, u, d, i: d[:, i] @ _swiglu(g[i][:, i] @ x[i], u[i][:, i] @ x[i]),
            also=(lambda x, g, u, d, i: d[i][:, i] @ _values(x, g, u, i),),
        ),
        Mistake(
            "down in another order",
            "The columns of `down` stand in another order than the values of the neurons. A mask, or a sorted index, "
            "lists neurons in rising order; `index` need not.",
            _reading(down_at=_sorted),
            also=(_reading(gate_at=_sorted, up_at=_sorted), _reading(down_at=lambda i: i.flip(0))),
        ),
        Mistake(
            "activation on up",
            "The SiLU was applied to what `up` gives. It belongs to the gate, and opens or closes the other one.",
            _with(lambda g, u: g * silu(u)),
        ),
        Mistake(
            "activation on both",
            "The SiLU was applied to what gate and `up` give. It belongs to the gate alone.",
            _with(lambda g, u: silu(g) * silu(u)),
        ),
        Mistake(
            "activation of the product",
            "The SiLU was applied to the product of gate and up. It belongs to the gate alone.",
            _with(lambda g, u: silu(g * u)),
        ),
        Mistake(
            "without the activation",
            "Gate and up were multiplied as they are: the SiLU of the gate is missing.",
            _with(lambda g, u: g * u),
        ),
        Mistake(
            "another activation",
            "The activation is the SiLU, z σ(z): neither the sigmoid alone, nor ReLU or GELU.",
            _with(lambda g, u: g.sigmoid() * u),
            also=(_with(lambda g, u: g.relu() * u), _with(lambda g, u: gelu(g) * u), _with(lambda g, u: g.tanh() * u)),
        ),
        Mistake(
            "gate or up left out",
            "One of the two matrices is missing. A neuron's value is the SiLU of its gate times what `up` gives.",
            _with(lambda g, u: silu(g)),
            also=(_with(lambda g, u: silu(u)), _with(lambda g, u: u)),
        ),
        Mistake(
            "gate and up added",
            "Gate and up were added. The one opens or closes the other: multiply.",
            _with(lambda g, u: silu(g) + u),
        ),
        Mistake(
            "everything read",
            "Weights of all neurons were read: all of gate, up and `down`, or `down` alone, with zeros for the other "
            "neurons' values. To read less is what this is for; and where the others were never loaded, zero times "
            "anything may be not a number. Take the rows, and the columns of `down`, first and multiply then.",
            _masked,
            also=(
                _masked_by_choice,
                lambda x, g, u, d, i: d @ x.new_zeros(len(g)).index_copy(0, i, _values(x, g, u, i)),
            ),
        ),
        Mistake(
            "all neurons",
            "This is the whole MLP. Neurons that are not in `index` add nothing here.",
            lambda x, g, u, d, i: d @ _swiglu(g @ x, u @ x),
        ),
        Mistake(
            "all neurons where there should be none",
            "Where `index` is empty, this computes the whole MLP. No neuron is kept then, and the output is zero, "
            "(D,).",
            lambda x, g, u, d, i: _right(x, g, u, d, i if len(i) else torch.arange(len(g))),
        ),
        Mistake(
            "no entries where there are no neurons",
            "Where `index` is empty, the result has no entries, or a single one. The output has D channels whatever is "
            "kept, and then all of them are zero, (D,).",
            lambda x, g, u, d, i: _right(x, g, u, d, i) if len(i) else torch.zeros(0),
            also=(lambda x, g, u, d, i: _right(x, g, u, d, i) if len(i) else 0,),
        ),
        Mistake(
            "the others",
            "The neurons in `index` were left out. They are those that stay.",
            _others,
        ),
        Mistake(
            "the first ones",
            "The first K neurons were taken somewhere, whichever `index` names.",
            _reading(_first, _first, _first),
            also=(_reading(down_at=_first), _reading(up_at=_first), _reading(gate_at=_first), _reading(_first, _first)),
        ),
        Mistake(
            "the residual stream added",
            "The input was added to the output. The MLP gives only what is added to the residual stream.",
            _then(lambda y, x, *_: y + x),
        ),
        Mistake(
            "made larger for those that left",
            "The output was multiplied by F / K or K / F, or divided by K, as if the neurons had been chosen at "
            "random. The sum over the kept neurons stays as it is.",
            _then(lambda y, x, g, u, d, i: y * len(g) / max(len(i), 1)),
            also=(
                _then(lambda y, x, g, u, d, i: y * len(i) / len(g)),
                _then(lambda y, x, g, u, d, i: y / max(len(i), 1)),
            ),
        ),
        Mistake(
            "the neurons' values",
            "These are the values of the neurons, before `down` takes them back to the D channels of the stream.",
            lambda x, g, u, d, i: _values(x, g, u, i),
            also=(lambda x, g, u, d, i: x.new_zeros(len(g)).index_copy(0, i, _values(x, g, u, i)),),
        ),
        Mistake(
            "not added up",
            "There is still a vector for each neuron: the output is their sum.",
            lambda x, g, u, d, i: (d[:, i] * _values(x, g, u, i)).T,
            also=(lambda x, g, u, d, i: d[:, i] * _values(x, g, u, i),),
        ),
        Mistake(
            "nothing without neurons",
            "Where `index` is empty, this returns nothing, or fails. No neuron is kept then, and the output is zero, "
            "(D,).",
            lambda x, g, u, d, i: _right(x, g, u, d, i) if len(i) else None,
            also=(lambda x, g, u, d, i: torch.stack([d[:, n] * silu(g[n] @ x) * (u[n] @ x) for n in i]).sum(dim=0),),
        ),
    ),
    also_right=(
        Variant("a sum over neurons", lambda x, g, u, d, i: sum((_right(x, g, u, d, n[None]) for n in i), 0 * x)),
        Variant("rows of down turned round", lambda x, g, u, d, i: _values(x, g, u, i) @ d.T[i]),
        Variant("the same order for all three", _reading(_sorted, _sorted, _sorted)),
        Variant("by a mask", lambda x, g, u, d, i: _right(x, g, u, d, _keep(len(g), i))),
        Variant("in float64", lambda *given: _right(*(t.double() for t in given[:4]), given[4])),
    ),
    hints=(
        "What is the shape of gate[index]? Those are the only rows of the gate whose product with x is needed.",
        "gate[index] @ x and up[index] @ x are (K,), in the order of `index`. Which part of `down` do these K values "
        "meet?",
        "Neuron i has column i of `down`: down[:, index] is (D, K).",
    ),
)
