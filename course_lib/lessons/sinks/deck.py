"""The figures of lesson 08 that only the deck shows, and those of its notebook that are measured on the real model.

Dimension key: L layers, H heads, T tokens of a text.
"""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.attention.windowed import Constant, attention_weights, first_token, value_lengths, windowed
from course_lib.data import corpora
from course_lib.kv.analysis.streaming import streaming_perplexity
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.lessons.common.dots import error_bars, side_by_side
from course_lib.lessons.common.drawn_tables import drawn_claims
from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS, of_samples
from course_lib.lessons.sinks import claims, plots
from course_lib.lessons.sinks.estimates import VARIANTS, by_block, cost_of_few
from course_lib.lessons.sinks.experiments import first_tokens, four_ways
from course_lib.lessons.sinks.experiments.dialogue import CACHES, NEWEST
from course_lib.models import load_model

Results = Mapping[str, Any]
BUDGET, START = 128, 64
MASSIVE_BLOCK = 11  # writes the massive activation of the first token, in its largest feature

# Measured on the real model, where the deck is built.


@lru_cache(maxsize=1)
def _notebook() -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Tensor, Tensor]:
    """Return the model, the tokenizer and the two texts of the notebook."""
    model, tokenizer = load_model()
    text, other = corpora.windows("wikipedia", 2, 512, tokenizer, split="evaluation", seed=0)
    return model, tokenizer, text, other


@lru_cache(maxsize=1)
def _weights() -> Float[Tensor, "L H T T"]:
    model, _, text, _ = _notebook()
    return attention_weights(model, text[None, :256])


def _share() -> Float[Tensor, "L H"]:
    return _weights()[:, :, START:, 0].mean(dim=2)


def attention_maps(layers: Sequence[int] = (1, 20)) -> Figure:
    """Plot the attention of a few layers, the mean over heads."""
    weights = _weights()[:, :, :24, :24]
    fig, axes = figure(len(layers), width=2.6, height=3.0)
    for panel, layer in zip(axes, layers, strict=True):
        panel.imshow(weights[layer].mean(dim=0), cmap="Greys", vmin=0, vmax=0.5)
        panel.grid(visible=False)
        label(panel, f"layer {layer}: {100 * weights[layer, :, 4:, 0].mean():.0f} %", "token attended to")
    axes[0].set_ylabel("query")
    fig.suptitle("Attention on the first token", x=0.02, ha="left", fontsize=12)
    return fig


def first_token_attention() -> Figure:
    return plots.first_token_attention(_share(), (1 / torch.arange(START + 1, 257)).mean().item())


def attention_by_first_token() -> Figure:
    model, tokenizer, text, _ = _notebook()
    first_ids = {"its own": text[:1].tolist()} | {name: tokenizer(name).input_ids for name in (" the", "7")}
    first_ids |= {"newline": tokenizer("\n").input_ids}
    first_ids |= {"end of text": [tokenizer.convert_tokens_to_ids("<|endoftext|>")]}
    shares = {}
    for name, ids in first_ids.items():
        row = torch.cat([torch.tensor(ids[:1]), text[1:160]])
        shares[name.strip()] = attention_weights(model, row[None])[:, :, START:, 0].mean(dim=(1, 2))
    return plots.attention_by_first_token(shares)


@torch.no_grad()
def hidden_norms() -> Figure:
    model, _, text, _ = _notebook()
    hidden = model.model(text[None], output_hidden_states=True, use_cache=False).hidden_states[:-1]
    return plots.hidden_norms(torch.stack(hidden)[:, 0].norm(dim=-1))


def value_norms() -> Figure:
    model, _, text, _ = _notebook()
    return plots.value_norms(value_lengths(model, text[None, :256]))


def growth() -> Figure:
    return plots.growth(1 / (1 - _share()))


