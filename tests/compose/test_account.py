"""Bytes: two counts that know nothing of each other agree, and numbers worked by hand."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.compose.build import build
from course_lib.compose.counting.account import account, cache_tensors, written
from course_lib.compose.counting.expected import cache_bytes, stored_bytes
from course_lib.compose.recipe import from_json
from course_lib.models import tiny_model
from course_lib.prompts.initial import from_ids
from course_lib.prompts.store import save_prompt

# Of the tiny model: two blocks, 48 wide, 6 query heads and 2 key-value heads of 8, 100 neurons, 97 tokens, tied.
LINEARS = 2 * (48 * 48 * 2 + 2 * 16 * 48 + 3 * 100 * 48)
OTHERS = 97 * 48 + 5 * 48
N = 40

WEIGHTS = [
    None,
    {"method": "Magnitude", "pattern": 0.5},
    {"method": "SparseGPT", "pattern": "2:4"},
    {"method": "Magnitude", "pattern": "1:4"},
    {"method": "Wanda", "pattern": 0.75, "bits": 3, "group": 20},
    {"bits": 2, "group": 16, "rounding": "nearest"},
    {"bits": 4},
]
CACHES = [
    None,
    {"policy": "Full", "bits": 4, "residual": 8},
    {"policy": "H2O", "budget": 12, "recent": 4},
    {"policy": "StreamingLLM", "budget": 10, "positions": "rolling"},
    {"policy": "SnapKV", "budget": 0.5, "recent": 4, "bits": 8},
    {"policy": "EMS", "budget": 16, "recent": 4, "settings": {"window": 8}},
    {"policy": "TOVA", "budget": 16, "by_layer": [0.5, 1.5]},
]
NEURONS = [
    None,
    {"selector": "CATS", "density": 0.3},
    {"selector": "Static"},
    {"selector": "LowRank", "settings": {"rank": 6}},
    {"selector": "LowBit", "density": 0.2},
    {"selector": "FromEmbedding"},
    {"selector": "Neighbours", "settings": {"n_lists": 4}},
]
EMBEDDINGS = [None, {"bits": 3, "group": 20}]


@pytest.fixture
def folder(model, tmp_path_factory):
    found = tmp_path_factory.mktemp("prompts")
    save_prompt(from_ids(model, torch.arange(5)), found / "five.safetensors")
    return found


def recipe_of(**found):
    return json.dumps({name: part for name, part in found.items() if part is not None})


def check(built, text):
    """Formulas, tensors and what safetensors writes agree."""
    found = account(built, text)
    assert found.stored == stored_bytes(built) == written(built.stored)
    with built.running() as cache, torch.no_grad():
        built.model(text[None], past_key_values=cache, use_cache=True)
        assert found.cache == cache_bytes(built, len(text)) == written(cache_tensors(cache))
    assert found.held == found.stored + found.cache
    assert found.read <= found.held + 2 * 48, "every byte is read once a token, and a row of the embedding"
    return found


@pytest.mark.parametrize("part", ["weights", "cache", "neurons"])
@pytest.mark.parametrize("index", range(7))
def test_two_counts_agree_for_each_part(made, text, part, index):
    choices = {"weights": WEIGHTS, "cache": CACHES, "neurons": NEURONS}[part]
    check(made(recipe_of(**{part: choices[index]})), text.flatten()[:N])


@settings(max_examples=8, deadline=None)
@given(*map(st.sampled_from, (EMBEDDINGS, WEIGHTS, CACHES, NEURONS)), st.integers(26, 60))
def test_two_counts_agree_for_parts_together(embedding, weights, cache, neurons, n):
    text = torch.randint(97, (4, 40), generator=torch.Generator().manual_seed(1))
    recipe = from_json(recipe_of(embedding=embedding, weights=weights, cache=cache, neurons=neurons))
    check(build(recipe, tiny_model(), text), text.flatten()[:n])


def test_a_prompt_is_held_and_its_tokens_lie_in_the_cache(made, text, folder):
    found = check(made(recipe_of(prompt={"file": "five.safetensors"}), folder), text.flatten()[:N])
    assert found.by_part["prompt"] == 2 * 5 * 48
    assert found.cache == 2 * 2 * (N + 5) * 2 * 8 * 2  # layers, heads, tokens, keys and values, size, bytes


def test_the_dense_model_by_hand(made, text):
    found = account(made("{}"), text.flatten()[:N])
    assert found.by_part == {"other": 2 * 5 * 48, "table": 2 * 97 * 48, "dense": 2 * LINEARS}
    assert found.cache == 2 * 2 * N * 2 * 8 * 2
    assert found.read == 2 * (OTHERS + LINEARS) + 2 * 48 + found.cache
    # Each weight and each logit once; of attention q·k and p·v of 6 heads of 8, over 40 keys in 2 layers.
    assert found.multiply_adds == LINEARS + 97 * 48 + 2 * 2 * 6 * 8 * N


def test_half_of_the_weights_by_hand(made, text):
    """9 bits a weight, and where each row begins."""
    found = account(made('{"weights": {"method": "Wanda", "pattern": 0.5}}'), text.flatten()[:N])
    rows = 2 * (2 * 48 + 2 * 16 + 2 * 100 + 48)  # q, o; k, v; gate, up; down
    matrices = 2 * 7
    bitmaps = 2 * (6 * (2 * 48 + 2 * 16 + 2 * 100) + 13 * 48)
    assert found.by_part["weights"] == LINEARS // 2 * 2 + bitmaps + 4 * (rows + matrices)
    assert found.multiply_adds == LINEARS // 2 + 97 * 48 + 2 * 2 * 6 * 8 * N


def test_zeros_are_multiplied_where_they_are_stored(text):
    """A dense layer multiplies the zeros that it happens to have; 2:4 skips half, whatever is zero besides."""
    model = tiny_model()
    model.model.layers[0].mlp.up_proj.weight.data[:, :24] = 0
    counts = {"{}": LINEARS, '{"weights": {"bits": 4}}': LINEARS}
    counts['{"weights": {"method": "Magnitude", "pattern": "2:4"}}'] = LINEARS // 2
    for recipe, n in counts.items():
        found = account(build(from_json(recipe), model, text), text.flatten()[:N])
        assert found.multiply_adds == n + 97 * 48 + 2 * 2 * 6 * 8 * N


def test_chosen_neurons_by_hand(made, text):
    """CATS computes its gate whole, and of up and down the 30 neurons that it keeps."""
    dense, chosen = (
        account(made("{}"), text.flatten()[:N]),
        account(made('{"neurons": {"selector": "CATS", "density": 0.3}}'), text.flatten()[:N]),
    )
    saved = 2 * 2 * 70 * 48  # blocks, up and down
    assert dense.multiply_adds - chosen.multiply_adds == saved
    assert dense.read - chosen.read == 2 * saved - 2 * 4 * 1001
    assert chosen.stored - dense.stored == 2 * 4 * 1001  # its thresholds


def test_a_table_of_four_bits_by_hand(made, text):
    """24 bytes of codes a row, three scales, three zeros in two bytes; the head reads all, the embedding one row."""
    found = check(made('{"embedding": {"bits": 4, "group": 16}}'), text.flatten()[:N])
    row = 24 + 3 * 2 + 2
    assert found.by_part["embedding"] == 97 * row
    assert found.read == 97 * row + row + 2 * (5 * 48 + LINEARS) + found.cache


def test_a_head_of_its_own(text):
    model = tiny_model(architecture="qwen2")
    for recipe in ("{}", '{"embedding": {"bits": 8}}'):
        found = account(built := build(from_json(recipe), model, text), text.flatten()[:N])
        assert found.stored == stored_bytes(built) == written(built.stored)
        assert found.read < found.held, "of the embedding only a row is read"


def test_thousands_of_groups_cost_what_they_are(made, text):
    """Scales are bytes too: smaller groups, more of them."""
    sizes = [account(made(recipe_of(weights={"bits": 2, "group": g})), text.flatten()[:N]).stored for g in (16, 32, 96)]
    assert sizes == sorted(sizes, reverse=True)


def test_what_cannot_be_counted(made, text):
    with pytest.raises(ValueError, match="at least two"):
        account(made("{}"), text[0, :1])
    with pytest.raises(ValueError, match="depend on the text"):
        cache_bytes(made('{"cache": {"policy": "Scissorhands", "budget": 20}}'), N)


@pytest.mark.real
def test_the_course_model_by_hand(real_model):
    """106 M weights in the blocks, 28 M in the table, which is the head; 30 layers of 3 key-value heads of 64."""
    linears, table, norms = 106_168_320, 49_152 * 576, 61 * 576
    text = torch.arange(64)
    found = account(build(from_json("{}"), real_model[0], text[None]), text)
    assert found.stored == 2 * (linears + table + norms)
    assert found.cache == 30 * 3 * 64 * 2 * 64 * 2
    assert found.read == found.held + 2 * 576
    assert found.multiply_adds == linears + table + 2 * 30 * 9 * 64 * 64
