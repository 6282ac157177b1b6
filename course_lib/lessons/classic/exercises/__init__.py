"""The exercises of lesson 02, in the order of the notebook."""

from course_lib.lessons.classic.exercises.back_one_layer import BACK_ONE_LAYER
from course_lib.lessons.classic.exercises.obd_saliency import OBD_SALIENCY
from course_lib.lessons.classic.exercises.obs_saliency import OBS_SALIENCY
from course_lib.lessons.classic.exercises.obs_update import OBS_UPDATE
from course_lib.lessons.classic.exercises.prune import PRUNE
from course_lib.lessons.classic.exercises.recursion import RECURSION
from course_lib.lessons.classic.exercises.scale import SCALE
from course_lib.lessons.classic.exercises.taylor import TAYLOR

LESSON = "02 Optimal brain damage and surgeon"
EXERCISES = (TAYLOR, OBD_SALIENCY, OBS_UPDATE, OBS_SALIENCY, RECURSION, PRUNE, SCALE, BACK_ONE_LAYER)
