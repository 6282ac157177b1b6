"""Models that torch.compile has compiled, and run, before a `with` block changes what they compute.

Compiled code does not notice new hooks; what it computed without them must not be taken for what the block computes.
The backend "eager" traces and guards as any other does, and calls no compiler.
"""

import pytest
import torch
from transformers import CompileConfig

from course_lib.attention.delta.apply import delta_attention
from course_lib.attention.delta.spread import key_spread
from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.baselines import SinkAndWindow
from course_lib.attention.steering.steer import steering
from course_lib.attention.windowed import windowed
from course_lib.contextual.altered import skipping
from course_lib.contextual.apply import contextual
from course_lib.contextual.attention.heads import contextual_heads, part_norms
from course_lib.contextual.inputs.teal import Teal, teal
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.kv.cache import evicting
from course_lib.kv.policies.window import Window
from course_lib.models import blocks, tiny_model
from course_lib.prompts.initial import from_ids
from course_lib.prompts.prompted import prompting
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.pruning.structured.losses import block_outputs
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.perplexity_drop import PerplexityDrop

IDS = torch.randint(3, 97, (1, 12), generator=torch.Generator().manual_seed(0))
MARKED = (torch.arange(12) == 5)[None]
BY_HOOKS = {
    "contextual": lambda model: contextual(model, Oracle(density=0.2)),
    "heads": lambda model: contextual_heads(model, part_norms, keep=2),
    "teal": lambda model: teal(model, Teal.fit(model, IDS), density=0.3),
    "skipping": lambda model: skipping(model, [1]),
}
BLOCKS = BY_HOOKS | {
    "prompting": lambda model: prompting(model, from_ids(model, IDS[0, :3])),
    "prefilling": lambda model: prefilling(model, SinkAndWindow(density=0.1, block_size=2)),
    "steering": lambda model: steering(model, MARKED),
    "delta": lambda model: delta_attention(model, 2.0, key_spread(model, IDS), window=1),
    "windowed": lambda model: windowed(model, 3),
}


def sharp():
    """Weights large enough that what a block changes shows."""
    model = tiny_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.ndim > 1 else 1)
    return model


@pytest.fixture(scope="module")
def compiled():
    """A model, the same compiled, and the logits of both before any block."""
    model = sharp()
    fast = torch.compile(model, backend="eager")
    with torch.no_grad():
        dense = model(IDS, use_cache=False).logits
        assert torch.equal(fast(IDS, use_cache=False).logits, dense)
    yield model, fast, dense
    torch._dynamo.reset()


@pytest.mark.parametrize("name", BLOCKS)
@torch.no_grad()
def test_the_block_changes_what_a_compiled_model_computes(name, compiled):
    model, fast, dense = compiled
    with BLOCKS[name](model):
        expected = model(IDS, use_cache=False).logits
    with BLOCKS[name](model):
        for _ in range(2):
            assert torch.equal(fast(IDS, use_cache=False).logits, expected)
    assert not torch.allclose(expected, dense, atol=1e-2), "the block changes something"
    assert torch.equal(fast(IDS, use_cache=False).logits, dense)


@torch.no_grad()
def test_a_model_compiled_before_or_inside_evicts_as_it_is(compiled):
    model, before, dense = compiled
    steps = IDS[:, :6], IDS[:, 6:7], IDS[:, 7:8]
    with evicting(model, Window(budget=4)) as cache:
        expected = [model(step, past_key_values=cache, use_cache=True).logits for step in steps]
    for make in (lambda: before, lambda: torch.compile(model, backend="eager")):
        with evicting(model, Window(budget=4)) as cache:
            fast = make()
            found = [fast(step, past_key_values=cache, use_cache=True).logits for step in steps]
        assert all(map(torch.equal, found, expected))
    assert torch.equal(before(IDS, use_cache=False).logits, dense)


def test_a_model_compiled_in_place_is_measured_and_pruned_as_it_is():
    """`model.compile()` leaves the model what it is, so nothing can refuse it."""
    windows = torch.randint(3, 97, (2, 12), generator=torch.Generator().manual_seed(0))
    plain, fast = sharp(), sharp()
    fast.compile(backend="eager")
    for block in blocks(fast):
        block.compile(backend="eager")
    fast(windows, use_cache=False)
    for scorer in (BlockInfluence(), PerplexityDrop()):
        expected, found = (scorer.score(Evidence(model, windows)).blocks for model in (plain, fast))
        assert torch.equal(found, expected)
        assert expected.unique().numel() == expected.numel(), "the blocks differ"
    for model in (plain, fast):
        prune_model(model, Wanda(), windows, progress=False)
    assert all(map(torch.equal, fast.state_dict().values(), plain.state_dict().values()))
    with block_outputs(blocks(fast)) as outputs:
        fast(windows, use_cache=False)
    assert len(outputs) == len(blocks(fast))


@pytest.mark.parametrize("name", BY_HOOKS)
def test_generate_with_a_cache_of_fixed_size(name):
    """`generate` compiles the steps after the prompt by itself on a GPU, and here where it is told to."""
    model, compiling = sharp(), CompileConfig(backend="eager", mode=None)
    compiling._compile_all_devices = True
    asked = {"attention_mask": torch.ones_like(IDS), "max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    fixed = asked | {"cache_implementation": "static", "compile_config": compiling}
    model.generate(IDS, **fixed)
    with BY_HOOKS[name](model):
        expected = model.generate(IDS, **asked)
        assert torch.equal(model.generate(IDS, **fixed), expected)


@pytest.mark.parametrize("name", ["prefilling", "steering", "delta", "windowed", "prompting"])
def test_a_cache_of_fixed_size_is_refused_where_keys_are_read(name):
    model = sharp()
    with BLOCKS[name](model), pytest.raises(ValueError, match="a cache of fixed size"):
        model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=2, cache_implementation="static")


@pytest.mark.parametrize("name", BLOCKS)
def test_what_compile_returned_is_refused_with_the_remedy(name, compiled):
    """Annotations refuse it first while tests run; without them the border does."""
    _, fast, _ = compiled
    with pytest.raises(Exception, match="_orig_mod|PreTrainedModel") as caught, BLOCKS[name](fast):
        pytest.fail("must not get here")
    assert "OptimizedModule" in str(caught.value)
