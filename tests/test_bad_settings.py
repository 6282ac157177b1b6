"""Settings are refused where they are made, and inputs before they reach torch: "got …; expected …", in one line.

Other tests run with annotations enforced, which would answer first. Users have no such guard, so these calls run in one
process without it.
"""

import json
import subprocess
import sys

import pytest

WORDS, COUNTS, NUMBERS = ("'x'", "None", "[1]"), ("-1", "1.5", "True"), ("float('nan')", "-1", "True")
SEEDS = (*WORDS, *COUNTS, "2**70")
NATURAL, POSITIVE = (*WORDS, *COUNTS, "0"), (*WORDS, *NUMBERS, "0", "float('inf')")
AT_LEAST_0 = (*WORDS, *NUMBERS, "float('inf')")
NAMES = ("'x'", "None", "1", "True", "['mean']")
FLAGS = ("'x'", "None", "1")
PATTERNS = ("'x'", "None", "0.5")

SETTINGS = {  # call without the field → field → values that it refuses
    "distillation.Recipe(": {
        "schedule": (*WORDS, "4"),
        "loss": (*NAMES, "'mse'"),
        "temperature": POSITIVE,
        "hidden": AT_LEAST_0,
        "lora_rank": (*WORDS, *COUNTS),
        "seed": SEEDS,
        "every": NATURAL,
    },
    "Schedule(": {
        "n_steps": NATURAL,
        "batch": NATURAL,
        "length": (*WORDS, *COUNTS),
        "warm_up": (*WORDS, *COUNTS),
        "rate": POSITIVE,
        "decay": AT_LEAST_0,
    },
    "PredictorSchedule(": {
        "epochs": NATURAL,
        "batch": NATURAL,
        "rate": POSITIVE,
        "decay": AT_LEAST_0,
        "seed": SEEDS,
    },
    "PromptRecipe(": {
        "n_steps": (*NATURAL, "10"),
        "batch": NATURAL,
        "rate": POSITIVE,
        "warm_up": (*WORDS, *COUNTS, "100"),
        "decay": AT_LEAST_0,
        "clip": POSITIVE,
        "seed": SEEDS,
        "every": NATURAL,
        "look_every": (*WORDS, *COUNTS),
    },
    "piece(": {"start": (*WORDS, *COUNTS, "3"), "stop": (*WORDS, *COUNTS, "0"), "path": (*WORDS, "'state'")},
    "Minitron(": {"batch": (*NAMES, "'sum'"), "sequence": (*NAMES, "'sum'")},
    "LLMPruner(": {"element": (*NAMES, "'param_third'"), "reduction": (*NAMES, "'min'")},
    "WeightNorm(": {"p": (*WORDS, "0", "3", "2.0", "True")},
    "Random(": {"seed": SEEDS},
    "grid(": {
        "width": (*WORDS, "(0,)", "(1.5,)", "()"),
        "blocks": (*WORDS, "(0,)", "4"),
        "neurons": (*WORDS, "('x',)"),
        "heads": (*WORDS, "(4, 2)", "((4, 0),)", "((4, 2, 1),)"),
    },
    "shape(": {"width": NATURAL, "blocks": NATURAL, "neurons": NATURAL, "heads": NATURAL},
    "Unstructured(": {"sparsity": (*WORDS, *NUMBERS, "1.0"), "per": (*NAMES, "'head'"), "size": NATURAL},
    "NofM(": {"n": (*NATURAL, "4"), "m": (*NATURAL, "2")},
    "Rows(": {"sparsity": (*WORDS, *NUMBERS, "1.0")},
    "Columns(": {"sparsity": (*WORDS, *NUMBERS, "1.0")},
    "Block(": {"rows": NATURAL, "columns": NATURAL, "sparsity": (*WORDS, *NUMBERS, "1.0")},
    "Quantization(": {
        "bits": (*NATURAL, "1", "9"),
        "group": ("'x'", "[1]", *COUNTS, "0"),
        "symmetric": FLAGS,
    },
    "SparseGPT(": {
        "pattern": PATTERNS,
        "block_size": NATURAL,
        "damping": AT_LEAST_0,
        "quantization": ("'x'", "4", "Quantization"),
    },
    "Refit(": {"pattern": PATTERNS, "chooser": (*WORDS, "Wanda()"), "damping": AT_LEAST_0},
    "SparseSwaps(": {"pattern": PATTERNS, "start": (*WORDS, "Wanda()"), "sweeps": NATURAL, "shortlist": ("'x'", "0")},
    "RoundToNearest(": {"pattern": PATTERNS, "quantization": (*WORDS, "4")},
    "OWL(": {"threshold": POSITIVE, "span": AT_LEAST_0},
    "ByBlock(": {"shares": (*WORDS, "0.5", "(1.0,)", "(float('nan'),)")},
    "Mixtral(": {"k": NATURAL},
    "NoisyTopK(": {"k": NATURAL},
    "MoEfied(": {"k": NATURAL},
    "OLMoE(": {"k": NATURAL},
    "ExpertChoice(": {"capacity_factor": ("'x'", *NUMBERS, "0")},
    "GShard(": {"capacity_factor": ("'x'", *NUMBERS, "0")},
    "Switch(": {"capacity_factor": ("'x'", *NUMBERS, "0"), "jitter": AT_LEAST_0},
    "SparseMixer(": {"eps": AT_LEAST_0},
    "SparseMixerV2(": {"eps": AT_LEAST_0},
    "Hash(": {"table": ("'x'", "[0, 1]", "torch.zeros(2)", "torch.zeros(2, 2).long()")},
    "DeepSeek(": {
        "k": NATURAL,
        "n_groups": NATURAL,
        "kept_groups": NATURAL,
        "scaling": POSITIVE,
        "bias": ("'x'", "[0.0]", "torch.tensor([0.0, float('nan')])", "torch.zeros(2, 2)", "torch.zeros(2).long()"),
    },
    "Balancing(": {"alpha": AT_LEAST_0, "z": AT_LEAST_0},
    "Difference(": {"noise": AT_LEAST_0, "redrawn": (*AT_LEAST_0, "1.5")},
    "estimators.SparseMixer(": {"argmax_whole": FLAGS},
    "estimators.SparseMixerV2(": {"argmax_whole": FLAGS},
    "learners.Mixture(": {"error_name": NAMES, "n_experts": (*NATURAL, "1"), "scale": AT_LEAST_0},
    "learners.Perceptron(": {"n_hidden": NATURAL, "hidden": NAMES, "scale": AT_LEAST_0},
    "network(": {"sizes": (*WORDS, "(2,)", "(2, 0)", "(2.0, 1)"), "hidden": NAMES, "output": NAMES},
    "device(": {"flops_per_second": POSITIVE, "bytes_per_second": POSITIVE},
    "transformer(": {"n_blocks": NATURAL, "width": NATURAL, "vocabulary": NATURAL, "tied": FLAGS},
    "Calibration(": {"windows": NATURAL, "length": NATURAL, "seed": SEEDS},
    "recipe.Recipe(": {"parts": (*WORDS, "('x',)", "(4,)"), "calibration": (*WORDS, "4")},
    "embedding(": {"bits": (*WORDS, *COUNTS, "5"), "group": ("'x'", "1.5", "True", "4")},
    "weights(": {
        "method": ("4", "True", "'x'"),
        "pattern": ("None", "True", "[1]"),
        "by_block": ("'x'", "None", "0.5", "('x',)"),
        "bits": ("'x'", "1.5", "True", "5"),
        "group": ("'x'", "1.5", "4"),
        "rounding": NAMES,
        "allocation": NAMES,
    },
    "neurons(": {
        "selector": NAMES,
        "density": (*WORDS, *NUMBERS, "0"),
        "by_block": ("'x'", "None", "0.5", "('x',)"),
        "settings": ("'x'", "None", "{'x': 1}"),
    },
    "cache(": {
        "policy": NAMES,
        "budget": ("'x'", "True", "float('nan')", "-1"),
        "sinks": ("'x'", "1.5", "-1"),
        "by_layer": ("'x'", "None", "2.0", "(0.0,)", "(float('nan'),)"),
        "bits": ("'x'", "4.5", "5"),
        "positions": NAMES,
        "settings": ("'x'", "None", "{'x': 1}"),
    },
    "attention(": {"rule": NAMES, "settings": ("'x'", "None", "{'x': 1}")},
    "PromptPart(": {"file": (*WORDS, "4", "'prompt'", "'a/b.safetensors'")},
    "Budget(": {"held": POSITIVE, "read": (*POSITIVE, "1.5")},
    "Oracle(": {"by_block": ("'x'", "None", "0.5", "('x',)", "(0,)")},
    "Static(": {"by_block": ("'x'", "None", "0.5", "('x',)", "(0,)")},
    "CATS(": {"by_block": ("'x'", "None", "0.5"), "quantiles": ("'x'", "1", "[1]", "torch.zeros(3)", "ids")},
    "thresholds(": {"quantiles": (*WORDS, "torch.zeros(3)")},
    "Grouped(": {"n": (*NATURAL, "4", "float('nan')"), "m": (*NATURAL, "2", "float('nan')")},
    "codes(": {"quantization": (*WORDS, "4")},
    "Part(": {"n_blocks": NATURAL, "n_neurons": NATURAL, "width": ("'x'", *COUNTS, "0"), "n_tokens": NATURAL},
    "Memory(": {"folder": ("'x'", "4")},
}
CALLS = {
    "perplexity(model, ids, batch_size=1.5)": "got batch_size 1.5",
    "perplexity(model, ids, batch_size='2')": "got batch_size '2'",
    "perplexity(None, ids)": "got NoneType as the model; expected a causal language model",
    "perplexity('smollm2-135m', ids)": "got str as the model",
    "perplexity(torch.nn.Linear(2, 2), ids)": "got Linear as the model",
    "perplexity(get_peft_model(tiny_model(), LORA), ids)": "Give model.merge_and_unload(), which adds the adapters",
    "perplexity(model.model, ids)": "got a LlamaModel, which has no LM head; expected a causal language model",
    "answer(model.model, None, [1])": "got a LlamaModel, which has no LM head",
    "answer(None, None, [1])": "got NoneType as the model",
    "Mixtral().route(LOGITS.to('meta'))": "got logits on the meta device",
    "Quantization(4).grid(LOGITS.to('meta'))": "got a weight on the meta device",
    "choose(Scores(neurons=torch.ones(2, 100, device='meta')), SIZE, replace(SIZE, neurons=50))": "on the meta device",
    "take(model.to('meta'), everything(SIZE))": "got a model on the meta device",
    "refit(model, model, everything(SIZE), ids[:0])": "expected at least one window",
    "refit(model, model, everything(SIZE), ids + 90)": "got token ids from 90 to 103; expected 0 to 96",
    "Minitron().score(Evidence(model, ids + 90, False))": "expected 0 to 96",
    "LLMPruner().score(Evidence(model, ids + 90, False))": "expected 0 to 96",
    "collect_gradients(model, ids - 1)": "got token ids -1 to 12; expected 0 to 96",
    "distil(tiny_model(), model, ids + 90, recipe_of_2)": "expected token ids, 0 to 96",
    "distil(tiny_model(), model, ids.float(), recipe_of_2)": "got windows of torch.float32",
    "distil(tiny_model(), tiny_model(), ids.tolist(), recipe_of_2)": "got windows list; expected a tensor of token ids",
    "distil(tiny_model(), tiny_model(), ids, recipe_of_2, until=-1)": "got until -1; expected a whole number",
    "distil(tiny_model(), tiny_model(), ids, recipe_of_2, until=1.5)": "got until 1.5",
    "distil(tiny_model(), tiny_model(), ids, recipe_of_2, folder=4)": "got folder 4; expected the path of a folder",
    "distil(tiny_model(), tiny_model(), ids, recipe_of_2, folder=FILE)": "is a file; expected a folder",
    "distil(tiny_model(), tiny_model(), ids, recipe_of_2, folder=FILE / 'a')": "is a file; expected a folder",
    "distil(tiny_model(), tiny_model(), ids, with_states, of_teacher=['0', '1'])": "got of_teacher=['0', '1']",
    "distil(tiny_model(), tiny_model(), ids, with_states, of_teacher=[0, 1.0])": "got of_teacher=[0, 1.0]; expected",
    "learned(until=-1)": "got until -1; expected a whole number",
    "learned(until=1.5)": "got until 1.5",
    "learned(folder=FILE)": "is a file; expected a folder",
    "learned(windows=ids.tolist())": "got windows list",
    "predicted(path='state')": "got path 'state'; expected a pathlib.Path",
    "predicted(x=[[0.0, 1.0]])": "got x list; expected a tensor",
    "predicted(x=torch.zeros(2))": "got x of shape (2,); expected a tensor",
    "predicted(x=torch.zeros(1, 2).half())": "got x torch.float16 and a predictor torch.float32; expected one type",
    "predicted(labels=[[True]])": "got labels list; expected a tensor",
    "LLMPruner(element='x')": "expected one of 'param_first', 'param_second', 'param_mix', 'vectorize'",
    "DeepSeek(k=2, bias=torch.zeros(3)).route(LOGITS)": "got bias (3,) torch.float32; expected floats of shape (4,)",
    "DeepSeek(k=2).updated(torch.tensor([0.5, float('nan')]))": "got loads with 1 of 2 values that are NaN",
    "Hash(torch.tensor([-1])).route(LOGITS, ids=torch.zeros(6).long())": "got expert -1 from the table",
    "NoisyTopK(k=2).route(LOGITS, noise=LOGITS * float('nan'))": "got noise with 24 of 24 values that are NaN",
    "moe(torch.zeros(3, 4, dtype=torch.float16))": "got an input (3, 4) torch.float16; expected (..., 4) torch.float32",
    "moe(torch.zeros(3, 4).long())": "got an input (3, 4) torch.int64",
    "moe(torch.zeros(3, 5))": "got an input (3, 5) torch.float32",
    "moe([[0.0] * 4])": "got an input of type list; expected a tensor",
    "moe.route([[0.0] * 4])": "got an input of type list",
    "moe(torch.zeros(3, 4), real=torch.ones(2).bool())": "got real (2,); expected a tensor of shape (3,), one value",
    "moe(torch.zeros(2, 3, 4), real=torch.ones(6).bool())": "got real (6,); expected a tensor of shape (2, 3)",
    "moe.route(torch.zeros(3, 4), real=[True] * 3)": "got real of type list; expected a tensor of shape (3,)",
    "moe(torch.zeros(3, 4), ids=torch.zeros(4).long())": "got ids (4,); expected a tensor of shape (3,)",
    "skipping(model, 1).__enter__()": "got 1 to leave out; expected a collection of block numbers from 0 to 1",
    "skipping(model, [1.0]).__enter__()": "got [1.0] to leave out",
    "skipping(model, [True]).__enter__()": "got [True] to leave out",
    "skipping(model, 'ab').__enter__()": "got 'ab' to leave out",
    "halves_in_parallel(model, 1.5).__enter__()": "got first 1.5; expected the number of a block from 0 to 2",
    "halves_in_parallel(model, -1).__enter__()": "got first -1",
    "halves_in_parallel(model, 5).__enter__()": "got first 5",
    "halves_in_parallel(model, None).__enter__()": "got first None",
    "pairs_in_parallel(model, 1.5).__enter__()": "got first 1.5",
    "pairs_in_parallel(model, -1).__enter__()": "got first -1",
    "pairs_in_parallel(None).__enter__()": "got a NoneType for a model",
    "contextual_heads(model, part_norms, 2, lookahead=-1).__enter__()": "got lookahead -1; expected 0 to 1",
    "contextual_heads(model, part_norms, 2, lookahead=9).__enter__()": "got lookahead 9; expected 0 to 1",
    "contextual_heads(model, part_norms, 2, lookahead='x').__enter__()": "got lookahead 'x'",
    "windowed(model, 3, constant='c').__enter__()": "got constant 'c'; expected a Constant, such as first_token(model",
    "teal(model, None).__enter__()": "got thresholds None; expected those of a fit, Teal.fit(model, calibration)",
    "kl_divergence(LOGITS, LOGITS, '1')": "got temperature '1'; expected a number above 0",
    "kl_divergence(LOGITS, LOGITS, float('inf'))": "got temperature inf; expected a number above 0",
    "kl_divergence(LOGITS, LOGITS, 0)": "got temperature 0; expected a number above 0",
    "least_squares(LOGITS, torch.full((4, 4), float('nan')), torch.arange(2))": "a Gram matrix of shape (4, 4) with 16",
    "least_squares(LOGITS * float('inf'), torch.eye(4), torch.arange(2))": "got a weight of shape (6, 4) with 24 NaN",
    "least_squares(LOGITS.to('meta'), torch.eye(4), torch.arange(2))": "with no entries",
}
SCRIPT = """
import json, sys
from dataclasses import replace
from functools import partial
from pathlib import Path
import torch
from peft import LoraConfig, get_peft_model
from course_lib.attention.small_models.training import Schedule
from course_lib.attention.windowed import windowed
from course_lib.compose import recipe
from course_lib.compose.challenge.budget import Budget
from course_lib.compose.challenge.memory import Memory
from course_lib.compose.parts.attention import AttentionPart
from course_lib.compose.parts.cache import CachePart
from course_lib.compose.parts.embedding import EmbeddingPart
from course_lib.compose.parts.neurons import NeuronsPart
from course_lib.compose.parts.prompt import PromptPart
from course_lib.compose.parts.weights import Weights
from course_lib.compose.recipe import Calibration
from course_lib.contextual.altered import halves_in_parallel, pairs_in_parallel, skipping
from course_lib.contextual.attention.heads import contextual_heads, part_norms
from course_lib.contextual.inputs.teal import Teal, teal
from course_lib.contextual.predictor.training import PredictorSchedule
from course_lib.contextual.selectors.cats import CATS
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.selectors.static import Static
from course_lib.contextual.predictor.training import PredictorSchedule, train_predictor
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.small_models.training import Piece
from course_lib.measure.accuracy import answer
from course_lib.measure.perplexity import perplexity
from course_lib.measure.roofline import Device, Transformer
from course_lib.models import Part, tiny_model
from course_lib.moe.classic import learners
from course_lib.moe.estimators import sparsemixer as estimators
from course_lib.moe.layer import random_layer
from course_lib.moe.routers.deepseek import DeepSeek
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.gshard import GShard
from course_lib.moe.routers.hash_layers import Hash
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.moefied import MoEfied
from course_lib.moe.routers.noisy_top_k import NoisyTopK
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.sparsemixer import SparseMixer
from course_lib.moe.routers.sparsemixer_v2 import SparseMixerV2
from course_lib.moe.routers.switch import Switch
from course_lib.moe.small_models.training import Balancing
from course_lib.moe.upcycling.copies import Difference
from course_lib.prompts.compressed.layouts import Codes, Grouped
from course_lib.prompts.initial import from_ids
from course_lib.prompts.recipe import PromptRecipe
from course_lib.prompts.training import train_prompt
from course_lib.pruning.allocation.by_block import ByBlock
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.classic.network import Network
from course_lib.pruning.methods.fisher import collect_gradients
from course_lib.pruning.methods.refit import Refit
from course_lib.pruning.methods.sparse_swaps import SparseSwaps
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.structured import recipe as distillation
from course_lib.pruning.structured.choice import Scores, choose, everything
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.losses import kl_divergence
from course_lib.pruning.structured.refit import least_squares, refit
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.llm_pruner import LLMPruner
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.scorers.random_scores import Random
from course_lib.pruning.structured.scorers.weight_norm import WeightNorm
from course_lib.pruning.structured.search import Grid
from course_lib.pruning.structured.shape import Shape, shape_of
from course_lib.pruning.structured.surgery import take
from course_lib.quantization.gptq import RoundToNearest
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.patterns import Block, Columns, NofM, Rows, Unstructured

def with_usual(kind, **usual):
    return lambda **given: kind(**(usual | given))

piece = with_usual(Piece, start=1, stop=2, path=Path('state'))
grid = with_usual(Grid, width=(8,), blocks=(2,), neurons=(9,), heads=((4, 2),))
codes = with_usual(Codes, quantization=Quantization(4))
thresholds = with_usual(Teal, places=('a',), quantiles=torch.zeros(1, 3))
network = with_usual(Network, sizes=(2, 1))
device = with_usual(Device, name='a', flops_per_second=1e9, bytes_per_second=1e9, source='b')
heads = dict(n_query=2, n_key_value=1, head_size=2)
transformer = with_usual(Transformer, n_blocks=1, width=4, n_neurons=3, vocabulary=5, **heads)
shape = with_usual(Shape, width=8, blocks=2, neurons=9, heads=4, groups=2)
embedding, weights = with_usual(EmbeddingPart, bits=4), with_usual(Weights, bits=4)
neurons, attention = with_usual(NeuronsPart, selector='Static'), with_usual(AttentionPart, rule='FlexPrefill')
cache = with_usual(CachePart, policy='H2O', budget=64)
model, ids, LOGITS = tiny_model(), torch.arange(14).reshape(2, 7), torch.zeros(6, 4)
SIZE, recipe_of_2 = shape_of(model), distillation.Recipe(schedule=Schedule(1, 2, 7))
LORA = LoraConfig(r=2, target_modules=['q_proj'])
with_states, FILE = replace(recipe_of_2, hidden=1.0), Path(torch.__file__)

def learned(windows=ids, **given):
    recipe, whole = PromptRecipe(n_steps=1, batch=2, warm_up=0), tiny_model()
    return train_prompt(whole, from_ids(whole, ids[0, :2]), windows, recipe, progress=False, **given)

def predicted(x=torch.zeros(1, 2), labels=torch.zeros(1, 1).bool(), path=None):
    predictor = Predictor(2, 1, 1, torch.Generator().manual_seed(0))
    return train_predictor(predictor, x, labels, PredictorSchedule(epochs=1), path)

moe = random_layer(4, 6, 2, Mixtral())
answers = {}
for call in json.loads(sys.argv[1]):
    try:
        eval(call)
        answers[call] = ['nothing', '']
    except Exception as error:
        answers[call] = [type(error).__name__, str(error)]
print(json.dumps(answers))
"""


