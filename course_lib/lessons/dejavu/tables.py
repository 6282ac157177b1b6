"""The tables of lesson 09: what the notebook computes, what its experiments measured, and what the paper reports."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from course_lib.contextual.execute.race import Lap
from course_lib.lessons.common import gpu
from course_lib.lessons.common.results import load_bench, load_published, rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus, with_range
from course_lib.lessons.common.verdicts import of_samples
from course_lib.lessons.dejavu.activations import Losses

PROMPTS = ("128", "256", "512", "1024")  # tokens
PUBLISHED = "Published, not measured here"


def perplexities(losses: Losses, dense: Float[Tensor, "N"], nats: bool = False) -> Table:
    """Perplexity by way to choose and fraction that is kept; the loss in nats where perplexities are close to 1."""
    fractions = sorted({fraction for by_fraction in losses.values() for fraction in by_fraction}, reverse=True)
    frame = [{"neurons chosen by": "dense", "all": _value(dense, nats)}]
    for name, by_fraction in losses.items():
        values = {
            percent(fraction): _value(by_fraction[fraction], nats) for fraction in fractions if fraction in by_fraction
        }
        frame.append({"neurons chosen by": name} | values)
    return Table(
        frame,
        caption=f"{'Loss (nats)' if nats else 'Perplexity'} by the fraction that is kept",
        formats=dict.fromkeys(["all", *map(percent, fractions)], number(3 if nats else 1)),
    )


def _value(losses: Float[Tensor, "N"], nats: bool) -> float:
    return (losses.mean() if nats else losses.mean().exp()).item()


def recall_ahead(recalls: Mapping[int, Float[Tensor, "N"]]) -> Table:
    """Recall by how many blocks earlier the predictor reads, and what is lost, window by window."""
    lost = {n: of_samples((recalls[0] - recall).tolist()) for n, recall in recalls.items() if n}
    return Table(
        [
            {"blocks ahead": n, "recall": float(recall.mean())}
            | {"recall lost": (n and lost[n].value) or None, "error": (n and lost[n].error) or None}
            for n, recall in recalls.items()
        ],
        caption="Recall of a predictor that reads an earlier block",
        formats={"recall": number(3), ("recall lost", "error"): plus_minus(3, sign=True)},
        note="± one standard error over the windows.",
    )


def decoding(laps: Sequence[Lap], n_tokens: int) -> Table:
    """Tokens per second of each way to decode, and its loss compared with that of the first, window by window."""
    first, *_ = laps
    above = f"above {first.way}"
    frame = []
    for lap in laps:
        row = {"way": lap.way, "tokens per second": lap.tokens_per_second(n_tokens), "speedup": lap.times_faster}
        gaps = [loss - own for loss, own in zip(lap.losses, first.losses, strict=True)]
        effect = None if lap is first else of_samples(gaps)
        row |= {above: effect and effect.value, "error": effect and effect.error}
        frame.append(row | {"loss (nats)": lap.loss})
    return Table(
        frame,
        caption="Decoding with some of the neurons",
        formats={
            "tokens per second": number(),
            "speedup": number(2),
            "loss (nats)": number(3),
            (above, "error"): plus_minus(3, sign=True),
        },
        note="± one standard error over the windows, in nats per token.",
    )


def decoding_speedup(measured: dict[str, Any] | None = None) -> Table:
    """The stored speedup of decoding with the ReLU model, with known and with predicted neurons, and what is lost."""
    measured = measured or load_bench("cpu_contextual_relu")
    key = ("speedup", "slowest", "fastest")
    return Table(
        [
            {
                "setting": row["contest"].replace("%", " %").replace("  %", " %").replace(" a byte", " per byte"),
                "way": row["side"],
            }
            | dict(zip(key, (row[f"times_anchor{end}"] for end in ("", "_low", "_high")), strict=True))
            for row in measured["tables"]["sides"]
            if row["side"] != row["anchor"]
        ],
        caption="Speedup of decoding with the ReLU model",
        formats={key: with_range(2)},
        note="In brackets: 10 % to 90 % of the repetitions.",
    )


def gathered_on_gpu() -> Table:
    """The dense and the gathered MLP on a GPU, for one token at two densities."""
    return gpu.table("gathered_mlp", contests=("density 0.5, tokens: 1", "density 0.05, tokens: 1"))


def published_accuracy() -> Table:
    """OPT-175B with predicted neurons or heads: tasks and perplexities."""
    shown = {"COPA": 2, "Lambada": 4, "PIQA": 4, "RTE": 4, "Winogrande": 4, "WikiText": 2, "C4": 2}
    return _published("dejavu_accuracy", "model", shown)


def published_latency() -> Table:
    """Milliseconds per token by length of the prompt, and the speedup of Deja Vu."""
    systems = {row["system"]: row for row in rows(load_published("dejavu"), "dejavu_latency")}
    headings = {n: f"prompt of {n}" for n in PROMPTS}
    frame = [{"system": name} | {headings[n]: row[n] for n in PROMPTS} for name, row in systems.items()]
    for name in ("Hugging Face", "FasterTransformer"):
        ratios = {headings[n]: systems[name][n] / systems["Deja Vu"][n] for n in PROMPTS}
        frame.append({"system": f"times faster than {name}"} | ratios)
    return Table(
        frame,
        caption=f"{PUBLISHED}: milliseconds per token by length of the prompt",
        formats=dict.fromkeys(headings.values(), number(1)),
    )


def _published(name: str, key: str, shown: dict[str, int]) -> Table:
    """Rows of a published table; `shown` has the digits of each column."""
    return Table(
        [{key: row[key]} | {column: row[column] for column in shown} for row in rows(load_published("dejavu"), name)],
        caption=PUBLISHED,
        formats={column: number(digits) for column, digits in shown.items()},
    )
