"""A prompt that learns in front of a frozen model, from what a student's functions make of texts.

Dimension key: N windows, B of them in a batch, T tokens of a window, P vectors of the prompt, D width, S steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.models import load_model
from course_lib.prompts.recipe import PromptRecipe, rows_of
from course_lib.prompts.soft import SoftPrompt, fingerprint, table_of
from course_lib.prompts.training import begin, descend, frozen
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import Unstructured

Put = Callable[..., tuple[Tensor, Tensor, Tensor]]  # (prompt, text, real) -> vectors, seen, positions
Label = Callable[..., Tensor]  # (ids, real, n_prompt) -> labels
AT_ONCE = 6  # windows in a pass that scores: each place has a logit for every word
CALIBRATION = (4, 128)  # windows and tokens of each, for the norms of Wanda's inputs


@dataclass(frozen=True)
class Learned:
    """The prompt before each step and after the last, and the loss of the batch of each step, in nats a token."""

    path: Float[Tensor, "moments P D"]
    losses: tuple[float, ...]

    @property
    def last(self) -> Float[Tensor, "P D"]:
        return self.path[-1]


def half_pruned(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The default model with half of the weights of every row, Wanda's choice."""
    model, _ = load_model()
    calibration = windows("wikipedia", *CALIBRATION, tokenizer, split="calibration", seed=0)
    prune_model(model, Wanda(Unstructured(0.5, per="row")), calibration)
    return model


def learn(
    model: PreTrainedModel,
    begun: Float[Tensor, "P D"],
    texts: Int[Tensor, "N T"],
    put: Put,
    label: Label,
    rate: float = 0.05,
    batch: int = 2,
) -> Learned:
    """The library's steps, on losses from a student's inputs and labels; every window is read once."""
    recipe = PromptRecipe(n_steps=len(texts) // batch, batch=batch, rate=rate, warm_up=0)
    run = begin(model, SoftPrompt(vectors=begun, table=fingerprint(model)), recipe)
    learning = SoftPrompt(vectors=run.vectors, table=fingerprint(model))
    path = [run.vectors.detach().clone()]
    with frozen(model):
        for step in range(recipe.n_steps):
            ids = texts[rows_of(len(texts), recipe, step)]
            descend(run, recipe, learning, partial(batch_loss, model, run.vectors, ids, put, label))
            path.append(run.vectors.detach().clone())
    return Learned(torch.stack(path), tuple(run.losses))


def batch_loss(
    model: PreTrainedModel, prompt: Float[Tensor, "P D"], ids: Int[Tensor, "B T"], put: Put, label: Label
) -> Float[Tensor, ""]:
    """The mean loss of a batch, with a gradient for the prompt that does not pass through `put` and `label`.

    It is taken where the model reads, and the prompt's part of it added up over the texts. So neither of them need be
    differentiable.
    """
    real = torch.ones_like(ids, dtype=torch.bool)
    vectors, seen, positions = put(prompt.detach().clone(), _embedded(model, ids), real)
    vectors = vectors.detach().requires_grad_()
    logits = _logits(model, vectors, seen, positions)
    loss = cross_entropy(logits.flatten(0, 1), label(ids, real, len(prompt)).flatten())
    (slope,) = torch.autograd.grad(loss, vectors)
    # The value is the loss, since the second term is 0; its gradient is the slope.
    return loss.detach() + ((prompt - prompt.detach()) * slope[:, : len(prompt)].sum(dim=0)).sum()


@torch.no_grad()
def losses_at_places(
    model: PreTrainedModel, prompt: Float[Tensor, "P D"], texts: Int[Tensor, "N T"], put: Put, label: Label
) -> Float[Tensor, "N places"]:
    """(N, P + T − 1), the loss of what stands behind each place, and 0 where that is a vector of the prompt."""
    found = []
    for ids in texts.split(AT_ONCE):
        real = torch.ones_like(ids, dtype=torch.bool)
        logits = _logits(model, *put(prompt, _embedded(model, ids), real))
        labels = label(ids, real, len(prompt))
        found.append(cross_entropy(logits.transpose(1, 2), labels, reduction="none")[:, :-1])
    return torch.cat(found)


@torch.no_grad()
def losses_alone(model: PreTrainedModel, texts: Int[Tensor, "N T"]) -> Float[Tensor, "N targets"]:
    """(N, T − 1), without a prompt."""
    found = []
    for ids in texts.split(AT_ONCE):
        logits = model(ids, use_cache=False).logits[:, :-1]
        found.append(cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none"))
    return torch.cat(found)


def _embedded(model: PreTrainedModel, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    return table_of(model)[ids]


def _logits(model: PreTrainedModel, vectors: Tensor, seen: Tensor, positions: Tensor) -> Float[Tensor, "B places V"]:
    mask, places = seen.long(), positions.long()
    return model(inputs_embeds=vectors, attention_mask=mask, position_ids=places, use_cache=False).logits
