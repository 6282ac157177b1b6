"""Statistics of a model's attention: how sparse it is, which tokens receive it, and whether they stay the same.

A policy that evicts nothing observes the attention weights in chunks and keeps a few sums over queries for each key, so
the T × T weights are never in memory.

Dimension key: B sequences, H key-value heads, G query heads per key-value head, Q queries, T tokens, K sums, L layers,
A = H · G query heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.kv.analysis.power_law import PowerLaw
from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policy import ALL, Observed
from course_lib.kv.slots import Slots

NEGLIGIBLE = 0.01  # relative to the largest weight of the query; H2O's measure of sparsity, figure 2
SUMS = ("mass", "near", "negligible", "visible", "early", "late", "early_mass", "late_mass")
KINDS = ("first token", "near", "special", "newline", "punctuation", "word")


@dataclass(frozen=True)
class Watch(Full):
    """Keeps all tokens, and sums over queries what each key receives from each query head.

    Args:
        half: queries before this position are early, the others late. A token is pivotal for a query that gives it
            more than 1/half, the uniform weight at this position (persistence ratio of Scissorhands: Liu and others,
            2023, section 3).
        near: number of tokens up to and including the query that count as its neighbourhood.
    """

    half: int = 512
    near: int = 16

    def n_observed(self, n_queries: int) -> int:
        return ALL

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "B H T ..."]]:
        # weights: (B, H, G, Q, T), query: (B, 1, 1, Q, 1)
        weights, query = seen.weights, seen.position[:, None, None, :, None]
        distance = query - slots.position[:, :, None, None, :]
        visible, early = distance >= 0, query < self.half
        pivotal = weights > 1 / self.half
        negligible = visible & (weights < NEGLIGIBLE * weights.amax(dim=4, keepdim=True))
        terms = (  # in the order of SUMS, each (B, H, G, Q, T)
            weights,
            weights * (distance < self.near),
            negligible,
            visible.expand_as(weights),
            pivotal & early,
            pivotal & ~early,
            weights * early,
            weights * ~early,
        )
        sums = torch.stack([term.sum(dim=3).float() for term in terms], dim=4).transpose(2, 3)  # (B, H, T, G, K)
        return {"sums": slots.memory("sums", *sums.shape[3:]) + sums}


@dataclass(frozen=True)
class AttentionStatistics:
    """Sums over the queries of one text, for each layer, query head and key; the names are in SUMS."""

    sums: dict[str, Float[Tensor, "L A T"]]
    half: int

    @property
    def sparsity(self) -> Float[Tensor, "L"]:
        """Fraction of all causal weights that lie below 1 % of the largest weight of their query."""
        return self.sums["negligible"].sum(dim=(1, 2)) / self.sums["visible"].sum(dim=(1, 2))

    @property
    def sparsity_by_head(self) -> Float[Tensor, "L A"]:
        """The same fraction for each query head."""
        return self.sums["negligible"].sum(dim=2) / self.sums["visible"].sum(dim=2)

    @property
    def mass(self) -> Float[Tensor, "L T"]:
        """Fraction of a layer's attention that each token receives, summed over heads."""
        mass = self.sums["mass"].sum(dim=1)
        return mass / mass.sum(dim=1, keepdim=True)

    def power_law(self, first: int = 2, last: int | None = None) -> list[PowerLaw]:
        """Fit log mass as a linear function of log rank in each layer, over ranks `first` to `last`.

        By default `last` is half the number of tokens. Higher ranks are tokens near the end of the text, which have
        little mass because few queries follow them.
        """
        return [PowerLaw.fit(mass, first, last or len(mass) // 2) for mass in self.mass]

    def top(self, share: float) -> Float[Tensor, "L"]:
        """Fraction of a layer's attention that the most attended tokens receive; `share` is the fraction of tokens."""
        n = max(1, round(share * self.mass.shape[1]))
        return self.mass.topk(n, dim=1).values.sum(dim=1)

    def by_kind(self, kinds: Sequence[str]) -> dict[str, Float[Tensor, "L"]]:
        """Fraction of a layer's attention per kind of token: the first, the query's neighbourhood, then by `kinds`.

        `kinds` is the result of `kinds_of` for the text.
        """
        mass, near = self.sums["mass"].sum(dim=1), self.sums["near"].sum(dim=1)
        total, far = mass.sum(dim=1), mass - near
        # The first token counts as a kind of its own, even where it is in a query's neighbourhood.
        fractions = {"first token": mass[:, 0] / total, "near": near[:, 1:].sum(dim=1) / total}
        for kind in KINDS[2:]:
            is_kind = torch.tensor([token_kind == kind for token_kind in kinds])
            is_kind[0] = False
            fractions[kind] = far[:, is_kind].sum(dim=1) / total
        return fractions

    def persistence(self, by: str = "any") -> "Persistence":
        """Of the tokens in the first half that are pivotal in the second, the fraction that was pivotal in the first.

        Args:
            by: "any": pivotal for at least one query, as in the paper; "mean": on average over the queries that can
                attend to the token.
        """
        sums = {name: values[:, :, : self.half] for name, values in self.sums.items()}
        if by == "any":
            early, late = sums["early"] > 0, sums["late"] > 0
        else:
            n_late = self.sums["mass"].shape[2] - self.half
            n_early = self.half - torch.arange(self.half)
            # Mean weight > 1 / half, over the queries of each half that can attend to the token.
            early, late = (sums["early_mass"] / n_early * self.half > 1), (sums["late_mass"] / n_late * self.half > 1)
        n_both, n_late = (early & late).sum(dim=2), late.sum(dim=2)
        ratio = torch.where(n_late > 0, n_both / n_late.clamp(min=1), torch.nan)
        return Persistence(ratio.nanmean(dim=1), early.float().mean(dim=(1, 2)), late.float().mean(dim=(1, 2)))


@dataclass(frozen=True)
class Persistence:
    """Means over the heads of each layer. `early` is also the ratio expected by chance."""

    ratio: Float[Tensor, "L"]
    early: Float[Tensor, "L"]  # fraction of the first half's tokens that are pivotal in the first half
    late: Float[Tensor, "L"]  # and in the second half


@torch.no_grad()
def attention_statistics(model: PreTrainedModel, ids: Int[Tensor, "T"], near: int = 16) -> AttentionStatistics:
    """Compute the sums over one text, which the model reads in one pass.

    Raises:
        ValueError: for a text of fewer than 4 tokens.
    """
    if ids.ndim != 1 or len(ids) < 4:
        raise ValueError(f"got ids of shape {tuple(ids.shape)}; expected one row of 4 tokens or more.")
    half = len(ids) // 2
    with evicting(model, Watch(half=half, near=near)) as cache:
        model.base_model(ids[None].to(model.device), past_key_values=cache, use_cache=True)
    layers = [slots.memory("sums")[0] for slots in cache.slots]  # each (H, T, G, K)
    sums = torch.stack(layers).permute(4, 0, 1, 3, 2).flatten(2, 3).cpu()  # (K, L, A, T)
    return AttentionStatistics(dict(zip(SUMS, sums, strict=True)), half)


def kinds_of(ids: Int[Tensor, "T"], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the kind of each token: special, newline (only white space, with a line break), punctuation or word."""
    special = set(tokenizer.all_special_ids)
    return ["special" if i in special else _kind(tokenizer.decode([i])) for i in ids.tolist()]


def _kind(text: str) -> str:
    if "\n" in text and not text.strip():
        return "newline"
    return "word" if any(character.isalnum() for character in text) else "punctuation"
