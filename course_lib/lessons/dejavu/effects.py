"""How the claims of lesson 09 are measured: from stored results to one estimate for each case.

Case names start with the model; estimates are in nats per token where nothing else is said.
"""

import math
from collections.abc import Mapping
from statistics import fmean, median

from course_lib.lessons.common import gpu
from course_lib.lessons.common.effects import Row, log_gap, of_repetitions, side_by_side
from course_lib.lessons.common.results import percent, rows
from course_lib.lessons.common.verdicts import Effect, of_count, of_samples
from course_lib.lessons.dejavu import results
from course_lib.lessons.dejavu.experiments.heads import OUTPUT
from course_lib.lessons.dejavu.experiments.heads import STATIC as FIXED_HEADS
from course_lib.lessons.dejavu.experiments.oracle import ORACLE
from course_lib.lessons.dejavu.experiments.search import MLP, SCAN
from course_lib.lessons.dejavu.experiments.teal import ALL, BY_INPUT, BY_LEVELS, SECOND_HALF, SWAPPED
from course_lib.lessons.dejavu.experiments.trained import PREDICTOR, STATIC
from course_lib.lessons.dejavu.results import RELU, Measured, above_dense

LISTED = ("inverted lists, half of them", "half of the inverted lists")  # a case's name without a comma
SEVENTH = 1 / 7  # of the weights of the blocks
ALONE = "batch size 1"
OFF = 0.02  # of the inputs: thresholds that keep more or less than asked by more than that are not compared
Estimates = dict[str, Effect]


def fewest(measured: Measured, table: str, smallest: str, **wanted: str) -> Estimates:
    """By model: the loss increase with the fewest heads, neurons or both that were measured."""
    effects = {}
    for model in results.models(measured, "dense"):
        if those := rows(measured, table, model=model, **wanted):
            row = min(those, key=lambda row: row[smallest])
            effects[f"{model}, {_amount(row)}"] = above_dense(measured, row)
    return effects


def nearest_to_a_seventh(measured: Measured) -> Estimates:
    """By model: the loss increase with the heads and neurons whose weights are nearest to a seventh of the blocks'."""
    effects = {}
    for model in results.models(measured, "together"):
        those = rows(measured, "together", model=model)
        row = min(those, key=lambda row: abs(math.log(row["left"] / SEVENTH)))
        effects[f"{model}, {_amount(row)}"] = above_dense(measured, row)
    return effects


def _amount(row: Row) -> str:
    parts = [_heads(row)] if "kept" in row else []
    parts += [f"{percent(row['density'])} of the neurons"] if "density" in row else []
    parts += [f"{percent(row['left'])} of the blocks' weights"] if "left" in row else []
    return ", ".join(parts)


def _heads(row: Row) -> str:
    return f"{row['kept']} of {row['of']} heads"


def zeros(measured: Measured) -> Effect:
    """The fraction of the ReLU model's hidden values that are zero, window by window."""
    windows = zip(*(row["nonzero"] for row in rows(measured, "active", model=RELU)), strict=True)
    return of_samples([1 - fmean(fractions) for fractions in windows])


def between_choices(measured: Measured, better: str, worse: str) -> Estimates:
    """By model and density: the loss of one way to choose neurons minus that of another."""
    return _by_share(results.better(measured, "neurons", {"chosen_by": better}, {"chosen_by": worse}))


def _by_share(effects: Mapping[tuple[str, float], Effect], of: str = "neurons") -> Estimates:
    return {f"{model} at {percent(share)} of the {of}": effect for (model, share), effect in effects.items()}


def own_heads(measured: Measured) -> Estimates:
    """The loss with fixed heads minus that with each token's own, by number of heads."""
    effects = {}
    for row in rows(measured, "heads", chosen_by=FIXED_HEADS):
        (own,) = rows(measured, "heads", model=row["model"], kept=row["kept"], chosen_by=OUTPUT)
        effects[f"{row['model']} with {_heads(row)}"] = log_gap(own, row)
    return effects


def between_selectors(measured: Measured, model: str, better: str, worse: str) -> Estimates:
    """By density: the loss of one selector minus that of another, both without lookahead."""
    sides = ({"chosen_by": name, "lookahead": 0} for name in (better, worse))
    effects = results.better(measured, "predicted", *sides)
    return _by_share({key: effect for key, effect in effects.items() if key[0] == model})


def predictor_cost(measured: Measured, model: str) -> Estimates:
    """By density: the loss increase with trained predictors."""
    those = rows(measured, "predicted", model=model, chosen_by=PREDICTOR, lookahead=0)
    return _by_share({(model, row["density"]): above_dense(measured, row) for row in those})


