"""Speculative decoding with the functions of the exercises: a text written pass by pass, and what drafts gain.

Dimension key: N tokens of a text, k drafted tokens.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Int
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.speculative.accept import Drawn, Sampling
from course_lib.attention.speculative.cached import CachedModel
from course_lib.attention.speculative.draft import Draft
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import listed

Block = Callable[[Tensor, Tensor, Tensor, Tensor, int], tuple[int, ...]]
Gain = Callable[[float, int, float, float, float], tuple[float, float]]
MOST = 12  # drafted tokens that are tried


@torch.no_grad()
def write(
    model: PreTrainedModel,
    ids: Int[Tensor, "N"],
    n_new: int,
    draft: Draft,
    block: Block,
    k: int = 4,
    temperature: float = 1.0,
    stop: int = -1,
    seed: int = 0,
) -> tuple[Int[Tensor, "_"], list[int]]:
    """n_new tokens or a few more behind a text, fewer where `stop` ends it, and how many tokens each pass gave."""
    generator = torch.Generator().manual_seed(seed)
    sampling, logits, n_prompt, passes = Sampling(temperature, Drawn(generator)), CachedModel(model), len(ids), []
    while len(ids) < n_prompt + n_new and (not passes or int(ids[-1]) != stop):
        proposal = draft.propose(ids, k, sampling)
        drafted = torch.tensor(proposal.tokens, dtype=ids.dtype)
        p = sampling.distribution(logits(torch.cat([ids, drafted]), len(drafted) + 1))
        luck = torch.rand(len(drafted) + 1, generator=generator, dtype=torch.float64)
        tokens = block(drafted, proposal.q.double(), p, luck, stop)
        ids = torch.cat([ids, torch.tensor(tokens, dtype=ids.dtype)])
        passes.append(len(tokens))
    return ids[n_prompt:], passes


def gains(drafts: Mapping[str, tuple[float, float]], gain: Gain, further: float = 0.0) -> Figure:
    """By how much less is read a token over k, in loads of the model.

    Args:
        drafts: by name, the acceptance α and what is read for a drafted token, as a share of the model.
    """
    _, (axes,) = figure(width=7.4, height=3.4)
    pays = []
    for index, (name, (acceptance, cost)) in enumerate(drafts.items()):
        found = [gain(acceptance, k, 1.0, further, cost)[1] for k in range(1, MOST + 1)]
        best = max(range(MOST), key=found.__getitem__)
        pays += [name] if found[best] > 0 else []
        axes.plot(range(1, MOST + 1), found, label=f"{name}, α = {acceptance:.2f}", **line_style(index))
        axes.plot(best + 1, found[best], marker="o", markersize=12, fillstyle="none", color=COLOURS[0], linestyle="")
    axes.axhline(0, color=COLOURS[4], linewidth=1)
    axes.set_xlim(0.5, MOST + 0.5)
    axes.legend(frameon=False)
    title = f"Something is gained with {listed(pays)}" if pays else "None of these drafts gains anything"
    return label(axes, title, "drafted tokens k (ring: the best)", "loads of the model\nsaved a token").figure
