"""The bench of FlexPrefill end to end: all sides are right, wrong ones are seen, its sentence says what wins."""

import pytest
import torch
from course_lib.kernels.bench import sparse_prefill
from course_lib.kernels.timing.contest import Place
from course_lib.kernels.timing.rows import relative_errors

from course_lib.attention.prefill.index import dense_index
from course_lib.kernels import runtime
from course_lib.models import heads, tiny_model

pytestmark = [
    pytest.mark.skipif(runtime.INTERPRETED, reason="a bench refuses the interpreter"),
    pytest.mark.filterwarnings("ignore:.*without torch.compile"),  # a quick look does not compile
]


def contests():
    return list(
        sparse_prefill.contests(Place(torch.device("cpu"), torch.float32, True, torch.Generator().manual_seed(0)))
    )


def test_every_side_is_there_and_right():
    attention, whole = contests()
    expected = [sparse_prefill.DENSE, sparse_prefill.ALL, sparse_prefill.READ, sparse_prefill.CHOSEN]
    expected.append(sparse_prefill.FLEX)
    assert [side.name for side in attention.sides] == expected
    assert [side.name for side in whole.sides] == ["dense prefill", "sparse prefill"]
    assert attention.shape == (96, 2)
    for contest in (attention, whole):
        assert max(relative_errors(contest).values()) < sparse_prefill.TOLERANCE[torch.float32]


def test_an_index_that_reads_everything_is_a_wrong_side(monkeypatch):
    everything = dense_index(heads(tiny_model()).n_query, 96, 16)
    attention = contests()[0]
    monkeypatch.setattr(sparse_prefill, "_index", lambda rule, text: everything)
    errors = relative_errors(attention)
    assert min(errors[sparse_prefill.ALL], errors[sparse_prefill.CHOSEN]) > 0.01
    assert errors[sparse_prefill.READ] < 1e-5


def test_flex_attention_that_does_not_compile_is_absent_with_its_reason(monkeypatch):
    def refuses(*args, **kwargs):
        raise RuntimeError("No working C++ compiler found\nand more")

    monkeypatch.setattr(sparse_prefill, "flex_attention", refuses)
    attention = contests()[0]
    assert attention.absent == {sparse_prefill.FLEX: "No working C++ compiler found"}
    assert sparse_prefill.FLEX not in {side.name for side in attention.sides}


def test_what_is_recorded_is_what_attention_gets():
    model, ids = tiny_model(), torch.arange(3, 23)
    (query, keys, values), _ = sparse_prefill.recorded(model, ids, (0, 1))
    of = heads(model)
    assert query.shape == (of.n_query, 20, of.size)
    assert keys.shape == values.shape == (of.n_key_value, 20, of.size)
    assert not model.config._attn_implementation.startswith("course_")


def test_the_closing_sentence():
    row = {"contest": "2048 tokens, γ 0.9, density 0.50", "repetitions": 5, "times_anchor": 1.3}
    won = row | {"side": sparse_prefill.ALL, "times_anchor_low": 1.1}
    lost = row | {"side": "sparse prefill", "times_anchor_low": 0.9}
    said = sparse_prefill.summary([won, lost])
    assert said == (
        "choose and read blocks, faster at: 2048 tokens, γ 0.9, density 0.50 (1.30 x). "
        "sparse prefill, faster at: none of these."
    )
    loop = row | {"side": sparse_prefill.READ, "median_seconds": 0.3}
    flex = row | {"side": sparse_prefill.FLEX, "median_seconds": 0.4}
    assert sparse_prefill.summary([won, lost, loop, flex]) == (
        f"{said} flex_attention, 0.75 to 0.75 x as fast as the loop over the same blocks."
    )
