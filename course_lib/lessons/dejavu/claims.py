"""The claims of lesson 09: what Deja Vu, CATS and TEAL say of contextual sparsity, and how we judge it."""

import math
from functools import partial

from course_lib.lessons.common.claim import PERCENT, Claim, Unit
from course_lib.lessons.common.tables import load_published, rows
from course_lib.lessons.dejavu import effects
from course_lib.lessons.dejavu.experiments.steps.attention.heads import OUTPUT
from course_lib.lessons.dejavu.experiments.steps.neurons import ALONE, EMBEDDING, ORACLE, RECORDED, STATIC
from course_lib.lessons.dejavu.experiments.steps.predicted import COPY, PREDICTOR
from course_lib.lessons.dejavu.experiments.steps.predicted import STATIC as ONE_SET
from course_lib.lessons.dejavu.experiments.steps.slow_change import WAYS
from course_lib.lessons.dejavu.results import CHEAP, CLOSE, GATED, RELU

COSINE = 0.95  # of the residual before and after a block
SHORT = 0.5  # of the residual's length
MOST = 0.75  # of the blocks
LOST = 0.01  # of the recall, by reading an earlier block
DEARER = 0.02  # nats per token
BATCH = 4  # sequences that are decoded together

LOWER = Unit("nats per token lower")
FASTER = Unit("times as fast", is_log=True)

DEJA_VU = "Liu and others (2023), arXiv:2310.17157"
TEAL = "Liu and others (2024), arXiv:2408.14690"
RELU_STRIKES_BACK = "Mirzadeh and others (2023), arXiv:2310.04564"

_claim = partial(Claim, results=("dejavu/measured",), source=DEJA_VU)
_predicted = partial(_claim, results=("dejavu/experiments/dejavu_predictors",))


def _published(table: str, column: str, **wanted: str) -> float:
    (row,) = rows(load_published("dejavu"), table, **wanted)
    return row[column]


# A small set exists: an oracle computes all values and keeps the largest.

_exists = partial(_claim, below=CHEAP, larger_models=True, quantity="loss increase in nats per token, by model")
FEW_HEADS = _exists(
    id="dejavu-few-heads",
    text=f"keeping a fifth of the heads, chosen for each token by an oracle, costs less than {CHEAP} nats per token",
    measure=partial(effects.fewest, table="heads", smallest="kept", chosen_by=OUTPUT),
    refuted=f"a fifth of the heads, chosen by an oracle, that costs over {CHEAP} nats",
    published="no loss of accuracy with 80 % of the heads left out (OPT-175B)",
)
FEW_NEURONS = _exists(
    id="dejavu-few-neurons",
    text=f"keeping 5 % of the neurons, chosen for each token by an oracle, costs less than {CHEAP} nats per token",
    measure=partial(effects.fewest, table="neurons", smallest="density", chosen_by=ORACLE),
    refuted=f"a twentieth of the neurons, chosen by an oracle, that costs over {CHEAP} nats",
    published="no loss of accuracy with 95 % of the neurons left out (OPT-175B)",
)
FEW_OF_BOTH = _exists(
    id="dejavu-few-of-both",
    text="keeping heads and neurons with a seventh of the weights, chosen for each token by an oracle, costs less than "
    f"{CHEAP} nats per token",
    measure=partial(effects.fewest, table="together", smallest="left"),
    refuted=f"heads and neurons with a seventh of the weights or less that cost over {CHEAP} nats",
    published="no loss of accuracy with 85 % of the weights left out (OPT-175B)",
)
RELU_ZEROS = _claim(
    id="dejavu-relu-zeros",
    text="after a ReLU, more than 85 % of the hidden values are zero",
    measure=effects.zeros,
    above=0.85,
    unit=PERCENT,
    quantity="fraction of the ReLU model's hidden values that are zero",
    refuted="15 % or more of the values after the ReLU that are not zero",
)

# The choice depends on the context.


def _between_choices(id_: str, better: str, worse: str, text: str) -> Claim:
    return _claim(
        id=f"dejavu-{id_}",
        text=text,
        measure=partial(effects.between_choices, better=better, worse=worse),
        unit=LOWER,
        quantity="loss of the second way to choose minus that of the first in nats per token, by model and density",
        refuted="a second way to choose with a loss as low",
    )


