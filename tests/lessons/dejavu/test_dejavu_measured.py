"""Claims and figures of lesson 09 follow from the stored numbers and change with them."""

import copy
import math

import pytest

from course_lib.lessons.common.style import HouseFigure
from course_lib.lessons.dejavu import claims, plots, results
from course_lib.lessons.dejavu.effects import between_levels, recall_lost
from course_lib.lessons.dejavu.experiments.ground import GATED, RELU
from course_lib.lessons.dejavu.experiments.oracle import ALONE, EMBEDDING, ORACLE, RECORDED, STATIC, WAYS
from course_lib.lessons.dejavu.experiments.search import MLP, SCAN, TREE
from course_lib.lessons.dejavu.experiments.trained import COPY, PREDICTOR
from course_lib.lessons.dejavu.experiments.trained import SCAN as NEAREST_ROWS
from course_lib.lessons.dejavu.experiments.trained import STATIC as ONE_SET

CONTEXT_CLAIMS = claims.CONTEXT_HELPS, claims.TOKEN_HELPS, claims.EMBEDDING_HELPS, claims.ON_THE_FLY
PREDICTOR_CLAIMS = (
    claims.PREDICTOR_GATED,
    claims.PREDICTOR_RELU,
    claims.COPY_GATED,
    claims.COPY_RELU,
    claims.PREDICTOR_CHEAP_GATED,
    claims.PREDICTOR_CHEAP,
)
DENSE = {GATED: (3.0, 3.2, 3.1), RELU: (2.0, 2.1, 2.2)}  # nats of three windows
UNEVEN = (-0.001, 0.0, 0.001)


def above(model, nats, **columns):
    """A row that lies so many nats above its dense model, window by window with a little spread."""
    losses = [whole + nats + part for whole, part in zip(DENSE[model], UNEVEN, strict=True)]
    perplexity = math.exp(sum(losses) / len(losses))
    return columns | {"model": model, "losses": losses, "perplexity": perplexity, "standard_error": 0.1}


def as_it_is(model):
    losses = list(DENSE[model])
    return {"model": model, "losses": losses, "perplexity": math.exp(sum(losses) / 3), "standard_error": 0.1}


def by_neurons(model, by, density, nats):
    return above(model, nats, chosen_by=by, density=density)


@pytest.fixture
def oracles():
    """Half and a twentieth of the neurons; the ReLU model loses nothing."""
    neurons = [by_neurons(GATED, by, 0.5, nats) for by, nats in ((ORACLE, 0.03), (RECORDED, 0.04), (STATIC, 1.9))]
    neurons += [by_neurons(GATED, EMBEDDING, 0.5, 1.2), by_neurons(GATED, ALONE, 0.5, 1.5)]
    neurons += [by_neurons(GATED, ORACLE, 0.05, 4.0)]
    neurons += [by_neurons(RELU, ORACLE, 0.5, 0.0), by_neurons(RELU, ORACLE, 0.05, 0.01)]
    neurons += [by_neurons(RELU, ALONE, 0.5, 0.2), by_neurons(RELU, STATIC, 0.5, 0.1)]
    half = {"density": 0.5, "reached": 0.51}
    tables = {
        "dense": [as_it_is(model) for model in DENSE],
        "neurons": neurons,
        "heads": [
            above(GATED, 0.02, kept=7, of=9, chosen_by="output", groups=0.99),
            above(GATED, 2.0, kept=2, of=9, chosen_by="output", groups=0.4),
            above(GATED, 0.05, kept=7, of=9, chosen_by="static", groups=0.9),
        ],
        "together": [above(GATED, 5.0, kept=2, of=9, density=0.05, left=0.12)],
        "active": [
            {"model": GATED, "block": 0, "never": 0.0, "nonzero": [1.0, 1.0], "carrying": [0.3, 0.4], "energy": 0.95},
            {"model": RELU, "block": 0, "never": 0.1, "nonzero": [0.1, 0.11], "carrying": [0.05, 0.05], "energy": 0.95},
        ],
        "slow_change": [
            {"model": GATED, "block": block, "cosine": cosine, "size_ratio_attention": 0.1, "size_ratio_mlp": ratio}
            for block, (cosine, ratio) in enumerate([(0.0, 16.0), (0.96, 0.3), (0.97, 0.2), (0.98, 0.4), (0.9, 0.6)])
        ],
        "depth": [above(GATED, nats, way=way) for way, nats in zip(WAYS, (0.01, 0.02, 0.5, 1.0), strict=True)],
        "activations": [
            above(
                GATED, 0.0, method="dense", tokens=None, density=None, reached=None, losses_second_half=[3.0, 3.1, 3.0]
            ),
            above(GATED, 0.3, method="CATS", tokens="all", losses_second_half=[3.3, 3.4, 3.3], **half),
            above(GATED, 0.4, method="TEAL", tokens="all", losses_second_half=[3.4, 3.5, 3.41], **half),
            above(GATED, 0.2, method="TEAL, greedy levels", tokens="all", losses_second_half=[3.2, 3.2, 3.2], **half),
            above(GATED, 0.1, method="TEAL", tokens="second half", losses_second_half=[3.2, 3.3, 3.2], **half),
            above(GATED, 5.0, method="SiLU replaced by ReLU", tokens=None, density=None, reached=None),
        ],
        "batch": [
            {"model": GATED, "density": 0.2, "batch": batch, "shares": [share - 0.01, share + 0.01]}
            for batch, share in ((1, 0.2), (4, 0.45))
        ],
        "rounded": [
            above(GATED, nats, grid=grid, density=density)
            for grid, density, nats in (
                ("3 bits", 1.0, 0.5),
                ("3 bits", 0.5, 0.54),
                ("4 bits", 1.0, 0.1),
                ("4 bits", 0.5, 0.2),
            )
        ],
    }
    return {"tables": tables, "sizes": {}}


