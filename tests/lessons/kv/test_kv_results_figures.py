"""Figures, tables and claims of `course reproduce kv`, from made-up rows: their sentences follow from the numbers."""

import math
from statistics import NormalDist

import pytest
from figure_titles import title
from table_cells import rows as cells

from course_lib.lessons.common.results import load_measured
from course_lib.lessons.kv import claims, plots, tables
from course_lib.lessons.kv.experiments import settings

PERPLEXITY = {"Window": 60.0, "H2O": 22.0, "SnapKV": 21.0, "StreamingLLM": 23.0}
LOSSES = {"Full": [3.0, 3.2, 2.8], "Window": [4.1, 4.3, 4.0], "H2O": [3.1, 3.25, 2.9], "SnapKV": [3.05, 3.2, 2.9]}
LOSSES["StreamingLLM"] = [3.2, 3.33, 3.0]
DEPTHS = (0.1, 0.5, 0.9)


def answer(exact, **label):
    return label | {
        "exact": exact,
        "low": max(0.0, exact - 0.2),
        "high": min(1.0, exact + 0.2),
        "prefix": exact,
        "n": 20,
    }


def compressed(name, budget, perplexity):
    row = {"policy": name, "budget": budget, "bits": 32, "perplexity": perplexity, "bytes": int(1e6 * budget)}
    return row | {"standard_error": 1.0, "losses": LOSSES[name]}


RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def made_up(second=0.9, window=0.1, of_rank=lambda rank: 1 / rank):
    budgets = (0.1, 0.2)
    layer = {"start": "text", "slope": -0.8, "r_squared": 0.9, "exponential_r_squared": 0.7, "pivotal_any": 0.8}
    layer |= {"pivotal_mean": 0.1, "first_rank": 2, "last_rank": 512, "length": 1024}
    found = {"Full": 1.0, "Window": window, "H2O": 0.5, "SnapKV": 0.8, "StreamingLLM": 0.1}
    needles = [("Full", 1.0), *((name, budget) for name in PERPLEXITY for budget in budgets)]
    stream = {"positions": "original", "standard_error": 0.5, "peak_bytes": 12_000_000, "milliseconds_per_token": 9.0}
    return {
        "tables": {
            "attention": [
                layer
                | {"layer": i, "sparsity": s, "sparsity_by_text": [s, s], "persistence_any": p}
                | {"persistence_mean": mean}
                for i, (s, p, mean) in enumerate(((0.7, 0.99, 0.99), (0.96, 0.9, 0.6), (0.97, 0.96, 0.99)))
            ],
            "mass_by_rank": [
                {"start": "text", "rank": list(RANKS), "mass": [of_rank(rank) for rank in RANKS]} for _ in range(3)
            ],
            "compressed": [compressed("Full", 1.0, 20.0)]
            + [
                compressed(name, budget, value / (5 * budget))
                for name, value in PERPLEXITY.items()
                for budget in budgets
            ],
            "quantized": [compressed("H2O", 0.2, 22.0) | {"bits": 4, "bytes": 50_000, "losses": [3.2, 3.35, 3.0]}],
            "retrieval": [
                answer(found[name], task=task, policy=name, budget=budget)
                | ({"usable": task == "word"} if name == "Full" else {})
                for task in ("word", "digits")
                for name, budget in needles
            ],
            "retrieval_depths": [
                answer(found[name] * (depth == 0.9 or name == "Full"), task="word", policy=name, budget=b, depth=depth)
                for name, b in needles
                for depth in DEPTHS
            ],
            "leak": [answer(1.0, policy="Window", budget=0.1), answer(0.95, policy="Window", budget=0.2)],
            "second_needle": [
                answer(share, policy=name, question=question, bytes=1_000_000) | more
                for question in (1, 2)
                for name, share, more in (
                    ("Full", 1.0, {}),
                    ("H2O", 0.3, {}),
                    ("recycled, never refreshed", 0.2, {"full_steps": 0.0}),
                    ("recycled, every 8 steps", second, {"full_steps": 3.0}),
                )
            ],
            "policies": [
                stream | {"policy": name, "perplexity": value, "budget": 256, "n_tokens": 1000}
                for name, value in (PERPLEXITY | {"Full": 20.0}).items()
            ],
        }
    }


def test_the_best_policies_are_those_that_do_not_differ_significantly():
    said = "10 % of a prompt, n = 3: at best 2.10 times the full cache,\nSnapKV and H2O do not differ significantly"
    assert title(plots.compressed(made_up())) == said  # 0.05, 0.05 and 0: two errors, and not more
    apart = made_up()
    for row in apart["tables"]["compressed"]:
        if row["policy"] == "H2O":
            row["losses"] = [3.15, 3.3, 2.99]
    assert title(plots.compressed(apart)).endswith("full cache,\nSnapKV")