CONTEXT_HELPS = _between_choices(
    "context-helps", ORACLE, ALONE,
    "neurons chosen in context, by an oracle, have a lower loss than neurons chosen by the token alone",
)  # fmt: skip
TOKEN_HELPS = _between_choices(
    "token-helps", ALONE, STATIC,
    "neurons chosen by the token alone have a lower loss than one set for all tokens",
)  # fmt: skip
EMBEDDING_HELPS = _between_choices(
    "embedding-helps", EMBEDDING, STATIC,
    "neurons chosen by a fitted map of the token's embedding have a lower loss than one set for all tokens",
)  # fmt: skip
ON_THE_FLY = _between_choices(
    "on-the-fly", ORACLE, RECORDED,
    "an oracle that chooses on the fly has a lower loss than one that recorded its choice in a dense pass",
)  # fmt: skip
HEADS_DIFFER = _claim(
    id="dejavu-heads-differ",
    text="heads chosen for each token by an oracle have a lower loss than the same heads for all tokens",
    measure=effects.own_heads,
    unit=LOWER,
    quantity="loss with fixed heads minus that with each token's own in nats per token, by number of heads",
    refuted="the same heads for all tokens with a loss as low",
)

# The choice can be predicted.


def _between_selectors(id_: str, model: str, better: str, worse: str, text: str) -> Claim:
    return _predicted(
        id=f"dejavu-{id_}",
        text=text,
        measure=partial(effects.between_selectors, model=model, better=better, worse=worse),
        unit=LOWER,
        quantity=f"loss with {worse} minus that with {better} in nats per token, by share of the neurons",
        refuted=f"{worse} with a loss as low",
    )


PREDICTOR_GATED = _between_selectors(
    "predictor-gated", GATED, PREDICTOR, ONE_SET,
    "in SmolLM2, neurons chosen by a trained predictor have a lower loss than one set for all tokens",
)  # fmt: skip
PREDICTOR_RELU = _between_selectors(
    "predictor-relu", RELU, PREDICTOR, ONE_SET,
    "in the ReLU model, neurons chosen by a trained predictor have a lower loss than one set for all tokens",
)  # fmt: skip
COPY_GATED = _between_selectors(
    "copy-gated", GATED, COPY, PREDICTOR,
    "in SmolLM2, neurons chosen by a 2-bit copy of the layer have a lower loss than a trained predictor's",
)  # fmt: skip
COPY_RELU = _between_selectors(
    "copy-relu", RELU, COPY, PREDICTOR,
    "in the ReLU model, neurons chosen by a 2-bit copy of the layer have a lower loss than a trained predictor's",
)  # fmt: skip


def _published_cost() -> str:
    """The log ratio of the published perplexities on WikiText."""
    perplexity = partial(_published, "dejavu_accuracy", "WikiText")
    ratio = perplexity(model="MLP 85 % sparse") / perplexity(model="OPT-175B")
    return f"{math.log(ratio):+.4f} nats per token (OPT-175B, 85 % of the neurons left out, WikiText)"


def _predictor_cost(id_: str, model: str, text: str) -> Claim:
    return _predicted(
        id=f"dejavu-{id_}",
        text=text,
        measure=partial(effects.predictor_cost, model=model),
        below=CLOSE,
        quantity="loss increase in nats per token, by share of the neurons",
        refuted=f"neurons chosen by a trained predictor that cost over {CLOSE} nats",
        published=_published_cost,
    )


PREDICTOR_CHEAP_GATED = _predictor_cost(
    "predictor-cheap-gated", GATED,
    f"in SmolLM2, keeping only the neurons that a trained predictor chooses costs less than {CLOSE} nats per token",
)  # fmt: skip
PREDICTOR_CHEAP = _predictor_cost(
    "predictor-cheap", RELU,
    "in the ReLU model, keeping only the neurons that a trained predictor chooses costs less than "
    f"{CLOSE} nats per token",
)  # fmt: skip
_heads = partial(
    _predicted,
    unit=LOWER,
    quantity="loss with fixed heads minus that with predicted ones in nats per token, by number of heads",
    refuted="the same heads for all tokens with a loss as low",
)
PREDICTED_HEADS = _heads(
    id="dejavu-predicted-heads",
    text="in SmolLM2, heads chosen by a trained predictor have a lower loss than the same heads for all tokens",
    measure=partial(effects.predicted_heads, model=GATED),
)
PREDICTED_HEADS_RELU = _heads(
    id="dejavu-predicted-heads-relu",
    text="in the ReLU model, heads chosen by a trained predictor have a lower loss than the same heads for all tokens",
    measure=partial(effects.predicted_heads, model=RELU),
)


