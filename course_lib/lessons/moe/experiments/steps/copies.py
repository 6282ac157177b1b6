"""A dense language model whose MLPs become experts: what stays the same, and what the weights have to do with it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.data.corpora import windows
from course_lib.lessons.moe.experiments.steps.looks import Row
from course_lib.measure.experiment import Tables
from course_lib.measure.perplexity import perplexity
from course_lib.models import load_model
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routing import Router
from course_lib.moe.upcycling.mixtral import upcycled
from course_lib.moe.upcycling.swapping import routed_by

ROUTERS: dict[str, Router] = {
    "top-2, renormalised": Mixtral(2),
    "top-2, as they are": OLMoE(2),
    "top-1, as they are": OLMoE(1),
}


def copied(model: str, n_experts: int, n_windows: int, length: int, seed: int) -> Tables:
    """Perplexity by each router over identical experts, and how far logits are from the dense model's.

    Two experts make twice the products of the dense MLP: copies are as large as what they are copied from.
    """
    dense, tokenizer = load_model(model)
    ids = windows("wikipedia", n_windows, length, tokenizer, split="evaluation", seed=seed)
    with torch.no_grad():
        expected = dense(ids[:1], use_cache=False).logits
    rows = [row(dense, "dense", ids, expected)]
    mixture = upcycled(dense, n_experts, 2, generator=torch.Generator().manual_seed(seed))
    for name, router in ROUTERS.items():
        with routed_by(mixture, router):
            rows.append(row(mixture, name, ids, expected))
    return {"copies": rows}


def row(model: PreTrainedModel, name: str, ids: Int[Tensor, "N T"], expected: Float[Tensor, "1 T V"]) -> Row:
    result = perplexity(model, ids, progress=False)
    found = {"router": name, "parameters": sum(weight.numel() for weight in model.parameters())}
    found |= {"perplexity": result.value, "standard_error": result.standard_error}
    with torch.no_grad():
        difference = (model(ids[:1], use_cache=False).logits - expected).abs().max().item()
    found |= {"largest_difference": difference, "largest_logit": expected.abs().max().item()}
    return found | {"losses": [round(loss, 5) for loss in result.losses]}