def of_predictor(model, by, density, nats, lookahead=0):
    row = by_neurons(model, by, density, nats)
    return row | {"lookahead": lookahead, "bytes": 5, "mlp_bytes": 100}


def recall_of(block, lookahead, recall, by=PREDICTOR):
    return {"model": GATED, "chosen_by": by, "block": block, "lookahead": lookahead, "recall": recall, "energy": 0.8}


@pytest.fixture
def guesses():
    """The predictor is worse than a static set on the default model, and close to dense with a ReLU."""
    rows = [of_predictor(GATED, by, 0.5, nats) for by, nats in ((ONE_SET, 1.9), (COPY, 0.2), (PREDICTOR, 2.6))]
    rows += [of_predictor(GATED, PREDICTOR, 0.5, 2.61, lookahead=1)]
    rows += [of_predictor(RELU, by, 0.2, nats) for by, nats in ((ONE_SET, 0.4), (COPY, 0.03), (PREDICTOR, 0.01))]
    tables = {
        "dense": [as_it_is(model) for model in DENSE],
        "predicted": rows,
        "recall": [recall_of(block, 0, recall) for block, recall in enumerate((0.6, 0.7, 0.8))]
        + [recall_of(block, 1, recall) for block, recall in enumerate((0.6, 0.698, 0.797))]
        + [recall_of(0, 0, 0.5, by=ONE_SET)],
        "heads": [
            above(GATED, nats, kept=7, of=9, chosen_by=by, groups=0.9)
            for by, nats in ((PREDICTOR, 0.1), ("output", 0.05), ("static", 0.3))
        ],
        "search": [
            {"model": GATED, "way": way, "seconds": seconds, "recall": share}
            for way, seconds, share in (
                (MLP, [1, 1.1, 0.9], None),
                (SCAN, [0.5, 0.5, 0.5], 0.6),
                (TREE, [4, 4.2, 3.9], 0.6),
            )
        ],
    }
    return {"tables": tables}


def raised(result, table, by, **wanted):
    """The result with the losses of some rows raised by so many nats."""
    result = copy.deepcopy(result)
    for row in result["tables"][table]:
        if all(row[key] == value for key, value in wanted.items()):
            row["losses"] = [loss + by for loss in row["losses"]]
            row["perplexity"] *= math.exp(by)
    return result


def words(claim, result):
    return claim.judge(result).words


def test_effects_by_hand(oracles):
    row = results.one(oracles, "neurons", model=GATED, chosen_by=ORACLE, density=0.5)
    effect = results.above_dense(oracles, row)
    assert (effect.value, effect.n) == (pytest.approx(0.03), 3)
    assert effect.error == pytest.approx(0.001 / math.sqrt(3))  # of -0.001, 0 and 0.001
    assert results.one(oracles, "neurons", model=GATED, chosen_by=ORACLE, density=0.9) is None


