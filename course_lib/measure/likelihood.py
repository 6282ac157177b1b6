"""Log-likelihoods of given tokens under a causal language model; nothing is computed twice.

Dimension key: B windows in a batch, L tokens in a window, T tokens in one pass, D hidden size, V vocabulary,
P requested predictions.
"""

import psutil
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.models import changed_logits, head, n_active_neurons

LOGIT_ROWS = 256  # positions whose logits exist at the same time: 50 MB for a vocabulary of 49,152 in float32
MOST_TOKENS = {"cpu": 4096, "cuda": 65536}  # beyond this a larger batch is no faster


def check_model(model: object) -> None:
    """Raise ValueError for anything but a causal language model of transformers."""
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise ValueError(
            f"got {type(model).__name__} as the model; expected a causal language model of transformers, such as the "
            "first of load_model()."
        )
    kind = type(model)
    if any(base.__module__.partition(".")[0] == "peft" for base in kind.__mro__):
        raise ValueError(
            f"got a {kind.__name__}, which wraps a model with adapters; expected the causal language model itself. "
            "Give model.merge_and_unload(), which adds the adapters to the weights."
        )
    find_head = getattr(model, "get_output_embeddings", None)
    if find_head is None or find_head() is None:
        raise ValueError(
            f"got a {kind.__name__}, which has no LM head; expected a causal language model of transformers. Give the "
            "causal language model (such as LlamaForCausalLM) and not a part of it (such as model.model)."
        )


def check_scorable(model: PreTrainedModel) -> None:
    """Raise ValueError for a model without weights, or whose logits are not its head's output (soft-capped, scaled).

    We read the configuration first: a soft cap hardly changes small logits, so a test with one token may miss it.
    """
    check_model(model)
    if changes := changed_logits(model):
        settings = ", ".join(f"{key} {value:g}" for key, value in changes.items())
        raise ValueError(
            f"got a {type(model).__name__} with {settings}, whose logits are not its head's output (they are scaled or "
            "soft-capped); expected a model of the Llama, Qwen, Mistral, OPT or GPT-2 kind."
        )
    if model.device.type == "meta":
        raise ValueError("got a model on the meta device, which has no weights; load it onto the CPU or a GPU.")
    one = torch.tensor([[model.config.vocab_size - 1]])
    own = model(input_ids=one.to(model.device), use_cache=False).logits
    if not torch.equal(own.isnan(), (ours := head(model)(hidden_states(model, one))).isnan()) or not torch.allclose(
        own, ours, rtol=1e-2, atol=1e-2, equal_nan=True
    ):
        raise ValueError(
            f"got a {type(model).__name__}, whose logits are not its head's output (they are scaled or soft-capped); "
            "expected a model of the Llama, Qwen, Mistral, OPT or GPT-2 kind."
        )


def hidden_states(model: PreTrainedModel, ids: Int[Tensor, "B L"], **settings: Tensor) -> Float[Tensor, "B L D"]:
    """Return the input of the LM head: the last block's output after the final norm."""
    return model.base_model(input_ids=ids.to(model.device), use_cache=False, **settings).last_hidden_state


def target_log_probs(
    model: PreTrainedModel, hidden: Float[Tensor, "T D"], position: Int[Tensor, "P"], target: Int[Tensor, "P"]
) -> tuple[Float[Tensor, "P"], Bool[Tensor, "P"]]:
    """Compute log p(target | position) for each pair, and whether the target is the most likely token there.

    Logits are computed for a few positions at a time, and only for positions with a target. For all positions of a long
    text they would take more memory than everything else together.
    """
    log_prob = torch.empty(len(target))
    likeliest = torch.empty(len(target), dtype=torch.bool)
    wanted, row = position.unique(return_inverse=True)
    for start in range(0, len(wanted), LOGIT_ROWS):
        here = (row >= start) & (row < start + LOGIT_ROWS)
        logits = head(model)(hidden[wanted[start : start + LOGIT_ROWS].to(hidden.device)]).float()
        index, token = row[here].to(logits.device) - start, target[here].to(logits.device)
        log_prob[here] = (logits[index, token] - logits.logsumexp(-1)[index]).cpu()
        likeliest[here] = (logits.argmax(-1)[index] == token).cpu()
    return log_prob, likeliest


def tokens_at_once(model: PreTrainedModel) -> int:
    """Return how many tokens fit into a quarter of the free memory, given what one block needs per token."""
    cuda = model.device.type == "cuda"
    free = torch.cuda.mem_get_info(model.device)[0] if cuda else psutil.virtual_memory().available
    values = 12 * model.config.hidden_size + 4 * n_active_neurons(model)
    return min(MOST_TOKENS["cuda" if cuda else "cpu"], int(free / 4 / (values * model.dtype.itemsize)))
