"""Figures of deck 12 from the committed measurements, each without arguments."""

from functools import lru_cache

from matplotlib.figure import Figure

from course_lib.lessons.capstone import found
from course_lib.lessons.capstone.drawings import claims_page, clock, drafts, parts, quoted
from course_lib.lessons.capstone.drawings import front as fronts
from course_lib.lessons.capstone.drawings import path as paths
from course_lib.lessons.common.effects import Row


@lru_cache(maxsize=1)
def _recipes() -> list[Row]:
    return found.recipes(found.results())


def path() -> Figure:
    """Parts added one after the other."""
    return paths.path(found.results())


def windows() -> Figure:
    """The same windows before and after."""
    return paths.windows(found.results())


def shares() -> Figure:
    """What five parts cost."""
    return parts.shares(found.results())


def pairs() -> Figure:
    """What pairs of them cost beyond."""
    return parts.pairs(found.results())


def orders() -> Figure:
    """Pruned first, rounded first, and both in one sweep."""
    return parts.orders(found.results())


def equal_bytes() -> Figure:
    """Zeros and more bits beside fewer bits."""
    return quoted.equal_bytes(_recipes())


def times_smaller() -> Figure:
    """Sizes, published and here."""
    return quoted.times_smaller(_recipes())


def front() -> Figure:
    """All recipes over bytes."""
    return fronts.front(_recipes())


def front_elsewhere() -> Figure:
    """The same on the other text."""
    return fronts.front(_recipes(), domain="boolq")


def passes() -> Figure:
    """Loads for 100 tokens, by draft."""
    return drafts.passes(found.of_drafts())


def bytes_and_time() -> Figure:
    """Bytes beside time."""
    return clock.bytes_and_time()


def recipes_on_the_clock() -> Figure:
    """Whole recipes and drafts in time."""
    return clock.recipes_on_the_clock()


def verdicts() -> Figure:
    """How the claims came out."""
    return claims_page.verdicts()
