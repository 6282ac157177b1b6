"""Claims of H2O (https://arxiv.org/abs/2306.14048) on heavy hitters: few are enough, without them it is worse.

Dimension key: N texts, T tokens of each, C tokens that follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.kv.analysis import by_head
from course_lib.kv.analysis.compressed_prompts import compressions, continuation_losses
from course_lib.kv.cache import evicting
from course_lib.kv.layers import EvictingCache
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.kv.policy import EvictionPolicy
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.lessons.kv.estimates import HEAVIEST, RANDOM, SPARED
from course_lib.lessons.kv.experiments import reading, words
from course_lib.lessons.kv.steps import STORY
from course_lib.measure.experiment import Experiment, Step, Tables

WRITERS = ("full", "window", "4 sinks + window", "H2O")
NORMALISED = {"sum": False, "mean": True}  # the score of H2O, and the same divided by the number of queries


@torch.no_grad()
def read_in_part(choice: reading.Choice, windows: Int[Tensor, "N T"]) -> tuple[list[float], Tensor]:
    """Return the mean loss of the second half of each text, and the predicted tokens (N, T / 2)."""
    model, half = loaded()[0], windows.shape[1] // 2
    losses, predicted = [], []
    with reading.reading(model, choice):
        for ids in windows:
            logits = model(ids[None], use_cache=False).logits[0, half:-1]
            losses.append(cross_entropy(logits.float(), ids[half + 1 :]).item())
            predicted.append(logits.argmax(dim=-1))
    return [round(loss, 5) for loss in losses], torch.stack(predicted)


@lru_cache(maxsize=1)
def _whole(n: int, length: int, seed: int) -> tuple[list[float], Tensor]:
    return read_in_part(reading.everything, article_windows(n, length, seed))


def enough(share: float, n: int, length: int, seed: int) -> Tables:
    """Let each query read only its largest weights: an oracle, which no cache can be."""
    losses, predicted = read_in_part(reading.largest(share), article_windows(n, length, seed))
    full, full_predicted = _whole(n, length, seed)
    same = (predicted == full_predicted).double().mean(dim=1).tolist()
    return {"enough": [{"share": share, "losses": losses, "full": full, "same": [round(part, 4) for part in same]}]}


def masked(which: str, share: float, n: int, length: int, seed: int) -> Tables:
    """Mask a fraction of the tokens of every head, heavy hitters or random tokens."""
    generator = torch.Generator().manual_seed(seed)
    losses, _ = read_in_part(reading.without(round(share * length), which, generator), article_windows(n, length, seed))
    return {"masked": [{"which": which, "share": share, "losses": losses, "full": _whole(n, length, seed)[0]}]}


@torch.no_grad()
def bias(shares: Sequence[float], n: int, length: int, n_after: int, seed: int) -> Tables:
    """Measure which tokens of a prompt H2O keeps by sum and by mean, and the loss of the text after it."""
    windows, model = article_windows(n, length + n_after, seed), loaded()[0]
    cells = [(score, share) for score in NORMALISED for share in shares]
    policies = [_h2o(round(share * length), NORMALISED[score]) for score, share in cells]
    losses = [each.tolist() for _, each in continuation_losses(model, windows, length, policies)]
    with evicting(model, replace(policies[0], budget=1.0)) as cache:
        model.base_model(windows[:, :length], past_key_values=cache, use_cache=True)
        early = [
            _from_first_quarter(cache, policy.recent)
            for policy, _ in zip(policies, compressions(cache, policies), strict=True)
        ]
    rows = [
        {"score": score, "budget": share, "first_quarter": part, "losses": [round(loss, 5) for loss in lost]}
        for (score, share), part, lost in zip(cells, early, losses, strict=True)
    ]
    return {"bias": rows}


def _h2o(budget: int, normalised: bool) -> H2O:
    return H2O(budget, recent=budget // 2, normalised=normalised)


def _from_first_quarter(cache: EvictingCache, recent: int) -> list[float]:
    """Return the fraction of the slots for older tokens that hold tokens of the first quarter, by prompt."""
    length, position = (
        cache.get_seq_length(),
        torch.stack([slots.position for slots in cache.slots]),
    )  # (L, N, H, slots)
    chosen, early = position < length - recent, position < length // 4
    shares = (chosen & early).sum(dim=(0, 2, 3)) / chosen.sum(dim=(0, 2, 3))
    return [round(share, 4) for share in shares.tolist()]


def writers(budget: int) -> dict[str, EvictionPolicy]:
    """Return the policies that generate text; all except the first have `budget` slots per head."""
    ways = (Full(), Window(budget), StreamingLLM(budget, sinks=4), H2O(budget, recent=budget // 2))
    return dict(zip(WRITERS, ways, strict=True))


@torch.no_grad()
def continued(prompts: Int[Tensor, "N T"], policy: EvictionPolicy, n_new: int) -> Int[Tensor, "N C"]:
    """Continue each prompt greedily with this policy."""
    model, tokenizer = loaded()
    with evicting(model, policy) as cache:
        options = {"max_new_tokens": n_new, "min_new_tokens": n_new, "do_sample": False}
        options |= {"pad_token_id": tokenizer.eos_token_id, "attention_mask": torch.ones_like(prompts)}
        return model.generate(prompts, past_key_values=cache, **options)[:, prompts.shape[1] :]


@torch.no_grad()
def surprise(prompts: Int[Tensor, "N T"], after: Int[Tensor, "N C"]) -> Float[Tensor, "N"]:
    """Return the mean loss of each continuation under the full cache, in nats per token."""
    logits = loaded()[0](torch.cat([prompts, after], dim=1)).logits[:, prompts.shape[1] - 1 : -1]
    return cross_entropy(logits.float().transpose(1, 2), after, reduction="none").mean(dim=1)


def distinct(ids: Int[Tensor, "N C"]) -> list[float]:
    """Return the fraction of distinct tokens in each row; it is low for a text that repeats itself."""
    return [round(len(set(row)) / len(row), 4) for row in ids.tolist()]


def written(name: str, share: float, n: int, length: int, n_new: int, seed: int) -> Tables:
    """Continue a story, to show, and articles, to count."""
    tokenizer = loaded()[1]
    story = tokenizer(STORY, return_tensors="pt").input_ids
    text = continued(story, writers(round(share * story.shape[1]))[name], n_new)
    articles = article_windows(n, length, seed)
    after = continued(articles, writers(round(share * length))[name], n_new)
    losses = [round(loss, 5) for loss in surprise(articles, after).tolist()]
    shown = {"policy": name, "prompt": STORY, "n_prompt": story.shape[1], "text": tokenizer.decode(text[0])}
    return {"stories": [shown], "written": [{"policy": name, "distinct": distinct(after), "losses": losses}]}


def occurring(n: int, length: int, seed: int) -> Tables:
    """Correlate how often a token occurs with the attention that it receives: one row per text."""
    model, tokenizer = loaded()
    return {"words": words.correlations(words.counted(model, tokenizer.decode, article_windows(n, length, seed)))}


def heads(n: int, length: int, seed: int) -> Tables:
    """Measure how sparse the attention of each head is and how similar its keys are: one row per text."""
    model = loaded()[0]
    return {"heads": [by_head.of_text(model, ids) for ids in article_windows(n, length, seed)]}


@dataclass(frozen=True)
class Sizes:
    """Numbers of texts, lengths in tokens, fractions of the tokens."""

    texts: int = 8
    length: int = 384
    enough: tuple[float, ...] = (0.05, 0.1, 0.2)
    masked: tuple[float, ...] = (0.02, 0.1)
    prompts: int = 8
    after: int = 96
    budgets: tuple[float, ...] = (0.1, 0.2, 0.5)
    written: int = 12
    prompt: int = 128
    new: int = 64
    share: float = 0.2  # of the prompt, for the policies that generate text


QUICK = Sizes(1, 64, (0.1,), (0.1,), 1, 4, (0.25,), 1, 40, 4)


def steps(sizes: Sizes) -> list[Step]:
    plan = []
    for name in WRITERS:
        measure = partial(written, name, sizes.share, sizes.written, sizes.prompt, sizes.new)
        plan.append(Step(f"written: {name}", measure))
    for share in sizes.enough:
        plan.append(Step(f"enough: {share:.0%}", partial(enough, share, sizes.texts, sizes.length)))
    for which in (HEAVIEST, SPARED, RANDOM):
        for share in sizes.masked:
            measure = partial(masked, which, share, sizes.texts, sizes.length)
            plan.append(Step(f"masked: {which}, {share:.0%}", measure))
    plan.append(Step("bias", partial(bias, sizes.budgets, sizes.prompts, sizes.length, sizes.after)))
    plan.append(Step("words", partial(occurring, sizes.texts, sizes.length)))
    plan.append(Step("heads", partial(heads, sizes.texts, sizes.length)))
    return plan


EXPERIMENT = Experiment("Heavy hitters of the default model", Sizes(), QUICK, steps)
