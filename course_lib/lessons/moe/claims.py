"""The claims of lesson 06: what papers say of experts, balance and routers, and how we judge it.

A claim about losses compares models of one seed; the seeds, of which there are two or three, are its samples.
"""

from functools import partial
from math import log
from typing import Any

from course_lib.lessons.common.claim import (
    MOST,
    NO_LOSS,
    OTHER_LOSSES,
    OTHER_MAJORITIES,
    POINTS,
    WHY_MOST,
    Claim,
    Unit,
)
from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.common.verdicts import Effect
from course_lib.lessons.moe import pairs
from course_lib.lessons.moe.experiments.moe_upcycling import ARMS
from course_lib.lessons.moe.experiments.moe_upcycling import DENSE as DENSE_TRAINED

Measured = dict[str, Any]
MORE_WEIGHTS, AS_MANY = 3.0, 1.05  # times the weights of the dense model, at most so many times its multiplications
NATS_PER_BYTE = Unit("nats per byte", signed=True)
EPOCHS = Unit("epochs", signed=True)

SWITCH = "Fedus, Zoph and Shazeer (2021), Switch Transformers, arXiv:2101.03961"
SHAZEER = "Shazeer and others (2017), arXiv:1701.06538"
ST_MOE = "Zoph and others (2022), ST-MoE, arXiv:2202.08906"
DEEPSEEK = "DeepSeek-AI (2024), DeepSeek-V3, arXiv:2412.19437"
EXPERT_CHOICE_PAPER = "Zhou and others (2022), arXiv:2202.09368"
UPCYCLING = "Komatsuzaki and others (2022), Sparse Upcycling, arXiv:2212.05055"
DROP_UPCYCLING = "Nakamura and others (2025), Drop-Upcycling, arXiv:2502.19261"
SPARSE_MIXER_PAPER = "Liu, Gao and Chen (2023), arXiv:2310.00811"
JACOBS = "Jacobs, Jordan, Nowlan and Hinton (1991), doi:10.1162/neco.1991.3.1.79"
JORDAN = "Jordan and Jacobs (1994), doi:10.1162/neco.1994.6.2.181"

_claim = partial(Claim, results=("moe/experiments/moe",), source=SWITCH, unit=NATS_PER_BYTE)
_routers = partial(_claim, results=("moe/experiments/moe", "moe/experiments/moe_routers"))
_upcycled = partial(_claim, results=("moe/experiments/moe_upcycling",), source=UPCYCLING)
_classic = partial(_claim, results=("moe/experiments/moe_classic",))


def _switch_quality(table: str, better: dict[str, Any], worse: dict[str, Any], of: str) -> str:
    """The difference of two published negative log perplexities."""
    (first,), (second,) = (rows(load_published("moe"), table, **wanted) for wanted in (better, worse))
    return f"{first['quality'] - second['quality']:+.3f} nats per token ({of})"


def _balance_published() -> str:
    by_weights = {(row["importance"], row["load"]): row for row in rows(load_published("moe"), "shazeer_losses")}
    ratio = by_weights[0.0, 0.0]["perplexity"] / by_weights[0.1, 0.1]["perplexity"]
    return f"{log(ratio):+.2f} nats per word (MoE-256)"


def _load_published() -> str:
    (row,) = rows(load_published("moe"), "shazeer_losses", importance=0.0, load=0.0)
    return f"the busiest expert has {row['largest_over_mean']:.1f} times the mean load (MoE-256)"


def _lower(better: str, worse: str, *results: Measured) -> Effect:
    """By how much the loss of one kind of model is lower than that of another, in one result or in two."""
    return pairs.over_seeds(pairs.lower(results[0] if len(results) == 1 else pairs.joined(*results), better, worse))


# Experts and balance.

ONE_OF_EIGHT = _claim(
    id="moe-one-of-eight",
    text="one of 8 experts per byte has a lower loss than a dense model with as many multiplications",
    measure=partial(_lower, "top-1", "dense"),
    quantity="loss of the dense model minus that of top-1",
    refuted="a dense model of as many multiplications with a loss as low",
    published=partial(
        _switch_quality, "switch_capacity", {"model": "Switch, top-1", "capacity_factor": 1.0},
        {"model": "T5-Base, dense"}, "Switch compared with T5-Base",
    ),
)  # fmt: skip
TWO_OF_EIGHT = _claim(
    id="moe-two-of-eight",
    text="two of 8 experts per byte, each half as large, have a lower loss than a dense model with as many "
    "multiplications",
    source=SHAZEER,
    measure=partial(_lower, "top-2", "dense"),
    quantity="loss of the dense model minus that of top-2",
    refuted="a dense model of as many multiplications with a loss as low",
)
TWO_SMALL_EXPERTS = _claim(
    id="moe-two-small-experts",
    text="two small experts per byte have a lower loss than one expert of twice the size",
    source="",
    measure=partial(_lower, "top-2", "top-1"),
    quantity="loss of top-1 minus that of top-2",
    refuted="one large expert with a loss as low",
)


