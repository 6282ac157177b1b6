"""Does a prompt that was learned on one compressed model help another, and another text?"""

from course_lib.lessons.compress.measuring.ground import BOOLQ, WIKIPEDIA, evaluated, learned, main_run
from course_lib.lessons.compress.measuring.sizes import Sizes
from course_lib.measure.experiment import Tables


def moved(sizes: Sizes, to: str, seed: int) -> Tables:
    """One model with the prompts of all others, on the same windows."""
    rows = []
    for source in sizes.moved_from:
        if source != to:
            prompt = learned(sizes, source, main_run(sizes), seed)
            rows.append(evaluated(sizes, to, prompt, seed, WIKIPEDIA) | {"source": source})
    return {"moved": rows}


def other_text(sizes: Sizes, name: str, seed: int) -> Tables:
    """On paragraphs for questions, which no prompt has learned from: without a prompt, and with its own."""
    prompt = learned(sizes, name, main_run(sizes), seed)
    rows = [evaluated(sizes, name, one, seed, BOOLQ) | {"prompted": one is not None} for one in (None, prompt)]
    return {"other_text": rows}
