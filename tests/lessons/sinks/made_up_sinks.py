"""Made-up results in the shape of the files that the claims and figures of lesson 08 read."""

import math

import torch

from course_lib.lessons.sinks.estimates import VARIANTS
from course_lib.lessons.sinks.experiments import dialogue, four_ways

PERPLEXITIES = {"0 sinks": 30.0, "1 sink": 12.0, "2 sinks": 11.0, "4 sinks": 11.0, "4 newlines": 11.5}
BASE = {"vanilla": 3.0, "zero sink": 3.1, "learnable sink": 2.9}
LOST = {"vanilla": 0.1, "zero sink": 0.0, "learnable sink": math.log(2)}


def made_up_stream(everything=10.0, **changed):
    streaming = [
        {"name": name, "budget": 256, "perplexity": value + 1, "standard_error": 0.5, "n_tokens": 2000}
        | {"peak_bytes": 12_000_000, "compared": value, "n_compared": 1500}
        for name, value in (PERPLEXITIES | {"everything kept": everything}).items()
    ]
    curves = [
        {
            "name": name,
            "perplexity": [value, value + 1],
            "block": 512,
            "milliseconds_per_token": [20.0, 22.0, 21.0, 21.0],
        }
        for name, value in PERPLEXITIES.items()
    ]
    hard = [1.0, 1.2, 0.9]  # blocks: in each of them all caches are so many times as far up
    for row in curves:
        row["perplexity"] = [1.0, *(PERPLEXITIES[row["name"]] * times for times in hard)]
    curves.append({"name": "everything kept", "perplexity": [1.0, *(everything * times for times in hard)]})
    gaps = [
        {"positions": positions, "gap": gap, "perplexity": value}
        for positions, worst in (("original", 900.0), ("rolling", 12.0))
        for gap, value in ((0, 11.0), (16384, worst))
    ]
    return {"tables": {"streaming": streaming, "streaming_curves": curves, "gaps": gaps} | changed}


def made_up_ways(dense=3.0, window=3.0, afresh=2.0, circles="a b c a b c a b c", with_sinks="f e d c b a", lost=0.0):
    spread = [0.01 * i for i in range(-5, 6)]
    table = [
        {"way": way, "trained": 8, "budget": 4, "block": 4, "blocks": [2.0, loss, loss + 0.1, loss], "losses": losses}
        for way, loss in zip(four_ways.WAYS, (dense, window, afresh, 2.0), strict=True)
        for losses in ([loss + more for more in spread],)
    ]
    chats = [
        {"cache": cache, "round": number, "budget": 4, "question": "what?", "text": text}
        | {"loss": 1.0 + lost * (cache != dialogue.EVERYTHING)}
        for cache, text in zip(dialogue.CACHES, ("a b c d e f", circles, with_sinks), strict=True)
        for number in (1, 2)
        for _ in range(3)
    ]
    return {"tables": {"ways": table, "chats": chats}, "sizes": {"tokens": 16}}


def made_up_trainings():
    """A measurement of made-up numbers, in the shape of lessons/sinks/sink_pretraining.json."""
    streaming, recomputed, attention, emergence = [], [], [], []
    for variant in VARIANTS:
        for sinks in (0, 1, 2, 4):
            losses = [BASE[variant] + hard + LOST[variant] * (sinks == 0) for hard in (-0.2, 0.0, 0.2)]
            row = {"variant": variant, "sinks": sinks, "recent": 128 - sinks, "losses": losses}
            value = math.exp(BASE[variant] + LOST[variant] * (sinks == 0))
            streaming.append(row | {"perplexity": value, "standard_error": 0.5})
        recomputed.append({"variant": variant, "perplexity": 20.0, "standard_error": 0.25})
        for layer in (0, 1):
            for head in (0, 1):
                share = {"vanilla": 0.1, "zero sink": 0.05, "learnable sink": 0.4}[variant] * (layer + head)
                row = {"variant": variant, "layer": layer, "head": head, "slots": [share, 0.01, 0.0, 0.0]}
                attention.append(row | {"nowhere": 0.5 * (variant == "zero sink"), "even": 0.007})
        emergence += [
            {"variant": variant, "step": step, "evaluation_loss": loss, "first_slot": [0.01, 0.001 * step]}
            for step, loss in ((1, 7.5), (100, BASE[variant]))
        ]
    registers = [
        {"registers": n, "seed": seed, "layer": layer, "median": 2.0, "q99": 3.0, "largest": 4.0 + 8 * layer * (n == 0)}
        | {"accuracy": 0.95}
        for n in (0, 4)
        for seed in (0, 1)
        for layer in (0, 1)
    ]
    rates, rate_streaming = [], []
    for rate in (0.01, 0.001):
        for step in (1, 50):
            rates.append({"rate": rate, "step": step, "evaluation_loss": 2.0, "first_slot": [rate * step, 0.0]})
        for sinks in (0, 1):
            losses = [2.0 + hard + 40 * rate * (sinks == 0) for hard in (-0.2, 0.0, 0.2)]
            rate_streaming.append({"rate": rate, "sinks": sinks, "losses": losses})
    tables = {"streaming": streaming, "recomputed": recomputed, "attention": attention, "emergence": emergence}
    return {"tables": tables | {"registers": registers, "rates": rates, "rate_streaming": rate_streaming}}


def made_up_backcopy(lost=0.8, n_seeds=2):
    """A few seeds of made-up numbers in the shape of backcopy.json; `lost` by a learnable sink without it."""
    attention, streaming, emergence, widths = [], [], [], []
    for variant in VARIANTS:
        for seed in range(n_seeds):
            label = {"variant": variant, "seed": seed}
            own = variant == "learnable sink"
            attention.append(
                label
                | {"busy_first_slot": 0.01, "busy_nowhere": 0.0, "idle_first_slot": 0.9 if own else 0.02}
                | {"idle_nowhere": 0.3 * (variant == "zero sink")}
            )
            for n in (0, 1, 2, 4):
                streaming.append(label | {"sinks": n, "recent": 32 - n, "others": lost * own * (n == 0), "copies": 0.0})
            for step in (50, 100):
                emergence.append(label | {"step": step, "first_slot": 0.005 * step + 0.1 * seed, "first_value": 0.25})
    for hidden, share in ((16, 0.5), (64, 0.0)):
        for seed in (0, 1):
            widths.append({"hidden": hidden, "seed": seed, "idle_first_slot": share, "others_0": 0.1, "others_1": 0.0})
    weights = torch.zeros(4, 5)
    weights[torch.arange(4), torch.tensor([0, 0, 2, 0])] = 1.0
    sample = [{"variant": "learnable sink", "seed": 0, "text": "bca ", "weights": weights.tolist()}]
    tables = {
        "attention": attention,
        "streaming": streaming,
        "emergence": emergence,
        "widths": widths,
        "sample": sample,
    }
    return {"tables": tables, "sizes": {"shape": {"hidden": 8}}}
