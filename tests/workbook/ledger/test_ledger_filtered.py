"""The ledger as a notebook prints it: by verdict, by lesson, within the width of a page."""

import pytest

from course_lib.lessons.common.results import COLUMNS
from course_lib.workbook.ledger.everything import all_statements
from course_lib.workbook.ledger.filtered import VERDICTS, table
from course_lib.workbook.ledger.page import verdict_of


def n_of(text: str) -> int:
    return int(text.splitlines()[-1].split()[0])


def test_each_statement_is_under_its_verdict_once():
    tables = {verdict: table(verdict) for verdict in VERDICTS}
    assert sum(map(n_of, tables.values())) == n_of(table()) == len(all_statements())
    for statement in all_statements():
        assert f" {statement.id}: " in tables[verdict_of(statement)]
    assert all(len(line) <= COLUMNS for line in table().splitlines())


def test_of_one_lesson():
    text = table("not at this scale", "07")
    assert "07  chen-18: Sparse attention allows a cache" in text
    assert "not at this scale: 1.64 ± 0.11 times the perplexity" in text
    assert 0 < n_of(text) < n_of(table("not at this scale")) < n_of(table())
    assert "abstracts-32" not in text
    assert "–  abstracts-8" in table("needs a larger model")


@pytest.mark.parametrize(("asked", "said"), [(("held", None), "got verdict 'held'"), ((None, "7"), "got lesson '7'")])
def test_what_is_none_is_said(asked, said):
    with pytest.raises(ValueError, match=said):
        table(*asked)
