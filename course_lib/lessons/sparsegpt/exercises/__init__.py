"""Lesson 03: the exercises on SparseGPT, their cases and their named mistakes."""

from course_lib.lessons.sparsegpt.exercises.bits import BITS
from course_lib.lessons.sparsegpt.exercises.eliminate import ELIMINATE
from course_lib.lessons.sparsegpt.exercises.factor import FACTOR
from course_lib.lessons.sparsegpt.exercises.hessian import HESSIAN
from course_lib.lessons.sparsegpt.exercises.layer_error import LAYER_ERROR
from course_lib.lessons.sparsegpt.exercises.mask import MASK
from course_lib.lessons.sparsegpt.exercises.prune import PRUNE
from course_lib.lessons.sparsegpt.exercises.settle import SETTLE

LESSON = "03 SparseGPT"
EXERCISES = (LAYER_ERROR, HESSIAN, ELIMINATE, FACTOR, SETTLE, MASK, PRUNE, BITS)
