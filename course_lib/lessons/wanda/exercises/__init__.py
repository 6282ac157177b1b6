"""Lesson 04: the exercises on Wanda, their cases and their named mistakes."""

from course_lib.lessons.wanda.exercises.accumulate import ACCUMULATE
from course_lib.lessons.wanda.exercises.column_groups import COLUMN_GROUPS
from course_lib.lessons.wanda.exercises.interval import INTERVAL
from course_lib.lessons.wanda.exercises.keep_rows import KEEP_ROWS
from course_lib.lessons.wanda.exercises.n_of_m import N_OF_M
from course_lib.lessons.wanda.exercises.obs_score import OBS_SCORE
from course_lib.lessons.wanda.exercises.score import SCORE
from course_lib.lessons.wanda.exercises.sequential import SEQUENTIAL

LESSON = "04 Wanda"
EXERCISES = (SCORE, ACCUMULATE, KEEP_ROWS, COLUMN_GROUPS, N_OF_M, SEQUENTIAL, OBS_SCORE, INTERVAL)
