"""Inputs that no case of an exercise has: its cases with ties, zeros, equal rows or other sizes.

A probe keeps what all cases have in common: a tensor whose rows always sum to one still has such rows after rounding,
or there is no such probe. What a case happens to have only sometimes, such as no ties, is not kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_ENTRIES = 600  # of all arguments of a case together
BASES = 3


@dataclass(frozen=True)
class Probe:
    """Arguments, and in words how they were made of a case."""

    how: str
    arguments: tuple

    @property
    def size(self) -> int:
        return size_of(self.arguments)


def on_the_border(arguments: tuple, sides: list[tuple]) -> Iterator[Probe]:
    """Arguments with which what is compared becomes equal somewhere, where it grows with one of them.

    Args:
        sides: what is compared with these arguments.
    """
    for left, right in sides[:3]:
        ratio = torch.as_tensor(right, dtype=torch.float64) / torch.as_tensor(left, dtype=torch.float64)
        yield from _many_on_the_border(arguments, ratio)
        distance = ratio.log().abs().nan_to_num(torch.inf, torch.inf).masked_fill(~ratio.isfinite(), torch.inf)
        for place in distance.flatten().argsort()[:12].tolist():
            factor = float(ratio.flatten()[place])
            if not 1e-3 < factor < 1e3:
                continue
            for at, value in enumerate(arguments):
                if not isinstance(value, Tensor) or not value.is_floating_point():
                    continue
                for how, other in _scaled(value, ratio.shape, place, factor):
                    yield Probe(
                        f"argument {at}: {how}, both sides equal", (*arguments[:at], other, *arguments[at + 1 :])
                    )


def _many_on_the_border(arguments: tuple, ratio: Tensor) -> Iterator[Probe]:
    """Every second place of those compared, and every third."""
    factors = torch.where(ratio.isfinite() & (ratio > 0), ratio, 1.0)
    places = torch.arange(ratio.shape[-1]) if ratio.ndim else None
    for at, value in enumerate(arguments):
        if places is None or not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        if value.shape[value.ndim - ratio.ndim :] != ratio.shape:
            continue
        for n in (2, 3):
            for first in range(n):
                other = (value.double() * torch.where(places % n == first, factors, 1.0)).to(value.dtype)
                how = f"argument {at}: both sides equal in every place {first} of {n}"
                for each in (other, _balanced(other, value, places % n == first)):
                    yield Probe(how, (*arguments[:at], each, *arguments[at + 1 :]))


def _balanced(changed: Tensor, before: Tensor, fixed: Tensor) -> Tensor:
    """Each row's largest entry outside the fixed ones changed so that the row has the sum that it had before."""
    missing = before.double().sum(-1, keepdim=True) - changed.double().sum(-1, keepdim=True)
    largest = before.double().masked_fill(fixed, -torch.inf).argmax(-1, keepdim=True)
    return changed.double().scatter_add(-1, largest, missing).to(changed.dtype)


def _scaled(value: Tensor, shape: torch.Size, place: int, factor: float) -> Iterator[tuple[str, Tensor]]:
    """All of a tensor by a factor, and that entry of it which has a place among those compared."""
    yield "scaled", (value.double() * factor).to(value.dtype)
    if shape and value.shape[value.ndim - len(shape) :] == shape:
        at = (..., *torch.unravel_index(torch.tensor(place), shape))
        other = value.double()
        other[at] *= factor
        yield "one entry scaled", other.to(value.dtype)


def size_of(arguments: tuple) -> int:
    return sum(x.numel() for x in arguments if isinstance(x, Tensor))


def probes(pool: list[tuple], others: list[tuple]) -> list[Probe]:
    """Probes from cases, the smallest first.

    Args:
        pool: arguments of the cases, which say what all cases have in common.
        others: arguments of further cases, which are probes as they are.
    """
    common = common_to(pool + others)
    found = [Probe("other numbers", arguments) for arguments in others if size_of(arguments) <= MOST_ENTRIES]
    changed = [*(p for base in bases(pool) for p in _changed(base, pool))]
    changed += [probe for base in bases(pool, 2 * BASES) for probe in _other_sizes(base)]
    found += [probe for probe in changed if all(holds(probe.arguments) for holds in common)]
    return sorted(_different(found), key=lambda probe: probe.size)