def _decoupled(measured: Measured) -> dict[str, Effect]:
    effects = {}
    for name, (more, as_many) in _ratios(measured).items():
        effects[f"weights of {name}"] = Effect(value=more / MORE_WEIGHTS - 1, error=0.0)
        effects[f"multiplications of {name}"] = Effect(value=AS_MANY - as_many, error=0.0)
    return effects


def _ratios(measured: Measured) -> dict[str, tuple[float, float]]:
    """Weights and multiplications over those of the dense model, both counted."""
    (dense, *_) = rows(measured, "models", model="dense")
    firsts = {name: rows(measured, "models", model=name)[0] for name in ("top-1", "top-2")}
    keys = ("parameters", "flops_a_byte")
    return {name: tuple(row[key] / dense[key] for key in keys) for name, row in firsts.items()}


def _shown_ratios(measured: Measured) -> str:
    ratios = _ratios(measured).items()
    return ", ".join(
        f"{more:.1f} times the weights, {many:.3f} times the multiplications ({name})" for name, (more, many) in ratios
    )


DECOUPLED = _claim(
    id="moe-decoupled",
    text=f"a mixture of experts has over {MORE_WEIGHTS:.0f} times the weights of a dense model at most {AS_MANY} times "
    "its multiplications",
    measure=_decoupled,
    shown=_shown_ratios,
    criterion="over 3 times the weights, at most 1.05 times the multiplications",
    quantity=f"weights over {MORE_WEIGHTS:.0f} times the dense model's, minus 1; {AS_MANY} minus the multiplications "
    "over the dense model's",
    refuted="experts with fewer weights, or with more multiplications, than that",
)
COLLAPSE, COLLAPSE_TOP_2 = (
    _claim(
        id=f"moe-collapse{suffix}",
        text=f"without a balance loss, {experts} more than half of all choices in most blocks of {name}",
        source=SHAZEER,
        measure=partial(pairs.collapsed, name=name, k=k),
        above=MOST,
        because=WHY_MOST,
        other_thresholds=OTHER_MAJORITIES,
        unit=Unit("% of the blocks", scale=100),
        shown=partial(pairs.collapsed_blocks, name=name, k=k),
        quantity="fraction of the blocks, mean of the seeds",
        refuted="at least half of the blocks that use their experts more evenly",
        published=_load_published,
    )
    for suffix, name, k, experts in (("", "top-1", 1, "one expert gets"), ("-top-2", "top-2", 2, "two experts get"))
)
BALANCED_TOP_1, BALANCED_TOP_2 = (
    _claim(
        id=f"moe-balanced-{name}",
        text=f"a balance loss lowers the loss of {name} on held-out text",
        source=SHAZEER,
        measure=partial(_lower, f"{name}, balanced", name),
        quantity="loss without the balance loss minus that with it",
        refuted="a loss that is no lower",
        published=_balance_published,
    )
    for name in ("top-1", "top-2")
)

# Other losses and other routers.

JITTER = _routers(
    id="moe-jitter",
    text="jitter, noise on the router's input, lowers the loss on held-out text",
    measure=partial(_lower, "top-1, balanced, jitter", "top-1, balanced"),
    quantity="loss without jitter minus that with it",
    refuted="jitter that does not lower the loss",
    published=partial(
        _switch_quality, "switch_exploration", {"router": "jitter on the router's input"},
        {"router": "the most likely expert"}, "Switch",
    ),
    larger_models=True,
)  # fmt: skip
Z_LOSS, NO_Z_LOSS = "top-2, balanced, z-loss", "top-2, balanced"


def _smaller_logits(key: str, *results: Measured) -> Effect:
    return pairs.falls(pairs.joined(*results), Z_LOSS, NO_Z_LOSS, key)


def _shown_logits(key: str, what: str, *results: Measured) -> str:
    return f"{what}: {pairs.with_and_without(pairs.joined(*results), Z_LOSS, NO_Z_LOSS, key)}"


