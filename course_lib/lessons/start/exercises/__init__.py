"""The exercises of lesson 00, with their cases and their named mistakes."""

from course_lib.lessons.start.exercises.cache_bytes import CACHE_BYTES
from course_lib.lessons.start.exercises.intensity import INTENSITY
from course_lib.lessons.start.exercises.sparsity import SPARSITY
from course_lib.lessons.start.exercises.speedup import SPEEDUP
from course_lib.lessons.start.exercises.step_seconds import STEP_SECONDS

LESSON = "00 Start here"
EXERCISES = (SPARSITY, CACHE_BYTES, INTENSITY, STEP_SECONDS, SPEEDUP)
