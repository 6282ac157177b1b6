"""Soft prompts: trained vectors in place of token embeddings. Lester and others, 2021,
https://arxiv.org/abs/2104.08691; for compressed models Xu and others, 2023, https://arxiv.org/abs/2305.11186

Dimension key: P vectors of a prompt, D width of the embeddings, V tokens of the vocabulary.
"""

import hashlib
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

SAMPLED_ROWS = 997  # of an embedding table, for its fingerprint: enough to tell two tables apart, read in a moment


@dataclass(frozen=True, eq=False, kw_only=True)
class SoftPrompt:
    """The first block reads [p_1 … p_P; E(x_1) … E(x_L)] instead of [E(x_1) … E(x_L)].

    Args:
        table: fingerprint of the embedding table that the prompt was trained with. Pruning and quantization of blocks
            do not change this table, so one prompt fits all these compressed versions of a model.
        origin: a description of the data that the prompt was trained on.
    """

    vectors: Float[Tensor, "P D"] = field(repr=False)
    table: str
    origin: str = ""

    def __post_init__(self) -> None:
        is_tensor = isinstance(self.vectors, Tensor) and self.vectors.is_floating_point()
        if not is_tensor or not isinstance(self.table, str) or not isinstance(self.origin, str):
            what = self.vectors.dtype if isinstance(self.vectors, Tensor) else type(self.vectors).__name__
            raise ValueError(
                f"got vectors as {what}, table {self.table!r} and origin {self.origin!r}; expected a tensor (P, D) of "
                "floats, the fingerprint of a table and words, as from_ids(model, ids) makes them."
            )
        if self.vectors.ndim != 2 or 0 in self.vectors.shape:
            raise ValueError(f"got vectors of shape {tuple(self.vectors.shape)}; expected (P, D), P of at least 1.")
        if not bool(self.vectors.isfinite().all()):
            raise ValueError("got vectors with NaN or infinite entries; train with a lower rate, or start again.")

    @property
    def n(self) -> int:
        """The number of vectors, which is the number of positions that the prompt takes up."""
        return len(self.vectors)

    @property
    def n_bytes(self) -> int:
        return self.vectors.nbytes

    def check(self, model: PreTrainedModel) -> None:
        """Raise ValueError if the model has other embeddings, or too few positions for the prompt and a text."""
        _check_width(self, model)
        if self.table != (own := fingerprint(model)):
            raise ValueError(
                f"got a prompt for the embedding table {self.table} and a model with the table {own}; expected the "
                "model it was learned on, or one in which only the blocks were compressed. If the table changed on "
                "purpose, as in a distilled student, use prompt.moved_to(model)."
            )
        most = most_positions(model)
        if self.n >= most:
            raise ValueError(
                f"got {self.n} vectors for a model of {most} positions; expected fewer, with room for text."
            )

    def moved_to(self, model: PreTrainedModel) -> "SoftPrompt":
        """Return the same vectors for a model with another embedding table of the same width."""
        _check_width(self, model)
        return replace(self, table=fingerprint(model))


def _check_width(prompt: SoftPrompt, model: PreTrainedModel) -> None:
    width = table_of(model).shape[1]
    if prompt.vectors.shape[1] != width:
        raise ValueError(
            f"got a prompt of vectors {prompt.vectors.shape[1]} wide and a model with embeddings {width} wide; "
            "expected the same width. Train a prompt for this model."
        )


def most_positions(model: PreTrainedModel) -> int:
    """Return the number of positions that a model has, including those of a prompt."""
    return getattr(model.config, "max_position_embeddings", None) or 1 << 20


def fingerprint(model: PreTrainedModel) -> str:
    """Identify an embedding table: a digest of its shape and of a sample of its rows in bfloat16.

    So a model in float32 and the same model rounded to bfloat16 have the same fingerprint.
    """
    table = table_of(model)
    rows = table[:: max(1, len(table) // SAMPLED_ROWS)].to("cpu", torch.bfloat16).contiguous()
    content = str(tuple(table.shape)).encode() + rows.view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def table_of(model: PreTrainedModel) -> Float[Tensor, "V D"]:
    return model.get_input_embeddings().weight.detach()
