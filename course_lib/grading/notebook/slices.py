"""Find the part of a notebook that one function needs, by following each name at the moment when it is read.

A name that is read at once (in a default, a decorator, the right side of an assignment) has its value from the cells
above. A name that is read when the function is called has its value at the moment of the check, so that `k = 3` further
down changes nothing. A definition that exists only further down was moved, and is taken from there, except for names
that Python or the kernel provides: `sum = 0` further down is another use of the name. A `del` ends definitions above.

Standard library only: this runs inside the sandbox.
"""

import ast
import bisect
import builtins
import sys
from dataclasses import dataclass, field

from course_lib.grading.notebook.bindings import Item
from course_lib.grading.notebook.disk import EVERY, FILE, UNNAMED
from course_lib.grading.notebook.statements import SIMPLE, Statement

MOST_STEPS = 200_000  # bindings that are followed for one function
# Names that a kernel provides in addition to Python's own, as functions that do nothing.
KERNEL = {
    "display": Statement("def display(*objects, **options):\n    pass", "the notebook"),
    "get_ipython": Statement("def get_ipython():\n    pass", "the notebook"),
}


@dataclass(frozen=True)
class Question:
    """A question about a notebook: what a function needs, as one item binds it, if it is called at one moment."""

    chosen: Item
    function: str
    moment: float


@dataclass
class Slice:
    """The items that a function needs in the order in which they run, and the names that nothing defines."""

    items: list[Item] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)  # names that the notebook binds again after the moment
    deleted: dict[str, int] = field(default_factory=dict)  # names missing because of a `del`, and its cell

    @property
    def names(self) -> set[str]:
        """Return every name that it binds or reads."""
        return {name for item in self.items for name in item.binds | item.eager | item.late} | self.missing


