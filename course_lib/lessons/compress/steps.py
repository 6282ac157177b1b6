"""The course's own functions of the exercises of lesson 10: its notebook calls them until yours are right.

Dimension key: B texts, T tokens, P vectors of a prompt, N = P + T positions, D width, V tokens of the vocabulary,
W windows; O outputs (rows) and I inputs (columns) of a layer.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from transformers import PreTrainedModel

from course_lib.prompts import transfer
from course_lib.prompts.small_llama import as_model, weights_of
from course_lib.prompts.training import frozen
from course_lib.quantization.storage import sparse_bytes

NOT_SCORED = -100  # the label that cross_entropy ignores
BYTES = 2  # of a number in 16 bits


def with_prompt(
    prompt: Float[Tensor, "P D"], text: Float[Tensor, "B T width"], real: Bool[Tensor, "B T"]
) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"], Int[Tensor, "B N"]]:
    """The vectors [prompt; text], the attention mask, and the position of each vector: how many are attended before it.

    Padding, on either side, is masked and counts for no position. Its own position is 0.
    """
    if prompt.shape[1] != text.shape[2]:
        raise ValueError(
            f"got a prompt of width {prompt.shape[1]} and a text of width {text.shape[2]}; expected those of one model."
        )
    n = prompt.shape[0]
    mask = pad(real, (n, 0), value=True)
    vectors = pad(text, (0, 0, n, 0))
    vectors[:, :n] = prompt
    positions = (mask.long().cumsum(1) - mask.long()) * mask
    return vectors, mask, positions


def targets(ids: Int[Tensor, "B T"], real: Bool[Tensor, "B T"], n_prompt: int) -> Int[Tensor, "B N"]:
    """y_i = the token at position i + 1 of [prompt; text], NOT_SCORED where that is not a token of the text."""
    if n_prompt < 0:
        raise ValueError(f"got a prompt of {n_prompt} vectors; expected 0 or more.")
    real_ids = ids.masked_fill(~real, NOT_SCORED)
    return pad(real_ids, (n_prompt, 1), value=NOT_SCORED).narrow(1, 1, n_prompt + ids.shape[1])


def initial_prompt(
    table: Float[Tensor, "V D"], keys: Float[Tensor, "V"], n: int, step: Float[Tensor, "P D"]
) -> tuple[Float[Tensor, "P D"], Float[Tensor, "V D"]]:
    """The rows of the n largest keys minus a first step, and the table, which shares no memory with them."""
    if not 1 <= n <= len(table) or len(step) != n:
        raise ValueError(
            f"got n={n}, a step of {len(step)} vectors and {len(table)} tokens; expected as many vectors as n, from 1 "
            "to all tokens."
        )
    chosen = keys.sort(descending=True).indices.narrow(0, 0, n)
    return table.index_select(0, chosen).sub_(step), table


def paired_ratio(
    prompted: Float[Tensor, "W prompted"], plain: Float[Tensor, "W plain"], real: Bool[Tensor, "W T"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """exp(mean of d) and its standard error, where d is the loss of a window with the prompt minus that without.

    Args:
        prompted: (W, P + T − 1), the loss at each position of the token after it, 0 where that is a prompt vector.
        plain: (W, T − 1), without a prompt. Token 0 has a loss in `prompted` alone, and is left out of both.
    """
    n_prompt = prompted.shape[1] - plain.shape[1]
    if plain.shape[1] != real.shape[1] - 1 or n_prompt < 1:
        raise ValueError(
            f"got {prompted.shape[1]} losses with a prompt and {plain.shape[1]} without for {real.shape[1]} tokens; "
            "expected P + T − 1 and T − 1, with P of at least 1."
        )
    scored = real.narrow(1, 1, plain.shape[1])
    of_text = prompted.narrow(1, n_prompt, plain.shape[1])
    of_windows = (losses.double().masked_fill(~scored, 0).sum(1) / scored.sum(1) for losses in (of_text, plain))
    return _as_tensors(transfer.paired_ratio(*of_windows), plain)


def stored_bytes(
    layers: tuple[tuple[int, int, int], ...], others: int, prompt: int, bits: int, group: int
) -> tuple[int, float]:
    """Bytes of codes, bitmap, scales, other numbers and prompt; how many times fewer than everything in 16 bits.

    Args:
        layers: rows, columns and the number of non-zero weights of each layer.
        others: how many numbers are neither pruned nor rounded; prompt: how many numbers the prompt has.
    """
    if others < 0 or prompt < 0 or not layers:
        raise ValueError(
            f"got {len(layers)} layers, {others} other numbers and {prompt} of the prompt; expected at least one layer "
            "and no count below zero."
        )
    packed = sum(sparse_bytes(rows, columns, n_stored, bits, group) for rows, columns, n_stored in layers)
    n_bytes = packed + BYTES * (others + prompt)
    n_weights = others + sum(rows * columns for rows, columns, _ in layers)
    return n_bytes, BYTES * n_weights / n_bytes


def transferred_fraction(
    plain: Float[Tensor, "W"],
    own: Float[Tensor, "W"],
    moved: Float[Tensor, "W"],
    dense: Float[Tensor, "W"],
    dense_own: Float[Tensor, "W"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """q = mean(a) / mean(b) with its standard error, std(a − q b) / (√W |mean(b)|), by the delta method.

    a and b are the gains of the moved and of the own prompt on the compressed model, beyond the gain of the dense
    model's own prompt: 1 is as good as a prompt that was trained for this model, 0 no better than for any model.

    Args:
        plain, own, moved: losses of the compressed model without a prompt, with its own, with the moved one.
        dense, dense_own: losses of the dense model without a prompt and with its own.
    """
    if len(plain) < 2:
        raise ValueError(f"got {len(plain)} windows; expected at least two, for an error.")
    lists = (losses.double() for losses in (moved, own, plain))
    return _as_tensors(transfer.share(*transfer.gains_beyond(*lists, (dense.double(), dense_own.double()))), plain)


def _as_tensors(ratio: transfer.Ratio, like: Tensor) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    return like.new_tensor(ratio.value), like.new_tensor(ratio.standard_error)


def prompt_step(
    weights: Mapping[str, Tensor] | PreTrainedModel, prompt: Float[Tensor, "P D"], ids: Int[Tensor, "B T"], rate: float
) -> tuple[Float[Tensor, "P D"], dict[str, Tensor]]:
    """One step of gradient descent for a prompt in front of a frozen model: the new prompt, and the model's weights."""
    model, n_text = as_model(weights), ids.shape[1]
    learning = prompt.detach().clone().requires_grad_()
    with frozen(model):
        table = model.get_input_embeddings().weight
        vectors = torch.stack([torch.cat([learning, table[row]]) for row in ids])
        logits = model(inputs_embeds=vectors, use_cache=False).logits.narrow(1, len(prompt) - 1, n_text)
        loss = cross_entropy(logits.flatten(0, 1), ids.flatten())
        (gradient,) = torch.autograd.grad(loss, learning)
    return prompt - rate * gradient, weights_of(model)
