"""The bench of experts: all sides are right, bytes are of the experts awake, the summary says what was measured."""

import pytest
import torch
from course_lib.kernels.bench import moe
from course_lib.kernels.timing.contest import Place
from course_lib.kernels.timing.rows import relative_errors

from course_lib.kernels import runtime

pytestmark = pytest.mark.skipif(runtime.INTERPRETED, reason="a bench refuses the interpreter")


@pytest.fixture(scope="module")
def contests():
    return list(moe.contests(Place(torch.device("cpu"), torch.float32, True, torch.Generator().manual_seed(0))))


def test_every_side_is_there_and_right(contests):
    assert [contest.shape for contest in contests] == [(1, 4), (8, 4), (1, 8), (8, 8)]
    for contest in contests:
        names = [side.name for side in contest.sides]
        assert names == [moe.TWIN, "all experts", "sorted loop over experts", moe.LAYER] + [
            f"transformers, {way}" for way in ("eager", "grouped_mm")
        ]
        assert contest.absent == {}
        assert max(relative_errors(contest).values()) < 1e-5


def test_one_token_reads_two_experts_and_the_twin_as_much(contests):
    """Beside them a gate of 8 x 16 and a token of 16, in and out, in float32."""
    (layer,) = (side.work for side in contests[2].sides if side.name == moe.LAYER)
    twin, everything = contests[2].sides[0].work, contests[2].sides[1].work
    assert layer.bytes == 4 * (2 * 3 * 16 * 24 + 8 * 16 + 2 * 16)
    assert twin.bytes == 4 * (2 * 3 * 16 * 24 + 2 * 16)
    assert everything.bytes - layer.bytes == 4 * 6 * 3 * 16 * 24
    assert twin.flops == 2 * 2 * 3 * 16 * 24
    assert "One token, 2 of 8 experts awake" in contests[2].name


def test_the_summary_says_what_was_measured():
    eight = {"side": moe.LAYER, "repetitions": 5, "contest": "8 tokens, 7 of 8", "times_anchor": 0.25, "bytes": 350}
    eight["shape"] = [8, 8]
    one = eight | {"contest": "One token, 2 of 8", "times_anchor": 0.8, "bytes": 100, "shape": [1, 8]}
    twins = [row | {"side": moe.TWIN, "times_anchor": 1.0, "bytes": 100} for row in (eight, one)]
    said = moe.summary([one, eight, *twins])
    assert "8 tokens, 7 of 8: 4.00 x the time of the dense MLP, 3.5 x its bytes." in said
    assert "One token, 2 of 8: 1.25 x the time of the dense MLP, 1.0 x its bytes." in said
    assert "Few tokens use most experts: 8 tokens, 7 of 8, 3.5 x the bytes of the dense MLP for the same" in said
    assert said.endswith("The largest ratio of times is at 8 tokens, 7 of 8.")
    assert moe.summary([eight | {"repetitions": 0}, *twins]) == "'grouped product' was not timed."


def test_no_rounding_changes_the_experts_of_a_token():
    """Of 512 tokens drawn as they come, bfloat16 sends some to other experts than float64 does; of these, none."""
    place = Place(torch.device("cpu"), torch.bfloat16, True, torch.Generator().manual_seed(0))
    layer = moe._layer(place, 16, 4, 32)

    def n_changed(tokens):
        rounded, exact = tokens @ layer.gate.T, tokens.double() @ layer.gate.double().T
        chosen = [products.topk(moe.K).indices.sort().values for products in (rounded, exact)]
        return int((chosen[0] != chosen[1]).any(dim=-1).sum())

    assert n_changed(place.randn(512, 16)) > 0
    decided = moe._decided(place, layer, 512)
    assert decided.shape == (512, 16)
    assert n_changed(decided) == 0