def predicted_bytes(decoded: Measured, density: float) -> Effect:
    """The loss increase of the ReLU model with the predictors that decode its text, window by window."""
    whole, few = (results.one(decoded, "decoded", way="predicted", density=each) for each in (1.0, density))
    return log_gap(whole, few)


def predicted_heads(measured: Measured, model: str) -> Estimates:
    """The loss with fixed heads minus that with predicted ones, by number of heads."""
    effects = {}
    for row in rows(measured, "heads", model=model, chosen_by=PREDICTOR):
        fixed = results.one(measured, "heads", model=model, kept=row["kept"], chosen_by=FIXED_HEADS)
        effects[f"{model} with {_heads(row)}"] = log_gap(row, fixed)
    return effects


def recall_lost(measured: Measured, ahead: int) -> Estimates:
    """By model: the recall that a predictor loses by reading x `ahead` blocks earlier, mean of all blocks: counted.

    A model without a block that far after another is no case.
    """
    effects = {}
    for model in results.models(measured, "recall"):
        trained = rows(measured, "recall", model=model, chosen_by=PREDICTOR)
        own = {row["block"]: row["recall"] for row in trained if row["lookahead"] == 0}
        earlier = [row for row in trained if row["lookahead"] == ahead and row["block"] >= ahead]
        if earlier:
            effects[model] = Effect(value=fmean(own[row["block"]] - row["recall"] for row in earlier), error=0.0)
    return effects


def found_by_search(found: Measured) -> Effect:
    """Recall of a scan of all rows minus that of a static set, window by window."""
    scan, static = (results.one(found, "search_recall", way=way)["recall"] for way in (SCAN, STATIC))
    return of_samples([ours - theirs for ours, theirs in zip(scan, static, strict=True)])


def search_times(measured: Measured) -> Estimates:
    """By kind of search: log of its seconds over those of the MLP, round by round."""
    layer = results.one(measured, "search", way=MLP)["seconds"]
    return {
        row["way"].replace(*LISTED): of_samples(
            [math.log(own / whole) for own, whole in zip(row["seconds"], layer, strict=True)]
        )
        for row in rows(measured, "search")
        if row["way"] != MLP
    }


def fitting_blocks(measured: Measured, column: str, low: float = -math.inf, high: float = math.inf) -> Estimates:
    """By model: the fraction of the blocks after the first whose median lies between two limits."""
    effects = {}
    for model in results.models(measured, "slow_change"):
        blocks = _after_the_first(measured, model)
        effects[model] = of_count(sum(low < row[column] < high for row in blocks), len(blocks))
    return effects


def counted_blocks(measured: Measured, **limits: float | str) -> str:
    """The same as counts: "25 of 29 blocks (SmolLM2), 3 of 3 blocks (ReLU model)"."""
    parts = []
    for model, effect in fitting_blocks(measured, **limits).items():
        n = len(_after_the_first(measured, model))
        parts.append(f"{round(effect.value * n)} of {n} blocks ({model})")
    return ", ".join(parts)


def _after_the_first(measured: Measured, model: str) -> list[Row]:
    return rows(measured, "slow_change", model=model)[1:]


def median_of_blocks(measured: Measured, column: str) -> Estimates:
    """By model: the median of the blocks after the first; no block is left out."""
    return {
        model: Effect(value=median(row[column] for row in _after_the_first(measured, model)), error=0.0)
        for model in results.models(measured, "slow_change")
    }


def shown_medians(measured: Measured, column: str, low: float) -> str:
    """The same with counts: "median 0.968 (SmolLM2), 0.987 (ReLU model); above 0.95 in 25 of 29 blocks (SmolLM2)"."""
    medians = median_of_blocks(measured, column).items()
    counts = counted_blocks(measured, column=column, low=low)
    return f"median {', '.join(f'{each.value:.3f} ({model})' for model, each in medians)}; above {low} in {counts}"


def altered(measured: Measured, way: str) -> Estimates:
    """By model: the loss increase with blocks in parallel or left out."""
    return {row["model"]: above_dense(measured, row) for row in rows(measured, "depth", way=way)}


def as_asked(row: Row) -> bool:
    """Whether a threshold reached the density that was asked of it; without thresholds there is none to miss."""
    return row["reached"] is None or row["tokens"] != ALL or abs(row["reached"] - row["density"]) <= OFF


def between_levels(measured: Measured) -> Estimates:
    """By density: TEAL's loss with one density for all inputs minus that with levels found greedily."""
    comparable = {"activations": [row for row in rows(measured, "activations") if as_asked(row)]}
    sides = ({"method": method, "tokens": ALL} for method in (BY_LEVELS, BY_INPUT))
    return _by_share(results.better(comparable, "activations", *sides), of="inputs")


