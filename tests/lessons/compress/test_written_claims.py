"""Learned prompts compared with written ones, from made-up losses."""

import pytest

from course_lib.lessons.compress.claims import THAN_WRITTEN


@pytest.mark.parametrize(
    ("sentence", "word"), [(3.0, "holds"), (1.0, "does not hold"), (2.0, "undecided"), (None, "not measured")]
)
def test_sentences_compared_with_a_learned_prompt(sentence, word):
    found = {"own": [{"model": "wanda-50", "losses": [2.0, 2.01, 1.99]}], "words": []}
    if sentence:
        rows = (("wanda-50", "slides"), ("wanda-50", "random 0"), ("dense", "slides"))
        shifts = (0.02, -0.02, 0.0)
        found["words"] = [
            {"model": model, "prompt": prompt, "losses": [sentence + shift for shift in shifts]}
            for model, prompt in rows
        ]
    assert THAN_WRITTEN.judge({"tables": found}).verdict == word