@contextmanager
def clamped(model: PreTrainedModel, feature: int, value: float) -> Iterator[None]:
    """Set a feature of the first token after MASSIVE_BLOCK to a value."""

    def set_value(_, arguments: tuple, hidden: Tensor) -> Tensor:
        hidden = hidden.clone()
        hidden[:, 0, feature] = value
        return hidden

    handle = model.model.layers[MASSIVE_BLOCK].register_forward_hook(set_value)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def clamping() -> Figure:
    """Plot the perplexity with the massive activation unchanged, set to that of another text, and set to zero."""
    model, _, text, other = _notebook()
    states = model.model(other[None], output_hidden_states=True, use_cache=False).hidden_states
    first = states[MASSIVE_BLOCK + 1][0, 0]
    feature = int(first.abs().argmax())
    perplexities = {"unchanged": _perplexity(model, text)}
    for name, value in {"set to that of another text": first[feature].item(), "set to 0": 0.0}.items():
        with clamped(model, feature, value):
            perplexities[name] = _perplexity(model, text)
    times = perplexities["set to 0"] / perplexities["unchanged"]
    return plots.bars(
        perplexities, f"One of {text.numel() * 576:,} numbers set to 0: {times:,.0f} times the perplexity"
    )


def _perplexity(model: PreTrainedModel, text: Tensor) -> float:
    logits = model(text[None], use_cache=False).logits[0, BUDGET:-1]
    return torch.nn.functional.cross_entropy(logits, text[BUDGET + 1 :]).exp().item()


def streams() -> Figure:
    model, _, text, _ = _notebook()
    policies = {"newest tokens": Window(BUDGET), "all tokens": Full()}
    policies |= {f"{n} + {BUDGET - n}": StreamingLLM(BUDGET, sinks=n) for n in (1, 4)}
    by_cache = {name: streaming_perplexity(model, text, policy, chunk=32) for name, policy in policies.items()}
    return plots.streams({name: stream.losses for name, stream in by_cache.items()}, BUDGET)


@torch.no_grad()
def constant_as_sink() -> Figure:
    model, _, text, other = _notebook()
    constant = first_token(model, other[None])
    settings = {
        "window": {},
        "window, a logit without a value": {"constant": Constant(constant.logit, torch.zeros_like(constant.value))},
        "window, a logit and a value": {"constant": constant},
        "window and the first token": {"sinks": 1},
    }
    perplexities = {}
    for name, setting in settings.items():
        with windowed(model, window=BUDGET, **setting):
            perplexities[name] = _perplexity(model, text)
    return plots.constant_as_sink(perplexities)


def flop_counts() -> Figure:
    """Plot the library's own count of FLOPs."""
    sizes = four_ways.shape(_notebook()[0])
    counts = [four_ways.flops_a_token(*sizes, n, four_ways.SHOWN) for n in four_ways.N_READ]
    by_way = dict(zip(("dense", "streaming", "recomputation"), zip(*counts, strict=True), strict=True))
    return plots.flop_counts(four_ways.N_READ, by_way, four_ways.SHOWN)


# Drawings and stored results.


def one_evicted(weights: Sequence[float] = (0.6, 0.1, 0.1, 0.2)) -> Figure:
    """Draw the weights of one query before and after its first token is evicted."""
    fig, (left, right) = figure(2, width=4.0, height=3.0)
    after = [weight / sum(weights[1:]) for weight in weights[1:]]
    for panel, values, first in ((left, weights, 0), (right, after, 1)):
        places = range(first, len(weights))
        bars = panel.bar(places, values, 0.7, color=[COLOURS[0 if place else 3] for place in places])
        panel.bar_label(bars, [f"{value:.2f}" for value in values], fontsize=10)
        panel.set(xlim=(-0.6, len(weights) - 0.4), ylim=(0, 0.75))
        panel.set_xticks(range(len(weights)), [f"token {place}" for place in range(len(weights))])
    label(left, "Before: the sink has the most", "", "attention of one query")
    label(right, f"After: {after[0] / weights[1]:.2f} times as much on all others")
    return fig


def chat(results: Results | None = None, index: int = 2, width: int = 84, n_letters: int = 300) -> Figure:
    """Show the second answers of one chat as text."""
    results = results or load_measured("sinks", "four_ways")
    answers = {cache: rows(results, "chats", cache=cache, round=2) for cache in CACHES}
    lines = [f"> {answers[NEWEST][index]['question']}"]
    for cache in CACHES:
        text = " ".join(answers[cache][index]["text"].split())[:n_letters]
        lines += [f"{cache}:", *textwrap.wrap(text, width, initial_indent="  ")]
    fig, (axes,) = figure(width=8.6, height=4.2)
    axes.axis("off")
    text = "\n".join(lines).replace("$", r"\$")
    axes.text(0, 1, text, va="top", family="monospace", fontsize=11, transform=axes.transAxes)
    n_slots, n_chats = answers[NEWEST][index]["budget"], len(answers[NEWEST])
    axes.set_title(f"{n_slots} slots, the second answer of one chat of {n_chats}", loc="left")
    return fig


