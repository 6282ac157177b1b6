"""Exercises of lesson 05: structured pruning and distillation."""

from course_lib.lessons.minitron.exercises.aggregate import AGGREGATE
from course_lib.lessons.minitron.exercises.count import COUNT
from course_lib.lessons.minitron.exercises.distil import DISTIL
from course_lib.lessons.minitron.exercises.group import GROUP
from course_lib.lessons.minitron.exercises.heads import HEADS
from course_lib.lessons.minitron.exercises.influence import INFLUENCE
from course_lib.lessons.minitron.exercises.norm import NORM
from course_lib.lessons.minitron.exercises.taylor import TAYLOR

LESSON = "05 Minitron"
EXERCISES = (GROUP, COUNT, AGGREGATE, INFLUENCE, DISTIL, HEADS, NORM, TAYLOR)
