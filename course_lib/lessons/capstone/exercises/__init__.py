"""Lesson 12: the exercises on models made of several parts, their cases and their named mistakes."""

from course_lib.lessons.capstone.exercises.bytes import BYTES
from course_lib.lessons.capstone.exercises.combine import COMBINE
from course_lib.lessons.capstone.exercises.front import FRONT
from course_lib.lessons.capstone.exercises.gain import GAIN
from course_lib.lessons.capstone.exercises.ratio import RATIO
from course_lib.lessons.capstone.exercises.speculate import SPECULATE
from course_lib.lessons.capstone.exercises.split import SPLIT

LESSON = "12 Capstone"
EXERCISES = (BYTES, COMBINE, RATIO, FRONT, SPLIT, SPECULATE, GAIN)
