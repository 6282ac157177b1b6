"""The exercise dejavu.missing, "A key that is missing": its cases and its named mistakes.

Dimension key: N tokens, M of them without a key, D width, d size of the head, P positions of a text.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.near import all_near


class Given(NamedTuple):
    """The arguments by their names."""

    keys: Tensor
    values: Tensor
    position: Tensor
    missing: Tensor
    stored: Tensor
    key_weight: Tensor
    value_weight: Tensor
    cos: Tensor
    sin: Tensor


Part = Callable[[Given], Tensor]
Turn = Callable[[Tensor, Tensor, Tensor], Tensor]
Answer = Callable[..., tuple[Tensor, Tensor]]


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Keys and values, up to the rounding of a product with D terms, which may cancel."""
    return all_near(got, expected, {"keys": 3e-6 * _largest(expected, 0), "values": 3e-6 * _largest(expected, 1)})


def _largest(expected: Any, which: int) -> float:
    return expected[which].abs().max().item()


def _rows(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    return compare_matrices(torch.as_tensor(got[0]), expected[0], "token", "entry of its key")


def _half_turned(rows: Tensor) -> Tensor:
    first, second = rows.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def _turn(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rows * cos + _half_turned(rows) * sin


def _then(given: Given) -> Tensor:
    """The position of each token that is missing."""
    return given.position[given.missing]


def _complete(
    read: Part = lambda given: given.stored,
    at: Part = _then,
    turn: Turn = _turn,
    turn_values: Turn = lambda rows, cos, sin: rows,
    rows: Part = lambda given: given.missing,
    key_weight: Part = lambda given: given.key_weight,
    value_weight: Part = lambda given: given.value_weight,
    present: Callable[[Given], tuple[Tensor, Tensor]] = lambda given: given[:2],
) -> Answer:
    """The answer with something else in one place.

    Args:
        read: what the projections read; at: positions; turn, turn_values: what is done to the made keys and values.
        rows: where these are put; present: the keys and values into which they are put.
    """

    def answer(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        given = Given(*arguments)
        cos, sin = given.cos[at(given)], given.sin[at(given)]
        keys, values = (tensor.clone() for tensor in present(given))
        keys[rows(given)] = turn(read(given) @ key_weight(given).T, cos, sin)
        values[rows(given)] = turn_values(read(given) @ value_weight(given).T, cos, sin)
        return keys, values

    return answer


def _newest(rows: Tensor) -> Tensor:
    """The last row in the place of all."""
    return rows[-1:].expand(rows.shape)


def _zeroed(given: Given, which: slice = slice(None)) -> tuple[Tensor, Tensor]:
    keys, values = given.keys.clone(), given.values.clone()
    keys[given.missing[which]] = values[given.missing[which]] = 0
    return keys, values


def _interleaved(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Neighbours as pairs, each with the angle that belongs to it."""
    half = rows.shape[1] // 2
    cos, sin = (table[:, :half].repeat_interleave(2, dim=1) for table in (cos, sin))
    return _neighbours(rows, cos, sin)


def _neighbours(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    other = torch.stack([-rows[:, 1::2], rows[:, 0::2]], dim=2).flatten(1)
    return rows * cos + other * sin


def _only(which: slice, zero: bool = False) -> Answer:
    """Only some of the missing ones are made; the others stay as they were, or become zeros."""

    def answer(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        given = Given(*arguments)
        keys, values = _zeroed(given) if zero else given[:2]
        return _complete()(keys, values, given.position, given.missing[which], given.stored[which], *given[5:])

    return answer


def _turned_on(given: Given, by: Callable[[Given], Tensor]) -> tuple[Tensor, Tensor]:
    """The keys that are there, turned once more."""
    return _turn(given.keys, given.cos[by(given)], given.sin[by(given)]), given.values


def _missing_cases(generator: torch.Generator) -> list[Case]:
    def drawn(tokens: int, missing: int, width: int, size: int, texts: int, base: float = 100.0) -> tuple[Tensor, ...]:
        """Tokens of a text of which some have left the cache; in the rows of missing ones stands what was there."""
        position = torch.randperm(texts - 1, generator=generator)[:tokens].sort().values
        old = torch.randperm(tokens - 1, generator=generator)[: missing - 1].sort().values
        matrices = [torch.randn(size, width, generator=generator) for _ in range(2)]
        cache = [width**0.5 * torch.randn(tokens, size, generator=generator) for _ in range(2)]
        angle = torch.arange(texts)[:, None] * base ** (-torch.arange(0, size, 2) / size)
        cos, sin = (table.repeat(1, 2) for table in (angle.cos(), angle.sin()))
        stored = torch.randn(missing, width, generator=generator)
        return *cache, position, torch.cat([old, torch.tensor([tokens - 1])]), stored, *matrices, cos, sin

    by_hand = (
        torch.tensor([[5.0, 6.0], [9.0, 9.0], [9.0, 9.0]]),
        torch.tensor([[7.0, 8.0], [9.0, 9.0], [9.0, 9.0]]),
        torch.tensor([0, 1, 3]),
        torch.tensor([1, 2]),
        torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
        torch.tensor([[1.0, 1.0], [0.0, 1.0]]),
        torch.tensor([[2.0, 0.0], [0.0, 3.0]]),
        torch.tensor([1.0, 0.0, -1.0, 0.0, 1.0])[:, None].repeat(1, 2),  # a quarter turn for each position
        torch.tensor([0.0, 1.0, 0.0, -1.0, 0.0])[:, None].repeat(1, 2),
    )
    turned = drawn(9, 4, 10, 8, 25)
    turned = tuple(x.T.contiguous().T if x.ndim == 2 else x for x in turned)
    return [
        Case("3 tokens, quarter turns, by hand: keys (0, 1) and (2, -2) for the last two", by_hand),
        Case("12 tokens, 5 of them missing, width 20, head of 8", drawn(12, 5, 20, 8, 40)),
        Case("a head as wide as the stream, 6 of 10 missing", drawn(10, 6, 12, 12, 30)),
        Case("the newest alone is missing", drawn(7, 1, 9, 4, 20)),
        Case("chosen for the first time: all are missing", drawn(6, 6, 14, 6, 50)),
        Case("many tokens have left, 4 of 8 missing, head of 8", drawn(8, 4, 16, 8, 200, 1000.0)),
        Case("not contiguous", turned),
    ]


def _library(*arguments: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.dejavu.steps.late_keys import completed

    return completed(*arguments)


MISSING = Exercise(
    id="dejavu.missing",
    title="A key that is missing",
    difficulty=4,
    minutes=12,
    points=3,
    reference=_complete(),
    cases=_missing_cases,
    agree=_agree_on_both,
    picture=_rows,
    library=_library,
    mistakes=(
        Mistake(
            "made from today's input",
            "All missing keys and values were made from what the attention reads at the newest token. Each token has "
            "its own: that is why its input was stored.",
            _complete(read=lambda g: _newest(g.stored)),
            also=(_complete(read=lambda g: _newest(g.stored), at=lambda g: _newest(_then(g))),),
        ),
        Mistake(
            "made from the mean input",
            "All missing keys and values were made from the mean of the stored inputs. Each token has an input of its "
            "own: row i of `stored`.",
            _complete(read=lambda g: g.stored.mean(0, keepdim=True).expand(g.stored.shape)),
        ),
        Mistake(
            "turned to today's position",
            "The missing keys were turned to the position of the newest token, or to the one after it. A key says "
            "where its own token is: the query measures the distance from there.",
            _complete(at=lambda g: _newest(_then(g))),
            also=(_complete(at=lambda g: _newest(_then(g)) + 1),),
        ),
        Mistake(
            "not turned",
            "The made keys have not been turned. Those in the cache have, and the query will be.",
            _complete(turn=lambda rows, cos, sin: rows),
        ),
        Mistake(
            "turned by the distance",
            "The keys were turned by how far they are from the newest token. Turn each by its position; the distance "
            "comes about when a query that was turned by its own position meets it.",
            _complete(at=lambda g: g.position[-1] - _then(g)),
            also=(
                _complete(at=lambda g: g.position[-1] - _then(g), turn=lambda rows, cos, sin: _turn(rows, cos, -sin)),
            ),
        ),
        Mistake(
            "the row for the position",
            "The keys were turned by their row in the cache. Tokens have left it, so that a row says less than "
            "`position` does.",
            _complete(at=lambda g: g.missing),
            also=(_complete(at=lambda g: g.missing + 1),),
        ),
        Mistake(
            "positions counted anew",
            "The missing tokens were numbered 0, 1, 2, or have the positions of the first tokens. missing[i] is the "
            "row of the token, position[missing[i]] where it stands.",
            _complete(at=lambda g: torch.arange(len(g.missing))),
            also=(_complete(at=lambda g: g.position[: len(g.missing)]),),
        ),
        Mistake(
            "one position off",
            "The positions are off by one: cos[p] and sin[p] are for position p, counted from zero.",
            _complete(at=lambda g: _then(g) - 1),
            also=(_complete(at=lambda g: _then(g) + 1),),
        ),
        Mistake(
            "the value turned too",
            "The values were turned as well. Positions are for keys and queries; a value is only added up.",
            _complete(turn_values=_turn),
        ),
        Mistake(
            "the value turned instead of the key",
            "The made values were turned and the made keys were not. It is the other way round: positions are for keys "
            "and queries; a value is only added up.",
            _complete(turn=lambda rows, cos, sin: rows, turn_values=_turn),
        ),
        Mistake(
            "zeros",
            "Missing rows are zero, of the keys, of the values, or of all tokens but the newest. A key of zeros has "
            "the logit 0, which is not small, so the token takes part with the wrong weight; a value of zeros adds "
            "nothing.",
            lambda *arguments: _zeroed(Given(*arguments)),
            also=(
                lambda *arguments: (_zeroed(Given(*arguments))[0], _complete()(*arguments)[1]),
                lambda *arguments: (_complete()(*arguments)[0], _zeroed(Given(*arguments))[1]),
                _only(slice(-1, None), zero=True),
            ),
        ),
        Mistake(
            "left as it was",
            "In the rows of missing tokens still stands what was in the memory.",
            lambda keys, values, *others: (keys, values),
            also=(
                lambda keys, values, *others: (keys, _complete()(keys, values, *others)[1]),
                lambda keys, values, *others: (_complete()(keys, values, *others)[0], values),
            ),
        ),
        Mistake(
            "only one of the missing",
            "Only the newest token's key and value were made, or only the first. The query meets all tokens: all that "
            "are missing have to be made.",
            _only(slice(-1, None)),
            also=(_only(slice(0, 1)),),
        ),
        Mistake(
            "the newest left out",
            "The newest token's key and value were not made. It is among the missing, as the last of them, and the "
            "query meets its key too.",
            _only(slice(0, -1)),
            also=(_only(slice(0, -1), zero=True),),
        ),
        Mistake(
            "put into other rows",
            "The rows were made and put in the wrong place: row i of `stored` belongs to the token in row missing[i].",
            _complete(rows=lambda g: torch.arange(len(g.missing))),
            also=(
                _complete(rows=lambda g: torch.arange(len(g.keys) - len(g.missing), len(g.keys))),
                _complete(rows=lambda g: g.missing.flip(0)),
            ),
        ),
        Mistake(
            "appended",
            "The made rows stand behind all others, so that there are more rows than tokens. Each has its row already.",
            lambda *a: tuple(torch.cat([old, new[a[3]]]) for old, new in zip(a[:2], _complete()(*a), strict=True)),
        ),
        Mistake(
            "the made ones alone",
            "Only the rows of missing tokens are here. All N are asked for: the others are in `keys` and `values`.",
            lambda *a: tuple(new[a[3]] for new in _complete()(*a)),
        ),
        Mistake(
            "turned once more",
            "The keys that were there have been turned a second time. They carry their positions already.",
            _complete(present=lambda g: _turned_on(g, lambda g: g.position)),
            also=(
                _complete(present=lambda g: _turned_on(g, lambda g: g.position[-1] - g.position)),
                _complete(present=lambda g: _turned_on(g, lambda g: _newest(g.position))),
            ),
        ),
        Mistake(
            "made anew where it was there",
            "The rows of tokens that are not missing have changed. Their inputs were not stored, because their keys "
            "and values were: leave these as they are.",
            lambda *arguments: _only_made(Given(*arguments)),
        ),
        Mistake(
            "key and value matrix exchanged",
            "The keys were made with the values' matrix, or the values with the keys'.",
            _complete(key_weight=lambda g: g.value_weight, value_weight=lambda g: g.key_weight),
            also=(
                _complete(key_weight=lambda g: g.value_weight),
                _complete(value_weight=lambda g: g.key_weight),
            ),
        ),
        Mistake(
            "not transposed",
            "The matrices have a row for each output, (d, D), as linear layers store them: stored @ weight.T.",
            _complete(key_weight=lambda g: g.key_weight.T, value_weight=lambda g: g.value_weight.T),
            also=(
                _complete(key_weight=lambda g: g.key_weight.T),
                _complete(value_weight=lambda g: g.value_weight.T),
            ),
        ),
        Mistake(
            "turned back",
            "The sign of the sine, or of the half that is exchanged, is the wrong way round: the second half comes "
            "first, with a minus.",
            _complete(turn=lambda rows, cos, sin: _turn(rows, cos, -sin)),
        ),
        Mistake(
            "neighbours as pairs",
            "Neighbouring entries were paired. Here entry i goes with entry i + d/2: the halves are exchanged.",
            _complete(turn=_interleaved),
            also=(_complete(turn=_neighbours),),
        ),
        Mistake(
            "no minus",
            "The halves were exchanged without the minus, so that the key changes its length.",
            _complete(turn=lambda rows, cos, sin: rows * cos + rows.roll(rows.shape[1] // 2, 1) * sin),
        ),
        Mistake(
            "entries in reverse order",
            "The sine multiplies the entries in reverse order. It multiplies the two halves exchanged, each in its own "
            "order, and the one that comes first with a minus.",
            _complete(turn=lambda rows, cos, sin: rows * cos + rows.flip(1) * sin),
        ),
        Mistake(
            "halves not exchanged",
            "The sine multiplies the other half of the key.",
            _complete(turn=lambda rows, cos, sin: rows * (cos + sin)),
        ),
        Mistake(
            "no sine",
            "The keys were multiplied by the cosine alone. To turn them, add the other half of the key times the sine.",
            _complete(turn=lambda rows, cos, sin: rows * cos),
        ),
        Mistake(
            "input turned",
            "The input was turned before the projection. What is turned is the key.",
            lambda *a: _input_turned(Given(*a)),
        ),
        Mistake(
            "one of the two, or the other way round",
            "Two values are asked for: the keys, and then the values.",
            lambda *a: _complete()(*a)[0],
            also=(lambda *a: _complete()(*a)[1], lambda *a: _complete()(*a)[::-1]),
        ),
    ),
    also_right=(
        Variant("token by token", lambda *a: _one_by_one(*a)),
        Variant("complex numbers", _complete(turn=lambda rows, cos, sin: _complex(rows, cos, sin))),
        Variant("in float64", lambda *a: _complete()(*(x.double() if x.is_floating_point() else x for x in a))),
        Variant("index_copy", lambda *a: _copied(Given(*a))),
    ),
    hints=(
        "What is stored is what the attention read then. Which matrix makes a key of it, and which a value? Which of "
        "the two carries a position?",
        "stored @ key_weight.T is (M, d), one key a row. The tokens stand at position[missing]: cos and sin have a row "
        "for each of these positions.",
        "Each made key times cos of its position, plus its turned half times sin, goes into the rows `missing` of the "
        "keys; what the other matrix makes goes into those of the values, as it is.",
    ),
)


def _only_made(given: Given) -> tuple[Tensor, Tensor]:
    """Zeros but for the rows of missing tokens."""
    made = _complete()(*given)
    return tuple(torch.zeros_like(new).index_copy(0, given.missing, new[given.missing]) for new in made)


def _input_turned(given: Given) -> tuple[Tensor, Tensor]:
    """As it can be done where the head is as wide as the stream."""
    turned = _turn(given.stored, given.cos[_then(given)], given.sin[_then(given)])
    keys, values = _complete()(*given)
    keys[given.missing] = turned @ given.key_weight.T
    return keys, values


def _one_by_one(keys, values, position, missing, stored, key_weight, value_weight, cos, sin):
    half = keys.shape[1] // 2
    keys, values = list(keys), list(values)
    for row, x in zip(missing.tolist(), stored, strict=True):
        p, key = int(position[row]), key_weight @ x
        low = key[:half] * cos[p, :half] - key[half:] * sin[p, :half]
        high = key[half:] * cos[p, half:] + key[:half] * sin[p, half:]
        keys[row], values[row] = torch.cat([low, high]), value_weight @ x
    return keys, values


def _complex(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = rows.chunk(2, dim=1)
    half = first.shape[1]
    turned = torch.complex(first, second) * torch.complex(cos[:, :half], sin[:, :half])
    return torch.cat([turned.real, turned.imag], dim=1)


def _copied(given: Given) -> tuple[Tensor, Tensor]:
    """The keys turned in all rows, of which those of missing tokens are copied."""
    all_cos, all_sin = given.cos[given.position], given.sin[given.position]
    made = torch.zeros_like(given.keys).index_copy(0, given.missing, given.stored @ given.key_weight.T)
    is_missing = torch.isin(torch.arange(len(given.keys)), given.missing)[:, None]
    values = given.values.index_copy(0, given.missing, given.stored @ given.value_weight.T)
    return torch.where(is_missing, _turn(made, all_cos, all_sin), given.keys), values
