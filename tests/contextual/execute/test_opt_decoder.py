"""The decoder gives what transformers gives, dense and with chosen neurons; a race tells ways apart by their clock."""

import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

from course_lib.contextual.apply import contextual
from course_lib.contextual.execute import race as clocked
from course_lib.contextual.execute.choices import everything, known, oracle_sets, predicted
from course_lib.contextual.execute.decode import Decoder
from course_lib.contextual.execute.race import Lap, race
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.models import tiny_model

# float32 through two blocks, one token at a time against all at once
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture
def model(generator):
    model = tiny_model(architecture="opt")
    with torch.no_grad():
        for weight in model.parameters():  # also biases, which are zero at first
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return model.requires_grad_(False)


@pytest.fixture
def ids(generator):
    return torch.randint(97, (3, 11), generator=generator)


@pytest.fixture
def predictors():
    return tuple(Predictor(48, 6, 100, torch.Generator().manual_seed(block)) for block in range(2))


def logits(model, ids, selector=None):
    with torch.no_grad():
        if selector is None:
            return model(ids[None]).logits[0]
        with contextual(model, selector):
            return model(ids[None]).logits[0]


def test_dense(model, ids):
    decoder = Decoder(model, 11)
    for text in ids[:2]:  # the second begins anew
        torch.testing.assert_close(decoder.read(text, everything), logits(model, text), **CLOSE)
    assert decoder.n_read == 11


@pytest.mark.parametrize("density", [0.01, 0.37, 1.0])
def test_predicted_is_the_selector_s(model, ids, predictors, density):
    found = Decoder(model, 11).read(ids[0], predicted(predictors, density))
    torch.testing.assert_close(found, logits(model, ids[0], DejaVu(predictors=predictors, density=density)), **CLOSE)


def test_the_oracle_is_the_selector_s_and_reads_no_zeros(model, ids):
    decoder = Decoder(model, 11)
    sets = oracle_sets(decoder, ids[0], 0.2)
    assert [len(of_token) for of_token in sets] == [2] * 11
    assert all(0 < len(index) <= 20 for of_token in sets for index in of_token)
    found = decoder.read(ids[0], known(sets))
    torch.testing.assert_close(found, logits(model, ids[0], Oracle(density=0.2)), **CLOSE)
    whole = oracle_sets(decoder, ids[0], 1.0)
    assert max(len(index) for of_token in whole for index in of_token) < 100  # behind a ReLU some are zero
    torch.testing.assert_close(decoder.read(ids[0], known(whole)), logits(model, ids[0]), **CLOSE)


def test_above_the_break_even_the_decoder_is_dense(model, ids, predictors):
    found = Decoder(model, 11, break_even=0.1).read(ids[0], predicted(predictors, 0.2))
    torch.testing.assert_close(found, logits(model, ids[0]), **CLOSE)


def test_a_race_by_a_clock_that_counts(model, ids, predictors, monkeypatch):
    """Reading takes one second a call of the clock, and nothing else does: dense 1 s, the others as they are told."""
    now = [0.0]
    monkeypatch.setattr(clocked.time, "perf_counter", lambda: now[0])
    decoder, took, order = Decoder(model, 11), {"dense": 3.0, "predicted": 2.0}, []
    read = decoder.read

    def slow(text, choose):
        way = "dense" if choose is everything else "predicted"
        order.append(way)
        now[0] += took[way]
        return read(text, choose)

    decoder.read = slow
    choose = predicted(predictors, 0.3)
    laps = race(decoder, ids, {"dense": lambda text: everything, "predicted": lambda text: choose})
    assert order == ["dense", "predicted", "predicted", "dense", "dense", "predicted"]
    assert [(lap.way, lap.seconds, lap.times_faster) for lap in laps] == [
        ("dense", [3.0] * 3, 1.0),
        ("predicted", [2.0] * 3, 1.5),
    ]
    assert laps[1].tokens_per_second(10) == 5
    expected = [cross_entropy(logits(model, text[:-1]), text[1:]).item() for text in ids]
    assert laps[0].losses == pytest.approx(expected, rel=1e-4)
    assert laps[0].loss == pytest.approx(sum(expected) / 3, rel=1e-4)
    assert laps[1].losses != pytest.approx(expected, rel=1e-4)


def test_the_median_of_pairs_is_no_ratio_of_medians():
    lap = Lap("a", [1.0, 10.0, 2.0], [1.0, 2.0, 6.0], 1.0)
    assert (lap.loss, lap.tokens_per_second(20)) == (3.0, 10.0)


@pytest.mark.parametrize(
    "setting", [{"do_layer_norm_before": False}, {"enable_bias": False}, {"word_embed_proj_dim": 24}]
)
def test_an_opt_that_is_built_otherwise_is_refused(setting, model):
    config = transformers.OPTConfig(**model.config.to_dict() | setting)
    [name] = setting
    with pytest.raises(ValueError, match=f"got a OPTForCausalLM with {name}={setting[name]}"):
        Decoder(transformers.OPTForCausalLM(config).eval(), 8)


def test_bad_input(model, ids, predictors):
    with pytest.raises(ValueError, match="family Llama"):
        Decoder(tiny_model(), 8)
    with pytest.raises(ValueError, match="windows of 4000 tokens; expected at most 256"):
        Decoder(model, 4000)
    with pytest.raises(ValueError, match="at most 8"):
        Decoder(model, 8).read(ids[0], everything)
    with pytest.raises(ValueError, match="density"):
        predicted(predictors, 0.0)
    with pytest.raises(ValueError, match="density"):
        oracle_sets(Decoder(model, 11), ids[0], 1.01)
    for ways, windows in (({}, ids), ({"dense": lambda text: everything}, ids[:, :1])):
        with pytest.raises(ValueError, match="two tokens or more"):
            race(Decoder(model, 11), windows, ways)
