"""The claims of lesson 09: what Deja Vu, CATS and TEAL say of contextual sparsity, and how we judge it."""

import math
from functools import partial

from course_lib.lessons.common.claim import (
    MOST,
    NATS,
    NO_LOSS,
    NUMBER,
    OTHER_LOSSES,
    OTHER_MAJORITIES,
    PERCENT,
    POINTS,
    TIMES,
    WHY_MOST,
    WHY_NO_LOSS,
    Claim,
    Unit,
)
from course_lib.lessons.common.results import load_published, percent, rows
from course_lib.lessons.common.verdicts import of_samples
from course_lib.lessons.dejavu import effects
from course_lib.lessons.dejavu.experiments.heads import OUTPUT
from course_lib.lessons.dejavu.experiments.oracle import ALONE, EMBEDDING, ORACLE, RECORDED, STATIC, WAYS
from course_lib.lessons.dejavu.experiments.search import SCAN as SCAN_ALL
from course_lib.lessons.dejavu.experiments.trained import COPY, PREDICTOR, SCAN
from course_lib.lessons.dejavu.experiments.trained import STATIC as ONE_SET
from course_lib.lessons.dejavu.results import GATED, RELU

COSINE = 0.95  # of the residual before and after a block
SHORT = 0.5  # of the residual's length
LOST = 0.01  # of the recall, by reading an earlier block
LEFT = 0.15  # of the neurons, where the paper skips 85 %
BATCH = 4  # sequences that are decoded together

DEJA_VU = "Liu and others (2023), arXiv:2310.17157"
TEAL = "Liu and others (2024), arXiv:2408.14690"
RELU_STRIKES_BACK = "Mirzadeh and others (2023), arXiv:2310.04564"

_claim = partial(Claim, results=("dejavu/measured",), source=DEJA_VU)
_predicted = partial(_claim, results=("dejavu/experiments/dejavu_predictors",))
_decoded = partial(_claim, results=("dejavu/experiments/relu_predictors",))
_timed = partial(_claim, results=("bench/cpu_contextual",), unit=TIMES)
_harmless = {"below": NO_LOSS, "because": WHY_NO_LOSS, "other_thresholds": OTHER_LOSSES}


def _published(table: str, column: str, **wanted: str) -> float:
    (row,) = rows(load_published("dejavu"), table, **wanted)
    return float(row[column])


# A small set exists: an oracle computes all values and keeps the largest.

_exists = partial(_claim, **_harmless, larger_models=True, quantity="loss increase")
FEW_HEADS = _exists(
    id="dejavu-few-heads",
    text=f"keeping a fifth of the heads, chosen for each token by an oracle, costs less than {NO_LOSS} nats per token",
    measure=partial(effects.fewest, table="heads", smallest="kept", chosen_by=OUTPUT),
    refuted=f"a fifth of the heads, chosen by an oracle, that costs over {NO_LOSS} nats",
    published="no loss of accuracy with 80 % of the heads skipped (OPT-175B)",
)
FEW_NEURONS = _exists(
    id="dejavu-few-neurons",
    text=f"keeping 5 % of the neurons, chosen for each token by an oracle, costs less than {NO_LOSS} nats per token",
    measure=partial(effects.fewest, table="neurons", smallest="density", chosen_by=ORACLE),
    refuted=f"a twentieth of the neurons, chosen by an oracle, that costs over {NO_LOSS} nats",
    published="no loss of accuracy with 95 % of the neurons skipped (OPT-175B)",
)
FEW_OF_BOTH = _exists(
    id="dejavu-few-of-both",
    text="keeping heads and neurons with a seventh of the weights, chosen for each token by an oracle, costs less than "
    f"{NO_LOSS} nats per token",
    measure=effects.nearest_to_a_seventh,
    refuted=f"heads and neurons with about a seventh of the weights that cost over {NO_LOSS} nats",
    published="no loss of accuracy with 85 % of the weights skipped (OPT-175B)",
)
RELU_ZEROS = _claim(
    id="dejavu-relu-zeros",
    text="after a ReLU, most of the hidden values are zero",
    measure=effects.zeros,
    above=0.5,
    because="the talk names no number; most of the values are more than half",
    other_thresholds=(0.85, 0.9, 0.95),
    unit=PERCENT,
    quantity="fraction of the ReLU model's hidden values that are zero",
    refuted="half or more of the values after the ReLU that are not zero",
)

