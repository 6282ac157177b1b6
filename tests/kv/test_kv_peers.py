"""The tokens that kvpress keeps, frozen as a fixture: fixtures/make_kvpress.py says how it was made."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from kv_naive import run

from course_lib.kv.cache import evicting
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.snapkv import SnapKV
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.tova import TOVA

FIXTURES = Path(__file__).parent / "fixtures"
FROZEN = json.loads((FIXTURES / "kvpress.json").read_text(encoding="utf-8"))


def script():
    """The functions of the script that made the fixture."""
    spec = importlib.util.spec_from_file_location("make_kvpress", FIXTURES / "make_kvpress.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = script()
POLICIES = {
    "H2O": lambda budget: H2O(budget, recent=0, normalised=True),
    "SnapKV": lambda budget: SnapKV(budget, recent=MADE.WINDOW, kernel=MADE.KERNEL),
    "StreamingLLM": lambda budget: StreamingLLM(budget, sinks=MADE.SINKS),
    "TOVA": lambda budget: TOVA(budget),
}


@pytest.mark.parametrize("row", FROZEN["rows"], ids=lambda row: f"{row['policy']}-{row['ratio']}")
def test_the_same_tokens_stay_as_in_kvpress(row):
    ids = torch.tensor(FROZEN["ids"])
    assert torch.equal(ids, MADE.random_ids())
    policy = POLICIES[row["policy"]](max(1, int(ids.shape[1] * (1 - row["ratio"]))))
    model = MADE.random_model()
    with evicting(model, policy) as cache:
        run(model, cache, ids, range(ids.shape[1]))
    assert [slots.position.sort(dim=2).values.tolist() for slots in cache.slots] == row["kept"]