def _lookahead(id_: str, n_blocks: int, text: str) -> Claim:
    return _predicted(
        id=f"dejavu-{id_}",
        text=f"a predictor that reads its input {text} earlier loses less than one percentage point of recall",
        measure=partial(effects.recall_lost, ahead=n_blocks),
        below=LOST,
        unit=Unit("percentage points lost", scale=100),
        quantity="recall lost, mean of the blocks, by model",
        refuted=f"predictors that read their input {text} earlier and lose over one percentage point of recall",
    )


AHEAD = _lookahead("ahead", 1, "one block")
AHEAD_BY_TWO = _lookahead("ahead-by-two", 2, "two blocks")
AHEAD_BY_FOUR = _lookahead("ahead-by-four", 4, "four blocks")


def _published_search() -> str:
    milliseconds = partial(_published, "dejavu_search", "milliseconds")
    mlp = milliseconds(what="the whole MLP")
    times = [f"over {milliseconds(what=f'{name}, more than') / mlp:.0f} times ({name})" for name in ("HNSW", "FAISS")]
    return f"{', '.join(times)} on OPT-175B"


NEAREST = _predicted(
    id="dejavu-nearest",
    text="a nearest-neighbour search for the neurons takes longer than the MLP that it is to save",
    measure=effects.search_times,
    unit=Unit("times the MLP's time", is_log=True),
    quantity="time of the search over that of the MLP, as a logarithm, by kind of search",
    refuted="a search that is faster than the MLP",
    published=_published_search,
)

# The residual changes slowly from block to block.

_slow = partial(_claim, above=MOST, unit=PERCENT, quantity="fraction of the blocks, by model")
SLOW = _slow(
    id="dejavu-slow",
    text=f"most blocks after the first turn the residual little: its cosine before and after is above {COSINE}",
    measure=partial(effects.fitting_blocks, column="cosine", low=COSINE),
    shown=partial(effects.counted_blocks, column="cosine", low=COSINE),
    refuted=f"a model in which a quarter of the blocks or more have a cosine of {COSINE} or less",
    published="a cosine of about 0.99 from the second block on (OPT-175B)",
)
RESIDUAL_DOMINATES = _slow(
    id="dejavu-residual-dominates",
    text="most MLPs after the first block add a vector that is less than half as long as the residual",
    measure=partial(effects.fitting_blocks, column="size_ratio_mlp", high=SHORT),
    shown=partial(effects.counted_blocks, column="size_ratio_mlp", high=SHORT),
    refuted="a model in which a quarter of the MLPs or more add over half of the residual's length",
)


def _published_task(setting: str) -> str:
    accuracy = partial(_published, "dejavu_depth", "Hellaswag")
    dense, altered = accuracy(setting="as trained"), accuracy(setting=setting)
    return f"HellaSwag accuracy {100 * altered:.1f} %, {100 * dense:.1f} % as trained (OPT-175B)"


def _published_skipping(setting: str) -> str:
    perplexity = partial(_published, "dejavu_skipped", "WikiText")
    return f"{math.log(perplexity(setting=setting) / perplexity(setting='as trained')):+.2f} nats per token (WikiText)"