def test_what_an_oracle_needs(oracles):
    few = claims.FEW_NEURONS.judge(oracles)
    assert few.words == "mixed (holds in ReLU model, 5 % of the neurons; fails in SmolLM2, 5 % of the neurons)"
    assert few.effects["SmolLM2, 5 % of the neurons"].value == pytest.approx(0.05 - 4.0)
    assert words(claims.FEW_HEADS, oracles) == "not at this scale"
    assert words(claims.FEW_OF_BOTH, oracles) == "not at this scale"
    assert "+5.0000" in claims.FEW_OF_BOTH.judge(oracles).ours
    further = above(GATED, 0.0, kept=8, of=9, density=0.9, left=0.9)
    oracles["tables"]["together"] += [further, above(GATED, 0.01, kept=1, of=9, density=0.02, left=0.05)]
    assert "+5.0000" in claims.FEW_OF_BOTH.judge(oracles).ours  # 12 % are nearest to a seventh
    oracles["tables"]["together"].append(above(GATED, 0.01, kept=3, of=9, density=0.1, left=0.14))
    assert words(claims.FEW_OF_BOTH, oracles) == "holds"
    cheap = raised(oracles, "neurons", -3.99, model=GATED, density=0.05)
    assert words(claims.FEW_NEURONS, cheap) == "holds"


def test_levels_of_context(oracles):
    assert [words(claim, oracles) for claim in CONTEXT_CLAIMS] == [
        "holds",
        "mixed (holds in SmolLM2 at 50 % of the neurons; fails in ReLU model at 50 % of the neurons)",
        "holds",
        "holds",
    ]
    worse = raised(oracles, "neurons", 3.0, chosen_by=ORACLE)
    assert words(claims.CONTEXT_HELPS, worse) == "does not hold"


def test_own_neurons_and_heads_are_compared_with_static_ones(oracles):
    judged = claims.INPUT_MATTERS.judge(oracles)
    assert judged.words == "holds"
    assert list(judged.effects) == [
        "SmolLM2 at 50 % of the neurons", "ReLU model at 50 % of the neurons", "SmolLM2 with 7 of 9 heads",
    ]  # fmt: skip
    worse = raised(raised(oracles, "neurons", 3.0, chosen_by=ORACLE), "heads", 3.0, chosen_by="output")
    assert words(claims.INPUT_MATTERS, worse) == "does not hold"


def test_zeros_after_relu(oracles):
    oracles["tables"]["active"][1]["nonzero"] = [0.1, 0.1, 0.11, 0.11]
    assert words(claims.RELU_ZEROS, oracles) == "holds"
    assert claims.RELU_ZEROS.judge(oracles).ours == "89.50 ± 0.29 %"
    oracles["tables"]["active"][1]["nonzero"] = [0.6, 0.6, 0.61, 0.61]
    assert words(claims.RELU_ZEROS, oracles) == "does not hold"


def test_slow_change_counts_blocks(oracles):
    both = claims.SLOW, claims.RESIDUAL_DOMINATES
    assert [words(claim, oracles) for claim in both] == ["holds", "holds"]  # three of four
    assert claims.SLOW.judge(oracles).ours == "median 0.965 (SmolLM2); above 0.95 in 3 of 4 blocks (SmolLM2)"
    assert claims.SLOW.judge(oracles).flips["0.98"] == "does not hold"
    assert claims.RESIDUAL_DOMINATES.judge(oracles).flips["75 % of the blocks"] == "does not hold"
    oracles["tables"]["slow_change"][3] |= {"cosine": 0.9, "size_ratio_mlp": 0.6}
    assert [words(claim, oracles) for claim in both] == ["does not hold"] * 2  # half of them are not most
    depth = claims.IN_PARALLEL, claims.PAIRS_IN_PARALLEL, claims.SKIP_FOURTH, claims.SKIP_SECOND
    assert [words(claim, oracles) for claim in depth] == ["holds", "holds", "not at this scale", "not at this scale"]


def test_activations(oracles):
    assert words(claims.GREEDY_LEVELS, oracles) == "holds"
    assert words(claims.SWAPPED_RELU, oracles) == "does not hold"
    (levels,) = (row for row in oracles["tables"]["activations"] if row["method"] == "TEAL, greedy levels")
    levels["reached"] = 0.45  # of 50 % asked
    assert between_levels(oracles) == {}  # thresholds that missed their density are not compared
    levels["reached"] = 0.51
    assert words(claims.HALF_WINDOWS, oracles) == "holds"


