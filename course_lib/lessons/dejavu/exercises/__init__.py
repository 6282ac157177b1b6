"""Lesson 09: the exercises on contextual sparsity, their cases and their named mistakes."""

from course_lib.lessons.dejavu.exercises.gathered import GATHERED
from course_lib.lessons.dejavu.exercises.heads import HEADS
from course_lib.lessons.dejavu.exercises.importance import IMPORTANCE

LESSON = "09 Deja Vu"
EXERCISES = (IMPORTANCE, HEADS, GATHERED)
