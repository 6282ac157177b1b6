"""Does a prompt of its own lower the perplexity of a compressed model, and by more than of the dense one?"""

from course_lib.lessons.compress.measuring.ground import WIKIPEDIA, Row, Run, evaluated, learn, main_run, subject
from course_lib.lessons.compress.measuring.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.sparsity.footprint import sparsity_report


def alone(sizes: Sizes, name: str, seed: int) -> Row:
    """A model without a prompt, and what it takes on a disk."""
    of = subject(name)
    taken = {"bytes": of.n_bytes, "weight_bytes": of.weight_bytes, "others": of.n_others}
    row = evaluated(sizes, name, None, seed)
    return row | taken | {"sparsity": round(sparsity_report(of.model).sparsity, 4)}


def prompted(sizes: Sizes, name: str, run: Run, seed: int) -> Row:
    """The same model with a prompt that has learned on it."""
    prompt, seconds = learn(sizes, name, run, seed)
    row = evaluated(sizes, name, prompt, seed, WIKIPEDIA) | {"begin": run.begin, "draw": run.draw}
    row |= {"n_vectors": run.n_vectors, "n_steps": run.n_steps, "prompt_bytes": prompt.n_bytes}
    return row | {"processor_seconds": round(seconds, 1)}


def own(sizes: Sizes, name: str, seed: int) -> Tables:
    """The main run."""
    return {"models": [alone(sizes, name, seed)], "own": [prompted(sizes, name, main_run(sizes), seed)]}
