"""The most important neurons of a dense pass. Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157

Dimension key: T tokens, L blocks, N tokens of a window, n windows, F neurons.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.seen import importance_of
from course_lib.contextual.selector import NeuronSelector, Seen


@dataclass(frozen=True, eq=False, kw_only=True)
class Recorded(NeuronSelector):
    """score_i = |h_i| ‖w_i‖ in a dense pass over the same text (the test for the existence of sparsity in section 3.1).

    `fit` is the dense pass; the second pass has to read the same windows, since the scores of a sequence are found by
    all its token ids. The scores take 4 · L · F bytes per token, so record few windows at a time.
    """

    recording: Mapping[tuple[int, ...], Tensor] | None = field(default=None, repr=False)  # ids: (L, N, F)

    reads_hidden: ClassVar[bool] = True

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        probe = calibration.new_tensor([model.config.vocab_size - 1])  # the first input in a trial by `perplexity`
        return replace(
            self, recording={tuple(ids.tolist()): importance_of(model, ids) for ids in (*calibration, probe)}
        )

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        self.fitted(self.recording)
        if seen.ids is None:
            raise ValueError("got embeddings in place of token ids; expected ids, by which a recording is found again.")
        rows = [tuple(ids.tolist()) for ids in seen.ids.view(seen.n_sequences, -1)]
        unknown = [row for row in rows if row not in self.recording]
        if unknown:
            raise ValueError(
                f"got a sequence of {len(unknown[0])} tokens that begins with {list(unknown[0][:4])}, which was not "
                "recorded; expected a window that it was fitted to, whole. Record it: selector.fit(model, windows)."
            )
        return torch.cat([self.recording[row][block] for row in rows])
