"""Simple ideas for the open task of lesson 08: what stays for good at the start of a stream."""

from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.sinks.experiments.first_tokens import IDEAS, OWN, attempt
from course_lib.measure.experiment import Tables


def row(idea: str, seed: int) -> Tables:
    """All texts behind one start."""
    made = attempt(*loaded(), IDEAS[idea], seed)
    losses = [round(loss, 5) for loss in made.losses.tolist()]
    return {"ideas": [{"idea": idea, "start": IDEAS[idea], "n_kept": made.n_kept, "losses": losses}]}


EXPERIMENT = by_idea("What stays at the start of a stream", IDEAS, (OWN, "none"), row)