# The choice depends on the context.


INPUT_MATTERS = _claim(
    id="dejavu-input-matters",
    text="neurons and heads chosen for each token by an oracle have a lower loss than static ones",
    measure=lambda measured: effects.between_choices(measured, ORACLE, STATIC) | effects.own_heads(measured),
    quantity="loss with a static set minus that with each token's own",
    refuted="a static set of neurons or heads with a loss as low",
)
CONTEXT_HELPS, TOKEN_HELPS, EMBEDDING_HELPS, ON_THE_FLY = (
    _claim(
        id=f"dejavu-{name}",
        text=text,
        measure=partial(effects.between_choices, better=better, worse=worse),
        quantity=quantity,
        refuted="a model and a density at which the second way to choose has a loss as low",
    )
    for name, better, worse, text, quantity in (
        (
            "context-helps", ORACLE, ALONE,
            "neurons chosen in context, by an oracle, have a lower loss than neurons chosen by the token alone",
            "loss with the token alone minus that in context",
        ),
        (
            "token-helps", ALONE, STATIC,
            "neurons chosen by the token alone have a lower loss than a static set",
            "loss with a static set minus that with the token alone",
        ),
        (
            "embedding-helps", EMBEDDING, STATIC,
            "neurons chosen by a fitted map of the token's embedding have a lower loss than a static set",
            "loss with a static set minus that with the map",
        ),
        (
            "on-the-fly", ORACLE, RECORDED,
            "an oracle that chooses on the fly has a lower loss than one that recorded its choice in a dense pass",
            "loss with the recorded choice minus that on the fly",
        ),
    )
)  # fmt: skip
HEADS_DIFFER = _claim(
    id="dejavu-heads-differ",
    text="heads chosen for each token by an oracle have a lower loss than static heads",
    measure=effects.own_heads,
    quantity="loss with static heads minus that with each token's own",
    refuted="static heads with a loss as low",
)

# The choice can be predicted.


PREDICTOR_GATED, PREDICTOR_RELU, COPY_GATED, COPY_RELU = (
    _predicted(
        id=f"dejavu-{name}-{suffix}",
        text=f"in {place}, neurons chosen by {better} have a lower loss than {than}",
        measure=partial(effects.between_selectors, model=model, better=better, worse=worse),
        quantity=f"loss with {worse} minus that with {better}",
        refuted=f"{worse} with a loss as low",
    )
    for name, better, worse, than in (
        ("predictor", PREDICTOR, ONE_SET, "a static set"),
        ("copy", COPY, PREDICTOR, "those of a trained predictor"),
    )
    for suffix, model, place in (("gated", GATED, "SmolLM2"), ("relu", RELU, "the ReLU model"))
)


def _published_cost() -> str:
    """The log ratio of the published perplexities on WikiText."""
    perplexity = partial(_published, "dejavu_accuracy", "WikiText")
    ratio = perplexity(model="MLP 85 % sparse") / perplexity(model="OPT-175B")
    return f"{math.log(ratio):+.4f} nats per token (OPT-175B, 85 % of the neurons skipped, WikiText)"


