"""What cannot be chosen is refused: got what, expected what, what to do."""

import math

import pytest
import torch
import transformers
from seen_by_hand import random_neurons, seen_of
from torch import nn

from course_lib.contextual import selector as seam
from course_lib.contextual.apply import choices, contextual
from course_lib.contextual.attention.heads import contextual_heads, part_norms, static_heads
from course_lib.contextual.fitting.linear_maps import RegressionSums
from course_lib.contextual.inputs.teal import Teal, teal
from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.seen import look_through
from course_lib.contextual.selectors.cats import CATS
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.embedding import FromEmbedding
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.low_rank import LowRank
from course_lib.contextual.selectors.neighbours import Neighbours
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.selectors.recorded import Recorded
from course_lib.contextual.selectors.static import Static
from course_lib.contextual.sizes import Sizes
from course_lib.models import tiny_model

MODEL = tiny_model()
IDS = torch.randint(3, 97, (2, 8), generator=torch.Generator().manual_seed(0))
SEEN = seen_of(random_neurons(), torch.ones(2, 5))
OTHER = Static(sizes=Sizes(2, 48, 128), importance=torch.zeros(2, 128))


def mixture():
    sizes = {"hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.MixtralConfig(**sizes, num_key_value_heads=1, num_local_experts=2, vocab_size=20)
    return transformers.AutoModelForCausalLM.from_config(config)


def inside(*contexts):
    """Enter one after the other, and run the model."""
    if not contexts:
        return MODEL(IDS)
    with contexts[0]:
        return inside(*contexts[1:])


def of_predictors(*predictors, lookahead=0):
    return DejaVu(predictors=predictors, lookahead=lookahead)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Oracle(density=0.0), "got density 0.0; expected the fraction to keep, above 0 and at most 1"),
        (lambda: Oracle(density=1.5), "got density 1.5"),
        (lambda: Oracle(density=math.nan), "got density nan"),
        (lambda: inside(contextual(MODEL, Oracle(), density=-0.1)), "got density -0.1"),
        (lambda: inside(contextual(MODEL, Oracle()), contextual(MODEL, CATS())), "chosen already; leave its `with"),
        (
            lambda: inside(contextual(MODEL, OTHER)),
            "fitted to 2 blocks 48 wide with 128 neurons each; this",
        ),
        (lambda: choices(MODEL, OTHER, IDS[0]), "fitted to 2 blocks 48 wide with 128 neurons"),
        (lambda: inside(contextual(mixture(), Oracle())), r"with experts in 1 of its blocks \(model.layers.0.mlp.gate"),
        (lambda: neurons_of(mixture()), "whose router chooses among neurons already"),
        (lambda: Teal.fit(mixture(), IDS), "with experts in 1 of its blocks"),
        (lambda: inside(contextual(MODEL, Static())), "got a Static that was not fitted; expected Static"),
        (lambda: inside(contextual(MODEL, CATS())), "got a CATS that was not fitted"),
        (lambda: inside(contextual(MODEL, LowBit())), "got a LowBit that was not fitted"),
        (lambda: inside(contextual(MODEL, LowRank())), "got a LowRank that was not fitted"),
        (lambda: inside(contextual(MODEL, Neighbours())), "got a Neighbours that was not fitted"),
        (lambda: inside(contextual(MODEL, FromEmbedding())), "got a FromEmbedding that was not fitted"),
        (lambda: inside(contextual(MODEL, Recorded())), "got a Recorded that was not fitted"),
        (
            lambda: inside(contextual(MODEL, Recorded().fit(MODEL, IDS[:1]))),
            "which was not recorded; expected",
        ),
        (lambda: DejaVu().fit(MODEL, IDS), "got no predictors; train them first"),
        (lambda: DejaVu(lookahead=-1), "got lookahead -1; expected a whole number of blocks, 0 or more"),
        (lambda: inside(contextual(MODEL, of_predictors(nn.Linear(48, 100)))), "got 1 predictors, and block 1"),
        (
            lambda: of_predictors(nn.Linear(5, 6)).score(SEEN, 0),
            r"got scores \(2, 6\) from DejaVu at block 0",
        ),
        (lambda: of_predictors(nn.Linear(4, 7)).score(SEEN, 0), r"got a predictor of block 0 that cannot read x of sh"),
        (lambda: of_predictors(lambda x: x.new_full((2, 7), math.nan)).score(SEEN, 0), "got 14 NaN of 14 scores"),
        (lambda: Oracle().score(seen_of(random_neurons(), torch.ones(0, 5)), 0), "got no tokens"),
        (
            lambda: Static(importance=torch.zeros(1, 7), sizes=Sizes(1, 5, 7)).score(SEEN, 1),
            "got block 1; expected 0",
        ),
        (lambda: LowRank(rank=0), "rank=0: expected a whole number of at least 1"),
        (lambda: LowBit(bits=1), "bits=1: expected 2 to 8"),
        (lambda: LowBit(group=0), "group=0"),
        (lambda: Neighbours(n_lists=0), "n_lists=0"),
        (lambda: FromEmbedding(damping=0.0), "got damping 0.0; expected a number above 0"),
        (lambda: CATS(quantiles=torch.full((1, 3), math.nan)), "got quantiles of which 3 are NaN and 0 fall"),
        (lambda: CATS(quantiles=torch.tensor([[1.0, 0.0]])), "0 are NaN and 1 fall"),
        (lambda: Teal(("a",), torch.full((1, 3), math.nan)), "got quantiles of which 3 are NaN"),
        (lambda: look_through(MODEL, IDS[:0], lambda block, seen: None), r"got windows of shape \(0, 8\)"),
        (lambda: Static().fit(MODEL, IDS[:, :0]), r"got windows of shape \(2, 0\)"),
        (
            lambda: inside(contextual_heads(MODEL, part_norms, keep=0)),
            "got keep=0; expected a whole number of heads",
        ),
        (lambda: inside(contextual_heads(MODEL, part_norms, keep=7)), "got keep=7"),
        (lambda: inside(contextual_heads(MODEL, lambda seen, block: seen.x, keep=2)), r"got scores \(16, 48\)"),
        (
            lambda: inside(contextual_heads(MODEL, part_norms, keep=2), contextual_heads(MODEL, part_norms, keep=2)),
            "got a model whose heads are chosen already",
        ),
        (lambda: static_heads(MODEL, IDS[:0]), r"got windows of shape \(0, 8\)"),
        (lambda: inside(teal(tiny_model(0, "opt"), Teal.fit(MODEL, IDS))), "got thresholds of 8 places, from"),
        (lambda: inside(teal(MODEL, Teal.fit(MODEL, IDS), density=0.0)), "got density 0.0"),
    ],
)
def test_it_is_refused_by_name(made, message):
    with pytest.raises(ValueError, match=message):
        made()
    assert not any(module._forward_pre_hooks for module in MODEL.modules()), "a refusal leaves no hook"


