"""Perplexity of long texts in a bounded cache: number of sinks, positions, and every policy."""

from typing import Any

from jaxtyping import Int
from torch import Tensor

from course_lib.kv.analysis.streaming import StreamingPerplexity, streaming_perplexity
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.lessons.kv.experiments import settings
from course_lib.measure.experiment import Tables
from course_lib.measure.paired import block_means

NEWLINES = "4 newlines"
FIRST = {"0 sinks": 0, "1 sink": 1, "2 sinks": 2, "4 sinks": 4, NEWLINES: 4}
EVERYTHING = "everything kept"
BLOCK = 64  # tokens
N_PARTS = 8  # parts of the text; the time per token is measured in each


def one_text(n_tokens: int, seed: int) -> Int[Tensor, "T"]:
    """Return running text for this many predictions."""
    return article_windows(1, n_tokens + 1, seed)[0]


def sinks(name: str, n_tokens: int, n_compared: int, budget: int, chunk: int, seed: int) -> Tables:
    """Stream one long text with some sinks, or with newlines in place of its first tokens; rolling positions.

    `compared` is the perplexity of the first `n_compared` predictions, for comparison with the full cache.
    """
    model, tokenizer = loaded()
    ids = one_text(n_tokens, seed)
    if name == NEWLINES:
        ids[:4] = tokenizer("\n", add_special_tokens=False).input_ids[0]
    if name == EVERYTHING:
        stream = streaming_perplexity(model, ids[: n_compared + 1], Full(), chunk=4 * chunk, skip=budget)
    else:
        policy = StreamingLLM(budget, sinks=FIRST[name])
        stream = streaming_perplexity(model, ids, policy, "rolling", chunk, skip=budget)
    label = {"name": name, "budget": None if name == EVERYTHING else budget}
    shared = stream.losses[budget:n_compared]
    compared = shared.mean().exp().item()
    by_block = [round(loss, 5) for loss in block_means(shared, min(BLOCK, len(shared))).tolist()]
    curve = {"perplexity": [round(value, 2) for value in stream.curve()], "block": 512}
    return {
        "streaming": [
            label
            | row_of(stream)
            | {"compared": compared, "n_compared": n_compared - budget, "compared_losses": by_block}
        ],
        "streaming_curves": [label | curve | {"milliseconds_per_token": milliseconds(stream, N_PARTS)}],
    }


def gap(positions: str, gap: int, n_tokens: int, budget: int, chunk: int, seed: int) -> Tables:
    """Stream with four sinks as if `gap` tokens had followed them: with original positions they are that far away."""
    ids = one_text(n_tokens, seed)
    policy = StreamingLLM(budget, sinks=4)
    stream = streaming_perplexity(loaded()[0], ids, policy, positions, chunk, skip=budget, gap=gap, gap_after=4)
    return {"gaps": [{"positions": positions, "gap": gap, "budget": budget} | row_of(stream)]}


def chunk(size: int, n_tokens: int, budget: int, seed: int) -> Tables:
    """Measure the effect of reading several tokens per pass."""
    stream = streaming_perplexity(loaded()[0], one_text(n_tokens, seed), StreamingLLM(budget), "rolling", size, budget)
    return {"chunks": [{"budget": budget} | row_of(stream) | {"milliseconds_per_token": milliseconds(stream, 1)[0]}]}


def policy(name: str, n_tokens: int, budget: int, chunk: int, seed: int) -> Tables:
    """Stream one text with a policy, with positions as in its paper."""
    ids = one_text(n_tokens, seed)
    eviction_policy = Full() if name == "Full" else settings.with_budgets(name, (budget,))[0]
    positions = settings.positions(name)
    stream = streaming_perplexity(loaded()[0], ids, eviction_policy, positions, chunk, skip=budget)
    label = {"policy": name, "positions": positions, "budget": None if name == "Full" else budget}
    return {"policies": [label | row_of(stream) | {"milliseconds_per_token": milliseconds(stream, 1)[0]}]}


def row_of(stream: StreamingPerplexity) -> dict[str, Any]:
    """Return a row; its `losses` are means of blocks of tokens, for paired comparisons on the same text."""
    counted = stream.losses[stream.skip :]
    return {
        "perplexity": stream.value,
        "standard_error": stream.standard_error,
        "n_tokens": stream.n_tokens,
        "chunk": stream.chunk,
        "peak_bytes": stream.peak_bytes,
        "peak_allocated": stream.peak_allocated,
        "losses": [round(loss, 5) for loss in block_means(counted, min(BLOCK, len(counted))).tolist()],
    }


def milliseconds(stream: StreamingPerplexity, n_parts: int) -> list[float]:
    return [round(1000 * seconds, 2) for seconds in stream.seconds_per_token(n_parts)]