_depth = partial(_claim, below=CHEAP, larger_models=True, quantity="loss increase in nats per token, by model")
HALVES, PAIRS, FOURTH, SECOND = WAYS
IN_PARALLEL = _depth(
    id="dejavu-in-parallel",
    text=f"attention and MLP of a block can run in parallel for less than {CHEAP} nats per token",
    measure=partial(effects.altered, way=HALVES),
    refuted=f"a model that loses over {CHEAP} nats",
    published=partial(_published_task, "attention and MLP of a block side by side"),
)
PAIRS_IN_PARALLEL = _depth(
    id="dejavu-pairs-in-parallel",
    text=f"two successive blocks can run in parallel for less than {CHEAP} nats per token",
    measure=partial(effects.altered, way=PAIRS),
    refuted=f"a model that loses over {CHEAP} nats",
    published=partial(_published_task, "those of two blocks side by side"),
)
SKIP_FOURTH = _depth(
    id="dejavu-skip-fourth",
    text=f"every fourth block can be skipped for less than {CHEAP} nats per token",
    measure=partial(effects.altered, way=FOURTH),
    refuted=f"a model that loses over {CHEAP} nats",
    published=partial(_published_skipping, "one block of four left out"),
)
SKIP_SECOND = _depth(
    id="dejavu-skip-second",
    text=f"every second block can be skipped for less than {CHEAP} nats per token",
    measure=partial(effects.altered, way=SECOND),
    refuted=f"a model that loses over {CHEAP} nats",
    published=partial(_published_skipping, "one block of two left out"),
)

# Sparsity without a predictor.

GREEDY_LEVELS = _claim(
    id="dejavu-greedy-levels",
    text="in TEAL, levels found greedily have a lower loss than one density for all inputs",
    source=TEAL,
    measure=effects.between_levels,
    unit=LOWER,
    quantity="loss with one density minus that with greedy levels in nats per token, by density",
    refuted="one density for all inputs with a loss as low",
)
SWAPPED_RELU = _claim(
    id="dejavu-swapped-relu",
    text=f"SiLU can be replaced by ReLU without training for less than {CHEAP} nats per token",
    source=RELU_STRIKES_BACK,
    measure=effects.swapped,
    below=CHEAP,
    quantity="loss increase in nats per token",
    refuted=f"a model that loses over {CHEAP} nats",
)
HALF_WINDOWS = _claim(
    id="dejavu-half-windows",
    text="in TEAL's evaluation, a dense first half of the window lowers the loss of the sparse second half",
    source="",
    measure=effects.between_windows,
    unit=LOWER,
    quantity="loss of the second half after a sparse first half minus that after a dense one in nats per token, "
    "by density",
    refuted="a loss that is as low after a sparse first half",
)

# What it saves.

BATCHED = _claim(
    id="dejavu-batch",
    text=f"{BATCH} sequences decoded together need less than half of the neurons",
    measure=partial(effects.union, n=BATCH),
    below=0.5,
    unit=Unit("% of the neurons", scale=100),
    quantity="fraction of the neurons that any of the sequences needs, by model",
    refuted=f"{BATCH} sequences that together need half of the neurons or more",
)
BATCH_NEEDS_MORE = _claim(
    id="dejavu-batch-needs-more",
    text=f"{BATCH} sequences decoded together need over twice the neurons of one",
    measure=partial(effects.beyond_twice, n=BATCH),
    shown=partial(effects.together_and_alone, n=BATCH),
    quantity="fraction of the neurons that they need, minus twice that of one sequence, by model",
    refuted="a batch that needs no more than twice the neurons of one sequence",
)
ROUNDED = _claim(
    id="dejavu-rounded",
    text=f"in a model with rounded weights, leaving out half of the neurons costs at most {DEARER} nats per token more",
    measure=effects.dearer,
    below=DEARER,
    quantity="cost of leaving out neurons in the rounded model minus that without rounding in nats per token, by grid",
    refuted=f"a grid on which leaving out neurons costs over {DEARER} nats more",
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
    unit=FASTER,
    quantity="dense decoding time over that with predictors, as a logarithm, by share of the neurons; ReLU model",
    refuted="a share of the neurons at which decoding is less than twice as fast",
    published=_published_speed,
    larger_models=True,
)
ONE_KERNEL = _claim(
    id="dejavu-one-kernel",
    text="on a GPU, one kernel that gathers rows and multiplies them is faster than gathering the rows first",
    results=("bench/gpu_h200",),
    measure=effects.gathered,
    unit=FASTER,
    quantity="time to gather rows first over that of one kernel, as a logarithm, by density and number of tokens",
    refuted="a density and a number of tokens at which gathering first takes no longer",
)
