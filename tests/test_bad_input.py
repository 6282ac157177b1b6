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
    "check('nothing.like.it', None)": "check below an exercise",
}
SCRIPT = """
import json, sys
import torch
from course_lib.attention.delta.apply import delta_attention
from course_lib.attention.delta.spread import key_spread
from course_lib.attention.speculative.decode import speculate
from course_lib.attention.speculative.draft import Lookup
from course_lib.attention.steering.steer import steering
from course_lib.data.corpora import windows
from course_lib.measure.perplexity import perplexity
from course_lib.models import load_model, tiny_model
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
