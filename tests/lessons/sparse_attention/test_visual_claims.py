"""Verdicts on VFlowOpt from made-up answers: each word is possible, and follows from pairs."""

import pytest

from course_lib.lessons.sparse_attention import claims
from course_lib.lessons.sparse_attention.estimates import visual as estimates
from course_lib.lessons.sparse_attention.estimates.rows import results
from course_lib.lessons.sparse_attention.experiments.visual_tokens import ALL, ALONE, METHOD, RANDOM, TOLD

N = 200


def answers(n_right: int, start: int = 0) -> str:
    """So many right, in a row, from a question on."""
    return "".join("1" if (i - start) % N < n_right else "0" for i in range(N))


def made_up(own: int = 180, others: int = 100, n_all: int = 184, without: int | None = None) -> dict:
    """VFlowOpt, two calibrations; all others alike; what is left without a part."""

    def row(method, share, n_right, **more):
        right = answers(n_right)
        return {"method": method, "share": share, "n": N, "accuracy": n_right / N, "right": right, "cosine": 0.9} | more

    rows = [row(ALL, 1.0, n_all)]
    for share in (0.5, 0.1):
        rows += [row(METHOD, share, own, calibration=number) for number in range(2)]
        rows += [row(RANDOM, share, others, draw=number) for number in range(2)]
        rows += [row(method, share, others) for method in (*ALONE, estimates.BY_HAND, TOLD)]
        rows += [row(f"without {part}", share, own if without is None else without) for part in estimates.PARTS]
    settings = {"t": 1.0, "alpha": 2.0, "side": 6, "first": 0.5, "second": 1.0, "third": 1.0, "cosine": 0.95}
    calibrated = [settings | {"share": s, "calibration": i, "tried": [0.9, 0.95]} for s in (0.5, 0.1) for i in range(2)]
    return {"tables": {"answers": rows, "settings": calibrated}}


def words(measured: dict) -> list[str]:
    return [claim.judge(measured).words for claim in claims.VISUAL_CLAIMS]


def test_all_better_and_no_part_matters():
    """40 points ahead: holds. The same answers without a part: undecided. 1 of 181 right answers lost: holds."""
    found = words(made_up(n_all=181))
    assert found[:4] == ["holds"] * 4
    assert all(word.startswith("undecided") for word in found[4:9])
    assert found[9] == "holds"


def test_parts_that_matter_and_parts_that_harm():
    assert words(made_up(without=120))[4:9] == ["holds"] * 5
    assert words(made_up(without=199))[4:9] == ["not at this scale"] * 5


def test_too_much_lost():
    """84 of 184 right answers lost are not comparable; 100 answers of 200 are not clearly fewer than 101."""
    found = words(made_up(own=100, others=101))
    assert found[0] == "does not hold"  # of the larger model in the paper too
    assert found[1].startswith("undecided")


@pytest.mark.parametrize(("others", "word"), [(100, "holds"), (184, "does not hold"), (166, "undecided")])
def test_what_attention_alone_keeps(others, word):
    """100 of 184 are 54 %, less than 90; 166 of 184 are 90.2 %, with an error of 2.3 %."""
    found = claims.ATTENTION_ALONE.judge(made_up(others=others))
    assert found.verdict == word
    assert found.estimates[""].value == pytest.approx(others / 184)


def test_the_error_of_a_fraction_is_that_of_paired_questions():
    """own 1, 1, 0, 0 of whole 1, 1, 1, 0: 2/3, and residuals (1 − 2/3, 1 − 2/3, −2/3, 0) over a mean of 3/4."""
    measured = {"tables": {"answers": [
        {"method": ALL, "share": 1.0, "right": "1110"}, {"method": METHOD, "share": 0.1, "right": "1100"}
    ]}}  # fmt: skip
    found = estimates.kept(measured)
    residuals = [4 / 9, 4 / 9, -8 / 9, 0.0]
    assert found.value == pytest.approx(2 / 3)
    assert found.error == pytest.approx((sum(each**2 for each in residuals) / 3 / 4) ** 0.5)


def test_pairs_decide():
    """The mean of two draws, question by question: 3 questions of 200 of which one draw has them right."""
    rows = [{"right": "110"}, {"right": "100"}]
    assert estimates.questions(rows) == [1.0, 0.5, 0.0]
    effect = estimates.gap([{"right": "111"}] * 2, rows)
    assert effect.value == pytest.approx(0.5)
    assert effect.error == pytest.approx(0.5 / 3**0.5)


def test_the_committed_result_is_judged():
    assert len([claim.judge() for claim in claims.VISUAL_CLAIMS]) == 10
    assert claims.A_TENTH.published_value == "85.5 % of the score of all tokens (LLaVA-OneVision, table 1)"
    assert claims.CALIBRATED.published_value.startswith("+1.6 percentage points")  # 57.8 less 56.2
    assert estimates.dense(results("visual_tokens"))["n"] >= 1000
