"""Speculative decoding with the function of the exercise: what comes out of it, and how many passes a text takes.

Dimension key: k drafted tokens, V words of the vocabulary, N tokens of a text.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.speculative.accept import Drawn, Sampling
from course_lib.attention.speculative.cached import CachedModel
from course_lib.attention.speculative.draft import Draft
from course_lib.lessons.common.style import COLOURS, figure, label

Accept = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[int, Tensor]]


def comes_out(p: Float[Tensor, "V"], q: Float[Tensor, "V"], accept: Accept, n: int = 40) -> Float[Tensor, "V"]:
    """The distribution of the first token of a pass that drafts one: every word with its q, every luck alike.

    `luck` takes the middles of n equal parts of [0, 1), so what comes out is exact up to 1 / n.
    """
    found = torch.zeros(len(p), dtype=torch.float64)
    both = torch.stack([p, p])
    for word, share in enumerate(q.tolist()):
        for luck in ((i + 0.5) / n for i in range(n)):
            stays, behind = accept(torch.tensor([word]), q[None], both, torch.tensor([luck]))
            drawn = torch.eye(len(p), dtype=torch.float64)[word] if stays else behind.double()
            found += share / n * drawn
    return found


@torch.no_grad()
def write(
    model: PreTrainedModel,
    ids: Int[Tensor, "N"],
    n_new: int,
    draft: Draft,
    accept: Accept,
    k: int = 4,
    temperature: float = 1.0,
    seed: int = 0,
) -> tuple[Int[Tensor, "_"], list[int]]:
    """n_new tokens or a few more behind a text, and how many tokens each pass of the model gave."""
    generator = torch.Generator().manual_seed(seed)
    sampling, logits, n_prompt, passes = Sampling(temperature, Drawn(generator)), CachedModel(model), len(ids), []
    while len(ids) < n_prompt + n_new:
        proposal = draft.propose(ids, k, sampling)
        drafted = torch.tensor(proposal.tokens, dtype=ids.dtype)
        p = sampling.distribution(logits(torch.cat([ids, drafted]), len(drafted) + 1))
        luck = torch.rand(len(drafted), generator=generator, dtype=torch.float64)
        n, behind = accept(drafted, proposal.q.double(), p, luck)
        ids = torch.cat([ids, drafted[:n], torch.multinomial(behind.double(), 1, generator=generator)])
        passes.append(n + 1)
    return ids[n_prompt:], passes


def exactness(p: Sequence[float], q: Sequence[float], found: Sequence[float], words: Sequence[str]) -> Figure:
    """The model's distribution, the draft's, and what comes out."""
    _, (axes,) = figure(width=7.4, height=3.0)
    bars = {"the model, p": p, "the draft, q": q, "what comes out": found}
    for index, ((name, values), hatch) in enumerate(zip(bars.items(), ("", "//", ".."), strict=True)):
        places = [word + 0.27 * (index - 1) for word in range(len(words))]
        axes.bar(places, values, 0.25, label=name, color=COLOURS[index], hatch=hatch, edgecolor="white")
    axes.set_xticks(range(len(words)), words)
    axes.legend(frameon=False, fontsize=9.5)
    off = max(abs(a - b) for a, b in zip(p, found, strict=True))
    return label(axes, f"What comes out differs from p by {off:.3f} at most", "next token", "probability").figure
