"""Effects, verdicts and figures of lesson 05 follow from the stored numbers, and change with them."""

import copy
import math

import pytest

from course_lib.lessons.minitron import claims, deck, plots, results
from course_lib.lessons.minitron.results import BEST, PAPERS


def row(*losses, **columns):
    perplexity = math.exp(sum(losses) / len(losses))
    return columns | {"losses": list(losses), "perplexity": perplexity, "standard_error": 0.1, "n_tokens": 10}


def of_cut(method, setting, *losses, draw=None, kind="neurons", size=1126):
    return row(*losses, kind=kind, size=size, method=method, setting=setting, draw=draw)


@pytest.fixture
def small():
    """Three windows, two cuts; three random choices were evaluated on the first two windows."""
    tables = {
        "dense": [row(3.0, 3.0, 3.0, parameters=100)],
        "cuts": [
            of_cut("activations", BEST, 3.5, 3.6, 3.7),
            of_cut("activations", PAPERS, 3.6, 3.7, 3.8),
            of_cut("output energy", "", 3.4, 3.4, 3.5),
            of_cut("activations", BEST, 4.5, 4.6, 4.7, kind="heads", size=6),
            of_cut("activations", PAPERS, 4.5, 4.5, 4.8, kind="heads", size=6),
            of_cut("random", "", 4.5, 4.5, draw=0),
            of_cut("random", "", 5.0, 4.9, draw=1),
            of_cut("random", "", 4.7, 4.75, draw=2),
            of_cut("random", "", 4.0, 4.0, draw=0, kind="heads", size=6),
            of_cut("random", "", 4.1, 4.0, draw=1, kind="heads", size=6),
            of_cut("random", "", 4.05, 4.0, draw=2, kind="heads", size=6),
        ],
    }
    return {"tables": tables}


def test_random_trials_are_compared_on_their_own_windows(small):
    effects = results.gain_over_random(small)
    neurons, heads = effects[("neurons", 1126)], effects[("heads", 6)]
    assert neurons.value == pytest.approx((0.95 + 1.4 + 1.175) / 3)  # of three random choices: means over two windows
    assert neurons.error == pytest.approx(0.225 / math.sqrt(3))
    assert heads.value == pytest.approx((-0.55 - 0.5 - 0.525) / 3)
    assert heads.fails
    assert neurons.holds
    title = plots.scores(small).axes[0].get_title(loc="left")
    assert title.startswith("Activation norms are clearly better than random selection in 1 of 2 cases;")
    assert title.endswith("at least 3 random trials of each")


def test_times_the_dense_perplexity_by_hand(small):
    ours = results.cut_row(small, ("neurons", 1126))
    assert results.times_dense(small, ours) == pytest.approx(math.exp(0.6))
    assert results.times_dense(small, ours, 2) == pytest.approx(math.exp(0.55))
    assert results.cut_row(small, ("heads", 6), "output energy", "") is None


def test_other_scores_and_aggregations_are_compared_in_pairs(small):
    (energy,) = results.gain_over_score(small, "output energy", "").values()
    assert energy.value == pytest.approx(-0.5 / 3)
    papers = results.gain_of_papers_aggregation(small)
    assert papers[("neurons", 1126), BEST].value == pytest.approx(-0.1)
    assert papers[("neurons", 1126), BEST].fails
    assert papers[("heads", 6), BEST].value == pytest.approx(0.0, abs=1e-12)
    judged = claims.AGGREGATION.judge(small)
    assert judged.words == "does not hold (fails in 1 of 2)"
    values = [(effect.value, effect.error) for effect in judged.estimates.values()]
    assert values == [pytest.approx((-0.1, 0), abs=1e-9), pytest.approx((0, 0.0577), abs=1e-3)]
    assert "Verdict: does not hold (fails in 1 of 2)" in str(judged)


@pytest.fixture(scope="module")
def committed():
    return results.results()


FIGURES = ("scores", "width_or_depth")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_a_title_and_labels(name, committed):
    fig = getattr(plots, name)(committed)
    assert all(axes.get_title(loc="left") and axes.get_xlabel() for axes in fig.axes)