PREDICTOR_CHEAP_GATED, PREDICTOR_CHEAP = (
    _predicted(
        id=f"dejavu-predictor-cheap{suffix}",
        text=f"in {place}, neurons chosen by a trained predictor cost less than {NO_LOSS} nats per token",
        measure=partial(effects.predictor_cost, model=model),
        **_harmless,
        quantity="loss increase",
        refuted=f"neurons chosen by a trained predictor that cost over {NO_LOSS} nats",
        published=_published_cost,
    )
    for suffix, model, place in (("-gated", GATED, "SmolLM2"), ("", RELU, "the ReLU model"))
)
PREDICTOR_AT_FIFTEEN = _decoded(
    id="dejavu-predictor-at-15",
    text=f"in the ReLU model, trained predictors that skip 85 % of the neurons cost less than {NO_LOSS} nats per token",
    measure=partial(effects.predicted_bytes, density=LEFT),
    **_harmless,
    quantity="loss increase with 15 % of the neurons",
    refuted=f"15 % of the neurons, chosen by trained predictors, that cost over {NO_LOSS} nats",
    published=_published_cost,
)
PREDICTED_HEADS, PREDICTED_HEADS_RELU = (
    _predicted(
        id=f"dejavu-predicted-heads{suffix}",
        text=f"in {place}, heads chosen by a trained predictor have a lower loss than static heads",
        measure=partial(effects.predicted_heads, model=model),
        quantity="loss with static heads minus that with predicted ones",
        refuted="static heads with a loss as low",
    )
    for suffix, model, place in (("", GATED, "SmolLM2"), ("-relu", RELU, "the ReLU model"))
)
AHEAD, AHEAD_BY_TWO, AHEAD_BY_FOUR = (
    _predicted(
        id=f"dejavu-ahead{suffix}",
        text=f"a predictor that reads its input {distance} earlier loses less than one percentage point of recall",
        measure=partial(effects.recall_lost, ahead=n_blocks),
        below=LOST,
        because="one percentage point is the smallest loss of recall that the course counts",
        criterion="less than one percentage point: the smallest loss of recall that the course counts",
        other_thresholds=(0.005, 0.02),
        unit=Unit("percentage points", scale=100),
        quantity="recall lost, mean of the blocks",
        refuted=f"predictors that read their input {distance} earlier and lose over one percentage point of recall",
    )
    for suffix, n_blocks, distance in (
        ("", 1, "one block"),
        ("-by-two", 2, "two blocks"),
        ("-by-four", 4, "four blocks"),
    )
)


def _published_search() -> str:
    milliseconds = partial(_published, "dejavu_search", "milliseconds")
    mlp = milliseconds(what="the whole MLP")
    times = [f"over {milliseconds(what=f'{name}, more than') / mlp:.0f} times ({name})" for name in ("HNSW", "FAISS")]
    return f"{', '.join(times)} on OPT-175B"


NEAREST = _predicted(
    id="dejavu-nearest",
    text="a nearest-neighbour search for the neurons takes longer than the MLP that it is to save",
    measure=effects.search_times,
    unit=TIMES,
    quantity="time of the search over that of the MLP",
    refuted="a search that is faster than the MLP",
    published=_published_search,
)


SEARCH_PREDICTS = _predicted(
    id="dejavu-search-predicts",
    text="in SmolLM2, neurons found by a nearest-neighbour search have a lower loss than a static set",
    measure=partial(effects.between_selectors, model=GATED, better=SCAN, worse=ONE_SET),
    quantity="loss with a static set minus that with nearest rows",
    refuted="a static set with a loss as low",
)


def _show_found(found: dict) -> str:
    scan, static = (rows(found, "search_recall", way=way)[0] for way in (SCAN_ALL, ONE_SET))
    by_scan, by_static = (PERCENT(of_samples(row["recall"])) for row in (scan, static))
    return (
        f"{by_scan} by a scan of all rows, {by_static} by a static set, {percent(scan['density'])} by chance (recall "
        f"on {scan['n_tokens']:,} tokens)"
    )


SEARCH_FINDS = _claim(
    id="dejavu-search-finds",
    text="in SmolLM2, a scan of all rows of the gate finds more of the needed neurons than a static set",
    results=("dejavu/experiments/search_recall",),
    measure=effects.found_by_search,
    shown=_show_found,
    above=0.0,
    because="a static set needs no search",
    other_thresholds=(0.01, 0.05),
    unit=POINTS,
    quantity="fraction of the needed neurons that a scan finds minus that of a static set",
    refuted="a static set with as many of the needed neurons",
)

# The residual changes slowly from block to block.

