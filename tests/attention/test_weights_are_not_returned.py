"""Attention weights are asked for inside a block whose attention returns none: refused, not answered with nothing."""

import pytest
import torch

from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.steering.steer import steering
from course_lib.attention.windowed import windowed
from course_lib.kv.cache import evicting
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.recycled import Recycled, recycling
from course_lib.models import tiny_model

IDS = torch.arange(3, 11)[None]
BLOCKS = {
    "evicting": lambda model: evicting(model, H2O(budget=6, recent=3)),
    "recycling": lambda model: recycling(model, Recycled(budget=6)),
    "prefilling": lambda model: prefilling(model, FlexPrefill()),
    "steering": lambda model: steering(model, IDS > 8),
    "windowed": lambda model: windowed(model, 4),
}


@pytest.mark.filterwarnings("ignore:nothing was evicted", "ignore:no text was longer")
@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@torch.no_grad()
def test_it_is_refused_with_what_to_do(block, family):
    model = tiny_model(0, family)
    with block(model) as cache:
        asked = {"past_key_values": cache} if hasattr(cache, "policy") else {"use_cache": False}
        with pytest.raises(ValueError, match="got output_attentions=True.* Ask for the weights outside of this `with`"):
            model(IDS, output_attentions=True, **asked)
        assert model(IDS, **asked).logits.shape == (1, 8, 97)