def bases(pool: list[tuple], n: int = BASES) -> list[tuple]:
    """The smaller cases, each with other sizes than the ones before."""
    chosen, seen = [], set()
    for arguments in sorted(pool, key=size_of):
        sizes = tuple(x.shape if isinstance(x, Tensor) else type(x) for x in arguments)
        if sizes in seen or size_of(arguments) > MOST_ENTRIES:
            continue
        seen.add(sizes)
        chosen.append(arguments)
    middle = max(0, len(chosen) - n) // 2
    return chosen[:2] + chosen[2 + middle : n + middle]


def _different(found: list[Probe]) -> Iterator[Probe]:
    seen = set()
    for probe in found:
        key = repr([x.tolist() if isinstance(x, Tensor) else x for x in probe.arguments])
        if key not in seen:
            seen.add(key)
            yield probe


# How a case is changed


def _changed(base: tuple, pool: list[tuple]) -> Iterator[Probe]:
    for at, value in enumerate(base):
        if isinstance(value, Tensor):
            has_infinity = any(given[at].is_floating_point() and given[at].isinf().any() for given in _with(pool, at))
            ways = _tensor_ways(value, has_infinity)
        else:
            ways = _number_ways(value, at, base, pool)
        for how, other in ways:
            yield Probe(f"argument {at}: {how}", (*base[:at], other, *base[at + 1 :]))
    for how, way in (("rounded to few values", _few_values), ("rounded to halves", _halves)):
        yield Probe(
            f"all {how}",
            tuple(way(x) if isinstance(x, Tensor) and x.is_floating_point() else x for x in base),
        )


def _with(pool: list[tuple], at: int) -> Iterator[tuple]:
    return (given for given in pool if len(given) > at and isinstance(given[at], Tensor))


def _few_values(x: Tensor) -> Tensor:
    """At most seven values, the largest among them."""
    finite = x[x.isfinite()]
    step = finite.abs().max() / 3 if finite.numel() else torch.ones((), dtype=x.dtype)
    return (x / step).round() * step if step > 0 else x


def _halves(x: Tensor) -> Tensor:
    """Multiples of a power of two near a quarter of the typical size: sums of these are exact."""
    finite = x[x.isfinite()].abs()
    typical = float(finite.mean()) if finite.numel() else 0.0
    if not 0 < typical < 1e30:
        return x
    step = 2.0 ** round(float(torch.tensor(typical).log2()) - 1)
    return (x / step).round() * step


def _tensor_ways(x: Tensor, has_infinity: bool) -> Iterator[tuple[str, Tensor]]:
    if x.dtype == torch.bool:
        yield from (("all True", torch.ones_like(x)), ("all False", torch.zeros_like(x)), ("not", ~x))
        return
    if not x.numel():
        return
    for dim in range(x.ndim):
        yield f"equal along {dim}", x.narrow(dim, 0, 1).expand_as(x).clone()
        yield f"flipped along {dim}", x.flip(dim)
    if not x.is_floating_point():
        yield "all the smallest", torch.full_like(x, int(x.min()))
        yield "all the largest", torch.full_like(x, int(x.max()))
        yield "none the largest", x.clamp(max=int(x.max()) - 1)
        yield "none the smallest", x.clamp(min=int(x.min()) + 1)
        return
    yield "rounded to few values", _few_values(x)
    yield "rounded to halves", _halves(x)
    yield "rounded down to eighths", (8 * x).floor() / 8
    there, total = x != 0, x.sum(-1, keepdim=True)
    total = torch.where((total - 1).abs() < 1e-4, 1, total)
    yield "each row as much everywhere", there * (total / there.sum(-1, keepdim=True).clamp(min=1))
    third = (torch.arange(x.numel()) % 3 == 1).reshape(x.shape)
    yield "every third entry zero", x.masked_fill(third, 0)
    yield "zero", torch.zeros_like(x)
    yield "the other sign", -x
    yield "a hundredth", x / 100
    yield "a hundred times", x * 100
    yield "negative", -x.abs()
    for dim in range(x.ndim):
        yield from _along(x, dim, has_infinity)


