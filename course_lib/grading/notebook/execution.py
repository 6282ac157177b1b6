"""Run the part of a notebook that an exercise needs, like a kernel: one statement at a time, with time limits."""

import asyncio
import builtins
import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from course_lib.checking.call import DidNotFinish, limited
from course_lib.grading.notebook.program import Program
from course_lib.grading.notebook.statements import Statement

TEXT = 2000  # characters of one message
MOST = 20  # messages


def load(program: Program, seconds: float, before: Callable[[], None] = lambda: None) -> tuple[Any, list[str]]:
    """Return the function that answers, or None, and the errors on the way.

    After the second statement that exceeds its time, the rest is not run.

    Args:
        seconds: time limit per statement.
        before: called before each statement.
    """
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__builtins__ = builtins
    sys.path.insert(0, "")  # as in a kernel, for the files that cells write
    loop, notes, n_endless = _Loop(), [], 0
    for statement in program.statements:
        try:
            before()
            with limited(seconds):
                _run(statement, module.__dict__, loop)
        except DidNotFinish:
            notes.append(f"{statement.filename}: a statement did not finish within {seconds:g} seconds")
            n_endless += 1
            if n_endless == 2:
                return None, notes
        except BaseException as error:  # including exit() and the like: later statements may be all that is needed
            notes.append(f"{statement.filename}: {said(error)}")
    return getattr(module, program.function, None), notes[:MOST]


class _Loop:
    """The event loop of a notebook, made when something is awaited."""

    loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Any) -> None:
        self.loop = self.loop or asyncio.new_event_loop()
        self.loop.run_until_complete(coroutine)


def _run(statement: Statement, names: dict[str, Any], loop: _Loop) -> None:
    importlib.invalidate_caches()  # a module may just have been written
    code = statement.compiled()
    if code.co_flags & inspect.CO_COROUTINE:
        loop.run(eval(code, names))
    else:
        exec(code, names)


def said(error: BaseException) -> str:
    """Describe an exception in words, whatever its own methods do."""
    try:
        return f"{type(error).__name__}: {error}"[:TEXT]
    except BaseException:
        return f"{type(error).__name__[:100]}, which cannot be shown"
