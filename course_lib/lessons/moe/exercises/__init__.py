"""Lesson 06: the exercises on mixtures of experts, their cases and their named mistakes."""

from course_lib.lessons.moe.exercises.balance import BALANCE
from course_lib.lessons.moe.exercises.capacity import CAPACITY
from course_lib.lessons.moe.exercises.dispatch import DISPATCH
from course_lib.lessons.moe.exercises.estimate import ESTIMATE
from course_lib.lessons.moe.exercises.gate import GATE
from course_lib.lessons.moe.exercises.jacobs import JACOBS
from course_lib.lessons.moe.exercises.load import LOAD
from course_lib.lessons.moe.exercises.top1 import TOP1

LESSON = "06 Mixture of experts"
EXERCISES = (GATE, TOP1, DISPATCH, CAPACITY, BALANCE, LOAD, JACOBS, ESTIMATE)
