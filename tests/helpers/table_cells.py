"""The texts of a table's cells, row by row."""

from course_lib.lessons.common.table import Table


def rows(table: Table) -> list[list[str]]:
    """Every row as it is shown."""
    return [list(texts) for texts in zip(*(column.cells for column in table.columns()), strict=True)]


def headings(table: Table) -> list[str]:
    """The headings as they are shown."""
    return [column.heading for column in table.columns()]
