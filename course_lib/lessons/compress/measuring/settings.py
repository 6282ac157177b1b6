"""More vectors, more steps, another beginning, another draw: what the gain of a prompt depends on."""

from dataclasses import replace

from course_lib.lessons.compress.measuring.ground import FIRST_IDS, NARROW, WIDE, Run, main_run
from course_lib.lessons.compress.measuring.own import prompted
from course_lib.lessons.compress.measuring.sizes import Sizes
from course_lib.measure.experiment import Tables


def wanted(sizes: Sizes) -> dict[str, Run]:
    """Runs that differ from the main one in a single setting."""
    main = main_run(sizes)
    runs = {f"draw {draw}": replace(main, draw=draw) for draw in sizes.seeds}
    runs |= {f"{n} vectors": replace(main, n_vectors=n) for n in sizes.vectors}
    runs |= {f"{n} steps": replace(main, n_steps=n) for n in sizes.steps}
    return runs | {begin: replace(main, begin=begin) for begin in (NARROW, FIRST_IDS, WIDE)}


def varied(sizes: Sizes, name: str, run: Run, seed: int) -> Tables:
    return {"settings": [prompted(sizes, name, run, seed)]}