def swapped(measured: Measured) -> Effect:
    """The loss increase with ReLU in place of SiLU."""
    return above_dense(measured, results.one(measured, "activations", method=SWAPPED))


def between_windows(measured: Measured) -> Estimates:
    """By density: the loss of the second half of the windows after a sparse first half minus that after a dense one."""
    effects = {}
    for row in rows(measured, "activations", method=BY_INPUT, tokens=ALL):
        half = results.one(measured, "activations", method=BY_INPUT, tokens=SECOND_HALF, density=row["density"])
        pairs = zip(row["losses_second_half"], half["losses_second_half"], strict=True)
        name = f"{percent(row['density'])} of the inputs"
        effects[name] = of_samples([all_sparse - half_dense for all_sparse, half_dense in pairs])
    return effects


def union(measured: Measured, n: int) -> Estimates:
    """By model: the fraction of the neurons that any of n sequences needs."""
    return {model: of_samples(_fractions(measured, model, n)) for model in results.models(measured, "batch")}


def beyond_twice(measured: Measured, n: int) -> Estimates:
    """By model: the same minus twice the fraction that one sequence needs."""
    return {
        model: of_samples(_fractions(measured, model, n), threshold=2 * fmean(_fractions(measured, model, 1)))
        for model in results.models(measured, "batch")
    }


def together_and_alone(measured: Measured, n: int) -> str:
    """What n sequences and a single one need: "55 % for 4 and 20 % for one (SmolLM2)"."""
    parts = []
    for model in results.models(measured, "batch"):
        together, alone = (percent(fmean(_fractions(measured, model, size))) for size in (n, 1))
        parts.append(f"{together} for {n} and {alone} for one ({model})")
    return ", ".join(parts)


def _fractions(measured: Measured, model: str, n: int) -> list[float]:
    return rows(measured, "batch", model=model, batch=n)[0]["shares"]


def dearer(measured: Measured) -> Estimates:
    """By grid: what leaving out neurons costs a rounded model more than it costs the model as it is."""
    effects = {}
    for sparse in [row for row in rows(measured, "rounded") if row["density"] < 1]:
        model, grid = sparse["model"], sparse["grid"]
        whole = results.one(measured, "rounded", model=model, grid=grid, density=1.0)
        own = results.one(measured, "neurons", model=model, chosen_by=ORACLE, density=sparse["density"])
        columns = [row["losses"] for row in (results.dense(measured, model), own, whole, sparse)]
        more = [(both - few) - (half - dense) for dense, half, few, both in zip(*columns, strict=True)]
        effects[f"{model}, {grid}"] = of_samples(more)
    return effects


def decoding(bench: Measured) -> Estimates:
    """By share of the neurons: log of the dense decoding time over that with predictors."""
    effects = {}
    for row in bench["tables"]["sides"]:
        if row["side"] == "predicted":
            share = row["contest"].partition("%")[0].removesuffix(".0")
            effects[f"{share} % of the neurons"] = of_repetitions(row)
    return effects


def union_speedups(bench: Measured) -> Estimates:
    """By batch size: log of the dense time of an MLP over that of the rows that any of the tokens needs."""
    return {_batch_size(row): of_repetitions(row) for row in rows(bench, "sides", side="rows of the union")}


def alone_over_batches(bench: Measured) -> Estimates:
    """By larger batch size: log of the speedup at batch size 1 over that at this one."""
    alone, *others = rows(bench, "sides", side="rows of the union")
    return {_batch_size(row): side_by_side(alone, row) for row in others}


def _batch_size(row: Row) -> str:
    return "batch size " + row["contest"].removeprefix("batch of ").partition(",")[0]


def predicted_rows(bench: Measured) -> Estimates:
    """By density below 1: log of the dense time of an MLP over that of a predictor and of the rows that it chooses."""
    timed = rows(bench, "sides", side="predictor, then embedding_bag")
    densities = {row["contest"].partition("%")[0]: row for row in timed}
    return {f"{name} % of the neurons": of_repetitions(row) for name, row in densities.items() if name != "100"}


def gathered(bench: Measured) -> Estimates:
    """By density and number of tokens: log of the time to gather rows first over that of one kernel."""
    sides = "gathered_mlp", "kernel", "torch, gathered rows"
    contests = [row["contest"] for row in gpu.timed("gathered_mlp", sides=["kernel"], measured=bench)]
    return dict(zip(contests, gpu.faster(*sides, bench), strict=True))
