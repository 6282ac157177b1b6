"""Lesson 06: the exercises on mixtures of experts, their cases and their named mistakes."""

from course_lib.lessons.moe.exercises.balance import BALANCE
from course_lib.lessons.moe.exercises.estimate import ESTIMATE
from course_lib.lessons.moe.exercises.jacobs import JACOBS
from course_lib.lessons.moe.exercises.load import LOAD

LESSON = "06 Mixture of experts"
EXERCISES = (BALANCE, LOAD, JACOBS, ESTIMATE)
