"""Generate two rounds of a chat with a cache that holds fewer tokens than the chat has.

Dimension key: B chats, N tokens of a chat, A tokens of an answer.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.lessons.common.subject import loaded
from course_lib.measure.experiment import Tables

TEMPERATURE, CANDIDATES = 0.7, 50
EVERYTHING, NEWEST, SINKS = CACHES = ("everything", "newest tokens", "4 sinks + newest")
POLICIES = {
    EVERYTHING: (lambda budget: Full(), "original"),
    NEWEST: (Window, "original"),
    SINKS: (lambda budget: StreamingLLM(budget, sinks=4), "rolling"),
}
ABOUT = ("garden", "train", "river", "horse", "letter", "school", "bridge", "market")  # one token each
QUESTIONS = ("Tell me a story about a {}.", "How does it go on? Tell me more about the {}.")


def chats(cache: str, n_chats: int, n_new: int, budget: int, seed: int) -> Tables:
    """Generate chats with one cache, and score each answer by the model with full attention: its loss per token."""
    model, tokenizer = loaded()
    asked = [torch.tensor([_tokens(question, about) for about in ABOUT[:n_chats]]) for question in QUESTIONS]
    ids, starts = talk(model, asked, cache, n_new, budget, tokenizer.eos_token_id, seed)
    rows = []
    for number, (question, start) in enumerate(zip(QUESTIONS, starts, strict=True), 1):
        answers = ids[:, start : start + n_new]
        losses = judged(model, ids, start, n_new)
        for about, answer, loss in zip(ABOUT, answers, losses.tolist(), strict=False):
            row = {"cache": cache, "budget": budget, "round": number, "question": question.format(about)}
            full = max(0, budget - start)  # tokens of the answer that were generated before the first eviction
            texts = {"text": tokenizer.decode(answer), "before": tokenizer.decode(answer[:full])}
            rows.append(row | texts | {"loss": round(loss, 4)})
    return {"chats": rows}


def _tokens(question: str, about: str) -> list[int]:
    """Return a question in the format of the model's training; after the first it closes the answer before it."""
    closing = "" if question == QUESTIONS[0] else "<|im_end|>\n"
    asked = f"{closing}<|im_start|>user\n{question.format(about)}<|im_end|>\n<|im_start|>assistant\n"
    return loaded()[1](asked, add_special_tokens=False).input_ids


@torch.no_grad()
def talk(
    model: PreTrainedModel, asked: list[Tensor], cache: str, n_new: int, budget: int, never: int, seed: int
) -> tuple[Int[Tensor, "B N"], list[int]]:
    """Return all tokens of the chats, and the starts of the answers; each has `n_new` tokens, none of them `never`.

    The questions of all chats have the same number of tokens, so that no padding is needed.
    """
    generator, starts = torch.Generator().manual_seed(seed), []
    policy, positions = POLICIES[cache]
    written = asked[0][:, :0]
    with evicting(model, policy(budget), positions) as kept:
        new = written
        for question in asked:
            new = torch.cat([new, question], dim=1)  # the last token of an answer has not been read yet
            starts.append(written.shape[1] + question.shape[1])
            written = torch.cat([written, question], dim=1)
            for _ in range(n_new):
                place = torch.arange(written.shape[1] - new.shape[1], written.shape[1]).expand(len(new), -1)
                logits = model(new, position_ids=place, past_key_values=kept, use_cache=True, logits_to_keep=1).logits
                new = _drawn(logits[:, -1], never, generator)
                written = torch.cat([written, new], dim=1)
    return written, starts


def _drawn(logits: Float[Tensor, "B V"], never: int, generator: torch.Generator) -> Int[Tensor, "B 1"]:
    """Sample one of the likeliest tokens for each chat, except the end of an answer, so that all are equally long."""
    logits[:, never] = -torch.inf
    best, tokens = (logits / TEMPERATURE).topk(CANDIDATES)
    return tokens.gather(1, torch.multinomial(best.softmax(dim=1), 1, generator=generator))


@torch.no_grad()
def judged(model: PreTrainedModel, ids: Int[Tensor, "B N"], start: int, n_new: int) -> Float[Tensor, "B"]:
    """Return the mean loss of the tokens of an answer, when each attends to everything before it."""
    end = start + n_new
    logits = model(ids[:, : end - 1], use_cache=False, logits_to_keep=n_new).logits
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, start:end], reduction="none")
    return losses.mean(dim=1)
