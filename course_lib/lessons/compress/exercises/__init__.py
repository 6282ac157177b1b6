"""Lesson 10: the exercises on prompts for compressed models, their cases and their named mistakes."""

from course_lib.lessons.compress.exercises.before import BEFORE
from course_lib.lessons.compress.exercises.bytes import BYTES
from course_lib.lessons.compress.exercises.frozen import FROZEN
from course_lib.lessons.compress.exercises.initial import INITIAL
from course_lib.lessons.compress.exercises.labels import LABELS
from course_lib.lessons.compress.exercises.metric import METRIC
from course_lib.lessons.compress.exercises.transfer import TRANSFER

LESSON = "10 Compress, then prompt"
EXERCISES = (BEFORE, LABELS, FROZEN, INITIAL, METRIC, BYTES, TRANSFER)
