"""What a verdict on a named mistake must say of it."""

from course_lib.checking.exercise import Mistake
from course_lib.checking.judge import Verdict

_RAISED = ("it raised", "it did not finish")


def misjudged(mistake: Mistake, verdict: Verdict) -> str | None:
    """In words why a verdict does not name the mistake; None where it does.

    A way to write it that raises on every wrong case has no name, since many slips raise the same error.
    """
    if verdict.state != "wrong":
        return f"the verdict is {verdict.state}"
    if only_raises(verdict):
        return f"named {verdict.mistake.name} by errors alone" if verdict.mistake else None
    if verdict.mistake is None:
        return f"not recognised: {verdict.difference}"
    return None if verdict.mistake.name == mistake.name else f"taken for {verdict.mistake.name}"


def only_raises(verdict: Verdict) -> bool:
    """Whether no wrong case has a value."""
    return all(said.startswith(_RAISED) for said in verdict.differences if said)
