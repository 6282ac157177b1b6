"""All documents and all rules, found by lying in their folders."""

from functools import lru_cache

from course_lib.discover import modules
from course_lib.workbook.ledger import rules, sources
from course_lib.workbook.ledger.record import Claim, Rule, Source


def all_sources() -> list[Source]:
    """In the order of their files' names."""
    return [module.SOURCE for module in modules(sources)]


def all_claims() -> list[Claim]:
    """Of all documents, one after the other."""
    return [claim for source in all_sources() for claim in source.claims]


@lru_cache(maxsize=1)
def all_rules() -> dict[str, Rule]:
    """Every constant of the files in rules/: kv-power-law is POWER_LAW of kv.py."""
    return {
        f"{module.__name__.rpartition('.')[2]}-{name.lower().replace('_', '-')}": value
        for module in modules(rules)
        for name, value in vars(module).items()
        if isinstance(value, Rule)
    }


def name_of(rule: Rule) -> str:
    """What a rule is called on the page."""
    return next(name for name, each in all_rules().items() if each == rule)
