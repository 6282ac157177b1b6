"""From plain data to a frozen dataclass, field by field, without unknown fields or values of another type."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from course_lib.compose.reading import short

T = TypeVar("T")
PLAIN = {int: "a whole number", float: "a number", str: "a name", bool: "true or false", type(None): "null"}
MOST = 4096  # of a number among the settings of a method, where its part says no other limits
Made = TypeVar("Made")


def read_fields(kind: type[T], data: object, where: str) -> T:
    """Create a dataclass with plain fields from a JSON object.

    Raises:
        ValueError: not an object, unknown or missing fields, values of another type, and errors of the dataclass
            itself.
    """
    if not isinstance(data, dict):
        raise ValueError(f"got {where} {short(data)}; expected an object such as {{{_names(kind)}}}, or leave it out.")
    known = {field.name: field for field in fields(kind)}
    refuse_unknown(data, known, where)
    if missing := [name for name, field in known.items() if name not in data and _is_required(field)]:
        raise ValueError(f"got {where} without {missing[0]!r}; expected it to be set.")
    hints = get_type_hints(kind)
    values = {name: converted(value, hints[name], f"{where}.{name}") for name, value in data.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def refuse_unknown(data: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    """Raise ValueError for an unknown key."""
    if unknown := [name for name in data if name not in known]:
        raise ValueError(
            f"got {short(unknown[0])} in {where}; expected one of {', '.join(known) or 'no field at all'}."
        )


def converted(value: Any, hint: Any, where: str) -> Any:
    """Convert a value to its type hint: a list to a tuple, a whole number to a float if it may not be an int."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        if type(value) is option:
            return value
    if type(value) is int and float in options:
        return float(value)
    for option in options:
        if get_origin(option) is tuple and isinstance(value, list):
            inner = get_args(option)[0]
            return tuple(converted(item, inner, f"{where}[{i}]") for i, item in enumerate(value))
        if get_origin(option) is dict and isinstance(value, dict):
            return dict(value)
    raise ValueError(f"got {where} = {short(value)}; expected {' or '.join(map(_word, options))}.")


def settings_of(
    kind: type, given: Mapping[str, Any], taken: tuple[str, ...], where: str, low: int = -MOST, high: int = MOST
) -> dict[str, Any]:
    """Read the plain settings that only this method has, and not all methods of its kind.

    Args:
        taken: names of fields that the part sets itself.
        low, high: inclusive limits for every number.
    """
    hints = get_type_hints(kind)
    plain = {f.name: hints[f.name] for f in fields(kind) if f.init and f.name not in taken and _is_plain(hints[f.name])}
    refuse_unknown(given, plain, f"{where}.settings of {kind.__name__}")
    values = {name: converted(value, plain[name], f"{where}.settings.{name}") for name, value in given.items()}
    for name, value in values.items():
        if type(value) in (int, float):
            within(f"{where}.settings.{name}", value, low, high)
    return values


def chosen(name: str, kinds: Mapping[str, Made], where: str) -> Made:
    """Return the value of a name, such as a class; raise ValueError with a list of all names if it is unknown."""
    if name not in kinds:
        raise ValueError(f"got {where} {short(name)}; expected one of {', '.join(kinds)}.")
    return kinds[name]


def exact_percent(share: float) -> str:
    """Format a fraction in percent, with as many digits as necessary."""
    return f"{100 * share:.4g} %"


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def check_types(settings: Any) -> None:
    """Raise ValueError for a field of a dataclass whose value does not have the declared type."""
    for field in fields(settings):
        value, hint = getattr(settings, field.name), _hints(type(settings))[field.name]
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if not any(_fits(value, option) for option in options):
            raise ValueError(f"got {field.name} = {short(value)}; expected {' or '.join(map(_word, options))}.")


def _fits(value: object, option: Any) -> bool:
    if get_origin(option) is tuple:
        return isinstance(value, tuple) and all(_fits(item, get_args(option)[0]) for item in value)
    if option in (int, float):
        return isinstance(value, Integral if option is int else Real) and not isinstance(value, bool)
    return isinstance(value, get_origin(option) or option)


def within(name: str, value: int | float, low: int | float, high: int | float) -> None:
    """Raise ValueError for a number outside of its limits, which are inclusive."""
    if not low <= value <= high:
        raise ValueError(f"got {name} = {value}; expected {low} to {high}.")


def _is_plain(hint: Any) -> bool:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return all(option in PLAIN for option in options)


def _is_required(field: Field) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _names(kind: type) -> str:
    return ", ".join(f'"{field.name}": …' for field in fields(kind)[:2])


def _word(option: Any) -> str:
    if get_origin(option) is tuple:
        return f"a list, each {_word(get_args(option)[0])}"
    return "an object" if get_origin(option) is dict else PLAIN[option]