def _along(x: Tensor, dim: int, has_infinity: bool) -> Iterator[tuple[str, Tensor]]:
    """One slice changed."""

    def with_slice(at: int, change: Callable[[Tensor], Tensor]) -> Tensor:
        other = x.clone()
        other.select(dim, at).copy_(change(other.select(dim, at)))
        return other

    n = x.shape[dim]
    for at in dict.fromkeys((0, n - 1)):
        yield f"slice {at} along {dim} zero", with_slice(at, torch.zeros_like)
        yield f"slice {at} along {dim} quiet", with_slice(at, lambda s: s * 0.01)
        if has_infinity:
            yield f"slice {at} along {dim} −inf", with_slice(at, lambda s: torch.full_like(s, -torch.inf))
    if n > 1:
        yield f"two slices along {dim} equal", with_slice(1, lambda s: x.select(dim, 0))
        yield (
            f"two slices along {dim} of other order",
            with_slice(1, lambda s: x.select(dim, 0).flip(-1) if s.ndim else s),
        )


def _number_ways(value: object, at: int, base: tuple, pool: list[tuple]) -> Iterator[tuple[str, object]]:
    if isinstance(value, bool):
        yield "the other", not value
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    others = [given[at] for given in pool if len(given) > at and type(given[at]) is type(value)]
    if isinstance(value, int):
        others += [value + 1, value - 1, *(size for x in base if isinstance(x, Tensor) for size in x.shape)]
    else:
        others += [0.5 * value, 2 * value]
    others += [type(value)(x) for x in base if isinstance(x, int | float) and not isinstance(x, bool)]
    for other in list(dict.fromkeys(others))[:12]:
        if other != value:
            yield f"{value} becomes {other}", other


def _other_sizes(base: tuple) -> Iterator[Probe]:
    """All dimensions of one size narrowed to another size that there is, or to one."""
    sizes = sorted({size for x in base if isinstance(x, Tensor) for size in x.shape})
    for large in sizes:
        for small in (1, 2, *sizes):
            if small < large:
                arguments = tuple(_narrowed(x, large, small) for x in base)
                yield Probe(f"sizes {large} become {small}", arguments)
                same_numbers = tuple(n if isinstance(n, int) else x for n, x in zip(base, arguments, strict=True))
                if repr(same_numbers) != repr(arguments):
                    yield Probe(f"sizes {large} become {small}, numbers do not", same_numbers)


def _narrowed(value: object, large: int, small: int) -> object:
    if isinstance(value, Tensor):
        for dim, size in enumerate(value.shape):
            if size == large:
                value = value.narrow(dim, 0, small)
        return value
    return small if type(value) is int and value == large else value


# What all cases have in common

Holds = Callable[[tuple], bool]


def common_to(pool: list[tuple]) -> list[Holds]:
    """Conditions that all of these arguments meet, and probes have to meet as well."""
    candidates = [_same_kinds(pool)]
    for at in range(min(map(len, pool))):
        if all(isinstance(given[at], Tensor) for given in pool):
            candidates += [_of_tensor(at, condition) for condition in CONDITIONS]
            candidates += _between_sizes(at, pool)
            if not pool[0][at].is_floating_point():
                candidates += _of_numbers_of_places(at, pool)
        elif all(isinstance(given[at], int | float) for given in pool):
            candidates += _of_number(at, pool)
    return [holds for holds in candidates if all(_holds(holds, given) for given in pool)]


def _holds(condition: Holds, given: tuple) -> bool:
    try:
        return bool(condition(given))
    except (RuntimeError, ValueError, IndexError, TypeError, ArithmeticError):
        return False


def _guarded(condition: Holds) -> Holds:
    return lambda given: _holds(condition, given)


def _same_kinds(pool: list[tuple]) -> Holds:
    lengths = {len(given) for given in pool}
    return lambda given: len(given) in lengths and all(x.numel() for x in given if isinstance(x, Tensor))


def _of_tensor(at: int, condition: Callable[[Tensor], bool]) -> Holds:
    return _guarded(lambda given: condition(given[at]))


def _rows_sum_to_one(x: Tensor) -> bool:
    return bool(torch.allclose(x.double().sum(-1), torch.ones((), dtype=torch.float64), atol=1e-4))


def _is_symmetric(x: Tensor) -> bool:
    return x.ndim == 2 and x.shape[0] == x.shape[1] and bool(torch.allclose(x, x.T, rtol=1e-3))


def _is_positive_definite(x: Tensor) -> bool:
    eigenvalues = torch.linalg.eigvalsh(x.double())
    return _is_symmetric(x) and float(eigenvalues.min()) > 1e-5 * float(eigenvalues.max())