Z_LOG_SUM, Z_SMALLER = (
    _routers(
        id=id_,
        text=f"the z-loss makes {what} smaller",
        source=ST_MOE,
        measure=partial(_smaller_logits, key),
        shown=partial(_shown_logits, key, what),
        criterion="smaller with the z-loss than without, mean of the seeds",
        quantity=f"{what} without the z-loss minus that with it, mean over blocks",
        refuted="logits as large with the z-loss as without",
    )
    for id_, key, what in (
        ("moe-z-log-sum", "log_sum_exp", "log Σ exp h of the router's logits h"),
        ("moe-z-smaller", "largest_logit", "the largest router logit"),
    )
)
_z_loss = partial(
    _routers,
    source=ST_MOE,
    measure=partial(_lower, Z_LOSS, NO_Z_LOSS),
    quantity="loss on held-out text without the z-loss minus that with it",
)
Z_LOWERS_LOSS = _z_loss(
    id="moe-z-lowers-loss",
    text="the z-loss lowers the loss on held-out text",
    refuted="a loss that is no lower",
)
Z_CHEAP = _z_loss(
    id="moe-z-cheap",
    text=f"the z-loss costs less than {NO_LOSS} nats per byte on held-out text",
    above=-NO_LOSS,
    because="no loss means less than 5 % more perplexity (0.05 nats per byte)",
    other_thresholds=(*(-loss for loss in OTHER_LOSSES), 0.0),
    refuted=f"a z-loss that costs {NO_LOSS} nats per byte or more",
)


def _evener(control: str, *results: Measured) -> Effect:
    return pairs.falls(pairs.joined(*results), "top-2, sigmoid, bias", control, pairs.busiest)


def _cheaper_balance(*results: Measured) -> Effect:
    by_loss, by_bias = ("top-2", "top-2, balanced"), ("top-2, sigmoid", "top-2, sigmoid, bias")
    return pairs.over_seeds(pairs.costs_more(pairs.joined(*results), by_loss, by_bias))


BIAS_EVENS = _routers(
    id="moe-bias-evens",
    text="a bias on the router's scores evens out the loads of the experts",
    source=DEEPSEEK,
    measure=partial(_evener, "top-2, sigmoid"),
    unit=POINTS,
    quantity="the busiest expert's fraction of the choices without the bias minus that with it",
    refuted="a busiest expert with as many choices as without the bias",
)
BIAS_EVENS_MORE = _routers(
    id="moe-bias-evens-more",
    text="a bias on the router's scores evens out the loads more than a balance loss",
    source=DEEPSEEK,
    measure=partial(_evener, "top-2, balanced"),
    unit=POINTS,
    quantity="the busiest expert's fraction of the choices with the balance loss minus that with the bias",
    refuted="a busiest expert with as many choices as with the balance loss",
)
BIAS_CHEAPER = _routers(
    id="moe-bias-cheaper",
    text="balance by a bias raises the loss on held-out text less than balance by a loss",
    source=DEEPSEEK,
    measure=_cheaper_balance,
    quantity="what the balance loss costs minus what the bias costs",
    refuted="a bias that costs as much",
    larger_models=True,
)


def _read_by_bytes(*results: Measured) -> Effect:
    found = pairs.joined(*results)
    read_by_bytes = rows(found, "future", read_by="bytes choose")
    return pairs.over_seeds(pairs.gains(rows(found, "models", model="top-2, balanced"), read_by_bytes))


EXPERT_CHOICE = _routers(
    id="moe-expert-choice",
    text="experts that choose their bytes have a lower loss than bytes that choose their experts",
    source=EXPERT_CHOICE_PAPER,
    measure=partial(_lower, "expert choice", "top-2, balanced"),
    quantity="loss of balanced top-2 minus that of expert choice",
    refuted="balanced top-2 with a loss as low",
)
EXPERT_CHOICE_ALONE = _routers(
    id="moe-expert-choice-alone",
    text="a model trained with expert choice has a higher loss than balanced top-2 once each byte chooses its experts",
    source=EXPERT_CHOICE_PAPER,
    measure=_read_by_bytes,
    quantity="loss of the model trained with expert choice minus that of balanced top-2",
    refuted="a model trained with expert choice that has a loss as low",
)

# Copies of a dense model, trained on.


def _trained_on(name: str, measured: Measured) -> Effect:
    last = max(row["steps"] for row in rows(measured, "models"))
    return pairs.over_seeds(pairs.lower(measured, name, DENSE_TRAINED, steps=last))


