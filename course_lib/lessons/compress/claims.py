"""The claims of lesson 10: what learned prompts win on compressed models, and what transfers."""

import math
from collections.abc import Callable
from functools import partial, reduce

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.claim import (
    MOST,
    OTHER_LOSSES,
    PERCENT,
    POINTS,
    WHY_MOST,
    WHY_NO_LOSS,
    WHY_OWN_NUMBER,
    Claim,
    Unit,
)
from course_lib.lessons.common.effects import accuracy_gap
from course_lib.lessons.common.results import Measured, load_published, rows
from course_lib.lessons.common.verdicts import Effect, Effects
from course_lib.lessons.compress import results
from course_lib.lessons.compress.experiments.rivals import WAYS
from course_lib.lessons.compress.experiments.runs import WIDE
from course_lib.lessons.compress.results import CLOSE, loss_gain, model_name
from course_lib.prompts.compressed.store import DENSE

PAPER = "Xu and others (2023), Compress, Then Prompt, arXiv:2305.11186"
RESULTS = tuple(f"compress/experiments/{part}" for part in results.PARTS)
BOTH = "sparsegpt-50-4bit"  # pruned and rounded: the model of the paper's "8 times smaller"
PROMPT = "prompt"

_claim = partial(Claim, results=RESULTS, source=PAPER)


def _joined(measure: Callable[[Measured], Effects]) -> Callable[..., Effects]:
    """The same measure, of the three results as one."""
    return lambda *measured: measure(reduce(results.join, measured))


def compressed(measured: Measured) -> list[str]:
    """The models that were measured, without the dense one."""
    return [name for name in results.models(measured) if name != DENSE]


def _by_model(of: Callable[[Measured, str], Effect | None], measured: Measured) -> dict[str, Effect]:
    effects = {model_name(name): of(measured, name) for name in compressed(measured)}
    return {name: effect for name, effect in effects.items() if effect is not None}


OWN = _claim(
    id="compress-own",
    text="a learned prompt lowers the perplexity of a compressed model",
    measure=_joined(partial(_by_model, results.gain)),
    quantity="loss without the prompt minus loss with it, by compressed model",
    refuted="a compressed model whose loss is no lower with its own prompt",
)
BEYOND_DENSE = _claim(
    id="compress-beyond-dense",
    text="a learned prompt lowers the loss of a compressed model more than a prompt lowers that of the dense model",
    measure=_joined(partial(_by_model, results.repair)),
    quantity="loss won beyond what the dense model wins with its own prompt, by compressed model",
    refuted="a compressed model that gains no more than the dense one",
)


def settings(measured: Measured) -> dict[str, dict[str, Effect]]:
    """Loss won by more vectors, by more steps, and by starting from embeddings of random tokens, by model."""
    won: dict[str, dict[str, Effect]] = {"vectors": {}, "steps": {}, "start": {}}
    for name in dict.fromkeys(row["model"] for row in results.rows_of(measured, "settings")):
        main = results.row_of(measured, "own", model=name)
        for row in results.rows_of(measured, "settings", model=name) if main else []:
            if row["n_vectors"] != main["n_vectors"]:
                pair = sorted((row, main), key=lambda one: -one["n_vectors"])
                won["vectors"][f"{model_name(name)}, {pair[0]['n_vectors']} vectors"] = loss_gain(*pair)
            if row["n_steps"] != main["n_steps"]:
                pair = sorted((row, main), key=lambda one: -one["n_steps"])
                won["steps"][f"{model_name(name)}, {pair[0]['n_steps']} steps"] = loss_gain(*pair)
            if row["begin"] == WIDE:
                won["start"][model_name(name)] = loss_gain(main, row)
    return won


MORE_VECTORS, MORE_STEPS, TOKENS_AS_START = (
    _claim(
        id=f"compress-{kind}",
        text=text,
        source="",
        measure=_joined(lambda measured, kind=kind: settings(measured)[kind]),
        quantity="loss won, by model",
        refuted=refuted,
    )
    for kind, text, refuted in (
        ("vectors", "a prompt with more vectors has a lower loss", "more vectors that win nothing"),
        ("steps", "a prompt trained for more steps has a lower loss", "more steps that win nothing"),
        (
            "start",
            "initialising a prompt with embeddings of random tokens is better than with N(0, 1)",
            "an initialisation from N(0, 1) with a loss as low",
        ),
    )
)


