"""What a notebook needs: `check` a function against its exercise, ask for a `hint`, `show_progress`."""

from course_lib.workbook.check import check
from course_lib.workbook.hints import hint
from course_lib.workbook.progress import show as show_progress

__all__ = ["check", "hint", "show_progress"]
