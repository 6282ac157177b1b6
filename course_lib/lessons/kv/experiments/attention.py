"""Which tokens receive the attention of the default model: rows by layer, means over windows of text.

Dimension key: W windows, L layers, T tokens.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kv.analysis.attention_statistics import KINDS, AttentionStatistics, attention_statistics, kinds_of
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.measure.experiment import Tables

N_RANKS = 40  # points of a curve, evenly spaced in the logarithm
N_HEAVY = 12
STARTS = ("text", "special")  # the first token: that of the window, or the one that starts a conversation


def attention(
    start: str, n_windows: int, length: int, seed: int, texts: Callable[[int, int, int], Tensor] = article_windows
) -> Tables:
    """Return all statistics of the windows, each read on its own."""
    model, tokenizer = loaded()
    read = texts(n_windows, length, seed)
    if start == "special":
        read = torch.cat([torch.full_like(read[:, :1], tokenizer.bos_token_id), read[:, :-1]], dim=1)
    statistics = [attention_statistics(model, ids) for ids in read]
    kinds = [kinds_of(ids, tokenizer) for ids in read]
    label = {"start": start, "n_windows": n_windows, "length": length}
    return {
        "attention": [label | row for row in _by_layer(statistics)],
        "attention_kinds": _by_kind(statistics, kinds, label),
        "mass_by_rank": _by_rank(statistics, label),
        "heavy_tokens": _heaviest(statistics[0], read[0], kinds[0], start),
    }


def _by_layer(statistics: list[AttentionStatistics]) -> list[dict]:
    laws = [of_window.power_law() for of_window in statistics]
    columns: dict[str, Float[Tensor, "W L"]] = {
        "sparsity": torch.stack([of_window.sparsity for of_window in statistics]),
        "first_token": torch.stack([of_window.mass[:, 0] for of_window in statistics]),
        "top_5_percent": torch.stack([of_window.top(0.05) for of_window in statistics]),
    }
    for name in ("slope", "r_squared", "exponential_r_squared"):
        columns[name] = torch.tensor([[getattr(law, name) for law in window] for window in laws])
    for by in ("any", "mean"):
        persistence = [of_window.persistence(by) for of_window in statistics]
        columns[f"persistence_{by}"] = torch.stack([of_window.ratio for of_window in persistence])
        columns[f"pivotal_{by}"] = torch.stack([of_window.early for of_window in persistence])
    means = {name: values.mean(dim=0).tolist() for name, values in columns.items()}
    ranks = {"first_rank": laws[0][0].first, "last_rank": laws[0][0].last}
    by_text = [[round(value, 5) for value in layer] for layer in columns["sparsity"].T.tolist()]
    return [
        {"layer": i} | {name: values[i] for name, values in means.items()} | ranks | {"sparsity_by_text": by_text[i]}
        for i in range(len(laws[0]))
    ]


def _by_kind(statistics: list[AttentionStatistics], kinds: list[list[str]], label: dict) -> list[dict]:
    """Return fractions of all attention by layer; the row "tokens" holds the fraction of tokens of each kind."""
    shares = [of_window.by_kind(window) for of_window, window in zip(statistics, kinds, strict=True)]
    mass = {kind: torch.stack([share[kind] for share in shares]).mean(dim=0).tolist() for kind in KINDS}
    flat = [kind for window in kinds for kind in window[1:]]
    tokens = {kind: flat.count(kind) / len(flat) for kind in KINDS if kind not in ("first token", "near")}
    rows = [{"layer": i} | {kind: mass[kind][i] for kind in KINDS} for i in range(len(mass["near"]))]
    return [label | row for row in [{"layer": "tokens"} | tokens, *rows]]


def _by_rank(statistics: list[AttentionStatistics], label: dict) -> list[dict]:
    """Return the mass at some ranks of each layer, as a mean over windows."""
    mass = torch.stack([of_window.mass.sort(dim=1, descending=True).values for of_window in statistics]).mean(dim=0)
    rank = torch.logspace(0, torch.log10(torch.tensor(float(mass.shape[1]))).item(), N_RANKS).round().long().unique()
    return [
        label | {"layer": layer, "rank": rank.tolist(), "mass": [float(f"{m:.4g}") for m in row[rank - 1].tolist()]}
        for layer, row in enumerate(mass)
    ]


def _heaviest(statistics: AttentionStatistics, ids: Int[Tensor, "T"], kinds: list[str], start: str) -> list[dict]:
    """Return the tokens of the first window that receive the most attention, over all layers."""
    tokenizer, mass = loaded()[1], statistics.mass.mean(dim=0)
    return [
        {
            "start": start,
            "position": i,
            "token": tokenizer.decode([int(ids[i])]),
            "kind": kinds[i],
            "mass": mass[i].item(),
        }
        for i in mass.topk(N_HEAVY).indices.tolist()
    ]
