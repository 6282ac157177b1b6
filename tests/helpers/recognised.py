"""What a verdict on a named mistake must say of it."""

from course_lib.checking.exercise import Mistake
from course_lib.checking.judge import Verdict


def misjudged(mistake: Mistake, verdict: Verdict) -> str | None:
    """In words why a verdict does not name the mistake; None where it does."""
    if verdict.state != "wrong":
        return f"the verdict is {verdict.state}"
    if verdict.mistake is None:
        return f"not recognised: {verdict.difference}"
    return None if verdict.mistake.name == mistake.name else f"taken for {verdict.mistake.name}"
