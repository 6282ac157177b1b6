"""The table of recipes in the instructors' guide: counted again, by formula, on the sizes of the default model."""

import re
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from course_lib.compose.build import Built, dense_tensors
from course_lib.compose.challenge.budget import BUDGET, smallest
from course_lib.compose.counting.account import LENGTH, Account
from course_lib.compose.counting.expected import cache_bytes, stored_bytes
from course_lib.compose.counting.per_token import of_a_token
from course_lib.compose.part import Making, tables_of
from course_lib.compose.recipe import Recipe, from_json
from course_lib.models import layers_of, weight_of
from course_lib.quantization.storage import dense_bytes
from course_lib.workbook.masters import ROOT

SIZES = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "vocab_size": 49_152}
HEADS = {"num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192}
TABLE = '"embedding": {"bits": 4, "group": 32}'
RECIPES = {
    "embedding table and weights with 4 bits in groups of 32, cache unchanged": TABLE
    + ', "weights": {"bits": 4, "group": 32}',
    "the same with a 4-bit cache and half of the neurons by CATS": (
        TABLE + ', "weights": {"bits": 4, "group": 32}, "cache": {"policy": "Full", "bits": 4},'
        '"neurons": {"selector": "CATS", "density": 0.5}'
    ),
    "the same table, weights with 4 bits in groups of 64, a fifth of the cache by H2O": (
        TABLE + ', "weights": {"bits": 4, "group": 64}, "cache": {"policy": "H2O", "budget": 0.2}'
    ),
    "the same table, weights with 3 bits in groups of 64, a 4-bit cache": (
        TABLE + ', "weights": {"bits": 3, "group": 64}, "cache": {"policy": "Full", "bits": 4}'
    ),
}
LEANEST = "the smallest possible recipe"


@pytest.fixture(scope="module")
def model():
    """Sizes alone, and no memory."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, **HEADS, tie_word_embeddings=True))


@pytest.fixture(scope="module")
def dense(model):
    return counted(model, "")


def counted(model, text: str) -> Account:
    """Held and read of a recipe that rounds and prunes nothing: bytes by formula, one empty tensor for each matrix."""
    recipe = from_json(f"{{{text}}}")
    neurons = recipe.part("neurons")
    making = Making(model=model, found={"neurons": neurons._selector()} if neurons else {})
    built = Built(recipe=recipe, made=replace(making, stored=stored(making, recipe)))
    weights, cache = stored_bytes(built), cache_bytes(built, LENGTH)
    read, products = of_a_token(built)
    return Account(stored=weights, by_part={}, cache=cache, length=LENGTH, read=read + cache, multiply_adds=products)


def stored(making: Making, recipe: Recipe) -> dict[str, torch.Tensor]:
    """Of each matrix that is rounded as many bytes as its codes and grids take; all else as the dense model has it."""
    found = dense_tensors(making.model)
    linears = {layer.name: weight_of(layer.module) for layer in layers_of(making.model)}
    for name, old, matrices in (("weights", "dense", linears), ("embedding", "table", tables_of(making.model))):
        if part := recipe.part(name):
            for owner, weight in matrices.items():
                del found[f"{old}/{owner}"]
                found[f"{name}/{owner}/codes"] = some(dense_bytes(*weight.shape, part.bits, part.group))
    if part := recipe.part("neurons"):
        found["neurons/selector"] = some(part.n_bytes(making))
    return found


def some(n_bytes: int) -> torch.Tensor:
    return torch.empty(n_bytes, dtype=torch.uint8, device="meta")


def table() -> dict[str, tuple[str, str]]:
    """By recipe, in the guide's words: shares held and read."""
    text = (ROOT / "docs" / "instructors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| ([\d.]+ %) \| ([\d.]+ %) \|$", text, flags=re.M)
    return {name: (held, read) for name, held, read in rows}


def test_every_row_of_the_guide_is_what_the_formulas_count(model, dense):
    found = {name: counted(model, recipe) for name, recipe in RECIPES.items()}
    said = {name: (f"{each.held / dense.held:.1%}", f"{each.read / dense.read:.1%}") for name, each in found.items()}
    least = smallest(model, dense)
    said[LEANEST] = (f"{least.held:.1%}", f"{least.read:.1%}")
    assert {name: tuple(f"{share[:-1]} %" for share in shares) for name, shares in said.items()} == table()


def test_the_first_rows_say_what_the_budget_is_for(model, dense):
    """Four bits alone hold too much; with chosen neurons and a rounded cache both limits are kept."""
    alone, chosen = (counted(model, recipe) for recipe in list(RECIPES.values())[:2])
    assert alone.held / dense.held > BUDGET.held
    assert chosen.held / dense.held < BUDGET.held
    assert chosen.read / dense.read < BUDGET.read
