"""What H2O's paper says of heavy hitters: that few tokens are enough, that masking them hurts, and how it writes.

Dimension key: N texts, T tokens of each, C tokens that follow.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

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
from course_lib.lessons.kv.experiments import reading
from course_lib.lessons.kv.running import words
from course_lib.measure.experiment import Tables

WRITERS = ("full", "window", "4 sinks + window", "H2O")
NORMALISED = {"sum": False, "mean": True}  # H2O's score, and the same over the number of queries that saw a token
STORY = (
    "The lighthouse keeper had not spoken to anyone for eleven days when the small boat came round the rocks. An old "
    "woman sat in it with a goat, a birdcage and a wooden trunk that was nearly as large as the boat itself. She waved "
    "as if he had expected her, threw him the rope, and asked whether the kettle was on. He looked at the trunk, then "
    "at the sky, which had begun to turn dark in the west, and helped her up the steps. In the kitchen she sat down on "
    "the only chair, took a letter out of her coat and said:"
)


@torch.no_grad()
def read_in_part(choice: reading.Choice, windows: Int[Tensor, "N T"]) -> tuple[list[float], Tensor]:
    """Of the second half of each text: mean loss, and what the model thinks comes next, (N, T / 2)."""
    model, half = loaded()[0], windows.shape[1] // 2
    losses, said = [], []
    with reading.reading(model, choice):
        for ids in windows:
            logits = model(ids[None], use_cache=False).logits[0, half:-1]
            losses.append(cross_entropy(logits.float(), ids[half + 1 :]).item())
            said.append(logits.argmax(dim=-1))
    return [round(loss, 5) for loss in losses], torch.stack(said)


@lru_cache(maxsize=1)
def _whole(n: int, length: int, seed: int) -> tuple[list[float], Tensor]:
    return read_in_part(reading.everything, article_windows(n, length, seed))


def enough(share: float, n: int, length: int, seed: int) -> Tables:
    """Each query reads its largest weights alone: an oracle for every row, which no cache can have."""
    losses, said = read_in_part(reading.largest(share), article_windows(n, length, seed))
    full, full_said = _whole(n, length, seed)
    same = (said == full_said).double().mean(dim=1).tolist()
    return {"enough": [{"share": share, "losses": losses, "full": full, "same": [round(part, 4) for part in same]}]}


def masked(which: str, share: float, n: int, length: int, seed: int) -> Tables:
    """A share of the tokens of every head is masked, as heavy hitters or at random."""
    generator = torch.Generator().manual_seed(seed)
    losses, _ = read_in_part(reading.without(round(share * length), which, generator), article_windows(n, length, seed))
    return {"masked": [{"which": which, "share": share, "losses": losses, "full": _whole(n, length, seed)[0]}]}


@torch.no_grad()
def bias(shares: Sequence[float], n: int, length: int, n_after: int, seed: int) -> Tables:
    """H2O's sum favours old tokens: whom it keeps of a prompt, and what follows that. The mean remembers the same."""
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
    """Of the slots that are not for recent tokens, the share that holds tokens of the first quarter, by prompt."""
    length, position = (
        cache.get_seq_length(),
        torch.stack([slots.position for slots in cache.slots]),
    )  # (L, N, H, slots)
    chosen, early = position < length - recent, position < length // 4
    shares = (chosen & early).sum(dim=(0, 2, 3)) / chosen.sum(dim=(0, 2, 3))
    return [round(share, 4) for share in shares.tolist()]


def writers(budget: int) -> dict[str, EvictionPolicy]:
    """The caches that write; each but the first has so many slots a head."""
    ways = (Full(), Window(budget), StreamingLLM(budget, sinks=4), H2O(budget, recent=budget // 2))
    return dict(zip(WRITERS, ways, strict=True))


@torch.no_grad()
def continued(prompts: Int[Tensor, "N T"], policy: EvictionPolicy, n_new: int) -> Int[Tensor, "N C"]:
    """What the model writes behind each prompt, always the most likely token, from this cache."""
    model, tokenizer = loaded()
    with evicting(model, policy) as cache:
        options = {"max_new_tokens": n_new, "min_new_tokens": n_new, "do_sample": False}
        options |= {"pad_token_id": tokenizer.eos_token_id, "attention_mask": torch.ones_like(prompts)}
        return model.generate(prompts, past_key_values=cache, **options)[:, prompts.shape[1] :]


@torch.no_grad()
def surprise(prompts: Int[Tensor, "N T"], after: Int[Tensor, "N C"]) -> Float[Tensor, "N"]:
    """The mean loss of a continuation to the model that has all of the prompt, in nats a token."""
    logits = loaded()[0](torch.cat([prompts, after], dim=1)).logits[:, prompts.shape[1] - 1 : -1]
    return cross_entropy(logits.float().transpose(1, 2), after, reduction="none").mean(dim=1)


def distinct(ids: Int[Tensor, "N C"]) -> list[float]:
    """Of the tokens of each row the share that differ: a text that goes round in circles has few."""
    return [round(len(set(row)) / len(row), 4) for row in ids.tolist()]


def written(name: str, share: float, n: int, length: int, n_new: int, seed: int) -> Tables:
    """What is written behind a story, to be read, and behind articles, to be counted."""
    tokenizer = loaded()[1]
    story = tokenizer(STORY, return_tensors="pt").input_ids
    text = continued(story, writers(round(share * story.shape[1]))[name], n_new)
    articles = article_windows(n, length, seed)
    after = continued(articles, writers(round(share * length))[name], n_new)
    losses = [round(loss, 5) for loss in surprise(articles, after).tolist()]
    shown = {"policy": name, "prompt": STORY, "n_prompt": story.shape[1], "text": tokenizer.decode(text[0])}
    return {"stories": [shown], "written": [{"policy": name, "distinct": distinct(after), "losses": losses}]}


def occurring(n: int, length: int, seed: int) -> Tables:
    """How often the tokens of each text occur, against what they receive: one row per text."""
    model, tokenizer = loaded()
    return {"words": words.correlations(words.counted(model, tokenizer.decode, article_windows(n, length, seed)))}


def heads(n: int, length: int, seed: int) -> Tables:
    """How sparse the attention of each head is and how similar its keys are: one row per text."""
    model = loaded()[0]
    return {"heads": [by_head.of_text(model, ids) for ids in article_windows(n, length, seed)]}
