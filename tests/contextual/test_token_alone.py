"""A token that goes through a block alone, against numbers worked by hand and against the model itself."""

import math
from dataclasses import replace

import pytest
import torch
from seen_by_hand import seen_of
from torch import nn

from course_lib.contextual.attention.alone import AloneBlock, alone_blocks
from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.seen import looking
from course_lib.contextual.selectors.alone import TokenAlone
from course_lib.models import blocks, tiny_model

FAMILIES = ["llama", "opt", "gpt2"]  # grouped heads; biases; one matrix for query, key and value
DOUBLE, HALF = nn.Identity(), nn.Identity()
DOUBLE.forward, HALF.forward = lambda x: 2 * x, lambda x: x / 2


def by_hand():
    """One group of two heads of one number: v = (1, 1) · 2e = 2 (e_1 + e_2), attention gives (v + v, −v)."""
    return AloneBlock(
        norms=(DOUBLE, HALF), value=torch.ones(1, 2), output=torch.tensor([[1.0, 1.0], [0.0, -1.0]]), size=1
    )


def test_what_a_lone_token_reads_by_hand():
    """e = (1, 2): v = 6, e + (12, −6) = (13, −4), halved."""
    assert by_hand().read(torch.tensor([[1.0, 2.0]])).tolist() == [[6.5, -2.0]]
    biased = replace(by_hand(), value_bias=torch.ones(1), output_bias=torch.tensor([0.0, 3.0]))
    assert biased.read(torch.tensor([[1.0, 2.0]])).tolist() == [[7.5, -1.0]]  # v = 7: (1 + 14, 2 − 7 + 3) / 2


def test_the_score_is_the_importance_there():
    """h = relu(6.5, 2, −2) behind rows (1, 0), (0, −1), (0, 1); they reach 1, 10 and 1 far."""
    neurons = Neurons(
        gate=None,
        up=torch.tensor([[1.0, 0.0], [0.0, -1.0], [0.0, 1.0]]),
        down=torch.tensor([[1.0, 6.0, 0.0], [0.0, 8.0, 1.0]]),
        activation="relu",
    )
    selector = TokenAlone(density=0.34, blocks=(by_hand(),))
    seen = seen_of(neurons, torch.full((1, 2), math.nan), embedding=torch.tensor([[1.0, 2.0]]))
    assert selector.score(seen, 0).tolist() == [[6.5, 20.0, 0.0]]
    assert selector.keep(seen, 0).tolist() == [[False, True, False]]


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_what_the_block_itself_gives_for_texts_of_one_token(family):
    """Twin: a model of that block alone reads texts of one token, all at position 0."""
    model, ids = tiny_model(0, family), torch.tensor([[5], [7], [60]])
    with torch.no_grad():
        for matrix in model.parameters():
            matrix.add_(0.1 * torch.randn(matrix.shape, generator=torch.Generator().manual_seed(matrix.numel())))
    alone, every = alone_blocks(model), list(blocks(model))
    assert len(alone) == len(every) == 2
    for block, own in zip(alone, every, strict=True):
        blocks(model)[0], found = own, []  # what stands behind the first block does not matter
        with torch.no_grad(), looking(model, lambda _, seen, found=found: found.append(seen)):
            model(ids, use_cache=False)
            torch.testing.assert_close(block.read(found[0].embedding), found[0].x)


def test_it_reads_the_embedding_alone():
    ready = TokenAlone().fit(tiny_model(), torch.tensor([[3, 4]]))
    neurons, embedding = neurons_of(tiny_model())[1], torch.randn(4, 48)
    scores = [ready.score(seen_of(neurons, torch.randn(4, 48), embedding), 1) for _ in range(2)]
    assert torch.equal(*scores)
    own = neurons.importance(neurons.values(ready.blocks[1].read(embedding)))  # of the block that is asked about
    torch.testing.assert_close(scores[0], own)