def sentence_rows(measured: Measured, name: str, random: bool = False) -> dict[str, dict]:
    """The rows of one model after the authors' sentences, by sentence, or after random tokens."""
    rows_of_model = results.rows_of(measured, "words", model=name)
    return {row["prompt"]: row for row in rows_of_model if row["prompt"].startswith("random") == random}


def _sentences(compare: Callable[[Measured, str, dict], Effect | None], measured: Measured) -> dict[str, Effect]:
    effects = {}
    for name in dict.fromkeys(row["model"] for row in results.rows_of(measured, "words")):
        for sentence, row in sentence_rows(measured, name).items() if name != DENSE else ():
            if effect := compare(measured, name, row):
                effects[f"{model_name(name)}, {sentence}"] = effect
    return effects


def _than_nothing(measured: Measured, name: str, row: dict) -> Effect | None:
    alone = results.row_of(measured, "models", model=name)
    return loss_gain(row, alone) if alone else None


def _than_random_tokens(measured: Measured, name: str, row: dict) -> Effect | None:
    alone, random = results.row_of(measured, "models", model=name), sentence_rows(measured, name, random=True)
    return loss_gain(row, results.mean_row([*random.values()])) if alone and random else None


def _than_learned(measured: Measured, name: str, row: dict) -> Effect | None:
    own = results.row_of(measured, "own", model=name)
    return loss_gain(own, row) if own else None


SENTENCE = _claim(
    id="compress-sentence",
    text="the authors' sentences lower the loss of a compressed model",
    measure=_joined(partial(_sentences, _than_nothing)),
    quantity="loss without the sentence minus loss with it, by model and sentence",
    refuted="a compressed model whose loss is no lower after the sentence",
    larger_models=True,
)
THAN_RANDOM_TOKENS = _claim(
    id="compress-than-random-tokens",
    text="the authors' sentences do more than as many random tokens",
    measure=_joined(partial(_sentences, _than_random_tokens)),
    quantity="loss with random tokens minus loss with the sentence, by model and sentence",
    refuted="random tokens with a loss as low",
    larger_models=True,
)
THAN_WRITTEN = _claim(
    id="compress-than-written",
    text="a learned prompt is better than the authors' sentences",
    measure=_joined(partial(_sentences, _than_learned)),
    quantity="loss with the sentence minus loss with the learned prompt, by model and sentence",
    refuted="a compressed model with a loss as low after a sentence",
)


def sources(measured: Measured) -> list[str]:
    """Models whose prompts were tried on others, in the order of the models."""
    there = {row["source"] for row in results.rows_of(measured, "moved")}
    return [name for name in results.models(measured) if name in there]


def targets(measured: Measured) -> list[str]:
    """Models that were given the prompts of others."""
    there = {row["model"] for row in results.rows_of(measured, "moved")}
    return [name for name in results.models(measured) if name in there]


def transferred(measured: Measured) -> tuple[dict[str, Effect], dict[str, Effect], dict[str, Effect]]:
    """By pair of models: loss won; fraction of the own gain; loss won beyond what the dense model's prompt wins."""
    helped, fractions, beyond_dense = {}, {}, {}
    for to in targets(measured):
        alone, of_dense = results.row_of(measured, "models", model=to), results.transferred(measured, DENSE, to)
        for source in sources(measured):
            row, pair = results.transferred(measured, source, to), f"{model_name(source)} on {model_name(to)}"
            if source == to or row is None:
                continue
            helped[pair] = loss_gain(row, alone)
            share = results.transferred_fraction(measured, source, to) if to != DENSE else None
            if share and math.isfinite(share.value) and source != DENSE:
                fractions[pair] = Effect(value=share.value, error=share.standard_error, n=len(row["losses"]))
            if of_dense and DENSE not in (source, to):
                beyond_dense[pair] = loss_gain(row, of_dense)
    return helped, fractions, beyond_dense


