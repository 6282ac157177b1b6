"""What the notebook of lesson 11 computes with functions of the exercises.

Dimension key: H heads, T tokens, P tokens of the prompt, V tokens of the vocabulary, k drafted tokens, N visual tokens.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.attention.registered import Pass, attending
from course_lib.attention.speculative.accept import Drawn, Sampling
from course_lib.attention.speculative.cached import CachedModel
from course_lib.attention.speculative.draft import Draft
from course_lib.attention.steering.auto import ANSWER_IT, as_prompt
from course_lib.attention.steering.sentences import highlighted
from course_lib.attention.visual.canvas import Canvases, draw
from course_lib.attention.visual.importance import look, looked_to
from course_lib.attention.visual.model import SmallVLM, patches
from course_lib.attention.visual.recycle import cells
from course_lib.data.residents import Passage

Steer = Callable[[Tensor, Tensor, Tensor, float], Tensor]
Accept = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[int, Tensor]]
LATER = -1e4  # the logit of a key that comes later than the query
SIDE = 3  # of a cell, in patches
KEPT = 36  # tokens that are kept as they are


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


@torch.no_grad()
def probabilities(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    passage: Passage,
    sentence: str | None,
    steer: Steer,
    alpha: float = 0.01,
) -> dict[str, float]:
    """What the model shares among the cities, the first token behind "NAME lives in", with all heads steered to
    a sentence, or none.

    Cities that begin with the same token share its probability equally.
    """
    prompt = as_prompt(tokenizer, ANSWER_IT.format(context=passage.text, question=passage.question))
    given = highlighted(tokenizer, [prompt], [[sentence] if sentence else []])
    begun = f"{passage.key_sentence.split()[0]} lives in"
    new = torch.tensor([tokenizer(begun, add_special_tokens=False).input_ids])
    n_heads = model.config.num_attention_heads
    chosen = torch.full((n_heads,), sentence is not None)

    def attend(seen: Pass) -> Tensor:
        logits = seen.logits[0].masked_fill(~seen.allowed[0], LATER)
        weights = steer(logits, given.columns[0], chosen, alpha)
        return (weights @ seen.values[0].repeat_interleave(n_heads // seen.values.shape[1], dim=0))[None]

    with attending(model, "course_steering", attend):
        logits = model(torch.cat([given.ids, new], dim=1), use_cache=False, logits_to_keep=1).logits[0, -1]
    first = [tokenizer(f" {city}", add_special_tokens=False).input_ids[0] for city in passage.choices]
    probability = logits[first].double().softmax(dim=0) / torch.tensor([first.count(token) for token in first])
    return dict(zip(passage.choices, (probability / probability.sum()).tolist(), strict=True))


def worth(
    model: SmallVLM, canvas: Canvases, recycle: Callable, alpha: float
) -> tuple[Float[Tensor, "N"], Bool[Tensor, "N"], Float[Tensor, "N"]]:
    """Importance, which tokens stay, and at which places fused ones stand with how many of them.

    `recycle` is asked twice: for the importance, and then for the tokens that the least important ones become.
    """
    evidence, grey = look(model, canvas.images), patches(canvas.images)[0].long()
    attention = (looked_to(evidence.attention, 1.0).float() @ evidence.attention)[0, 0]
    tokens = model.visual(canvas.images)[0].detach()
    importance, _, _ = recycle(grey, attention, alpha, tokens, cells(SIDE))
    stays = torch.zeros(len(grey), dtype=torch.bool)
    stays[importance.topk(KEPT).indices] = True
    present = cells(SIDE)[~stays].unique(return_inverse=True)[1]
    number = torch.full((len(grey),), -1).masked_scatter(~stays, present)
    _, _, place = recycle(grey, attention, alpha, tokens, number)
    return importance, stays, place


def canvas_of(seed: int) -> Canvases:
    return draw(1, "test", seed)
