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
    """40 points ahead: holds. The same answers without a part: undecided. 2 points lost of 5: holds."""
    found = words(made_up())
    assert found[:4] == ["holds"] * 4
    assert all(word.startswith("undecided") for word in found[4:9])
    assert found[9] == "holds"


def test_parts_that_matter_and_parts_that_harm():
    assert words(made_up(without=120))[4:9] == ["holds"] * 5
    assert words(made_up(without=199))[4:9] == ["not at this scale"] * 5


def test_too_much_lost():
    """40 points lost are not comparable; 100 answers of 200 are not clearly fewer than 101."""
    found = words(made_up(own=100, others=101))
    assert found[0] == "not at this scale"
    assert found[1].startswith("undecided")


def test_pairs_decide():
    """The mean of two draws, question by question: 3 questions of 200 of which one draw has them right."""
    rows = [{"right": "110"}, {"right": "100"}]
    assert estimates.questions(rows) == [1.0, 0.5, 0.0]
    effect = estimates.gap([{"right": "111"}] * 2, rows)
    assert effect.value == pytest.approx(0.5)
    assert effect.error == pytest.approx(0.5 / 3**0.5)


def test_the_committed_result_is_judged():
    assert len([claim.judge() for claim in claims.VISUAL_CLAIMS]) == 10
    assert claims.A_TENTH.published_value == "85.5 % of the score of all tokens (LLaVA-OneVision)"
    assert claims.CALIBRATED.published_value.startswith("+1.6 percentage points")  # 57.8 less 56.2
    assert estimates.dense(results("visual_tokens"))["n"] >= 1000
