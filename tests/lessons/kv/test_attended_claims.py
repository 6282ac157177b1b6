"""Claims on which tokens receive attention, from made-up layers."""

import pytest

from course_lib.lessons.kv import claims

BY_LAYER = {
    "first": claims.FIRST_TOKEN,
    "punctuation": claims.PUNCTUATION,
    "near": claims.NEAR,
    "few": claims.FEW_CARRY_MOST,
}


def made_up(n=6, first=0.9, punctuation=0.4, near=0.3, few=0.7, sparsity=(0.5, 0.9), other=None):
    """n layers alike; `other` replaces values in all but the first of them. A tenth of the tokens is punctuation."""
    layers, kinds = [], [{"start": "text", "layer": "tokens", "punctuation": 0.1, "word": 0.9}]
    for index in range(n):
        now = {"first": first, "punctuation": punctuation, "near": near, "few": few} | ((other or {}) if index else {})
        sparse = sparsity[0] if index < n // 2 else sparsity[1]
        layers.append({"start": "text", "layer": index, "length": 1024, "first_token": now["first"]})
        layers[-1] |= {"top_5_percent": now["few"], "sparsity": sparse + 0.001 * index}
        kinds.append({"start": "text", "layer": index, "length": 1024, "near": now["near"], "word": 0.9})
        kinds[-1]["punctuation"] = now["punctuation"]
    return {"tables": {"attention": layers, "attention_kinds": kinds}}


def test_all_claims_hold_where_every_layer_does():
    assert {claim.judge(made_up()).words for claim in (*BY_LAYER.values(), claims.SHALLOW_DENSER)} == {"holds"}


@pytest.mark.parametrize(
    ("which", "low", "ours"),
    [
        ("first", 0.01, "1.36 times an even share"),  # H(1024) / 1024 = 0.00733, the even share
        ("punctuation", 0.1, "1 times a word's attention"),  # 0.1 of 10 % of the tokens, words 0.9 of 90 %
        ("near", 0.08013, "1 times an even share"),  # (16 + 16 · (H(1024) − H(16))) / 1024 = 0.08013
        ("few", 0.4, "40 %"),
    ],
)
def test_one_layer_of_six_does_not_move_the_median(which, low, ours):
    judged = BY_LAYER[which].judge(made_up(other={which: low}))
    assert (judged.words, judged.ours) == ("does not hold", ours)


def test_at_which_threshold_the_verdict_on_the_first_token_changes():
    judged = claims.FIRST_TOKEN_WEIGHT.judge(made_up(first=0.3))
    assert (judged.words, judged.ours) == ("holds", "30 %")
    assert judged.flips == {"50 %": "does not hold"}


@pytest.mark.parametrize(
    ("sparsity", "word"), [((0.9, 0.5), "does not hold"), ((0.5, 0.9), "holds"), ((0.9, 0.897), "undecided")]
)
def test_depth_is_a_comparison_of_thirds(sparsity, word):
    assert claims.SHALLOW_DENSER.judge(made_up(sparsity=sparsity)).verdict == word
