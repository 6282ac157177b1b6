"""What a newcomer may type by mistake is answered with a ValueError that says what was got and what is expected.

The other tests run with type annotations enforced, which would answer first. Users have no such guard, so these
calls run in one process without it.
"""

import json
import subprocess
import sys

import pytest

CALLS = {
    "perplexity(model, ids[0])": "(7,)",
    "perplexity(model, ids.float())": "float32",
    "perplexity(model, [[1, 2]])": "list",
    "perplexity(model, ids[:0])": "(0, 7)",
    "load_model(dtype='float99')": "float99",
    "load_model(device='cudaX')": "cudaX",
    "load_model('no such folder')": "no such folder",
    "load_model(None)": "None",
    "windows('wikipedia', 2.5, 16, tokenizer)": "n=2.5",
    "windows('wikipedia', 2, 16, None)": "tokenizer None",
    "windows('wikipedia', '2', 16, tokenizer)": "n=2",
    "Unstructured('x')": "'x'",
    "Unstructured(True)": "True",
    "Unstructured(None)": "None",
    "Unstructured(0.5, 'row', 1.5)": "size=1.5",
    "NofM('2', 4)": "'2'",
    "NofM(2, '4')": "'4'",
    "NofM(2.0, 4)": "2.0",
    "NofM().keep([[1.0, 2.0, 3.0, 4.0]])": "list",
    "NofM().keep(None)": "NoneType",
    "CSR.encode(torch.ones(3))": "(3,)",
    "Bitmap.encode([[1.0]])": "list",
    "Dense.encode(None)": "NoneType",
    "BlockSparse.encode(torch.ones(3))": "(3,)",
    "NofMPacked.encode([1.0])": "list",
    "Magnitude(0.5)": "got pattern 0.5",
    "Refit(0.5)": "got pattern 0.5",
    "Refit(SparseGPT)": "SparseGPT'>; expected one such as Unstructured(0.5)",
    "SparseGPT(0.5)": "got pattern 0.5",
    "SparseSwaps('2:4')": "got pattern '2:4'",
    "SparseSwaps(start='wanda')": "got start 'wanda'",
    "Refit(chooser='wanda')": "got chooser 'wanda'",
    "RoundToNearest(4)": "got pattern 4",
    "RoundToNearest(quantization=4)": "got quantization 4",
    "SparseGPT(quantization=4)": "got quantization 4",
    "gptq(4)": "got quantization 4",
    "gptq(None)": "got quantization None",
    "gptq(Quantization(4), damping='1 %').prune(weight, gram)": "got damping '1 %'",
    "gptq(Quantization(4), damping=True).prune(weight, gram)": "got damping True",
    "Quantization('4')": "bits='4'",
    "Quantization(3.5)": "bits=3.5",
    "Quantization(True)": "bits=True",
    "Quantization().grid([[1.0]])": "list",
    "Quantization().grid(torch.ones(3))": "(3,)",
    "Gram('8')": "n_inputs='8'",
    "Wanda().prune(weight, inputs)": "inputs of type Tensor",
    "Magnitude().prune(weight.tolist(), gram)": "weight is a list",
    "Wanda().prune(weight[0], gram)": "(8,)",
    "Wanda().score(weight.T, gram)": "(8, 3) with the Gram of 8 inputs",
    "SparseGPT().score(weight.T, gram)": "(8, 3) with the Gram of 8 inputs",
    "SparseSwaps().prune(weight.long(), gram)": "torch.int64",
    "Refit().prune(weight.to('meta'), gram)": "meta device",
    "speculate(model, [1, 2], 3, Lookup(97))": "ids as list",
    "speculate(model, ids, 3, Lookup(97))": "(2, 7)",
    "speculate(model, ids[0], 3, 'lookup')": "draft 'lookup'",
    "speculate(model, ids[0], 3.5, Lookup(97))": "n_new=3.5",
    "speculate(model, ids[0], 3, Lookup(97), temperature=None)": "temperature None",
    "speculate(model, ids[0], 3, Lookup(97), temperature=1.0, generator=0)": "generator 0",
    "steering(model, [[True]]).__enter__()": "columns list",
    "steering(model, ids).__enter__()": "(2, 7) torch.int64",
    "steering(model, ids > 3, [3]).__enter__()": "heads [3]",
    "steering(model, ids > 3, alpha='small').__enter__()": "alpha='small'",
    "delta_attention(model, '1', None).__enter__()": "theta='1'",
    "delta_attention(model, 1, None).__enter__()": "spread NoneType",
    "delta_attention(model, 1, key_spread(model, ids), 2.5).__enter__()": "window=2.5",
    "check('nothing.like.it', None)": "Its check contains the name",
    "FlexPrefill(gamma='0.9')": "got gamma '0.9'; expected a fraction of the attention",
    "FlexPrefill(gamma=None)": "got gamma None",
    "FlexPrefill(gamma=True)": "got gamma True",
    "FlexPrefill(gamma=math.nan)": "got gamma nan",
    "FlexPrefill(tau='a')": "got tau 'a'; expected a distance",
    "FlexPrefill(tau=math.nan)": "got tau nan",
    "FlexPrefill(min_budget=math.nan)": "got min_budget nan; expected a whole number of tokens",
    "FlexPrefill(min_budget=2.5)": "got min_budget 2.5",
    "FlexPrefill(block_size=2.5)": "got block_size 2.5; expected a whole number of tokens, 1 or more",
    "FlexPrefill(block_size=True)": "got block_size True",
    "FlexPrefill(block_size=math.nan)": "got block_size nan",
    "SinkAndWindow(density='half')": "got density 'half'",
    "SinkAndWindow(density=True)": "got density True",
    "RandomBlocks(seed=None)": "got seed None; expected a whole number",
    "RandomBlocks(seed=1.5)": "got seed 1.5",
    "coverage(three[:, :5], three[:, :5], index, 1.0)": "got an index of 2 heads and 8 tokens for queries (2, 5, 2)",
    "coverage(three, three, index, 1.0, n_last=0)": "got n_last 0; expected a whole number of queries, 1 or more",
    "coverage(three, three, index, 1.0, n_last=-3)": "got n_last -3",
    "prefilling(None, FlexPrefill()).__enter__()": "got a NoneType for a model",
    "steering(None, ids > 3).__enter__()": "got a NoneType",
    "steering(model, ids > 3, spare_first='no').__enter__()": "got spare_first 'no'; expected True or False",
    "windowed(model, 2.5).__enter__()": "got window 2.5",
    "windowed(model, 2, sinks=None).__enter__()": "got sinks None",
    "speculate(model, ids[0].int() * 1.0, 3, Lookup(97))": "got ids of type torch.float32 from 0.0 to 6.0",
    "speculate(model, ids[0] + 97, 3, Lookup(97))": "got ids of type torch.int64 from 97 to 103; expected",
    "speculate(model, ids[0], 3, Lookup(97), stop=2)": "got stop=2; expected a collection of token ids",
    "speculate(model, ids[0], 3, Lookup(97), temperature=True)": "got temperature True",
    "Lookup(97, longest=1.5)": "got longest 1.5",
    "recycled(Left(three, three, three), 5, side=1.5)": "got side 1.5; expected a whole number of patches",
    "evicting(None, Window(4)).__enter__()": "got a NoneType for a model; expected a causal language model",
    "evicting(torch.compile(model), Window(4)).__enter__()": "Give the model itself, which is its attribute",
    "Quantized(bits=True)": "got True bits",
    "h2o_oracle(model, '0.5', 0.1).__enter__()": "got shares heavy '0.5'",
    "contextual_heads(None, part_norms, 2).__enter__()": "got a NoneType",
    "skipping(None, [0]).__enter__()": "got a NoneType for a model",
    "GreedyTeal.fit_levels(Teal.fit(model, ids), model, ids, lowest=0.01, step=0.3)": "got step 0.3, after which",
    "GreedyTeal.fit_levels(Teal.fit(model, ids), model, ids, step='small')": "got step 'small'",
    "Decoder(tiny_model(0, 'llama'), 4)": "got a model of the family Llama",
    "SoftPrompt(vectors=[[1.0]], table='a')": "got vectors as list",
    "SoftPrompt(vectors=weight.long(), table='a')": "got vectors as torch.int64",
    "SoftPrompt(vectors=weight, table=None)": "table None",
    "prompting(None, SoftPrompt(vectors=weight, table='a')).__enter__()": "got a NoneType for a model",
    "from_json(None)": "got a recipe of type NoneType; expected JSON as a str or as bytes",
    "from_json({})": "got a recipe of type dict",
    "from_json('{\"\\ud800\": 1}')": "got a recipe with half a character (a lone surrogate) at place 2",
}
SCRIPT = """
import json, math, sys
import torch
from course_lib.attention.delta.apply import delta_attention
from course_lib.attention.delta.spread import key_spread
from course_lib.attention.speculative.decode import speculate
from course_lib.attention.speculative.draft import Lookup
from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.baselines import RandomBlocks, SinkAndWindow
from course_lib.attention.prefill.coverage import coverage
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.index import dense_index
from course_lib.attention.steering.steer import steering
from course_lib.attention.visual.recycle import Left, recycled
from course_lib.attention.windowed import windowed
from course_lib.compose.recipe import from_json
from course_lib.contextual.altered import skipping
from course_lib.contextual.attention.heads import contextual_heads, part_norms
from course_lib.contextual.execute.decode import Decoder
from course_lib.contextual.inputs.greedy_levels import GreedyTeal
from course_lib.contextual.inputs.teal import Teal
from course_lib.data.corpora import windows
from course_lib.kv.cache import evicting
from course_lib.kv.h2o_oracle import h2o_oracle
from course_lib.kv.policies.window import Window
from course_lib.kv.quantized import Quantized
from course_lib.measure.perplexity import perplexity
from course_lib.models import load_model, tiny_model
from course_lib.prompts.prompted import prompting
from course_lib.prompts.soft import SoftPrompt
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.refit import Refit
from course_lib.pruning.methods.sparse_swaps import SparseSwaps
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.quantization.gptq import RoundToNearest, gptq
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.formats import CSR, Bitmap, BlockSparse, Dense, NofMPacked
from course_lib.sparsity.patterns import NofM, Unstructured
from course_lib.workbook.catalogue import find
check = lambda name, function: find(name)
model, ids, tokenizer = tiny_model(), torch.arange(14).reshape(2, 7), lambda text, **settings: None
weight, inputs, gram = torch.randn(3, 8), torch.randn(20, 8), Gram(8)
gram.add(inputs)
three, index = torch.ones(2, 8, 2), dense_index(2, 8, 2)
said = {}
for call in json.loads(sys.argv[1]):
    try:
        eval(call)
        said[call] = ["nothing", ""]
    except Exception as error:
        said[call] = [type(error).__name__, str(error)]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    done = subprocess.run([sys.executable, "-c", SCRIPT, json.dumps(list(CALLS))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("call", CALLS)
def test_it_is_a_value_error_that_names_what_was_got(said, call):
    kind, message = said[call]
    assert kind == "ValueError", f"{kind}: {message}"
    assert CALLS[call] in message
    assert len(message.splitlines()) == 1