class Slicer:
    """Follow names through the items of a notebook."""

    def __init__(self, items: list[Item]):
        self.items = items
        self.places: dict[str, list[int]] = {}
        for item in items:
            for name in item.binds | item.changes | item.replaces:
                self.places.setdefault(name, []).append(item.position)
        self.stars = [item.position for item in items if item.star]
        self.everywhere = [item.position for item in items if item.everywhere]

    def needs(self, question: Question) -> Slice:
        """Return all items that the function needs when it is called at that moment, including its own.

        Raises:
            ValueError: if following the names would take too long.
        """
        wanted: dict[float, set[int]] = {}  # moment -> positions of the items that are read then
        missing, deleted, seen, steps = set(), {}, set(), 0
        queue: list[tuple[int, float, str]] = [(place, question.moment, "") for place in self._first(question)]
        while queue:
            place, when, via = queue.pop()
            item = self.items[place]
            wanted.setdefault(when, set()).add(place)
            # Its changes were followed together with that name: then everything above is needed as well.
            at_once = item.eager - ({via} & item.changes) - ({UNNAMED} if via == EVERY else set())
            for name, at in [*((n, float(place)) for n in at_once), *((n, when) for n in item.late)]:
                if (name, at) not in seen:
                    seen.add((name, at))
                    places = self.bindings(question, name, at)
                    steps += 1 + len(places)
                    queue += [(binding, at, name) for binding in places]
                    wanted.setdefault(at, set()).update(places)
                    ended = [place for place in places if self.items[place].ends(name)]
                    bound = len(places) > len(ended) or self._own(name, at) or self._changes(name, at)
                    if not bound and not _is_given(name):
                        missing.add(name)
                        if ended:
                            deleted[name] = self.items[ended[-1]].number
            if steps > MOST_STEPS:
                raise ValueError(f"{question.function} hangs together with too much of the notebook to follow it.")
        ordered = self._ordered(question, wanted)
        taken = {item.statement.source for item in ordered}
        read = {name for name, at in seen if at == question.moment}
        later = {name for name in read if self._changes_later(name, question.moment, taken)}
        return Slice(ordered, missing, later, deleted)

    def bindings(self, question: Question, name: str, moment: float) -> list[int]:
        """Return the items that give a name its value at a moment, including changes in place."""
        if name == question.function and moment == question.moment:
            return [question.chosen.position]
        places = self.places.get(name, [])
        if moment == question.moment >= len(self.items):
            places = self._unchecked(question.chosen, name, places)
            moment = self._own_cell(question.chosen.number, name, places) or moment
        n_before = bisect.bisect_left(places, moment)
        before, after = places[:n_before], places[n_before:]
        ended = max((place for place in before if self.items[place].ends(name)), default=-1)
        standing = [place for place in before if place > ended]
        stars = [star for star in self.stars[: bisect.bisect_left(self.stars, moment)] if star > ended]
        starred = any(hasattr(sys.modules.get(self.items[star].star), name) for star in stars)
        stays = starred or self._own(name, moment) or _is_provided(name)
        if not stays and not any(self._real(name, place) for place in standing):
            moved = [place for place in after if place != moment and not self.items[place].ends(name)]
            if moved and (not standing or any(self._real(name, place) for place in moved)):
                before = moved
        before = self._without_stubs(name, before)
        last = next((i for i in reversed(before) if name in self.items[i].replaces), -1)
        return [place for place in before if place >= last] + [star for star in stars if star > last]

    def _unchecked(self, chosen: Item, name: str, places: list[int]) -> list[int]:
        """Return the places without later deletions: without a check, tidying up at the end changes nothing."""
        if _is_provided(name):
            return places
        return [place for place in places if place < chosen.position or name not in self.items[place].deletes]

    def _own_cell(self, number: int, name: str, places: list[int]) -> float | None:
        """Without a check, use a helper in the function's own cell, even if its name is bound again below."""
        return next((p + 0.5 for p in reversed(places) if self.items[p].number == number and self._real(name, p)), None)

    def _own(self, name: str, moment: float) -> bool:
        """Check whether the reader of a name also binds it, or reads a file, which is never moved."""
        return name.startswith(FILE) or (
            moment == int(moment) < len(self.items) and _binds_first(self.items[int(moment)], name)
        )

    def _changes(self, name: str, moment: float) -> bool:
        """Check whether code that runs at a moment sets a name by calling a function that names it."""
        return moment == int(moment) < len(self.items) and name in self.items[int(moment)].changes

    def _real(self, name: str, place: int) -> bool:
        return name in self.items[place].binds and not self.items[place].stub

    def _without_stubs(self, name: str, places: list[int]) -> list[int]:
        real = [place for place in places if not self.items[place].stub]
        return real if any(name in self.items[place].binds for place in real) else places

    def _first(self, question: Question) -> list[int]:
        """Find the function with attributes that are set on it before the moment, its substitute if an `if` does not
        bind it, and statements that change things for every exercise.
        """
        function, first = question.function, question.chosen.position
        between = [self.items[place] for place in self.places[function] if first < place < question.moment]
        changes = [i.position for i in between if function in i.changes and function not in i.binds | i.deletes]
        before = [] if function in question.chosen.replaces else self.bindings(question, function, float(first))
        return [*before, first, *changes, *(place for place in self.everywhere if place < question.moment)]

    def _changes_later(self, name: str, moment: float, taken: set[str]) -> bool:
        """Check whether a name is defined again after the moment, with different code."""
        later = [self.items[place] for place in self.places.get(name, []) if place > moment]
        defined = [i for i in later if isinstance(i.node, (ast.FunctionDef, ast.ClassDef)) and not i.stub]
        return any(item.statement.source not in taken for item in defined)

    def _ordered(self, question: Question, wanted: dict[float, set[int]]) -> list[Item]:
        """Return the items in the notebook's order, but dependencies first; the function keeps its own name."""
        order: list[int] = []
        state: dict[int, bool] = {}
        stack = [(place, False) for place in sorted(set().union(*wanted.values()), reverse=True)]
        while stack:
            place, ready = stack.pop()
            if ready:
                order.append(place)
            elif place not in state:
                state[place] = True
                stack.append((place, True))
                stack += [
                    (needed, False)
                    for needed in sorted(wanted.get(float(place), ()), reverse=True)
                    if needed not in state
                ]
        after = order[order.index(question.chosen.position) + 1 :]
        if any(question.function in self.items[place].binds for place in after):
            order.append(question.chosen.position)
        return _without_idle_deletions([self.items[place] for place in order])


def _without_idle_deletions(items: list[Item]) -> list[Item]:
    """Drop each `del` of a name that is not bound before it, because its binding is not needed."""
    kept: list[Item] = []
    bound: set[str] = set()
    for item in items:
        if not item.deletes & item.replaces or item.deletes & bound or any(other.star for other in kept):
            kept.append(item)
        bound |= item.binds
    return kept


def _is_given(name: str) -> bool:
    """Check whether a name needs no statement: Python's own, a module's, or a file, which may be anywhere."""
    return hasattr(builtins, name) or name.startswith(("__", FILE))


def _is_provided(name: str) -> bool:
    """Check whether a notebook provides a name without binding it."""
    return hasattr(builtins, name) or name in KERNEL


def _binds_first(item: Item, name: str) -> bool:
    """Check whether a compound statement, such as a loop, may bind a name itself before it reads it."""
    return name in item.binds and not isinstance(item.node, SIMPLE)
