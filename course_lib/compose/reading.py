"""Reading JSON from an unknown source: plain data within limits, or an error in one line.

We check size, depth, duplicate keys, NaN and infinity, and numbers with thousands of digits before we build anything
from the data. Python's own reader accepts all of these.
"""

import json
import math
from collections import Counter
from typing import Any

MOST_BYTES = 64 * 1024
MOST_DEPTH = 8
MOST_DIGITS = 12
MOST_SEED = 2**31 - 1  # of windows, as the commands take it too
OTHERS = {type(None): "null", bool: "true or false", str: "a text", list: "a list"}  # numbers are the rest


def read_json(text: str | bytes) -> dict[str, Any]:
    """Read the object in a JSON text.

    Raises:
        ValueError: too long, too deep, not JSON, not an object, or with values that no recipe needs.
    """
    if not isinstance(text, str | bytes):
        raise ValueError(f"got a recipe of type {type(text).__name__}; expected JSON as a str or as bytes.")
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise ValueError(
            f"got a recipe with half a character (a lone surrogate) at place {error.start}; expected text that can be "
            "saved as UTF-8. Leave the character out."
        ) from None
    if len(data) > MOST_BYTES:
        raise ValueError(
            f"got a recipe of {len(data):,} bytes; expected at most {MOST_BYTES:,}. Leave out default values."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"got a recipe that is not UTF-8 text ({error.reason} at byte {error.start}); save it as JSON."
        ) from None
    if (depth := _depth(text)) > MOST_DEPTH:
        raise ValueError(
            f"got a recipe nested {depth} deep; expected at most {MOST_DEPTH}. Lists hold numbers, no lists."
        )
    try:
        found = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise ValueError(
            f"got a recipe that is not JSON: {error.msg} in line {error.lineno}, column {error.colno}. Example: "
            '{"weights": {"method": "Wanda", "pattern": 0.5}}.'
        ) from None
    if not isinstance(found, dict):
        what = OTHERS.get(type(found), "a number")
        raise ValueError(f"got a recipe that is {what}; expected an object of parts, {{}} for none.")
    return found


def _depth(text: str) -> int:
    """Count how many brackets are open at the same time, except in strings; counting needs no recursion."""
    depth = deepest = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(key for key, _ in pairs)
    if twice := sorted(key for key, n in counts.items() if n > 1):
        raise ValueError(f"got {short(twice[0])} twice in one object; expected each key once. Remove one of them.")
    return dict(pairs)


def _constant(name: str) -> float:
    raise ValueError(f"got {name}, which is not a number; expected finite ones.")


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"got the number {short(digits)}, beyond what a float holds; expected finite ones.")
    return number


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"got a whole number of {len(digits)} digits; expected at most {MOST_DIGITS}.")
    return int(digits)


def short(value: object) -> str:
    """Shorten a value for a message, which would otherwise be a line of 60 kB."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}…{text[-1]}"
