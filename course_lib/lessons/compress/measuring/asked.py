"""Do prompts learned from running text help with tasks? The same questions for all."""

from course_lib.lessons.common.benchmarks import accuracy_of
from course_lib.lessons.compress.measuring.ground import learned, main_run, subject, tokenizer
from course_lib.lessons.compress.measuring.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.prompts.losses import with_or_without


def answered(sizes: Sizes, name: str, task: str, n: int, seed: int) -> Tables:
    """One model without a prompt and with its own, on one task."""
    model, rows = subject(name).model, []
    for prompt in (None, learned(sizes, name, main_run(sizes), seed)):
        with with_or_without(model, prompt):
            row = accuracy_of(model, tokenizer(), task, n, seed)
        rows.append({"model": name, "prompted": prompt is not None} | row)
    return {"tasks": rows}