def _is_upper(x: Tensor) -> bool:
    return x.ndim == 2 and x.shape[0] == x.shape[1] and not x.tril(-1).any()


def _is_positive_on_the_diagonal(x: Tensor) -> bool:
    return x.ndim == 2 and x.shape[0] == x.shape[1] and bool((x.diagonal() > 1e-3 * x.diagonal().max()).all())


def _is_causal(x: Tensor) -> bool:
    return x.ndim >= 2 and x.shape[-1] == x.shape[-2] and not x.triu(1).any()


def _rows_differ_in_all_entries(x: Tensor) -> bool:
    return not x.is_floating_point() and bool((x.sort(-1).values.diff(dim=-1) != 0).all())


CONDITIONS: tuple[Callable[[Tensor], bool], ...] = (
    lambda x: bool((x >= 0).all()),
    lambda x: bool((x > 0).all()),
    lambda x: bool((x <= 0).all()),
    lambda x: bool((x <= 1.0001).all()),
    lambda x: bool((x < 1).all()),
    lambda x: bool((x >= -1).all()),
    lambda x: bool(x.isfinite().all()),
    lambda x: bool((x < torch.inf).all()),
    lambda x: bool((x == x.round()).all()),
    lambda x: bool((x.abs() < 1e4).all()),
    lambda x: bool((x.double().sum(-1) <= 1.0001).all()),
    lambda x: bool((x.double().sum(-1) > 0).all()),
    lambda x: bool((x.diff(dim=-1) >= 0).all()),
    lambda x: bool((x.diff(dim=-1) > 0).all()),
    lambda x: bool((x.diff(dim=-1) <= 0).all()),
    lambda x: bool(x.any()),
    lambda x: bool(x.any(-1).all()),
    lambda x: bool(x.any(0).all()),
    lambda x: not bool(x.all()),
    lambda x: not bool(x.all(-1).any()),
    _rows_sum_to_one,
    _is_symmetric,
    _is_positive_definite,
    _is_upper,
    _is_positive_on_the_diagonal,
    _is_causal,
    _rows_differ_in_all_entries,
)


def _between_sizes(at: int, pool: list[tuple]) -> Iterator[Holds]:
    """A size that is always another one, or never smaller."""
    for other in range(at, len(pool[0])):
        if not isinstance(pool[0][other], Tensor):
            continue
        for one_dim in range(pool[0][at].ndim):
            for dim in range(pool[0][other].ndim):

                def sizes(given: tuple, a=one_dim, b=dim, other=other) -> int:
                    return given[at].shape[a] - given[other].shape[b]

                yield _guarded(lambda given, sizes=sizes: sizes(given) == 0)
                yield _guarded(lambda given, sizes=sizes: sizes(given) <= 0)
                yield _guarded(lambda given, sizes=sizes: sizes(given) >= 0)


def _of_numbers_of_places(at: int, pool: list[tuple]) -> Iterator[Holds]:
    """Whole numbers that are places along a dimension, or below a number that is given."""
    for other, value in enumerate(pool[0]):
        if isinstance(value, Tensor):
            for dim in range(value.ndim):
                yield _guarded(lambda given, o=other, d=dim: given[at].max() < given[o].shape[d])
        elif type(value) is int:
            yield _guarded(lambda given, o=other: given[at].max() < given[o])
            yield _guarded(lambda given, o=other: given[at].max() <= given[o])


def _of_number(at: int, pool: list[tuple]) -> Iterator[Holds]:
    """Between the smallest and the largest that a case has, and where it always is compared with sizes and numbers."""
    least, most = (find(given[at] for given in pool) for find in (min, max))
    yield lambda given: least <= given[at] <= most
    yield _guarded(lambda given: given[at] % 2 == 0)
    for other, value in enumerate(pool[0]):
        if isinstance(value, Tensor):
            for dim in range(value.ndim):

                def size(given: tuple, o=other, d=dim) -> int:
                    return given[o].shape[d]

                yield _guarded(lambda given, size=size: given[at] <= size(given))
                yield _guarded(lambda given, size=size: given[at] < size(given))
                yield _guarded(lambda given, size=size: size(given) % given[at] == 0)
        elif other != at and isinstance(value, int | float):
            yield _guarded(lambda given, o=other: given[at] < given[o])
            yield _guarded(lambda given, o=other: given[at] <= given[o])
            yield _guarded(lambda given, o=other: given[o] % given[at] == 0)
