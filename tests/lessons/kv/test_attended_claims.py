"""Claims on which tokens receive attention, from made-up layers."""

import pytest

from course_lib.lessons.kv import claims

BY_LAYER = {
    "first": claims.FIRST_TOKEN,
    "punctuation": claims.PUNCTUATION,
    "near": claims.NEAR,
    "few": claims.FEW_CARRY_MOST,
}


def made_up(
    n=6, first=0.9, punctuation=0.4, near=0.3, few=0.7, sparsity=(0.5, 0.9), other=None, gaps=(-0.001, 0, 0.001)
):
    """n layers alike; `other` replaces values in all but the first of them. A tenth of the tokens is punctuation."""
    layers, kinds = [], [{"start": "text", "layer": "tokens", "punctuation": 0.1, "word": 0.9}]
    for index in range(n):
        now = {"first": first, "punctuation": punctuation, "near": near, "few": few} | ((other or {}) if index else {})
        sparse = sparsity[0] if index < n // 2 else sparsity[1]
        layers.append({"start": "text", "layer": index, "length": 1024, "first_token": now["first"]})
        layers[-1] |= {"top_5_percent": now["few"], "sparsity": sparse + 0.001 * index}
        layers[-1]["sparsity_by_text"] = [sparse + 0.001 * index + text_gap for text_gap in gaps]
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
        ("few", 0.4, "40 % of all attention, 30 % without the first token (medians of the layers)"),
    ],
)
def test_one_layer_of_six_does_not_move_the_median(which, low, ours):
    judged = BY_LAYER[which].judge(made_up(other={which: low}, first=0.1 if which == "few" else 0.9))
    assert (judged.words, judged.ours) == ("does not hold", ours)


def test_at_which_threshold_the_verdict_on_the_first_token_changes():
    judged = claims.FIRST_TOKEN_WEIGHT.judge(made_up(first=0.3))
    assert (judged.words, judged.ours) == ("holds", "30 %")
    assert judged.flips == {"50 %": "does not hold"}


@pytest.mark.parametrize(("share", "word"), [(0.3, "holds"), (0.01, "does not hold")])
def test_a_special_token_is_looked_up_on_texts_that_begin_with_one(share, word):
    found = made_up(first=0.5)
    found["tables"]["attention"] += [
        row | {"start": "special", "first_token": share} for row in found["tables"]["attention"]
    ]
    judged = claims.SPECIAL_TOKEN.judge(found)
    assert judged.words == word
    assert judged.ours.startswith(f"{100 * share:.0f} % of all attention")


@pytest.mark.parametrize(
    ("sparsity", "mean", "mostly"),
    [
        ((0.96, 0.98), "holds", "holds"),
        ((0.7, 0.9), "not at this scale", "holds"),
        ((0.2, 0.3), "not at this scale", "does not hold"),
    ],
)
def test_sparsity_is_judged_by_the_mean_and_by_the_layers(sparsity, mean, mostly):
    found = made_up(sparsity=sparsity)
    assert claims.MEAN_SPARSITY.judge(found).words == mean
    assert claims.MOSTLY_SPARSE.judge(found).words == mostly


def test_the_sample_of_a_count_by_layer_is_the_texts():
    found = made_up()
    assert claims.FIRST_TOKEN.judge(found).n == "–"
    for row in found["tables"]["attention"]:
        row["n_windows"] = 2
    assert {claim.judge(found).n for claim in (claims.FIRST_TOKEN, claims.MOSTLY_SPARSE)} == {"2"}


@pytest.mark.parametrize(
    ("sparsity", "gaps", "word"),
    [
        ((0.96, 0.98), (-0.1, 0.0, 0.1), "undecided"),
        ((0.96, 0.98), (-0.001, 0.0, 0.001), "holds"),
        ((0.9, 0.92), (-0.001, 0.0, 0.001), "not at this scale"),
    ],
)
def test_the_mean_of_all_layers_is_judged_over_texts(sparsity, gaps, word):
    judged = claims.MEAN_SPARSITY.judge(made_up(sparsity=sparsity, gaps=gaps))
    assert (judged.verdict, judged.n) == (word, "3")


def test_few_tokens_are_shown_with_and_without_the_first():
    assert claims.FEW_CARRY_MOST.judge(made_up(first=0.6)).ours == (
        "70 % of all attention, 10 % without the first token (medians of the layers)"
    )


@pytest.mark.parametrize(
    ("sparsity", "word"), [((0.9, 0.5), "does not hold"), ((0.5, 0.9), "holds"), ((0.9, 0.897), "holds")]
)
def test_depth_is_a_comparison_of_thirds(sparsity, word):
    """The texts agree in all layers, so that a difference of 0.001 decides."""
    judged = claims.SHALLOW_DENSER.judge(made_up(sparsity=sparsity))
    assert judged.verdict == word
    assert "negligible in the first third" in judged.ours