def test_heads_batches_and_rounding(oracles):
    assert words(claims.HEADS_DIFFER, oracles) == "holds"
    oracles["tables"]["batch"][1]["shares"] = [0.44, 0.45, 0.46]
    assert words(claims.BATCHED, oracles) == "holds"
    assert words(claims.ROUNDED, oracles) == "mixed (holds in SmolLM2, 3 bits; fails in SmolLM2, 4 bits)"  # 0.01, 0.07
    assert claims.ROUNDED.judge(oracles).estimates["SmolLM2, 3 bits"].value == pytest.approx(0.01)  # 0.04 - 0.03


def test_predictors(guesses):
    assert [words(claim, guesses) for claim in PREDICTOR_CLAIMS] == [
        "does not hold",  # better than a static set, SmolLM2
        "holds",  # the same, ReLU model
        "holds",  # a copy is better, SmolLM2
        "does not hold",  # the same, ReLU model
        "does not hold",  # costs little, SmolLM2
        "holds",  # the same, ReLU model
    ]


def test_predicted_heads_compared_with_one_set(guesses):
    assert words(claims.PREDICTED_HEADS, guesses) == "holds"
    worse = raised(guesses, "heads", 0.5, chosen_by=PREDICTOR)
    assert words(claims.PREDICTED_HEADS, worse) == "does not hold"


def test_lookahead_compares_block_by_block(guesses):
    lost = recall_lost(guesses, 1)[GATED]
    assert (lost.value, lost.error) == (pytest.approx(0.0025), 0.0)  # 0.002 and 0.003, without block 0
    assert words(claims.AHEAD, guesses) == "holds"
    for row in guesses["tables"]["recall"]:
        row["recall"] -= 0.02 * row["lookahead"]
    assert words(claims.AHEAD, guesses) == "does not hold"


@pytest.mark.parametrize(("nats", "word"), [(0.5, "holds"), (2.5, "does not hold"), (1.9, "undecided")])
def test_what_a_search_finds_is_compared_with_a_static_set(nats, word, guesses):
    nearest = of_predictor(GATED, NEAREST_ROWS, 0.5, nats)
    nearest["losses"][0] += 0.01  # as much above the static set in one window as below it in the others
    nearest["losses"][1] -= 0.01
    guesses["tables"]["predicted"].append(nearest)
    assert claims.SEARCH_PREDICTS.judge(guesses).verdict == word


@pytest.mark.parametrize(
    ("static", "word"),
    [([0.39, 0.4, 0.42], "holds"), ([0.49, 0.5, 0.52], "does not hold"), ([0.3, 0.46, 0.6], "undecided")],
)
def test_what_a_search_finds_is_compared_window_by_window(static, word):
    label = {"model": GATED, "density": 0.3, "n_tokens": 768}
    table = [label | {"way": way, "recall": each} for way, each in ((SCAN, [0.44, 0.45, 0.46]), (ONE_SET, static))]
    judged = claims.SEARCH_FINDS.judge({"tables": {"search_recall": table}})
    assert (judged.verdict, judged.n) == (word, "3")
    assert judged.ours.startswith("45.00 ± 0.58 % by a scan of all rows, ")
    assert judged.ours.endswith("30 % by chance (recall on 768 tokens)")


def test_search_compared_with_the_layer(guesses):
    assert words(claims.NEAREST, guesses) == "mixed (holds in ball tree; fails in scan of all rows)"


@pytest.mark.parametrize("name", ["levels", "batch"])
def test_figures_of_oracles_have_titles(name, oracles):
    fig = getattr(plots, name)(oracles)
    assert isinstance(fig, HouseFigure)
    assert all(axes.get_title(loc="left") and axes.get_xlabel() for axes in fig.axes)


def test_a_lookahead_longer_than_the_model_is_no_case(guesses):
    """The ReLU model has few blocks: none is that far after another."""
    guesses["tables"]["recall"] += [recall_of(block, 4, 0.5) for block in range(3)]
    assert recall_lost(guesses, 4) == {}


def test_the_figure_of_predictions_has_titles(guesses):
    fig = plots.predicted(guesses)
    assert all(axes.get_title(loc="left") and axes.get_xlabel() for axes in fig.axes)


def test_titles_follow_the_numbers(oracles, guesses):
    gated, relu = (axes.get_title(loc="left") for axes in plots.levels(oracles).axes)
    assert gated.endswith("token alone clearly worse than oracle\nand static clearly worse than token alone")
    assert relu.endswith("equal density:\ntoken alone clearly worse than oracle")
    close = plots.predicted(guesses).axes[1].get_title(loc="left")
    assert close == "ReLU model, 20 % of the neurons: 2 of 3\nclearly cost less than 0.05 nats"