SLOW = _claim(
    id="dejavu-slow",
    text=f"blocks after the first turn the residual little: in the median block its cosine before and after is above "
    f"{COSINE}",
    measure=partial(effects.median_of_blocks, column="cosine"),
    shown=partial(effects.shown_medians, column="cosine", low=COSINE),
    above=COSINE,
    because="very high means more than 0.95; the source names no number",
    other_thresholds=(0.9, 0.98),
    unit=NUMBER,
    quantity="median of the blocks after the first, by model",
    refuted=f"a model whose median block has a cosine of {COSINE} or less",
    published="a cosine of about 0.99 from the second block on (OPT-175B)",
)
RESIDUAL_DOMINATES = _claim(
    id="dejavu-residual-dominates",
    text="most MLPs after the first block add a vector that is less than half as long as the residual",
    measure=partial(effects.fitting_blocks, column="size_ratio_mlp", high=SHORT),
    shown=partial(effects.counted_blocks, column="size_ratio_mlp", high=SHORT),
    above=MOST,
    because=WHY_MOST,
    other_thresholds=OTHER_MAJORITIES,
    unit=Unit("% of the blocks", scale=100),
    quantity="fraction of the blocks, by model",
    refuted="a model in which half of the MLPs or more add over half of the residual's length",
)


def _published_task(setting: str) -> str:
    accuracy = partial(_published, "dejavu_depth", "Hellaswag")
    dense, altered = accuracy(setting="as trained"), accuracy(setting=setting)
    return f"HellaSwag accuracy {100 * altered:.1f} %, {100 * dense:.1f} % as trained (OPT-175B)"


def _published_skipping(setting: str) -> str:
    perplexity = partial(_published, "dejavu_skipped", "WikiText")
    return f"{math.log(perplexity(setting=setting) / perplexity(setting='as trained')):+.2f} nats per token (WikiText)"


IN_PARALLEL, PAIRS_IN_PARALLEL, SKIP_FOURTH, SKIP_SECOND = (
    _claim(
        id=f"dejavu-{name}",
        text=f"{what} for less than {NO_LOSS} nats per token",
        measure=partial(effects.altered, way=way),
        **_harmless,
        quantity="loss increase",
        refuted=f"a model that loses over {NO_LOSS} nats",
        published=published,
        larger_models=True,
    )
    for way, (name, what, published) in zip(
        WAYS,
        (
            (
                "in-parallel", "attention and MLP of a block can run in parallel",
                partial(_published_task, "attention and MLP of a block side by side"),
            ),
            (
                "pairs-in-parallel", "two successive blocks can run in parallel",
                partial(_published_task, "those of two blocks side by side"),
            ),
            (
                "skip-fourth", "every fourth block can be skipped",
                partial(_published_skipping, "one block of four left out"),
            ),
            (
                "skip-second", "every second block can be skipped",
                partial(_published_skipping, "one block of two left out"),
            ),
        ),
        strict=True,
    )
)  # fmt: skip

# Sparsity without a predictor.

GREEDY_LEVELS = _claim(
    id="dejavu-greedy-levels",
    text="in TEAL, levels found greedily have a lower loss than one density for all inputs",
    source=TEAL,
    measure=effects.between_levels,
    quantity="loss with one density minus that with greedy levels",
    refuted="one density for all inputs with a loss as low",
)
SWAPPED_RELU = _claim(
    id="dejavu-swapped-relu",
    text=f"SiLU can be replaced by ReLU without training for less than {NO_LOSS} nats per token",
    source=RELU_STRIKES_BACK,
    measure=effects.swapped,
    **_harmless,
    quantity="loss increase",
    refuted=f"a model that loses over {NO_LOSS} nats",
)
HALF_WINDOWS = _claim(
    id="dejavu-half-windows",
    text="in TEAL's evaluation, a dense first half of the window lowers the loss of the sparse second half",
    source="",
    measure=effects.between_windows,
    quantity="loss after a sparse first half minus that after a dense one",
    refuted="a loss that is as low after a sparse first half",
)

# Speed and batches.

BATCHED = _claim(
    id="dejavu-batch",
    text=f"{BATCH} sequences decoded together need less than half of the neurons",
    measure=partial(effects.union, n=BATCH),
    below=0.5,
    because="gathering rows costs about as much as reading them, so half of the rows is where a gain starts",
    other_thresholds=(0.25, 0.75),
    unit=PERCENT,
    quantity="fraction of the neurons that any of the sequences needs",
    refuted=f"{BATCH} sequences that together need half of the neurons or more",
)
BATCH_NEEDS_MORE = _claim(
    id="dejavu-batch-needs-more",
    text=f"{BATCH} sequences decoded together need over twice the neurons of one",
    measure=partial(effects.beyond_twice, n=BATCH),
    shown=partial(effects.together_and_alone, n=BATCH),
    criterion="more than twice the neurons of one",
    quantity="fraction of the neurons that they need minus twice that of one sequence",
    refuted="a batch that needs no more than twice the neurons of one sequence",
)
GAINS_AT_ONE = _timed(
    id="dejavu-gains-at-one",
    text="an MLP that reads only needed rows gains most at batch size 1",
    measure=effects.alone_over_batches,
    quantity="speedup at batch size 1 over that at a larger one (SmolLM2's MLPs, 10 % per token, independent tokens)",
    refuted="a larger batch that gains as much",
)


