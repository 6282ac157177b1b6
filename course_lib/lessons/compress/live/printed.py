"""What lesson 10's notebook prints of its own runs, with a verdict where something is claimed.

Dimension key: N windows, T tokens of a window, P vectors of the prompt.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.common.verdicts import Effect, claim, of_samples
from course_lib.lessons.compress import found
from course_lib.models import layers_of, weight_of
from course_lib.prompts.compressed.store import DENSE
from course_lib.prompts.initial import from_ids
from course_lib.prompts.words import nearest_words

Number = float | Tensor


def of_windows(losses: Float[Tensor, "N places"], n_targets: int) -> Float[Tensor, "N"]:
    """The mean of each window over its last `n_targets` places, which are those of a model without a prompt."""
    return losses[:, -n_targets:].double().mean(dim=1)


def comparison(alone: Mapping[str, Float[Tensor, "N T"]], rows: Sequence[tuple[str, str, Number, Number]]) -> Table:
    """Model, prompt, and the ratio of perplexities with its error, below each model's perplexity alone."""
    frame = []
    for model, losses in alone.items():
        perplexity = math.exp(losses.double().mean())
        frame.append({"model": model, "prompt": "none", "perplexity": perplexity})
        for name, ratio, error in ((n, float(r), float(e)) for m, n, r, e in rows if m == model):
            values = {"perplexity": perplexity * ratio, "ratio": ratio, "error": error}
            frame.append({"model": model, "prompt": name} | values)
    return Table(
        frame,
        caption="Perplexity with and without a prompt",
        formats={"perplexity": number(1), ("ratio", "error"): plus_minus(3)},
        note="ratio: of the perplexity without a prompt, ± one standard error.",
    )


def gain(prompted: Float[Tensor, "N places"], alone: Float[Tensor, "N T"]) -> Float[Tensor, "N"]:
    """By how many nats a token a prompt lowers the loss of each window."""
    return of_windows(alone, alone.shape[1]) - of_windows(prompted, alone.shape[1])


def claims(of_pruned: Float[Tensor, "N"], of_dense: Float[Tensor, "N"]) -> str:
    """Two verdicts on the gains of one run: against no prompt, and against the dense model's gain."""
    said = []
    for text, effect in {
        "its own prompt lowers the pruned model's perplexity": of_samples(of_pruned),
        "it wins more than on the dense model": of_samples(of_pruned - of_dense),
    }.items():
        said.append(f"{claim(text, effect)}\n    {_nats(effect)}, {effect.n} windows, one run")
    return "\n".join(said)


def _nats(effect: Effect) -> str:
    return f"{effect.value:+.3f} ± {effect.error:.3f} nats a token"


def averaged_zeros(prompted: Float[Tensor, "N places"], alone: Float[Tensor, "N T"]) -> str:
    """The same losses averaged over all places, zeros among them."""
    right = of_windows(prompted, alone.shape[1]).mean().exp()
    wrong = (prompted.double().sum() / prompted.numel()).exp()
    zeros = prompted.shape[1] - alone.shape[1] - 1
    return (
        f"perplexity with the prompt {right:.1f}; averaged over all places, {zeros} zeros of the prompt and the first "
        f"token among them, {wrong:.1f}"
    )


def words_of(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, vectors: Float[Tensor, "P D"]
) -> list[tuple[str, float]]:
    """The nearest word of each vector and its cosine."""
    # Any prompt of this table: only its vectors matter.
    some = from_ids(model, torch.zeros(1, dtype=torch.long))
    prompt = type(some)(vectors=vectors, table=some.table)
    return [(near.token, near.value) for (near,) in nearest_words(model, tokenizer, prompt, k=1)]


def shapes_of(model: PreTrainedModel) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """(rows, columns, weights that are not zero) of each pruned layer, and how many numbers all others are."""
    weights = [weight_of(layer.module) for layer in layers_of(model)]
    shapes = tuple((*map(int, weight.shape), int(weight.count_nonzero())) for weight in weights)
    return shapes, model.num_parameters() - sum(weight.numel() for weight in weights)


def parts_of(model: PreTrainedModel) -> dict[str, int]:
    """How many numbers the table has, which is the head too; the matrices of the blocks; and the rest, the norms."""
    n_table = model.get_input_embeddings().weight.numel()
    n_blocks = sum(weight_of(layer.module).numel() for layer in layers_of(model))
    return {
        "table, which is the head": n_table,
        "blocks": n_blocks,
        "norms": model.num_parameters() - n_table - n_blocks,
    }


def window_losses(measured: Measured, source: str, to: str) -> tuple[Float[Tensor, "N"], ...]:
    """Of a measured model: alone, with its own prompt, with that of `source`; the dense one alone, with its own."""
    (alone, own), (dense, dense_own) = (found.pair(measured, name) for name in (to, DENSE))
    rows = (alone, own, found.moved(measured, source, to), dense, dense_own)
    return tuple(torch.tensor(row["losses"], dtype=torch.float64) for row in rows)
