"""The figures of lesson 07 that only the deck shows: drawings, further results, and figures of what a cell measures.

Dimension key: T tokens.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.data import corpora
from course_lib.data.needles import samples
from course_lib.kv.analysis.attention_statistics import AttentionStatistics, attention_statistics, kinds_of
from course_lib.kv.analysis.retrieval import retrieve
from course_lib.kv.policies.d2o import D2O
from course_lib.kv.policies.ems import EMS
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.scissorhands import Scissorhands, rising
from course_lib.kv.policies.snapkv import SnapKV
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.tova import TOVA
from course_lib.kv.policies.window import Window
from course_lib.kv.policy import EvictionPolicy
from course_lib.lessons.common.cache_speed import EVERYTHING
from course_lib.lessons.common.dots import error_bars
from course_lib.lessons.common.drawn_tables import drawn_claims, drawn_table
from course_lib.lessons.common.results import load_bench, load_measured, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.kv import claims, plots, widgets
from course_lib.lessons.kv.estimates import FULL_WRITER, SPARSE
from course_lib.lessons.kv.steps import STORY, compare_policies, h2o_step, nearest_kept, slots_by_layer
from course_lib.models import blocks, load_model

WORDS = ("Once", "upon", "a", "time", "Mara", "left", "the", "old", "town", "and", "Mara", "sang")
N_SLOTS, N_RECENT = 5, 2  # of the drawn cache
KEPT, EVICTED, EVICTION = COLOURS[0], "#d9dde3", COLOURS[1]
BUDGET, SLOTS = 64, 28  # of the stream and of the question, as in the notebook
COLUMN = 27  # characters per line of a continuation
TAKE_HOME = (
    claims.SPARSE,
    claims.FIVE_PER_CENT,
    claims.MASKED,
    claims.THAN_SINKS,
    claims.CHOOSING,
    claims.LOOKS_AGAIN,
)
STEPS = r"\d+ steps of \d+ at \d+ tokens"
_model = lru_cache(maxsize=1)(load_model)


def _example_attention() -> Float[Tensor, "T T"]:
    """Return made-up attention in which the first token, "Mara" and the neighbour receive much."""
    n = len(WORDS)
    logits = torch.zeros(n, n)
    logits[:, 0], logits[:, 4] = 2.2, 1.6
    logits += torch.eye(n) + torch.diag(torch.full((n - 1,), 1.2), -1)
    return logits.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf")).softmax(dim=1)


def example_reads() -> Bool[Tensor, "T T"]:
    """Return which tokens each query of the example reads when H2O evicts after every step."""
    n, attention = len(WORDS), _example_attention()
    slots, score, is_read = torch.empty(0, dtype=torch.int64), torch.empty(0), torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        slots, score = torch.cat([slots, torch.tensor([i])]), torch.cat([score, torch.zeros(1)])
        is_read[i, slots] = True
        new = attention[i, slots] / attention[i, slots].sum()
        budget, recent = min(N_SLOTS, len(slots)), min(N_RECENT, len(slots))
        keep, total = h2o_step(score[None], new[None], slots[None], budget, recent)
        slots, score = slots[keep[0]], total[0][keep[0]]
    return is_read


def cache() -> Figure:
    """Draw the attention matrix with the evicted columns, and the slots at the end."""
    fig, (axes,) = figure(width=6.1, height=5.6)
    is_read, n = example_reads(), len(WORDS)
    for query in range(n):
        for key in range(query + 1):
            kept = bool(is_read[query, key])
            _square(axes, key, query, KEPT if kept else EVICTED, hatch="" if kept else "///")
    for slot, key in enumerate(is_read[-1].nonzero().flatten().tolist()):
        _square(axes, slot + 3, n + 1.2, KEPT)
        axes.text(slot + 3.5, n + 1.7, WORDS[key], ha="center", va="center", fontsize=8, color="white")
    axes.text(2.8, n + 1.7, "in the slots", ha="right", va="center", fontsize=10)
    axes.set_xlim(0, n)
    axes.set_ylim(n + 2.4, 0)
    axes.set_xticks([i + 0.5 for i in range(n)], WORDS, rotation=60, ha="left", fontsize=9)
    axes.set_yticks([i + 0.5 for i in range(n)], WORDS, fontsize=9)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_ylabel("query", fontsize=10)
    return fig


def _square(axes: Axes, x: int | float, y: int | float, colour: str, hatch: str = "", width: float = 1.0) -> None:
    axes.add_patch(Rectangle((x, y), width, 1, facecolor=colour, edgecolor="white", hatch=hatch, linewidth=1.2))


def protocols() -> Figure:
    """Draw the moment of the eviction: after the question, or before it."""
    fig, axes = figure(n_rows=2, width=11.0, height=1.9)
    prompt, question, answer = ("text with the secret word", 6.0), ("The secret word is", 2.4), ("river", 1.1)
    _timeline(axes[0], [prompt, question], [answer], "the leak: the question is part of the prompt")
    _timeline(axes[1], [prompt], [question, answer], "fair: the question comes after the eviction")
    return fig


def _timeline(axes: Axes, before: list[tuple[str, float]], after: list[tuple[str, float]], name: str) -> None:
    at = 0.0
    for words, width in before:
        at = _piece(axes, at, words, width)
    axes.plot([at + 0.12] * 2, [-0.25, 1.25], color=EVICTION, linewidth=3)
    axes.text(at + 0.12, 1.32, "eviction", ha="center", va="bottom", fontsize=12, color=EVICTION)
    first = at + 0.24
    for words, width in after:
        at = _piece(axes, first if at < first else at, words, width)
    source = first - 0.4 if len(after) == 1 else at - after[-1][1] - 0.15
    target = at - after[-1][1] / 2
    arrow = {"arrowstyle": "-|>", "color": "black", "linewidth": 1.4, "connectionstyle": "arc3,rad=0.5"}
    axes.annotate("", (target, -0.05), (source, -0.05), arrowprops=arrow)
    basis = "predicted from the full cache" if len(after) == 1 else "predicted from the kept tokens"
    axes.text(target + 0.7, 0.5, basis, va="center", fontsize=12)
    axes.set_xlim(0, 13.2)
    axes.set_ylim(-0.9, 1.8)
    axes.set_axis_off()
    label(axes, name)
    axes.title.set_fontsize(13)


def _piece(axes: Axes, at: float, words: str, width: float) -> float:
    is_text = width > 5
    _square(axes, at, 0, EVICTED if is_text else KEPT, width=width)
    axes.text(at + width / 2, 0.5, words, ha="center", va="center", fontsize=12, color="black" if is_text else "white")
    return at + width


def sparse() -> Figure:
    """Plot the fraction of negligible weights by layer, and what reading only a few tokens costs."""
    fig, (axes, right) = figure(2, width=5.4, height=4.0)
    layers = rows(load_measured("kv", "kv_further"), "attention", start="text")
    negligible = [100 * row["sparsity"] for row in layers]
    axes.plot(range(len(layers)), negligible, markersize=5, label="below 1 % of the row's largest", **line_style(0))
    axes.axhline(100 * SPARSE, color=COLOURS[4], linestyle=":", label="95 %, the paper's mark")
    axes.set_ylim(0, 105)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    above = sum(row["sparsity"] > SPARSE for row in layers)
    title = f"Over 95 % of the weights in {above} of {len(layers)} layers;\n"
    label(axes, f"{title}in almost all layers: {claims.SPARSE.judge().words}", "layer", "negligible weights (%)")
    plots.enough(right)
    return fig


def stream_perplexity() -> Figure:
    """Plot the perplexity of a stream and the largest memory of the cache, one dot per policy."""
    fig, (axes,) = figure(width=9.0, height=4.2)
    table = sorted(rows(load_measured("kv"), "policies"), key=lambda row: (-row["peak_bytes"], row["policy"]))
    for index, row in enumerate(table):
        megabytes, error = row["peak_bytes"] / 1e6, 2 * (row["standard_error"] or 0)
        axes.errorbar(row["perplexity"], index, xerr=error, capsize=3, color=COLOURS[0], marker="o")
        axes.annotate(f"  {megabytes:.0f} MB", (row["perplexity"] + error, index), va="center", fontsize=10)
    axes.set_yticks(range(len(table)), [row["policy"] for row in table])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.margins(x=0.12)
    full, least = table[0], table[-1]
    title = f"{least['budget']} slots hold {least['peak_bytes'] / 1e6:.0f} MB of keys and values, "
    title += f"all {full['n_tokens'] + least['budget']} tokens {full['peak_bytes'] / 1e6:.0f} MB"
    label(axes, title, f"perplexity of a stream ({error_bars(len(full['losses']))})")
    return fig


def continuations() -> Figure:
    """Show how the story goes on with each policy, one column per policy."""
    heavy = load_measured("kv", "heavy")
    table = rows(heavy, "stories")
    fig, axes = figure(len(table), width=3.3, height=3.5)
    for panel, row in zip(axes, table, strict=True):
        is_full = row["policy"] == FULL_WRITER
        slots = row["n_prompt"] if is_full else round(heavy["sizes"]["share"] * row["n_prompt"])
        panel.set_axis_off()
        panel.set_title(f"{row['policy']}\n{slots} slots", loc="left", fontsize=15, color=COLOURS[0])
        text = textwrap.fill(" ".join(row["text"].split()), COLUMN)
        panel.text(0, 1, text, va="top", ha="left", fontsize=14, transform=panel.transAxes, parse_math=False)
    return fig


def speedups() -> Figure:
    """Show how much faster eviction makes decoding, relative to the same cache with nothing evicted."""
    by_shape: dict[tuple[int, ...], dict[str, float]] = {}
    for row in load_bench("cpu_kv")["tables"]["sides"]:
        if re.fullmatch(STEPS, row["contest"]):
            by_shape.setdefault(tuple(row["shape"]), {})[row["side"]] = row["times_anchor"]
    body = []
    for side in ("H2O, 20 %", "StreamingLLM, 20 %", "SnapKV, 20 %", "H2O, 20 %, 4 bits"):
        times = (sides[side] / sides[EVERYTHING] for sides in by_shape.values())
        body.append((side, *(f"{each:.2f} times" for each in times)))
    head = ("measured here", *(f"{n_sequences} × {n_tokens} tokens" for n_sequences, n_tokens in by_shape))
    return drawn_table(head, body, (36, 22, 22), size=13)


def take_home() -> Figure:
    """Show the claims to remember with the published numbers, ours, and the verdicts."""
    return drawn_claims(TAKE_HOME)


# Figures of what the notebook measures in its cells.


@lru_cache(maxsize=1)
def _text() -> Int[Tensor, "T"]:
    return corpora.windows("wikipedia", 1, 384, _model()[1], split="evaluation", seed=0)[0]


def _three(budget: int) -> dict[str, EvictionPolicy]:
    return {
        "window": Window(budget),
        "4 sinks + window": StreamingLLM(budget, sinks=4),
        "H2O": H2O(budget, recent=budget // 2),
    }


def streams(layer: int = 12, head: int = 1) -> Figure:
    """Plot which tokens of the story three policies keep."""
    model, tokenizer = _model()
    story = tokenizer(STORY, return_tensors="pt").input_ids[0]
    histories = {name: widgets.watch(model, tokenizer, story, policy) for name, policy in _three(32).items()}
    kept = {name: history.kept[:, layer, head] for name, history in histories.items()}
    return plots.streams(kept, histories["H2O"].n_read, f"layer {layer}, head {head}")


def choices(n: int = 96, budget: int = 24, layer: int = 12, head: int = 1) -> Figure:
    """Plot which tokens of one prompt each policy keeps in one head."""
    recent = budget // 3
    by_name = {
        "Window: the newest": Window(budget),
        "StreamingLLM: the first 4, the newest": StreamingLLM(budget, sinks=4),
        "H2O: sum over all queries": H2O(budget, recent=recent),
        "H2O, normalised: mean over all queries": H2O(budget, recent=recent, normalised=True),
        "TOVA: the newest query": TOVA(budget),
        "SnapKV: the last 8 queries, pooled": SnapKV(budget, recent=8),
        "Scissorhands: rarely low": Scissorhands(budget, recent=recent),
        "EMS: global and local sum": EMS(budget, recent=recent),
    }
    ids = _text()[:n]
    kept = {name: widgets.watch(*_model(), ids, each, chunk=n).kept[-1, layer, head] for name, each in by_name.items()}
    return choices_of(kept, f"layer {layer}, head {head}")


def choices_of(kept: Mapping[str, Bool[Tensor, "T"]], where: str) -> Figure:
    """Plot which tokens of one prompt each policy keeps, one row per policy."""
    fig, (axes,) = figure(width=9.6, height=0.42 * len(kept) + 1.2)
    table = torch.stack(list(kept.values()))
    axes.imshow(torch.where(table, 1.0, 0.15), cmap="Greys", vmin=0, vmax=1.1, aspect="auto", interpolation="nearest")
    for row in range(1, len(kept)):
        axes.axhline(row - 0.5, color="white", linewidth=3)
    axes.grid(visible=False)
    axes.set_yticks(range(len(kept)), list(kept))
    fewest, most = table.sum(dim=1).min(), table.sum(dim=1).max()
    n_kept = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    in_all = int(table.all(dim=0).sum())
    title = f"{n_kept} of {table.shape[1]} tokens are kept, {in_all} of them in every row ({where})"
    label(axes, title, "token of the prompt")
    return fig


@lru_cache(maxsize=1)
def _losses() -> dict[str, Tensor]:
    by_policy = compare_policies(_model()[0], _text(), {"full": Full()} | _three(BUDGET))
    return {name: stream.losses for name, stream in by_policy.items()}


def window() -> Figure:
    """Plot the perplexity of a window along a text."""
    return plots.excess({"window": _losses()["window"]}, _losses()["full"], BUDGET)


def h2o() -> Figure:
    """Plot the perplexity of three policies along a text."""
    return plots.excess({name: _losses()[name] for name in _three(BUDGET)}, _losses()["full"], BUDGET)


@lru_cache(maxsize=1)
def _statistics() -> AttentionStatistics:
    return attention_statistics(_model()[0], _text())


def mass_by_rank() -> Figure:
    """Plot the attention that tokens receive over their rank."""
    n_layers = len(blocks(_model()[0]))
    return plots.mass_by_rank(_statistics().mass, (0, n_layers // 2, n_layers - 1))


def receivers() -> Figure:
    """Plot which kinds of tokens receive the attention."""
    return plots.receivers(_statistics().by_kind(kinds_of(_text(), _model()[1])))


def answers() -> Figure:
    """Plot the right answers when we ask in the prompt, and after the eviction."""
    model, tokenizer = _model()
    needles, three = samples("word", 10, 112, tokenizer, seed=0), _three(SLOTS)
    asked_early = [sample.naive() for sample in needles]
    policies = {"full": Full()} | three | {"SnapKV": SnapKV(SLOTS, recent=8)}
    by_protocol = {
        "asked in the prompt": {name: retrieve(model, asked_early, three[name]) for name in ("window", "H2O")},
        "asked after the eviction": {name: retrieve(model, needles, policy) for name, policy in policies.items()},
    }
    intervals = {
        protocol: {name: (each.exact, each.interval) for name, each in retrieved.items()}
        for protocol, retrieved in by_protocol.items()
    }
    return plots.answers(intervals, len(needles))


def budgets_by_layer() -> Figure:
    """Plot the slots per layer when budgets are even, rise with depth, or follow the variance of attention."""
    model, prompt = _model()[0], _text()[:256]
    policies = {
        "even": H2O(BUDGET, recent=16),
        "rising": H2O(BUDGET, recent=16, by_layer=rising(len(blocks(model)))),
        "D2O (no layer spared)": D2O(BUDGET, sinks=0, recent=16, spared=()),
    }
    return sizes_by_layer({name: slots_by_layer(model, prompt, policy) for name, policy in policies.items()})


def sizes_by_layer(sizes: Mapping[str, Sequence[int]]) -> Figure:
    """Plot the slots of each layer, for several ways to divide a budget."""
    fig, (axes,) = figure(width=7.2, height=3.0)
    for index, (name, slots) in enumerate(sizes.items()):
        hollow = {"markersize": 7, "markerfacecolor": "none"} if index == len(sizes) - 1 else {"markersize": 4}
        axes.plot(slots, label=f"{name}: {sum(slots)} in all", **line_style(index) | hollow)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    ranges = "; ".join(f"{name} {min(slots)} to {max(slots)}" for name, slots in sizes.items() if len(set(slots)) > 1)
    label(axes, f"Slots by layer: {ranges}", "layer", "slots of each head")
    return fig


def nearest() -> Figure:
    """Plot how similar evicted keys and values are to the nearest kept ones."""
    return plots.nearest(nearest_kept(_model()[0], _text()[:256], 51), width=5.4, height=4.6)
