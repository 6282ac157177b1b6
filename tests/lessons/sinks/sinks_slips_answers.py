"""Slips in the exercises of lesson 08 that were let through or told another slip's name, each with the name it gets."""

import torch


def who_looks(weights, start):
    """The mean over queries that give the token something."""
    looks = (weights > 0) & (torch.arange(weights.shape[2]) >= start)[:, None]
    return (weights * looks).sum(dim=2) / looks.sum(dim=2)


def less_the_largest_logit(logits, sink):
    most = logits.amax(dim=-1, keepdim=True)
    e = (logits - most).exp()
    return e / (e.sum(dim=-1, keepdim=True) + (sink[:, None, None] - most).exp())


def less_the_largest_of_all(logits, sink):
    most = torch.maximum(logits.amax(dim=-1, keepdim=True), sink[:, None, None])
    e = (logits - most).exp()
    return e / (e.sum(dim=-1, keepdim=True) + (sink[:, None, None] - most).exp())


RIGHT = {"sinks.softmax": {"less the largest of logits and sink": less_the_largest_of_all}}
WRONG = {
    "sinks.share": {"queries with a weight above zero": (who_looks, "zeros not counted")},
    "sinks.softmax": {
        "less the largest logit, −inf where nothing is seen": (
            less_the_largest_logit,
            "NaN where a query sees nothing",
        ),
        "softmax times a sigmoid": (
            lambda x, s: x.softmax(2) * (x.logsumexp(2) - s[:, None]).sigmoid()[..., None],
            "NaN where a query sees nothing",
        ),
    },
    "sinks.evict": {
        "rows and columns exchanged where it fits": lambda w, k: (
            (u := (w.T if w.shape[0] == w.shape[1] else w)[:, k]) / u.sum(dim=1, keepdim=True)
        ),
    },
}
