"""The exercise dejavu.gathered, "Only the rows that are needed": its cases and its named mistakes.

Dimension key: D width, F neurons, K of them that are kept.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

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
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("a sum over neurons", lambda x, g, u, d, i: sum((_right(x, g, u, d, n[None]) for n in i), 0 * x)),
        Variant("rows of down turned round", lambda x, g, u, d, i: _values(x, g, u, i) @ d.T[i]),
        Variant("the same order for all three", _reading(_sorted, _sorted, _sorted)),
        Variant("by a mask", lambda x, g, u, d, i: _right(x, g, u, d, _keep(len(g), i))),
        Variant("in float64", lambda *given: _right(*(t.double() for t in given[:4]), given[4])),
    ),
    hints=(
        "What is the shape of gate[index]? Those are the only rows of the gate whose product with x is needed.",
        "gate[index] @ x and up[index] @ x are (K,), in the order of `index`. Which part of `down` are these K values "
        "multiplied with?",
        "Neuron i has column i of `down`: down[:, index] is (D, K).",
    ),
)