def call_of(start, field, value):
    return f"{start}{field}={value})"


BAD = [
    call_of(start, field, value)
    for start, rows in SETTINGS.items()
    for field, values in rows.items()
    for value in dict.fromkeys(values)
]
GOOD = [f"{start})" for start in SETTINGS if start != "PromptPart("]


@pytest.fixture(scope="module")
def answers():
    calls = json.dumps([*BAD, *CALLS, *GOOD])
    done = subprocess.run([sys.executable, "-c", SCRIPT, calls], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_usual_settings_are_taken(answers):
    assert {call: answers[call] for call in GOOD if answers[call][0] != "nothing"} == {}


@pytest.mark.parametrize("start", SETTINGS, ids=lambda start: start.partition("(")[0])
def test_bad_settings_are_refused_on_construction(answers, start):
    calls = [call_of(start, field, value) for field, values in SETTINGS[start].items() for value in values]
    wrong = {call: answers[call] for call in calls if answers[call][0] != "ValueError"}
    assert wrong == {}
    for call in calls:
        message = answers[call][1]
        assert "expected" in message, f"{call}: {message}"
        assert len(message.splitlines()) == 1


@pytest.mark.parametrize("call", CALLS)
def test_bad_input_is_a_value_error_that_says_what_was_got(answers, call):
    kind, message = answers[call]
    assert kind == "ValueError", f"{kind}: {message}"
    assert CALLS[call] in message
    assert len(message.splitlines()) == 1