def long_stream(results: Results | None = None) -> Figure:
    """Plot the perplexity along a long stream, and the time per token in each part of it."""
    results = results or load_measured("kv")
    fig, (left, right) = figure(2, width=4.8, height=3.5)
    for index, name in enumerate(("0 sinks", "1 sink", "4 sinks")):
        (row,) = rows(results, "streaming_curves", name=name)
        middle = [row["block"] * (i + 0.5) / 1000 for i in range(len(row["perplexity"]))]
        left.plot(middle, row["perplexity"], label=name, markersize=3, **line_style(index))
        times = row["milliseconds_per_token"]
        parts = [middle[-1] * (i + 0.5) / len(times) for i in range(len(times))]
        right.plot(parts, times, label=name, markersize=4, **line_style(index))
    log_scale(left, "y")
    right.set_ylim(0, None)
    left.legend(frameon=False, fontsize=9)
    (stream,) = rows(results, "streaming", name="4 sinks")
    (curve,) = rows(results, "streaming_curves", name="4 sinks")
    one, four = by_block(results, "1 sink", "4 sinks")
    title = f"{stream['n_tokens']:,} tokens in {stream['peak_bytes'] / 1e6:.0f} MB:\n"
    title += f"1 sink has {(one - four).mean().exp():.3f} times the perplexity of 4"
    label(left, title, "thousand tokens read", f"perplexity, {curve['block']} tokens per point")
    times = curve["milliseconds_per_token"]
    title = f"Slowest part over fastest: {max(times) / min(times):.2f} with 4 sinks"
    label(right, title, "thousand tokens read", "milliseconds per token")
    return fig


def by_first_slots(results: Results | None = None) -> Figure:
    """Plot the perplexity of our three trained models by the number of first slots kept."""
    results = results or load_measured("sinks", "sink_pretraining")
    fig, (axes,) = figure(width=9.6, height=3.0)
    table = results["tables"]["streaming"]
    slots = sorted({row["sinks"] for row in table})
    series = {
        f"{n} kept": [(row["perplexity"], row["standard_error"]) for row in table if row["sinks"] == n] for n in slots
    }
    side_by_side(axes, VARIANTS, series)
    axes.legend(frameon=False, fontsize=9, title="first slots", title_fontsize=9, loc="upper left")
    costs = [100 * math.expm1(cost_of_few(results, variant, 0).value) for variant in VARIANTS]
    increases = ", ".join(f"{cost:+.0f} %" for cost in costs)
    bars = error_bars(min(len(row["losses"]) for row in table))
    label(axes, f"Here (bytes; {bars}), none kept instead of {slots[-1]}: {increases}", "", "perplexity (log scale)")
    return fig


def open_task() -> Figure:
    """Plot the ideas for the open task, compared with the text's own first four tokens."""
    ideas = first_tokens.stored(load_measured("sinks", "first_tokens")["tables"]["ideas"])
    fig, (axes,) = figure(width=7.6, height=3.9)
    own, none = ideas.pop(first_tokens.OWN), ideas.pop(first_tokens.NONE)
    names = list(ideas)[::-1]
    for place, name in enumerate(names):
        lower, error = against(ideas[name].losses, own.losses)
        axes.errorbar(100 * lower, place, xerr=100 * ERRORS * error, capsize=3, **line_style(0))
    axes.axvline(0, color=COLOURS[1], linestyle="--", linewidth=1)
    axes.set_yticks(range(len(names)), [f"{name}: {ideas[name].n_kept}" for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    better = [name for name in names if of_samples(own.losses - ideas[name].losses).holds]
    lost = -100 * against(none.losses, own.losses)[0]
    title = f"Clearly better than the text's own first 4 tokens: {len(better)} of {len(names)} starts;\n"
    title += f"no sink at all costs {lost:.0f} hundredths of a nat"
    label(axes, title, f"hundredths of a nat lower (bars: two standard errors, n = {len(own.losses)} texts)")
    axes.set_ylabel("what is kept, and its slots")
    return fig


def take_home() -> Figure:
    """Draw the main claims with the published number, ours and the verdict."""
    return drawn_claims(claims.TAKE_HOME)
