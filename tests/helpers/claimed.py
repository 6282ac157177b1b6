"""What a lesson's lines say of their claims: the verdict at the end of each, by claim."""

import re

LINE = re.compile(r"Claim: (.*?): ((?:holds|does not hold|not at this scale|cannot tell)\b[^:]*(?:: n = \d+\))?)$")


def claimed(text):
    """{claim: verdict} of the lines that make a claim."""
    return dict(found.groups() for line in text.splitlines() if (found := LINE.search(line)))


def one(text, words):
    """The verdict on the only claim with these words."""
    (found,) = (verdict for claim, verdict in claimed(text).items() if words in claim)
    return found