_MADE_OF = {
    "copies, top-2": "four copies of each MLP, two per byte,",
    "copies with noise, top-2": "four copies of each MLP with noise, two per byte,",
    "half redrawn, top-2": "four copies of each MLP with half of the neurons drawn at random again, two per byte,",
    "copies, top-1": "four copies of each MLP, one per byte,",
}
UPCYCLED, UPCYCLED_NOISE, UPCYCLED_REDRAWN, UPCYCLED_TOP_1 = (
    _upcycled(
        id=id_,
        text=f"{_MADE_OF[name]} have a lower loss after 200 more steps than the dense model after as many",
        source=DROP_UPCYCLING if "redrawn" in name else UPCYCLING,
        measure=partial(_trained_on, name),
        quantity="loss of the dense model minus that of the copies",
        refuted="a dense model with a loss as low",
    )
    for id_, name in zip(
        ("moe-upcycled", "moe-upcycled-noise", "moe-upcycled-redrawn", "moe-upcycled-top-1"), ARMS, strict=True
    )
)

# The first mixtures.

MIXTURE, BLENDED = "4 experts, mixture", "4 experts, cooperative"
PERCEPTRONS = ("perceptron, 6 hidden", "perceptron, 12 hidden")
_vowels = partial(_classic, source=JACOBS)
VOWELS_ALONE = _vowels(
    id="moe-vowels-alone",
    text="experts trained with the mixture error can be used alone, experts trained with the blended error cannot",
    measure=partial(pairs.from_start, key="likeliest_accuracy", name=MIXTURE, other=BLENDED),
    unit=POINTS,
    quantity="accuracy of the likeliest expert alone minus that with the blended error",
    refuted="experts of the blended error that are as accurate alone",
)


def _sooner(measured: Measured) -> dict[str, Effect]:
    return {other: pairs.from_start(measured, "epochs_to_90", other, MIXTURE) for other in PERCEPTRONS}


VOWELS_SOONER = _vowels(
    id="moe-vowels-sooner",
    text="a mixture of four experts learns in fewer epochs than perceptrons with 6 and 12 hidden neurons",
    measure=_sooner,
    unit=EPOCHS,
    quantity="epochs to an accuracy of 90 % minus those of the mixture",
    refuted="a perceptron that learns in as few epochs",
)
VOWELS_BLENDED = _vowels(
    id="moe-vowels-blended",
    text="experts trained with the blended error learn in fewer epochs than those trained with the mixture error",
    measure=partial(pairs.from_start, key="epochs_to_90", name=MIXTURE, other=BLENDED),
    unit=EPOCHS,
    quantity="epochs to an accuracy of 90 % with the mixture error minus those with the blended error",
    refuted="a mixture error with which they learn in as few epochs",
)


def _climbs(measured: Measured) -> Effect:
    n_rising, n = pairs.rising(measured)
    return Effect(value=n_rising / n - (1 - 0.5 / n), error=0.0, n=n)


EM_CLIMBS = _classic(
    id="moe-em-climbs",
    text="no step of EM lowers the likelihood of a tree of experts",
    source=JORDAN,
    measure=_climbs,
    shown=lambda measured: "true of {} of {} runs".format(*pairs.rising(measured)),
    criterion="no step that lowers the likelihood",
    quantity="fraction of the runs without such a step, above all but half a run",
    refuted="one step after which the likelihood is lower",
)


def _between_lstms(name: str, measured: Measured) -> Effect:
    return pairs.over_seeds(pairs.lower(measured, name, "dense", table="recurrent"))


RECURRENT, RECURRENT_BALANCED = (
    _classic(
        id=f"moe-recurrent{suffix}",
        text=f"4 of 16 experts{how} between two LSTMs have a lower loss than as many active dense neurons",
        source=SHAZEER,
        measure=partial(_between_lstms, f"4 of 16 experts{how and ', balanced'}"),
        quantity="loss with dense neurons minus that with experts",
        refuted="dense neurons with a loss as low",
    )
    for suffix, how in (("", ""), ("-balanced", " with a balance loss"))
)
SPARSE_MIXER = _claim(
    id="moe-sparse-mixer",
    text="SparseMixer's estimate of the router's gradient has less bias than the product with the gate's weight",
    results=("moe/experiments/moe_gradients",),
    source=SPARSE_MIXER_PAPER,
    measure=partial(pairs.less_biased, name="SparseMixer v1, as released", than="Multiplier"),
    unit=Unit("% of the gradient's size", scale=100, signed=True),
    quantity="bias of the product minus that of SparseMixer",
    refuted="a kind of loss with which the product has as little bias",
)
