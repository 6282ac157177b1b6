"""Lesson 08: the exercises on attention sinks, their cases and their named mistakes."""

from course_lib.lessons.sinks.exercises.cost import COST
from course_lib.lessons.sinks.exercises.evict import EVICT
from course_lib.lessons.sinks.exercises.gate import GATE
from course_lib.lessons.sinks.exercises.positions import POSITIONS
from course_lib.lessons.sinks.exercises.rotate import ROTATE
from course_lib.lessons.sinks.exercises.share import SHARE
from course_lib.lessons.sinks.exercises.slots import SLOTS
from course_lib.lessons.sinks.exercises.softmax import SOFTMAX

LESSON = "08 Attention sinks"
EXERCISES = (SHARE, EVICT, SLOTS, POSITIONS, ROTATE, COST, SOFTMAX, GATE)
