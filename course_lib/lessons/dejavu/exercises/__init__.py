"""Lesson 09: the exercises on contextual sparsity, their cases and their named mistakes."""

from course_lib.lessons.dejavu.exercises.break_even import BREAK_EVEN
from course_lib.lessons.dejavu.exercises.gathered import GATHERED
from course_lib.lessons.dejavu.exercises.heads import HEADS
from course_lib.lessons.dejavu.exercises.importance import IMPORTANCE
from course_lib.lessons.dejavu.exercises.lookahead import LOOKAHEAD
from course_lib.lessons.dejavu.exercises.loss import LOSS
from course_lib.lessons.dejavu.exercises.missing import MISSING
from course_lib.lessons.dejavu.exercises.recall import RECALL

LESSON = "09 Deja Vu"
EXERCISES = (IMPORTANCE, GATHERED, LOSS, RECALL, BREAK_EVEN, HEADS, MISSING, LOOKAHEAD)
