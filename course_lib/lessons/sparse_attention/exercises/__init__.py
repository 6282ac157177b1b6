"""Lesson 11: the exercises on sparse attention, their cases and their named mistakes."""

from course_lib.lessons.sparse_attention.exercises.accept import ACCEPT
from course_lib.lessons.sparse_attention.exercises.block_mask import BLOCK_MASK
from course_lib.lessons.sparse_attention.exercises.delta import DELTA
from course_lib.lessons.sparse_attention.exercises.divergence import DIVERGENCE
from course_lib.lessons.sparse_attention.exercises.lines import LINES
from course_lib.lessons.sparse_attention.exercises.recycle import RECYCLE
from course_lib.lessons.sparse_attention.exercises.smallest_set import SMALLEST_SET
from course_lib.lessons.sparse_attention.exercises.steer import STEER

LESSON = "11 Sparse attention"
EXERCISES = (DIVERGENCE, SMALLEST_SET, LINES, BLOCK_MASK, ACCEPT, DELTA, STEER, RECYCLE)
