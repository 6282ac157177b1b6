"""What an answer calls of course_lib."""

from course_lib.grading.items import Item


def uses(items: list[Item]) -> tuple[str, ...]:
    """Dotted names of course_lib that the statements call."""
    return ()


def only_calls(items: list[Item], chosen: Item, name: str) -> bool:
    """Whether the chosen function does nothing but call course_lib."""
    return False