def between_compressed(measured: Measured) -> dict[str, Effect]:
    """Loss won by prompts of one compressed model on another; the dense model is no compression technique."""
    dense = model_name(DENSE)
    return {pair: effect for pair, effect in transferred(measured)[0].items() if dense not in pair.split(" on ")}


MOVES = _claim(
    id="compress-moves",
    text="a prompt learned on one compressed model lowers the perplexity of one that was compressed in another way",
    measure=_joined(between_compressed),
    quantity="loss won, by pair of compressed models",
    refuted="a pair of models whose prompt helps only where it was learned",
    larger_models=True,
)
HALF_TRANSFERS = _claim(
    id="compress-half-transfers",
    text="more than half of the gain beyond the dense model's transfers to another model",
    measure=_joined(lambda measured: transferred(measured)[1]),
    above=MOST,
    because=WHY_MOST,
    other_thresholds=(0.25, 0.75),
    unit=PERCENT,
    quantity="fraction of the own prompt's gain beyond the dense model's gain, by pair of models",
    refuted="a pair of models in which half or less transfers",
    larger_models=True,
)
BETTER_TEACHER = _claim(
    id="compress-better-teacher",
    text="on a compressed model, the prompt of another compressed model is better than the dense model's prompt",
    measure=_joined(lambda measured: transferred(measured)[2]),
    quantity="loss with the dense model's prompt minus loss with the other's, by pair of models",
    refuted="a pair of models in which the dense model's prompt does as well",
)


def on_other_text(measured: Measured, name: str) -> tuple[dict, dict] | None:
    """A model alone, and with its own prompt, on a text that no prompt was trained on."""
    alone, own = (results.row_of(measured, "other_text", model=name, prompted=is_so) for is_so in (False, True))
    return (alone, own) if alone and own else None


def _helps_elsewhere(measured: Measured) -> dict[str, Effect]:
    pairs = {model_name(name): on_other_text(measured, name) for name in results.models(measured)}
    return {name: loss_gain(pair[1], pair[0]) for name, pair in pairs.items() if pair}


def beyond_elsewhere(measured: Measured, name: str) -> Effect | None:
    """Loss that a model's prompt wins on other text, beyond what the dense model's prompt wins there."""
    pair, control = on_other_text(measured, name), on_other_text(measured, DENSE)
    return results.gain_difference(pair, control) if pair and control and name != DENSE else None


OTHER_TEXT = _claim(
    id="compress-other-text",
    text="a prompt lowers the loss on a text that it was not trained on",
    measure=_joined(_helps_elsewhere),
    quantity="loss won, by model",
    refuted="a model whose prompt wins nothing on other text",
)
BEYOND_ON_OTHER_TEXT = _claim(
    id="compress-beyond-on-other-text",
    text="on other text, a prompt wins more on a compressed model than on the dense model",
    measure=_joined(partial(_by_model, beyond_elsewhere)),
    quantity="loss won beyond what the dense model wins there, by compressed model",
    refuted="a compressed model that wins no more than the dense one",
)


def ways(measured: Measured, name: str) -> list[dict]:
    """The prompt and its rivals on one model, each with `way`, seconds and bytes in addition to the model."""
    own = results.row_of(measured, "own", model=name)
    if own is None:
        return []
    prompt = own | {"way": PROMPT, "bytes": own["prompt_bytes"]}
    return [prompt, *results.rows_of(measured, "rivals", model=name)]


def _than_rival(way: str, measured: Measured) -> dict[str, Effect]:
    effects = {}
    for name in WAYS:
        prompt, *others = ways(measured, name) or [None]
        for row in others if results.row_of(measured, "models", model=name) else ():
            if row["way"] == way:
                effects[model_name(name)] = loss_gain(prompt, row)
    return effects


