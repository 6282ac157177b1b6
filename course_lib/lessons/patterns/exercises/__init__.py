"""The exercises of lesson 01, with their cases and their named mistakes."""

from course_lib.lessons.patterns.exercises.bitmap import BITMAP
from course_lib.lessons.patterns.exercises.blocks import BLOCKS
from course_lib.lessons.patterns.exercises.break_even import BREAK_EVEN
from course_lib.lessons.patterns.exercises.bytes import BYTES
from course_lib.lessons.patterns.exercises.choose import CHOOSE
from course_lib.lessons.patterns.exercises.columns import COLUMNS
from course_lib.lessons.patterns.exercises.dynamic import DYNAMIC
from course_lib.lessons.patterns.exercises.nofm import NOFM

LESSON = "01 Sparsity patterns"
EXERCISES = (COLUMNS, BLOCKS, NOFM, BYTES, CHOOSE, BITMAP, BREAK_EVEN, DYNAMIC)
