"""What a notebook needs: `check` a function against its exercise, ask for a `hint`, see the `progress`."""

from course_lib.workbook.check import check
from course_lib.workbook.hints import hint
from course_lib.workbook.progress import show as progress

__all__ = ["check", "hint", "progress"]