RIVALS = {
    way: _claim(
        id=f"compress-rival-{number}",
        text=f"a prompt has a lower loss than {way}",
        source="",
        measure=_joined(partial(_than_rival, way)),
        quantity=f"loss with {way} minus loss with the prompt, by model",
        refuted=f"a model on which {way} has a loss as low",
    )
    for number, way in enumerate(dict.fromkeys(way for of_model in WAYS.values() for way in of_model), 1)
}


def accuracy_gains(measured: Measured) -> dict[str, Effect]:
    """By task with a signal and model: accuracy with the own prompt minus accuracy without."""
    gains = {}
    for task in dict.fromkeys(row["task"] for row in results.rows_of(measured, "tasks")):
        dense = results.row_of(measured, "tasks", model=DENSE, task=task, prompted=False)
        for name in results.models(measured) if dense and has_signal(dense) else ():
            both = [results.row_of(measured, "tasks", model=name, task=task, prompted=is_so) for is_so in (False, True)]
            if None not in both:
                gains[f"{task}, {model_name(name)}"] = accuracy_gap(both[1], both[0])
    return gains


def _accuracy(measured: Measured) -> dict[str, Effect]:
    dense = f", {model_name(DENSE)}"
    gains = {case: effect for case, effect in accuracy_gains(measured).items() if not case.endswith(dense)}
    if not gains and results.rows_of(measured, "tasks"):  # tasks without a signal say nothing of the effect
        return {"no task with a signal": Effect(value=0.0, error=math.inf)}
    return gains


TASKS = _claim(
    id="compress-tasks",
    text="a prompt learned from running text raises the accuracy on benchmarks",
    measure=_joined(_accuracy),
    unit=POINTS,
    quantity="accuracy with the prompt minus accuracy without, by task and compressed model",
    refuted="a task with a signal on which a prompt learned from running text gains nothing",
)


def above_dense(measured: Measured, name: str) -> Effect | None:
    """Loss of a compressed model with its prompt above the dense model without one."""
    dense, own = results.row_of(measured, "models", model=DENSE), results.row_of(measured, "own", model=name)
    return loss_gain(dense, own) if dense and own else None


def times_smaller(measured: Measured) -> float:
    """Bytes of the dense blocks over those of the blocks that were pruned and rounded."""
    dense, both = (results.row_of(measured, "models", model=name) for name in (DENSE, BOTH))
    return dense["weight_bytes"] / both["weight_bytes"]


def _published(claim: str) -> str:
    return str(rows(load_published("compress"), "claims", claim=claim)[0]["published"])


CLOSE_TO_DENSE = _claim(
    id="compress-close",
    text=f"a compressed model with a prompt costs less than {CLOSE} nats per token",
    measure=_joined(partial(_by_model, above_dense)),
    below=CLOSE,
    because=WHY_NO_LOSS,
    other_thresholds=(*OTHER_LOSSES, 0.1),
    quantity="loss with the prompt above the dense model's, by compressed model",
    refuted=f"{CLOSE} nats or more above the dense model",
)
_both = partial(_claim, source=PAPER)
EIGHT_TIMES = _both(
    id="compress-eight-times",
    text="with 50 % of the weights pruned and 4 bits, the blocks are 8 times smaller",
    measure=_joined(lambda measured: Effect(value=times_smaller(measured), error=0.0)),
    above=8,
    because=f"{WHY_OWN_NUMBER}, which counts 2 bits per weight and no places of the zeros",
    other_thresholds=(5, 4),
    unit=Unit("times"),
    quantity="bytes of the dense blocks at 16 bits over those stored",
    refuted="stored tensors that are less than 8 times smaller",
    published=lambda: f"{_published('times smaller')} times",
)
WITHOUT_LOSS = _both(
    id="compress-without-loss",
    text="with a learned prompt, this model has no loss",
    measure=_joined(lambda measured: above_dense(measured, BOTH)),
    below=CLOSE,
    because=WHY_NO_LOSS,
    other_thresholds=(*OTHER_LOSSES, 0.1),
    quantity="loss with the prompt above the dense model's",
    refuted=f"over {CLOSE} nats above the dense model with a prompt",
    published=partial(_published, "quality"),
    larger_models=True,
)