def test_embeddings_have_no_recording():
    recorded = Recorded().fit(MODEL, IDS)
    embedded = MODEL.get_input_embeddings()(IDS)
    with pytest.raises(ValueError, match="got embeddings in place of token ids"), contextual(MODEL, recorded):
        MODEL(inputs_embeds=embedded)


def test_tokens_that_are_all_alike_tell_nothing():
    sums = RegressionSums(Sizes(1, 3, 2), torch.device("cpu"))
    sums.add(0, torch.ones(5, 3), torch.randn(5, 2))
    with pytest.raises(ValueError, match="got 5 calibration tokens that are all alike"):
        sums.solved(0.01)


@pytest.mark.parametrize("density", [True, "0.5", None])
def test_a_density_is_a_number(density):
    with pytest.raises(ValueError, match="got density"):
        seam.check_density(density)


def test_what_is_no_selector_or_no_model_is_refused():
    """Annotations refuse it first while tests run; without them the border does."""
    unchecked = contextual.__wrapped__
    while hasattr(unchecked, "__wrapped__"):
        unchecked = unchecked.__wrapped__
    with pytest.raises(ValueError, match="got selector 0.5; expected a NeuronSelector, such as Oracle"):
        next(unchecked(MODEL, 0.5))
    with pytest.raises(ValueError, match="got a Linear for a model; expected a causal language model"):
        next(unchecked(nn.Linear(2, 2), Oracle()))
