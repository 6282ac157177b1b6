"""Figures for the deck of lesson 07: those of its notebook, measured where the deck is built."""

from functools import lru_cache

from jaxtyping import Int
from matplotlib.figure import Figure
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
from course_lib.lessons.kv import figures
from course_lib.lessons.kv.deck.layers import choices as choices_of
from course_lib.lessons.kv.experiments.heavy import STORY
from course_lib.lessons.kv.running import live
from course_lib.lessons.kv.running.measure import nearest_that_stays, race, slots_by_layer
from course_lib.models import blocks, load_model

BUDGET, SLOTS = 64, 28
_model = lru_cache(maxsize=1)(load_model)


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
    model, tokenizer = _model()
    story = tokenizer(STORY, return_tensors="pt").input_ids[0]
    histories = {name: live.watch(model, tokenizer, story, policy) for name, policy in _three(32).items()}
    kept = {name: history.kept[:, layer, head] for name, history in histories.items()}
    return figures.streams(kept, histories["H2O"].n_read, f"layer {layer}, head {head}")


def choices(n: int = 96, budget: int = 24, layer: int = 12, head: int = 1) -> Figure:
    """Which tokens of one prompt each policy keeps, in one head."""
    recent = budget // 3
    ways = {
        "Window: the newest": Window(budget),
        "StreamingLLM: 4 first ones, the newest": StreamingLLM(budget, sinks=4),
        "H2O: sum over all queries": H2O(budget, recent=recent),
        "H2O, normalised: mean over them": H2O(budget, recent=recent, normalised=True),
        "TOVA: the newest query": TOVA(budget),
        "SnapKV: the last 8 queries, pooled": SnapKV(budget, recent=8),
        "Scissorhands: rarely low": Scissorhands(budget, recent=recent),
        "EMS: global and local sum": EMS(budget, recent=recent),
    }
    kept = {
        name: live.watch(*_model(), _text()[:n], policy, chunk=n).kept[-1, layer, head] for name, policy in ways.items()
    }
    return choices_of(kept, f"layer {layer}, head {head}")


@lru_cache(maxsize=1)
def _race() -> dict[str, Tensor]:
    by_policy = race(_model()[0], _text(), {"full": Full()} | _three(BUDGET))
    return {name: stream.losses for name, stream in by_policy.items()}


def window() -> Figure:
    return figures.excess({"window": _race()["window"]}, _race()["full"], BUDGET)


def heavy_hitters() -> Figure:
    return figures.excess({name: _race()[name] for name in _three(BUDGET)}, _race()["full"], BUDGET)


@lru_cache(maxsize=1)
def _statistics() -> AttentionStatistics:
    return attention_statistics(_model()[0], _text())


def mass_by_rank() -> Figure:
    n_layers = len(blocks(_model()[0]))
    return figures.mass_by_rank(_statistics().mass, (0, n_layers // 2, n_layers - 1))


def who_receives() -> Figure:
    return figures.who_receives(_statistics().by_kind(kinds_of(_text(), _model()[1])))


def answers() -> Figure:
    model, tokenizer = _model()
    haystacks = samples("word", 10, 112, tokenizer, seed=0)
    three = _three(SLOTS)
    early = {name: retrieve(model, [sample.naive() for sample in haystacks], three[name]) for name in ("window", "H2O")}
    late = {
        name: retrieve(model, haystacks, policy)
        for name, policy in ({"full": Full()} | three | {"SnapKV": SnapKV(SLOTS, recent=8)}).items()
    }
    protocols = {"asked in the prompt": early, "asked after the eviction": late}
    return figures.answers(
        {key: {n: (r.exact, r.interval) for n, r in rows.items()} for key, rows in protocols.items()},
        len(haystacks),
    )


def sizes_by_layer() -> Figure:
    model, prompt = _model()[0], _text()[:256]
    ways = {
        "even": H2O(BUDGET, recent=16),
        "rising": H2O(BUDGET, recent=16, by_layer=rising(len(blocks(model)))),
        "D2O (none spared)": D2O(BUDGET, sinks=0, recent=16, spared=()),
    }
    return figures.sizes_by_layer({name: slots_by_layer(model, prompt, policy) for name, policy in ways.items()})


def nearest() -> Figure:
    return figures.nearest(nearest_that_stays(_model()[0], _text()[:256], 51), width=5.4, height=4.6)
