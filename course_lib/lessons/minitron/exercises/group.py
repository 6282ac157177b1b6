"""The exercise minitron.group, "Prune one block": its cases and its named mistakes.

Dimension key: H query heads, G key-value heads, S size of a head, D width, F neurons of a block.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Weights = dict[str, Tensor]


def _group(q, k, v, o, gate, up, down, groups: Tensor, neurons: Tensor, n_key_value: int) -> Weights:
    size = len(k) // n_key_value
    of_a_group = len(q) // n_key_value
    query = _entries(groups, of_a_group)
    key = _entries(groups, size)
    q = q[query]
    k = k[key]
    v = v[key]
    o = o[:, query]
    gate = gate[neurons]
    up = up[neurons]
    down = down[:, neurons]
    return {"q": q, "k": k, "v": v, "o": o, "gate": gate, "up": up, "down": down}


def _entries(numbers: Tensor, each: int) -> Tensor:
    """Return the rows of some heads, each of which has `each` consecutive rows."""
    return (numbers[:, None] * each + torch.arange(each)).flatten()


def _strided(n_rows: int, groups: Tensor, n_key_value: int) -> Tensor:
    """Return the rows of a group if its rows were at a distance from each other."""
    return torch.arange(n_rows).reshape(-1, n_key_value)[:, groups].T.flatten()


def _by_remainder(n_rows: int, size: int, groups: Tensor, n_key_value: int) -> Tensor:
    heads = torch.arange(n_rows // size)
    return _entries(heads[torch.isin(heads % n_key_value, groups)], size)


def _interleaved(n_rows: int, size: int, groups: Tensor, n_key_value: int) -> Tensor:
    """Return the rows of heads g, g + G, g + 2G, … for each group g, one group after the other."""
    return torch.arange(n_rows).unflatten(0, (-1, n_key_value, size))[:, groups].transpose(0, 1).flatten()


def _others(n: int, of: Tensor) -> Tensor:
    return torch.tensor(sorted(set(range(n)) - set(of.tolist())), dtype=torch.long)


def _zeroed(weight: Tensor, stay: Tensor, dim: int) -> Tensor:
    """Return a matrix with zeros in place of the pruned entries."""
    return torch.zeros_like(weight).index_copy(dim, stay, weight.index_select(dim, stay))


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
        """Return k of n, ascending, and not the first k."""
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
    """Prune with the library's table of what belongs together."""
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
    title="Prune one block",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_group,
    cases=_group_cases,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_group),
    also_right=(
        Variant("masks of rows", lambda *given: _by_masks(_named(given[:7]), *given[7:])),
        Variant("with an axis of heads", lambda *given: _by_axes(_named(given[:7]), *given[7:])),
    ),
    hints=(
        "Some matrices compute heads, with their rows, and one multiplies them, with its columns. Go through the seven "
        "matrices: which side of each belongs to heads, and which to neurons?",
        "The size of a head is len(k) / n_key_value. Query head h uses key-value head h // (H / G), so each kept group "
        "has H / G · S consecutive rows of q.",
        "w.unflatten(0, (n_key_value, -1))[groups].flatten(0, 1) works for q, k and v; for o do the same along its "
        "columns.",
    ),
)


def _named(matrices: tuple[Tensor, ...]) -> Weights:
    return dict(zip(("q", "k", "v", "o", "gate", "up", "down"), matrices, strict=True))


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