def _show_batches(bench: dict) -> str:
    gains = effects.union_speedups(bench)
    return ", ".join(f"{TIMES(gain)} ({name})" for name, gain in gains.items()) + ": dense time over that of the rows"


BATCHES_FASTER = _timed(
    id="dejavu-batches-faster",
    text="MLPs that read only the rows that any sequence of a batch needs are faster than dense at larger batches too",
    measure=lambda bench: {name: gain for name, gain in effects.union_speedups(bench).items() if name != effects.ALONE},
    shown=_show_batches,
    quantity="dense time over that of the rows, by batch size (SmolLM2's MLPs, 10 % per token, independent tokens)",
    refuted="a batch that is no faster",
)


def _show_gated(bench: dict, predictions: dict) -> str:
    gains, costs = effects.predicted_rows(bench), effects.predictor_cost(predictions, GATED)
    name, cost = next(iter(costs.items()))
    times = ", ".join(f"{TIMES(gain)} ({density})" for density, gain in gains.items())
    return f"{times}; but the predictor costs {NATS(cost)} ({name})"


GATED_FASTER = _timed(
    id="dejavu-gated-faster",
    text="in a small model with SiLU, a predictor and the rows that it chooses take less time than the dense MLP",
    results=("bench/cpu_contextual", "dejavu/experiments/dejavu_predictors"),
    measure=lambda bench, _: effects.predicted_rows(bench),
    shown=_show_gated,
    quantity="dense time over that of predictor and rows, by density (SmolLM2's MLPs)",
    refuted="a density at which predictor and rows take as long",
)
ROUNDED = _claim(
    id="dejavu-rounded",
    text=f"with rounded weights, leaving out half of the neurons costs at most {NO_LOSS} nats per token more",
    measure=effects.dearer,
    **_harmless,
    quantity="cost of leaving out neurons in the rounded model minus that without rounding",
    refuted=f"a grid on which leaving out neurons costs over {NO_LOSS} nats more",
    published="accuracy 0.86, 0.452, 0.726 and 0.754 on four tasks with 4-bit weights, "
    "dense 0.86, 0.446, 0.726 and 0.758 (OPT-175B)",
)


def _published_speed() -> str:
    """How many times as fast as FasterTransformer, over the lengths of the prompt."""
    (deja_vu,) = rows(load_published("dejavu"), "dejavu_latency", system="Deja Vu")
    (other,) = rows(load_published("dejavu"), "dejavu_latency", system="FasterTransformer")
    times = [other[column] / deja_vu[column] for column in other if column != "system"]
    return f"{min(times):.1f} to {max(times):.1f} times FasterTransformer (OPT-175B, eight A100)"


TWICE = _claim(
    id="dejavu-twice",
    text="with predicted neurons a model decodes over 2 times as fast as dense",
    results=("bench/cpu_contextual_relu",),
    measure=effects.decoding,
    above=math.log(2),
    because="the talk's own number",
    other_thresholds=(math.log(1.5), 0.0),
    unit=TIMES,
    quantity="dense decoding time over that with predictors, ReLU model",
    refuted="a density at which decoding is less than twice as fast",
    published=_published_speed,
    larger_models=True,
)
ONE_KERNEL = _claim(
    id="dejavu-one-kernel",
    text="on a GPU, one kernel that gathers rows and multiplies them is faster than gathering the rows first",
    results=("bench/gpu_h200",),
    measure=effects.gathered,
    unit=TIMES,
    quantity="time to gather rows first over that of one kernel",
    refuted="a density and a number of tokens at which gathering first takes no longer",
)
