"""The exercise minitron.group, "What leaves together": its cases and its named mistakes.

Dimension key: H query heads, G key-value heads, S size of a head, D width, F neurons of a block.
"""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

_NAMES = ("q", "k", "v", "o", "gate", "up", "down")  # in the order of the forward pass
Weights = dict[str, Tensor]
Rule = Callable[[Tensor, SimpleNamespace], Tensor]


def _entries(numbers: Tensor, each: int) -> Tensor:
    """The rows of some heads, of which every one has `each` that lie side by side."""
    return (numbers[:, None] * each + torch.arange(each)).flatten()


def _indices(weights: Weights, groups: Tensor, neurons: Tensor, n_key_value: int) -> SimpleNamespace:
    """Which query rows, key-value rows and neurons stay."""
    size, of_a_group = (len(weights[name]) // n_key_value for name in ("k", "q"))
    return SimpleNamespace(query=_entries(groups, of_a_group), key=_entries(groups, size), neurons=neurons)


_RULES: dict[str, Rule] = {
    "q": lambda w, i: w[i.query],
    "k": lambda w, i: w[i.key],
    "v": lambda w, i: w[i.key],
    "o": lambda w, i: w[:, i.query],
    "gate": lambda w, i: w[i.neurons],
    "up": lambda w, i: w[i.neurons],
    "down": lambda w, i: w[:, i.neurons],
}


def _cut(indices: Callable = _indices, **rules: Rule) -> Callable:
    """The answer, with other indices or other rules for some matrices."""

    def cut(weights: Weights, groups: Tensor, neurons: Tensor, n_key_value: int) -> Weights:
        found = indices(weights, groups, neurons, n_key_value)
        return {name: (_RULES | rules)[name](weight, found) for name, weight in weights.items()}

    return _separately(cut)


def _separately(cut: Callable) -> Callable:
    """A function of a dictionary of matrices as one of seven matrices."""
    return lambda *arguments: cut(dict(zip(_NAMES, arguments[:7], strict=True)), *arguments[7:])


_right = _cut()


def _whole(*names: str) -> Callable:
    return _cut(**dict.fromkeys(names, lambda w, i: w))


def _changed(**changes: Callable) -> Callable:
    """The answer with other indices: each change is (weights, groups, neurons, n_key_value) -> Tensor."""

    def indices(*arguments) -> SimpleNamespace:
        return SimpleNamespace(**vars(_indices(*arguments)) | {name: f(*arguments) for name, f in changes.items()})

    return _cut(indices)


def _by_remainder(weights: Weights, groups: Tensor, neurons: Tensor, n_key_value: int) -> Tensor:
    size = len(weights["k"]) // n_key_value
    heads = torch.arange(len(weights["q"]) // size)
    return _entries(heads[torch.isin(heads % n_key_value, groups)], size)


def _apart(name: str) -> Callable:
    """The rows of a group, were they a whole stride apart."""

    def rows(weights: Weights, groups: Tensor, neurons: Tensor, n_key_value: int) -> Tensor:
        return torch.arange(len(weights[name])).reshape(-1, n_key_value)[:, groups].T.flatten()

    return rows


def _by_width(name: str) -> Callable:
    """The rows of q or k, were a head as wide as the width divided by the heads."""

    def rows(weights: Weights, groups: Tensor, neurons: Tensor, n_key_value: int) -> Tensor:
        of_a_group = len(weights["q"]) // len(weights["k"])
        size = len(weights["down"]) // (of_a_group * n_key_value)
        return _entries(groups, size * (of_a_group if name == "q" else 1))

    return rows


def _renamed(weights: Weights, names: dict[str, str]) -> Weights:
    return {name: weights[names.get(name, name)] for name in weights}


def _first_of_each(weights: Weights, groups: Tensor, n_key_value: int) -> Tensor:
    size, of_a_group = (len(weights[name]) // n_key_value for name in ("k", "q"))
    return (groups[:, None] * of_a_group + torch.arange(size)).flatten()


def _complement(weights: Weights, groups: Tensor, neurons: Tensor, n_key_value: int) -> Weights:
    left = [set(range(n)) - set(of.tolist()) for n, of in ((n_key_value, groups), (len(weights["up"]), neurons))]
    stay = (torch.tensor(sorted(each), dtype=torch.long) for each in left)
    return _right(*weights.values(), *stay, n_key_value)


def _zeros(weights: Weights, groups: Tensor, neurons: Tensor, n_key_value: int) -> Weights:
    found = _indices(weights, groups, neurons, n_key_value)
    stay = {"q": found.query, "o": found.query, "k": found.key, "v": found.key} | dict.fromkeys(
        ("gate", "up", "down"), neurons
    )
    axes = {name: int(name in ("o", "down")) for name in weights}
    return {
        name: torch.zeros_like(w).index_copy(axes[name], stay[name], w.index_select(axes[name], stay[name]))
        for name, w in weights.items()
    }


def _block(generator: torch.Generator, width: int, n_query: int, n_key_value: int, size: int, neurons: int) -> Weights:
    shapes = {"q": (n_query * size, width), "k": (n_key_value * size, width), "v": (n_key_value * size, width)}
    shapes |= {"o": (width, n_query * size), "gate": (neurons, width), "up": (neurons, width), "down": (width, neurons)}
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def _by_hand() -> tuple:
    """Every weight of q is its row, and so on: tens for rows, ones for columns, a hundred more for each matrix."""
    shapes = {"q": (4, 4), "k": (2, 4), "v": (2, 4), "o": (4, 4), "gate": (3, 4), "up": (3, 4), "down": (4, 3)}
    weights = {
        name: 100.0 * (at + 1) + 10 * torch.arange(rows)[:, None] + torch.arange(columns)
        for at, (name, (rows, columns)) in enumerate(shapes.items())
    }
    return *weights.values(), torch.tensor([1]), torch.tensor([0, 2]), 2


def _group_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, k: int) -> Tensor:
        """k of n, rising, and not the first k."""
        others = torch.randperm(n - 1, generator=generator)[: k - 1]
        return torch.cat([others, torch.tensor([n - 1])]).sort().values

    def block(width: int, n_query: int, n_key_value: int, size: int, neurons: int) -> list[Tensor]:
        return list(_block(generator, width, n_query, n_key_value, size, neurons).values())

    turned = [weight.T.contiguous().T for weight in block(12, 6, 3, 2, 11)]
    return [
        Case("4 query heads of size 1 on 2, 3 neurons, by hand", _by_hand()),
        Case(
            "9 heads on 3, as in SmolLM2, of size 4", (*block(30, 9, 3, 4, 20), torch.tensor([0, 2]), drawn(20, 11), 3)
        ),
        Case("6 heads on 3, the weights not contiguous", (*turned, torch.tensor([1]), drawn(11, 5), 3)),
        Case("8 heads on 4", (*block(12, 8, 4, 2, 10), torch.tensor([1, 3]), drawn(10, 4), 4)),
        Case("a head for each group", (*block(15, 3, 3, 5, 12), torch.tensor([1, 2]), drawn(12, 6), 3)),
    ]


def _library(q, k, v, o, gate, up, down, groups: Tensor, neurons: Tensor, n_key_value: int) -> dict[str, Tensor]:
    """By the course's table of what leaves together."""
    from course_lib.models import ARCHITECTURES
    from course_lib.pruning.structured.choice import Kept, best_heads
    from course_lib.pruning.structured.parts import Parameter, linear_axes
    from course_lib.pruning.structured.surgery import cut_parameter

    llama, of_a_group, size = ARCHITECTURES[0], len(q) // len(k), len(k) // n_key_value
    heads = best_heads(torch.zeros(1, of_a_group * n_key_value), groups[None], n_key_value, of_a_group)
    stays = {"groups": groups[None], "heads": heads, "neurons": neurons[None]}
    kept = Kept(blocks=torch.arange(1), width=torch.arange(len(down)), **stays)
    matrices = {"q": q, "k": k, "v": v, "o": o, "gate": gate, "up": up, "down": down}
    smaller = {}
    for (name, matrix), path in zip(matrices.items(), (*llama.attention, *llama.mlp), strict=True):
        axes = linear_axes(path, llama)
        repeats = tuple(size if axis in ("heads", "groups") else 1 for axis in axes)
        parameter = Parameter(name=path, tensor=matrix, axes=axes, repeats=repeats, block=0)
        smaller[name] = cut_parameter(parameter, kept)
    return smaller


GROUP = Exercise(
    id="minitron.group",
    title="What leaves together",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_right,
    cases=_group_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("masks of rows", _separately(lambda *a: _by_masks(*a))),
        Variant("with an axis of heads", _separately(lambda *a: _by_axes(*a))),
    ),
    hints=(
        "A head is made by rows of one kind of matrix and read by columns of another. Go through the seven matrices: "
        "which side of each counts heads, and which counts neurons?",
        "The size of a head is len(k) / n_key_value. Query head h reads key-value head h // (H / G), so to the groups "
        "that stay belong H / G · S neighbouring rows of q each.",
        "w.unflatten(0, (n_key_value, -1))[groups].flatten(0, 1) serves q, k and v alike; o is the same along its "
        "columns.",
    ),
)


def _by_masks(weights: Weights, groups: Tensor, neurons: Tensor, n_key_value: int) -> Weights:
    masks = {}
    for name in ("q", "k"):
        rows = torch.arange(len(weights[name]))
        masks[name] = torch.isin(rows // (len(rows) // n_key_value), groups)
    masks["n"] = torch.isin(torch.arange(len(weights["up"])), neurons)
    rows = {name: weights[name][masks[by]] for name, by in (("q", "q"), ("k", "k"), ("v", "k"), ("gate", "n"))}
    columns = {name: weights[name][:, masks[by]] for name, by in (("o", "q"), ("down", "n"))}
    return columns | rows | {"up": weights["up"][masks["n"]]}


def _by_axes(weights: Weights, groups: Tensor, neurons: Tensor, n_key_value: int) -> Weights:
    parts = {name: weights[name].unflatten(0, (n_key_value, -1))[groups].flatten(0, 1) for name in "qkv"}
    parts["o"] = weights["o"].unflatten(1, (n_key_value, -1)).index_select(1, groups).flatten(1)
    for name in ("gate", "up"):
        parts[name] = weights[name].index_select(0, neurons)
    return parts | {"down": torch.stack([weights["down"][:, j] for j in neurons], dim=1)}
