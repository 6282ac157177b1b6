"""Errors in the exercises of lesson 07 that once passed or got the name of another error, with their right names."""

import torch
from torch.nn.functional import cosine_similarity

# --- h2o_step: score, new, position, budget, recent ---


def h2o_with_threshold(score, new, position, budget, recent):
    """All slots at or above the lowest that stays: more than the budget where scores are tied."""
    total = score + new
    guarded = total.scatter(1, position.topk(recent, dim=1).indices, float("inf"))
    return guarded >= guarded.sort(dim=1, descending=True).values[:, budget - 1, None], total


# --- scissorhands: weights, query_position, position, budget, recent ---


def evicted(count, position, budget, recent, choose):
    n_drop = len(position) - (budget - budget // 2) if len(position) > budget else 0
    count = count.float().index_fill(0, position.topk(recent).indices, -1e9)
    return torch.ones(len(position), dtype=torch.bool).index_fill(0, choose(count, n_drop), False)


def by_topk(count, n):
    return count.topk(n).indices


def by_stable_sort(count, n):
    return count.sort(descending=True, stable=True).indices[:n]


def from_behind(count, n):
    return len(count) - 1 - count.flip(0).sort(descending=True, stable=True).indices[:n]


def unlike_those_that_stay(count, n):
    stay = count.topk(len(count) - n, largest=False).indices
    return torch.tensor([i for i in range(len(count)) if i not in stay.tolist()], dtype=torch.long)


TIES = {"topk": by_topk, "a stable sort": by_stable_sort, "from behind": from_behind, "lowest": unlike_those_that_stay}


def table(group, q, p, sees=torch.le, low=torch.lt):
    return (low(group, 1 / (q[:, None] + 1)) & sees(p, q[:, None])).sum(dim=0)


SLIPS = {
    "sum over the group": lambda w, q, p: table(w.sum(dim=0), q, p),
    "not the mean of the group": lambda w, q, p: table(w.amax(dim=0), q, p),
    "one head for the group": lambda w, q, p: table(w[0], q, p),
    "heads counted one by one": lambda w, q, p: sum(table(head, q, p) for head in w),
    "its own query left out": lambda w, q, p: table(w.mean(dim=0), q, p, sees=torch.lt),
    "exactly 1/t counted as low": lambda w, q, p: table(w.mean(dim=0), q, p, low=torch.le),
    "important ones dropped": lambda w, q, p: -table(w.mean(dim=0), q, p),
    "not asked yet, counted as low": lambda w, q, p: (w.mean(dim=0) < 1 / (q[:, None] + 1)).sum(dim=0),
}
SCISSORHANDS_WRONG = {
    f"{name}, ties by {ties}": (
        lambda w, q, p, b, r, count=count, choose=choose: evicted(count(w, q, p), p, b, r, choose),
        name,
    )
    for name, count in SLIPS.items()
    for ties, choose in TIES.items()
}
SCISSORHANDS_RIGHT = {
    f"ties by {ties}": lambda w, q, p, b, r, choose=choose: evicted(table(w.mean(dim=0), q, p), p, b, r, choose)
    for ties, choose in TIES.items()
}


# --- deferred: before, after, question_and_answer, n_question ---


def second_token_on(before, after, question_and_answer, n_question):
    right = after[n_question:-1].argmax(dim=-1) == question_and_answer[n_question + 1 :]
    return int(right.long().cumprod(dim=0).sum())


# --- merge: key, value, keys, values, threshold ---


def above_the_threshold(key, value, keys, values, threshold):
    cosine = cosine_similarity(key[None], keys)
    slot = int(cosine.argmax())
    if cosine[slot] > threshold:
        share = (cosine[slot] - 1).sigmoid()
        keys[slot] += share * (key - keys[slot])
        values[slot] += share * (value - values[slot])
    return keys, values


RIGHT = {"kv.scissorhands": SCISSORHANDS_RIGHT}
WRONG = {
    "kv.h2o_step": {"a threshold where scores are tied": (h2o_with_threshold, "threshold with ties")},
    "kv.scissorhands": SCISSORHANDS_WRONG,
    "kv.deferred": {"from the answer's second token on": (second_token_on, "the answer's first token left out")},
    "kv.merge": {"only above the threshold": (above_the_threshold, "exactly at the threshold")},
}