def test_policies_that_forget_the_middle_are_counted():
    said = "20 % kept, 20 needles per depth: 2 of 4\nfind clearly fewer in the middle than at the end"
    assert title(plots.by_depth(made_up())) == said  # 0 of 20 against 10 and 16, not against 2
    assert title(plots.by_depth(made_up(window=0.6))).startswith("20 % kept, 20 needles per depth: 3 of 4")


def test_the_second_question_names_each_kind_of_recycled_attention():
    said = "The second question, n = 20: Full 100 %, H2O 30 %;\nrecycled: never refreshed 20 %, every 8 steps 90 %"
    assert title(plots.second_needle(made_up())) == said


@pytest.mark.parametrize(("second", "word"), [(0.9, "holds"), (0.0, "does not hold"), (0.4, "undecided")])
def test_recycled_attention_must_be_significantly_better(second, word):
    judged = claims.LOOKS_AGAIN.judge(made_up(second))
    assert judged.verdict == word  # against 6 of 20
    assert judged.ours.startswith(f"{100 * second - 30:+.0f} ± 1")
    assert judged.ours.endswith("(every 8 steps)")


def test_policies_are_compared_with_a_window_of_as_many_slots():
    assert claims.CHOOSING.judge(made_up()).words == "holds partly (4 of 6)"
    judged = claims.CHOOSING.judge(made_up(window=0.6))
    assert judged.words == "mixed (fails in 2; undecided in 4)"  # fewer than half of the cases fail
    assert "StreamingLLM on word with 20 % kept" in judged.effects


def test_claims_on_attention_are_counted_by_layer():
    sparse, power, persistent = (
        claim.judge(made_up()) for claim in (claims.SPARSE, claims.POWER_LAW, claims.PERSISTENCE)
    )
    assert (sparse.ours, sparse.words) == ("2 of 3 layers, 87.7 % of the weights on average", "not at this scale")
    assert power.ours == (
        "0 of 3 layers (ranks 2 to 512 of 1024; median exponent -0.80); better than an exponential in 3 of 3 layers, "
        "than a log-normal in 3 of 3 layers"
    )
    assert persistent.ours == (
        "2 of 3 layers, 86 % on average (10 % by chance). By the paper's count a single query is enough: 95 % (80 % by "
        "chance)"
    )
    assert (power.words, persistent.words) == ("does not hold", "holds")  # r² is 0.9
    closer = made_up()
    for row in closer["tables"]["attention"][:2]:
        row["r_squared"] = 0.96
    assert claims.POWER_LAW.judge(closer).words == "holds"
    assert title(plots.persistence(made_up())).startswith("Above 95 % in 2 of 3 layers")


def test_a_power_law_is_compared_with_a_log_normal():
    assert claims.THAN_LOG_NORMAL.judge(made_up()).words == "holds"
    normal = made_up(of_rank=lambda rank: math.exp(2 * NormalDist().inv_cdf(1 - (rank - 0.5) / 1024)))
    judged = claims.THAN_LOG_NORMAL.judge(normal)
    assert (judged.words, judged.ours) == ("does not hold", "0 of 3 layers")


def test_heavy_hitters_are_compared_prompt_by_prompt():
    judged = claims.THAN_WINDOW.judge(made_up())
    assert judged.words == "holds"
    assert list(judged.effects) == ["10 % kept", "20 % kept"]
    assert [effect.value for effect in judged.effects.values()] == pytest.approx([1.05, 1.05])  # 1.0, 1.05, 1.1
    judged = claims.THAN_SINKS.judge(made_up())
    assert judged.words == "holds"
    assert [effect.value for effect in judged.effects.values()] == pytest.approx([0.28 / 3] * 2)  # 0.1, 0.08, 0.1
    worse = made_up()
    for row in worse["tables"]["compressed"]:
        if row["policy"] == "Window" and row["budget"] == 0.1:
            row["losses"] = LOSSES["H2O"]
    assert claims.THAN_WINDOW.judge(worse).words == "mixed (holds in 20 % kept; fails in 10 % kept)"


def test_published_rows_say_so_and_keep_their_values():
    speed = tables.published_speed()
    assert speed.caption.startswith("Published, not measured here")
    (row,) = (row for row in cells(speed) if row[0] == "T4" and "H2O" in row[2])
    assert row[3] == "18.83"


def test_the_table_of_policies_compares_with_the_full_cache_prompt_by_prompt():
    table = tables.policies(load_measured("kv"))
    by_policy = {row[0]: row[2:] for row in cells(table)}
    assert by_policy["Full"] == ["–", "100 %", "100 %", "100 %", "8.8"]
    assert by_policy["H2O"] == ["+0.069 ± 0.043", "10 %", "0 %", "20 %", "8.8"]
    assert by_policy["recycled, by similarity"] == ["–", "–", "95 %", "119 %", "–"]
    assert set(settings.names()) < set(by_policy)
