"""Figures for the deck of lesson 08: those of its notebook, measured where the deck is built."""

from functools import lru_cache

import torch
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.windowed import Constant, attention_weights, first_token, value_lengths, windowed
from course_lib.data import corpora
from course_lib.kv.analysis.streaming import streaming_perplexity
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.lessons.sinks import drawings, figures, tables
from course_lib.models import load_model

BUDGET, START = 128, 64


@lru_cache(maxsize=1)
def _read() -> tuple[PreTrainedModel, Tensor, Tensor, list[int]]:
    """The model, the notebook's two texts, and a newline."""
    model, tokenizer = load_model()
    text, other = corpora.windows("wikipedia", 2, 512, tokenizer, split="evaluation", seed=0)
    return model, text, other, tokenizer("\n").input_ids


@lru_cache(maxsize=1)
def _weights() -> Tensor:
    model, text, *_ = _read()
    return attention_weights(model, text[None, :256])


def _share() -> Tensor:
    return _weights()[:, :, START:, 0].mean(dim=2)


def maps() -> Figure:
    return drawings.maps(_weights()[:, :, :24, :24], (1, 20))


def first_words() -> Figure:
    model, text, _, newline = _read()
    tokenizer = load_model()[1]
    firsts = {"its own": text[:1].tolist(), "newline": newline, "the": tokenizer(" the").input_ids}
    firsts |= {"end of text": [tokenizer.convert_tokens_to_ids("<|endoftext|>")], "number": tokenizer("7").input_ids}
    shares = {}
    for name, first in firsts.items():
        row = torch.cat([torch.tensor(first[:1]), text[1:160]])
        shares[name] = attention_weights(model, row[None])[:, :, START:, 0].mean(dim=(1, 2))
    return figures.first_words(shares)


def share_over_depth() -> Figure:
    return figures.share_over_depth(_share(), (1 / torch.arange(START + 1, 257)).mean().item())


def growth() -> Figure:
    return figures.growth(_share())


def values_over_depth() -> Figure:
    model, text, *_ = _read()
    return figures.values_over_depth(value_lengths(model, text[None, :256]))


@lru_cache(maxsize=1)
def _streams() -> dict[str, Tensor]:
    model, text, *_ = _read()
    policies = {"newest tokens": Window(BUDGET), "all tokens": Full()}
    policies |= {f"{n} + {BUDGET - n}": StreamingLLM(BUDGET, sinks=n) for n in (1, 4)}
    return {name: streaming_perplexity(model, text, policy, chunk=32).losses for name, policy in policies.items()}


def streams() -> Figure:
    return figures.streams(_streams(), BUDGET)


@torch.no_grad()
def constants() -> Figure:
    model, text, other, _ = _read()
    constant = first_token(model, other[None])
    silent = Constant(constant.logit, torch.zeros_like(constant.value))
    settings = {
        "window": {},
        "window, a logit without value": {"constant": silent},
        "window, a logit and a value": {"constant": constant},
        "window and the first token": {"sinks": 1},
    }
    perplexities = {}
    for name, setting in settings.items():
        with windowed(model, window=BUDGET, **setting):
            logits = model(text[None], use_cache=False).logits[0, BUDGET:-1]
        perplexities[name] = torch.nn.functional.cross_entropy(logits, text[BUDGET + 1 :]).exp().item()
    return figures.bars(perplexities, tables.constant_finding(perplexities))
