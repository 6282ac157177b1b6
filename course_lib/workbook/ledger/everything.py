"""All documents with their statements, and all claims of the lessons, which are found by their folders."""

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

from course_lib.discover import modules
from course_lib.lessons.common.claim import Claim
from course_lib.workbook.ledger import sources
from course_lib.workbook.ledger.record import LIBRARY, Source, Statement


def all_sources() -> list[Source]:
    """Return all documents in the order of their file names."""
    return [module.SOURCE for module in modules(sources)]


def all_statements() -> list[Statement]:
    """Return the statements of all documents in order."""
    return [statement for source in all_sources() for statement in source.statements]


@lru_cache(maxsize=1)
def all_claims() -> dict[str, Claim]:
    """Return all claims by id: the constants of every lessons/LESSON/claims.py."""
    lessons = sorted(path.name for path in (LIBRARY / "lessons").iterdir() if (path / "__init__.py").exists())
    names = [f"course_lib.lessons.{lesson}.claims" for lesson in lessons]
    values = [value for name in names if find_spec(name) for value in vars(import_module(name)).values()]
    return {claim.id: claim for value in values for claim in claims_of(value)}


def claims_of(value: object) -> list[Claim]:
    """Return a constant of a lesson if it is a claim, or the claims in a dictionary, list or tuple."""
    if isinstance(value, Claim):
        return [value]
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [claim for member in members for claim in claims_of(member)]
