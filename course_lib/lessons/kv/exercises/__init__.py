"""Lesson 07: the exercises on evicting keys and values, their cases and their named mistakes."""

from course_lib.lessons.kv.exercises.deferred import DEFERRED
from course_lib.lessons.kv.exercises.group_mass import GROUP_MASS
from course_lib.lessons.kv.exercises.h2o_step import H2O_STEP
from course_lib.lessons.kv.exercises.merge import MERGE
from course_lib.lessons.kv.exercises.quantize import QUANTIZE
from course_lib.lessons.kv.exercises.scissorhands import SCISSORHANDS
from course_lib.lessons.kv.exercises.slots import SLOTS
from course_lib.lessons.kv.exercises.window import WINDOW

LESSON = "07 KV eviction"
EXERCISES = (SLOTS, WINDOW, GROUP_MASS, H2O_STEP, DEFERRED, SCISSORHANDS, MERGE, QUANTIZE)
