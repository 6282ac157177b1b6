"""Per-token losses of a student, compared with its teacher. Hinton, Vinyals, Dean, 2015. https://arxiv.org/abs/1503.02531

Dimension key: N sequences, T tokens, V entries of the vocabulary, D width.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, mse_loss

from course_lib.hooks import hooking
from course_lib.settings import check_number


def kl_divergence(
    student: Float[Tensor, "*tokens V"], teacher: Float[Tensor, "*tokens V"], temperature: float = 1.0
) -> Float[Tensor, ""]:
    """Compute τ² Σ_v p_T(v) log(p_T(v) / p_S(v)) of the logits over τ, averaged over tokens, in nats for τ = 1.

    A token with the teacher's logit −∞ contributes nothing: p log p is 0 for p = 0.

    The factor τ² keeps the size of the gradients constant when τ grows. `F.kl_div(reduction="mean")` would also divide
    by the size of the vocabulary.

    Raises:
        ValueError: for logits of different shapes, or a temperature that is not positive and finite.
    """
    if student.shape != teacher.shape:
        raise ValueError(
            f"got logits of shape {tuple(student.shape)} from the student and {tuple(teacher.shape)} from the teacher; "
            "expected one vocabulary and the same tokens. Distil from a model with the same tokenizer."
        )
    check_number("temperature", temperature, above=True)
    ours, theirs = (log_softmax(logits.float() / temperature, -1) for logits in (student, teacher.detach()))
    terms = (theirs.exp() * (theirs - ours)).masked_fill(theirs == float("-inf"), 0)
    return temperature**2 * terms.sum(-1).mean()


def next_token(logits: Float[Tensor, "N T V"], ids: Tensor) -> Float[Tensor, ""]:
    """Compute the negative log-likelihood, averaged over all tokens but the first; it needs no teacher."""
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


@contextmanager
def block_outputs(blocks: Iterable[nn.Module]) -> Iterator[list[Float[Tensor, "N T D"]]]:
    """Inside, a forward pass adds the output of each of these blocks to the list, in the order of the pass.

    The last entry of transformers' `hidden_states` is not the last block's output: it has passed the final norm.
    """
    outputs: list[Tensor] = []

    def add(_: nn.Module, __: tuple, output: Tensor | tuple) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    with hooking() as handles:
        handles += [block.register_forward_hook(add) for block in blocks]
        yield outputs


def hidden_states(student: list[Float[Tensor, "N T D"]], teacher: list[Float[Tensor, "N T D"]]) -> Float[Tensor, ""]:
    """Compute the mean squared difference of block outputs, each relative to the mean square of the teacher's."""
    terms = [
        mse_loss(ours.float(), theirs.detach().float()) / theirs.detach().float().square().mean()
        for ours, theirs in zip(student, teacher, strict=True)
    ]
    return torch.stack(terms).mean()