def changed(result, table, wanted, add):
    """The result with all losses of some rows changed by so many nats."""
    result = copy.deepcopy(result)
    for each in result["tables"][table]:
        if all(each[key] == value for key, value in wanted.items()):
            each["losses"] = [loss + add for loss in each["losses"]]
            each["perplexity"] *= math.exp(add)
    return result


def test_which_way_is_ahead_follows_the_windows(committed):
    better = changed(committed, "equal_parameters", {"name": "blocks at even distances", "steps": 40}, -9.0)
    assert "blocks at even distances" in plots.width_or_depth(better).axes[0].get_title(loc="left")
    worse = changed(committed, "equal_parameters", {"kind": "depth", "steps": 40}, 9.0)
    assert plots.width_or_depth(worse).axes[0].get_title(loc="left").endswith("fewer neurons: none")
    assert claims.WIDTH.judge(worse).words == "holds"
    assert list(claims.WIDTH.judge(worse).effects) == list(claims.PAPERS_SCORES)
    assert claims.WIDTH.judge(better).words == claims.WIDTH.judge(committed).words  # even distances are no score
    fewer = changed(committed, "equal_parameters", {"kind": "depth", "steps": 40}, -9.0)
    assert claims.WIDTH.judge(fewer).words == "not at this scale"


def test_claims_change_with_the_numbers(committed):
    worse_trials = changed(committed, "cuts", {"method": "random"}, 20.0)
    assert claims.LOTS.judge(worse_trials).words == "holds"
    assert claims.LOTS.judge(changed(committed, "cuts", {"method": "random"}, -20.0)).words == "does not hold"
    refit = changed(committed, "refit", {}, 5.0)
    assert claims.REFIT.judge(refit).words == "does not hold"


def test_the_repaired_fraction_by_hand(committed):
    dense, checkpoints = math.log(results.dense(committed)["perplexity"]), results.curve(committed)
    assert [row["step"] for row in checkpoints] == sorted(row["step"] for row in checkpoints)
    first, last = (math.log(checkpoints[place]["perplexity"]) - dense for place in (0, -1))
    assert results.repaired(committed).value == pytest.approx(1 - last / first, abs=0.01)
    healed = changed(committed, "curves", {"step": checkpoints[-1]["step"]}, -last)
    assert results.repaired(healed).value == pytest.approx(1.0, abs=0.01)
    assert claims.REPAIRED.judge(healed).words == "holds"


def test_equal_accuracies_have_no_difference(committed):
    same = results.accuracy_gained(committed, ("dense", 0), ("dense", 0))
    assert same.value == 0


def test_the_best_shape_after_training_by_hand(small):
    def shape(rank, *after):
        return {"model": "m", "rank_before": rank, "after": sum(after) / len(after), "losses_after": list(after)}

    small["tables"]["search_order"] = [{"model": "m"}]
    small["tables"]["search"] = [shape(1, 2.0, 2.2), shape(0, 2.5, 2.6), shape(2, 3.0, 3.0)]
    assert results.still_best(small)["m"].value == pytest.approx(-0.45)
    small["tables"]["search"][1]["losses_after"] = [1.0, 1.1]
    assert results.still_best(small)["m"].holds


def test_bytes_of_the_picture_by_hand(committed):
    points = {(point.family, point.name): point for point in deck.zeros() + deck.pruned_models(committed)}
    embedding = 49_152 * 576
    matrices = 30 * (2 * 576 * 64 * 12 + 3 * 576 * 1536)  # of the blocks; the norms are left out
    fraction = (embedding + 0.5625 * matrices) / (embedding + matrices)
    assert points["2:4", "Wanda"].bytes == pytest.approx(fraction)
    assert points["24 blocks", "no training"].bytes == pytest.approx(0.842, abs=0.001)
    assert all((point.speed == 1) == (point.family in ("single weights", "2:4")) for point in points.values())
    assert len(deck.together(committed).axes) == 2
